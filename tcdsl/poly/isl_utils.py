"""What isl's interface lacks: sets from names, boxes, options of a block, bounded work.

All objects live in islpy's default context, and the interpreter lock serialises its use; options
and quotas belong to the whole context, so that compilations hold ``COMPILE_LOCK``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import TypeVar

import islpy as isl

from tcdsl.lang.ranges.isl_bounds import ISL_LOCK
from tcdsl.lang.ranges.isl_bounds import QuotaExceededError as QuotaExceededError
from tcdsl.lang.ranges.isl_bounds import bounded as bounded

Extent = int | isl.PwAff  # a number, or a function of the open sizes: [N] -> { [(f)] }

COMPILE_LOCK = ISL_LOCK


@contextmanager
def isl_options(**values: int) -> Iterator[None]:
    """Set options of the context (``tile_scale_tile_loops=0``) for the length of the block."""
    context = isl.DEFAULT_CONTEXT
    before = {name: getattr(context, f"get_{name}")() for name in values}
    for name, value in values.items():
        getattr(context, f"set_{name}")(value)
    try:
        yield
    finally:
        for name, value in before.items():
            getattr(context, f"set_{name}")(value)


def val(number: int) -> isl.Val:
    """Return *number* as an isl value."""
    return isl.Val.int_from_si(isl.DEFAULT_CONTEXT, number)


Bounded = TypeVar("Bounded", isl.Set, isl.Map)


def within(relation: Bounded, kind: isl.dim_type, dim: int, low: int, high: int) -> Bounded:
    """Return the part of *relation* where dimension *dim* lies in ``[low, high]``."""
    return relation.lower_bound_val(kind, dim, val(low)).upper_bound_val(kind, dim, val(high))


def within_bounds(values: isl.Set, dim: int, low: Extent, end: Extent) -> isl.Set:
    """Return the part of *values* where dimension *dim* lies in ``[low, end)``, numbers or not.

    Where a bound is a function of the parameters that is undefined, the part is empty.
    """
    kind = isl.dim_type.set
    if isinstance(low, int) and isinstance(end, int):
        return within(values, kind, dim, low, end - 1)
    local = isl.LocalSpace.from_space(values.get_space())
    own = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, kind, dim))
    values = values.intersect(own.ge_set(on_space(low, values.get_space())))
    return values.intersect(own.lt_set(on_space(end, values.get_space())))


def on_space(value: Extent, space: isl.Space) -> isl.PwAff:
    """Return *value*, a number or a function of the parameters, as a function on *space*."""
    if isinstance(value, int):
        local = isl.LocalSpace.from_space(space)
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(local, val(value)))
    return value.insert_domain(space)


def plus(one: Extent, other: Extent) -> Extent:
    """Return ``one + other``."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, int):
        one, other = other, one
    assert isinstance(one, isl.PwAff)
    return one.add_constant_val(val(other)) if isinstance(other, int) else one.add(other)


def minus(one: Extent, other: Extent) -> Extent:
    """Return ``one - other``."""
    return plus(one, -other if isinstance(other, int) else other.neg())


def times(one: Extent, factor: int) -> Extent:
    """Return ``factor * one``."""
    return one * factor if isinstance(one, int) else one.scale_val(val(factor))


def quotient(one: Extent, divisor: int) -> Extent:
    """Return ``one // divisor``, rounded down."""
    return one // divisor if isinstance(one, int) else one.scale_down_val(val(divisor)).floor()


def whole_tiles(end: Extent, size: int, first: int = 0) -> Extent:
    """Return the end of the tiles of *size* values, from *first* on, that reach *end*."""
    if isinstance(end, int):
        return first - (first - end) // size * size
    count = plus(end, size - 1 - first)
    assert isinstance(count, isl.PwAff)
    found = plus(times(quotient(count, size), size), first)
    assert isinstance(found, isl.PwAff)
    most = greatest(found)  # one tile is no function of the size
    return found if most is None or not found.min_val().eq(val(most)) else most


def greatest(extent: Extent) -> int | None:
    """Return the greatest value of *extent*, None if it has none: open sizes may be bounded."""
    if isinstance(extent, int):
        return extent
    value = extent.max_val()
    return int(value.to_python()) if value.is_int() else None


def divisor_of(extent: Extent) -> int:
    """Return a number that divides *extent*, whatever the open sizes are: of whole tiles theirs."""
    if isinstance(extent, int):
        return extent
    found = 0
    for _, aff in extent.get_pieces():
        numbers = [aff.get_constant_val()]
        for kind in (isl.dim_type.param, isl.dim_type.div):
            numbers += [aff.get_coefficient_val(kind, n) for n in range(aff.dim(kind))]
        found = gcd(found, *[int(n.to_python()) if n.is_int() else 1 for n in numbers])
    return found or 1


def rest_of(extent: Extent, divisor: int) -> int | None:
    """Return ``extent % divisor``, None unless it is one number whatever the open sizes are."""
    if isinstance(extent, int):
        return extent % divisor
    rests: set[int] = set()
    for _, aff in extent.get_pieces():
        factors = [
            aff.get_coefficient_val(kind, n)
            for kind in (isl.dim_type.param, isl.dim_type.div)
            for n in range(aff.dim(kind))
        ]
        constant = aff.get_constant_val()
        if not constant.is_int() or any(not n.mod(val(divisor)).is_zero() for n in factors):
            return None
        rests.add(constant.to_python() % divisor)
    return rests.pop() if len(rests) == 1 else None


