"""What instances of a statement access: relations of its subscripts, and the conditions on them.

    Y(i) = i > 0 ? X(i - 1) : 0    --->    { S[i] -> X[i - 1] : i > 0 }

A subscript that is affine in indices and sizes is exact; of any other (``X(I(i))``) the relation
has all elements along that dimension.
"""

from collections.abc import Mapping, Sequence

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import Expr, Index, IndexBounds
from tcdsl.lang.ranges.affine import Builder, instance_space
from tcdsl.lang.types.dtypes import BOOL
from tcdsl.poly.isl_utils import (
    Extent,
    map_from_functions,
    on_space,
    plus,
    val,
    within_bounds,
)
from tcdsl.poly.scop import Access, AlignmentShift, Array, Kind, Statement
from tcdsl.source import Span

Bounds = tuple[Extent, Extent]  # [lower, upper)
Guards = tuple[Expr, ...]


def builder_of(indices: tuple[str, ...], name: str, sizes: Mapping[str, int | None]) -> Builder:
    """Return a builder of affine expressions over the instances ``name[indices]``."""
    return Builder(instance_space(indices, name, sizes), sizes)


def box(builder: Builder, indices: tuple[str, ...], bounds: Mapping[str, Bounds]) -> isl.Set:
    """Return the instances whose every index lies within its bounds."""
    domain = isl.Set.universe(builder.space)
    for position, name in enumerate(indices):
        domain = within_bounds(domain, position, *bounds[name])
    return domain


def affine_range(builder: Builder, bounds: IndexBounds) -> isl.Set:
    """Return the instances whose index is in the affine range *bounds*."""
    lower, upper = builder.affine(bounds.lower), builder.affine(bounds.upper)
    index = builder.affine(Index(bounds.index))
    assert lower is not None and upper is not None and index is not None
    return index.ge_set(lower).intersect(index.lt_set(upper))


def access(
    builder: Builder,
    array: str,
    subscripts: tuple[Expr, ...],
    arrays: Mapping[str, Array],
    domain: isl.Set,
) -> Access:
    """Return the access of *domain*'s instances to ``array(subscripts)``.

    Where a subscript is not affine, any element within the array's extent may be meant.
    """
    functions = [builder.affine(subscript) for subscript in subscripts]
    relation = map_from_functions(builder.space, functions, array)
    inexact = frozenset(d for d, function in enumerate(functions) if function is None)
    if inexact:
        relation = relation.intersect_range(_elements(relation, arrays[array], inexact))
    return Access(array, subscripts, relation.intersect_domain(domain), inexact)


def _elements(relation: isl.Map, array: Array, dims: frozenset[int]) -> isl.Set:
    """Return the elements that lie in *array* along *dims*."""
    elements = isl.Set.universe(relation.get_space().range())
    for dim in dims:
        origin, extent = array.origin[dim], array.shape[dim]
        elements = within_bounds(elements, dim, origin, plus(origin, extent))
    return elements


def elements_in(array: Array, space: isl.Space) -> isl.Set:
    """Return the elements of *array*, in *space*: its box, or of that its rows."""
    elements = isl.Set.universe(space)
    for dim, (origin, extent) in enumerate(zip(array.origin, array.shape, strict=True)):
        elements = within_bounds(elements, dim, origin, plus(origin, extent))
    if array.shift is None:
        return elements
    local = isl.LocalSpace.from_space(space)
    variables = [
        isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, dim))
        for dim in range(array.rank)
    ]
    first = row_start(array.shift, variables[:-1])
    last = variables[-1]
    end = first.add(on_space(array.shift.length, space))
    return elements.intersect(last.ge_set(first)).intersect(last.lt_set(end))


def row_start(shift: AlignmentShift, row: Sequence[isl.PwAff]) -> isl.PwAff:
    """Return by how much the *row* begins after the start of a vector, a function as these are."""
    terms = [f.scale_val(val(factor)) for f, factor in zip(row, shift.factors, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = total.add(term)
    return total.mod_val(val(shift.width))


def guarded_loads(*exprs: Expr) -> dict[tuple[str, tuple[Expr, ...]], list[Guards]]:
    """Return the loads in *exprs*, each with the conditions under which it runs.

    A load that stands several times has several alternatives; () means that it always runs.
    """
    found: dict[tuple[str, tuple[Expr, ...]], list[Guards]] = {}
    stack: list[tuple[Expr, Guards]] = [(expr, ()) for expr in reversed(exprs)]
    while stack:
        expr, guards = stack.pop()
        if isinstance(expr, tc.Load):
            alternatives = found.setdefault((expr.tensor, expr.subscripts), [])
            if guards not in alternatives:
                alternatives.append(guards)
        for child, extra in reversed(_lazily(expr)):
            stack.append((child, (*guards, *extra)))
    return found


def _lazily(expr: Expr) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """Return the operands of *expr*, each with the conditions under which it is evaluated."""
    match expr:
        case tc.Select(condition=condition, if_true=if_true, if_false=if_false):
            negated = tc.Unary("!", condition, BOOL)
            return [(condition, ()), (if_true, (condition,)), (if_false, (negated,))]
        case tc.Binary(op="&&", left=left, right=right):
            return [(left, ()), (right, (left,))]
        case tc.Binary(op="||", left=left, right=right):
            return [(left, ()), (right, (tc.Unary("!", left, BOOL),))]
        case _:
            return [(child, ()) for child in tc.children(expr)]


def first_load(expr: Expr) -> tc.Load | None:
    """Return the outermost load in *expr*, of several the first."""
    return next((node for node in tc.walk(expr) if isinstance(node, tc.Load)), None)


def spans_of_loads(*exprs: Expr) -> dict[tuple[str, tuple[Expr, ...]], Span]:
    """Return where each load in *exprs* stands first."""
    loads = [node for expr in exprs for node in tc.walk(expr) if isinstance(node, tc.Load)]
    return {(load.tensor, load.subscripts): load.span for load in reversed(loads)}


def guarded_reads(
    builder: Builder, domain: isl.Set, exprs: tuple[Expr, ...], arrays: Mapping[str, Array]
) -> tuple[Access, ...]:
    """Return the reads of *exprs*, each where the conditions around it may hold."""
    accesses = []
    for (array, subscripts), alternatives in guarded_loads(*exprs).items():
        runs = isl.Set.empty(domain.get_space())
        for guards in alternatives:
            where = domain
            for guard in guards:
                where = where.intersect(builder.truth(guard).above)
            runs = runs.union(where)
        accesses.append(access(builder, array, subscripts, arrays, runs.coalesce()))
    return tuple(accesses)


def evaluated(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that an instance of *statement* evaluates."""
    if statement.kind is Kind.CHECK:
        ends = statement.checked_range
        bounds = () if ends is None else (ends.lower, ends.upper)
        return (*statement.conditions, *(expr for _, expr in statement.checked), *bounds)
    value = () if statement.value is None else (statement.value,)
    return (*statement.write.subscripts, *value, *statement.conditions)
