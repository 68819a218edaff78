"""Accumulators in the reduction's type, for results that do not hold what is accumulated.

T[e] op= f    --->    W[e] = T[e] or the identity;  W[e] op= f;  T[e] = W[e]
"""

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import Index, Operator, are_indices
from tcdsl.lang.types.dtypes import INT64, DType
from tcdsl.poly.accesses import Bounds, access, builder_of
from tcdsl.poly.scop import Array, Kind, Statement, Storage, loads_of


def needs_wide_accumulators(
    statement: tc.Statement, arrays: Mapping[str, Array], bounds: Mapping[str, Bounds]
) -> bool:
    """Return whether results would be rounded to a narrow float at every term.

    They are if several instances of the left-hand indices write one element: where every element
    has instances of its own, a strategy gives them an accumulator in the reduction's type.  And a
    type without infinities cannot hold what a maximum or a minimum starts from, nor an integer
    without -1, or with less than all positions, the place of an extreme value.
    """
    if statement.reduction is None:
        return False
    ranges = (e for b in statement.data_ranges for e in (b.lower, b.upper))
    reads = loads_of(statement.value, *statement.conditions, *ranges)
    is_recurrence = any(load.tensor == statement.target for load in reads)
    if statement.reduction.operator.is_arg:
        places = _holds_places(arrays[statement.target].dtype, bounds[statement.reduced[0]])
        return not (places or is_recurrence)
    if arrays[statement.target].dtype == statement.reduction.dtype:
        return False
    is_plain = are_indices(statement.subscripts) and len(statement.subscripts) == statement.n_left
    of_data = {bounds.index for bounds in statement.data_ranges}
    is_plain = is_plain and of_data.isdisjoint(statement.left)
    holds_start = (
        statement.reduction.operator not in (Operator.MAX, Operator.MIN)
        or arrays[statement.target].dtype.has_infinities
    )
    return not ((is_plain and holds_start) or is_recurrence)


def _holds_places(dtype: DType, bounds: Bounds) -> bool:
    """Return whether *dtype* has -1 and every position within *bounds*."""
    if dtype == INT64:
        return True
    low, end = bounds
    if dtype.kind != INT64.kind or not (isinstance(low, int) and isinstance(end, int)):
        return False
    return end - low <= 1 << 8 * dtype.size_bytes - 1


def through_wide(
    lowered: list[Statement],
    statement: tc.Statement,
    sizes: Mapping[str, int | None],
    arrays: dict[str, Array],
) -> list[Statement]:
    """Let the updates of a narrow target run on a copy in the reduction's type, or of places."""
    assert statement.reduction is not None
    dtype = INT64 if statement.reduction.operator.is_arg else statement.reduction.dtype
    target = arrays[statement.target]
    wide = Array(
        f"{target.name}.wide.{statement.name}", dtype, target.origin, target.shape,
        Storage.SCRATCH,
    )  # fmt: skip
    arrays[wide.name] = wide
    *before, body = lowered
    touched = (before[-1] if statement.reduction.initialise else body).write.relation.range()
    elements = tuple(f"e{d}" for d in range(target.rank))
    subscripts = tuple(Index(name) for name in elements)

    def copy(name: str, to: Array, from_: Array) -> Statement:
        builder = builder_of(elements, name, sizes)
        domain = touched.set_tuple_name(name)
        load = tc.Load(from_.name, subscripts, from_.dtype)
        return Statement(
            name=name,
            domain=domain,
            indices=elements,
            n_left=len(elements),
            kind=Kind.ASSIGN,
            write=access(builder, to.name, subscripts, arrays, domain),
            value=load if from_ is wide else tc.Cast(load, wide.dtype),
            reads=(access(builder, from_.name, subscripts, arrays, domain),),
            reduction=None,
            source_name=statement.name,
            span=statement.span,
        )

    def on_wide(old: Statement) -> Statement:
        relation = old.write.relation.set_tuple_name(isl.dim_type.out, wide.name)
        return replace(old, write=replace(old.write, array=wide.name, relation=relation))

    if statement.reduction.initialise:
        before[-1] = on_wide(before[-1])
    else:
        before.append(copy(f"{statement.name}_init", wide, target))
    return [*before, on_wide(body), copy(f"{statement.name}_store", target, wide)]