def least(one: Extent, other: Extent) -> Extent:
    """Return the smaller of *one* and *other*."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    if isinstance(one, int):
        one, other = other, one
    assert isinstance(one, isl.PwAff)
    if isinstance(other, int):
        other = on_params(other, one)
    return one.min(other).coalesce()


def on_params(value: int, like: isl.PwAff) -> isl.PwAff:
    """Return *value* as a constant function of the parameters, where *like* is one."""
    local = isl.LocalSpace.from_space(like.get_domain_space())
    return isl.PwAff.from_aff(isl.Aff.val_on_domain(local, val(value)))


def dim_bounds(values: isl.Set, dim: int, context: isl.Set) -> tuple[Extent, Extent]:
    """Return ``(low, end)``: the values of dimension *dim* lie in ``[low, end)``; of none, (0, 0).

    Numbers where they do not depend on the parameters in *context*.  For parameters without any
    values they may say anything: who makes a box of them intersects it with ``values.params()``.
    """
    if values.is_empty():
        return 0, 0
    low = number_if_constant(values.dim_min(dim), context)
    return low, plus(number_if_constant(values.dim_max(dim), context), 1)


def number_if_constant(function: isl.PwAff, context: isl.Set) -> Extent:
    """Return the value of *function* if it is one number in *context* wherever it is defined.

    A function that is one quasi-affine expression there becomes that expression everywhere; where
    the open sizes are bounded it stays one of these values, so that it has a greatest value.
    """
    there = function.intersect_params(context).coalesce()
    function = there.gist_params(context)
    pieces = [aff for _, aff in function.get_pieces()]
    if any(not aff.plain_is_equal(pieces[0]) for aff in pieces):
        return there if are_bounded(context) else function
    only = pieces[0]
    if only.is_cst():
        return int(only.get_constant_val().to_python())
    one = isl.PwAff.from_aff(only)
    return one.intersect_params(context) if are_bounded(context) else one


def is_unbounded(context: isl.Set) -> bool:
    """Return whether a parameter has no greatest value in *context*."""
    return context.dim(isl.dim_type.param) > 0 and not are_bounded(context)


def are_bounded(context: isl.Set) -> bool:
    """Return whether every parameter has a greatest value in *context*, and there is one."""
    local = isl.LocalSpace.from_space(context.get_space())
    params = range(context.dim(isl.dim_type.param))
    functions = (
        isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.param, position))
        for position in params
    )
    return bool(params) and all(
        function.intersect_params(context).max_val().is_int() for function in functions
    )


def map_from_functions(
    domain: isl.Space, functions: Sequence[isl.PwAff | None], name: str
) -> isl.Map:
    """Return { domain -> name[f0, f1, ...] }; a function that is None leaves its dimension free."""
    space = domain.map_from_domain_and_range(
        isl.Space.create_from_names(
            isl.DEFAULT_CONTEXT, set=[f"e{d}" for d in range(len(functions))]
        )
        .align_params(domain)
        .set_tuple_name(isl.dim_type.set, name)
    )
    relation = isl.Map.universe(space)
    for position, function in enumerate(functions):
        if function is None:
            continue
        one = isl.Map.from_pw_aff(function)
        # { S[i] -> [f] } placed at dimension *position* of the range.
        widened = one.insert_dims(isl.dim_type.out, 0, position).insert_dims(
            isl.dim_type.out, position + 1, len(functions) - position - 1
        )
        relation = relation.intersect(widened.set_tuple_name(isl.dim_type.out, name))
    return relation


def constant_bounds(values: isl.Set, dim: int) -> tuple[int, int] | None:
    """Return the least and largest value of dimension *dim*, None if empty or unbounded."""
    if values.is_empty():
        return None
    low, high = values.dim_min_val(dim), values.dim_max_val(dim)
    if not (low.is_int() and high.is_int()):
        return None
    return low.to_python(), high.to_python()


def along(relation: isl.Map, dim: int) -> isl.Map:
    """Return { [i] -> [e_dim] } of ``relation: { [i] -> A[e] }``."""
    rank = relation.dim(isl.dim_type.out)
    one = relation.project_out(isl.dim_type.out, dim + 1, rank - dim - 1)
    return one.project_out(isl.dim_type.out, 0, dim).reset_tuple_id(isl.dim_type.out)


def points_of_box(values: isl.Set) -> int | None:
    """Return how many points the box around *values* has, None if it depends on open sizes."""
    if values.is_empty():
        return 0
    points = 1
    for dim in range(values.dim(isl.dim_type.set)):
        bounds = constant_bounds(values, dim)
        if bounds is None:
            return None
        points *= bounds[1] - bounds[0] + 1
    return points


def schedule_text(schedule: isl.Schedule) -> str:
    """Return *schedule* as isl writes it, a line a node."""
    printer = isl.Printer.to_str(isl.DEFAULT_CONTEXT).set_yaml_style(isl.yaml_style.BLOCK)
    text: str = printer.print_schedule(schedule).get_str()
    return text
