"""Statements that copy one element, and those that copy one where it is there and else zero."""

from dataclasses import dataclass

import islpy as isl

from tcdsl.lang.comprehension import Cast, Const, Expr, Load, Select
from tcdsl.poly.loop_tree import AnyCoordinate
from tcdsl.poly.scop import Kind, Statement


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
