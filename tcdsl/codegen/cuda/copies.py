"""Statements that copy one element, and those that copy one where it is there and else zero."""

from functools import reduce

import islpy as isl

from tcdsl.lang.comprehension import Cast, Const, Expr, Load, Select, conjuncts
from tcdsl.lang.ranges.affine import Builder
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.loop_tree import AnyCoordinate
from tcdsl.poly.scop import Array, Kind, Scop, Statement
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """What a statement copies, and the condition under which it is there, None if always."""

    load: Load
    condition: Expr | None = None


def copy_of(statement: Statement) -> Copy | None:
    """Return what *statement* copies, None if it does anything else."""
    if statement.kind is not Kind.ASSIGN or len(statement.reads) != 1 or statement.conditions:
        return None
    match statement.value:
        case Select(condition=condition, if_true=value, if_false=Const(value=0)):
            load = _uncast(value)
            return Copy(load, condition) if isinstance(load, Load) else None
        case value:
            load = _uncast(value)
            return Copy(load) if isinstance(load, Load) else None


@dataclass(frozen=True, slots=True)
class Guard:
    """When a copy's element is there: subscripts of *dims* are in the array, and *rest* holds."""

    dims: tuple[int, ...]
    rest: tuple[Expr, ...]


def guard_of(scop: Scop, statement: Statement, copy: Copy) -> Guard:
    """Return the condition of *copy*, by the bounds of its array where these imply it.

    The subscripts are computed in any case, in terms of the loops around them.
    """
    assert copy.condition is not None
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    array, domain = scop.arrays[copy.load.tensor], statement.domain
    inside = {
        dim: within
        for dim, subscript in enumerate(copy.load.subscripts)
        if (within := _within(builder, subscript, array, dim)) is not None
        and not domain.is_subset(within)
    }
    there = reduce(isl.Set.intersect, inside.values(), domain)
    needed = tuple(
        one for one in conjuncts(copy.condition) if not there.is_subset(builder.truth(one).below)
    )
    return Guard(tuple(inside), needed)


def _within(builder: Builder, subscript: Expr, array: Array, dim: int) -> isl.Set | None:
    """Return where *subscript* is in dimension *dim* of *array*, None if it cannot be told."""
    origin, extent = array.origin[dim], array.shape[dim]
    function = builder.affine(subscript)
    if function is None or not isinstance(origin, int) or not isinstance(extent, int):
        return None
    low, high = builder.constant(origin), builder.constant(origin + extent - 1)
    return function.ge_set(low).intersect(function.le_set(high))


def _uncast(expr: Expr | None) -> Expr | None:
    return expr.operand if isinstance(expr, Cast) else expr


def is_whole(statement: Statement, there: isl.Set, lane: AnyCoordinate) -> bool:
    """Return whether of each run of lanes all are *there* or none is."""
    space = statement.domain.get_space()
    start = isl.MultiAff.identity_on_domain_space(space)
    own = start.get_at(lane.position).sub(lane.function(space))
    first = isl.Map.from_multi_aff(start.set_at(lane.position, own))
    first = first.intersect_domain(statement.domain)
    return bool(first.intersect_range(there.apply(first)).domain().is_subset(there))
