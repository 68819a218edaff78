"""The oracle: what a comprehension means, in NumPy.

It knows no polyhedra and no code generator; ranges, origins and shapes come as plain numbers.

    for statement in source order:
        op=!  sets the hull of what the left side names to the operator's identity
        for instance in lexicographic order of the left-hand indices:
            if the indices are in their ranges and the where clauses hold:
                target(subscripts) op= value

The inner loop is vectorised over grids of instances of at most ``GRID`` elements, unless a
statement reads elements of its own target that other instances write: then it runs one left-hand
instance after another.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic

import numpy as np

from tcdsl.errors import OUT_OF_RANGE
from tcdsl.interp.arithmetic import Accumulator, Arithmetic, Array, Plain, V, identity
from tcdsl.interp.instances import Box, Instances, boxes, corners, grid, is_sequential
from tcdsl.interp.segments import Batch, Rows, bounds_of, checked_instances, is_listed, listed
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Comprehension,
    Const,
    Expr,
    Index,
    IndexBounds,
    Load,
    Operator,
    Select,
    Size,
    Specialisation,
    Statement,
    Unary,
    are_indices,
    multiplied,
    walk,
)
from tcdsl.lang.faults import data_range_error, element_text, origin_text
from tcdsl.lang.ranges.data_ranges import checked_with, clause_text, is_scattered
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.types.dtypes import BOOL, INT64, UINT64, DType
from tcdsl.lang.types.index_values import exact_subscript, with_exact_indices
from tcdsl.records import dataclass
from tcdsl.source import Span

# Instances at once: temporaries of 2 MB stay in a processor's cache, and with the allocator.  An
# exp(x - t) with its sums and bounds took 4 times as long with 1 << 22 (float32; float64: 2.6).
GRID = 1 << 18


def evaluate(
    c: Comprehension,
    s: Specialisation,
    inputs: Mapping[str, Array],
    out: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Return the outputs of *c* at the sizes of *s*.

    *out* holds the first values of the tensors that are ``needs_out``.

    :raises LaunchError: TC080, an index out of range.
    """
    return interpret(c, s, inputs, out or {}, Plain())


def interpret(
    c: Comprehension,
    s: Specialisation,
    inputs: Mapping[str, Any],
    out: Mapping[str, Any],
    arithmetic: Arithmetic[V],
) -> dict[str, V]:
    """Return the outputs of *c*, computed by *arithmetic*."""
    stores: dict[str, V] = {}
    for name, tensor in c.tensors.items():
        shape = s.shapes[name]
        start = inputs[name] if tensor.is_input else out[name] if tensor.needs_out else 0
        assert np.shape(start) in ((), shape), f"{name} has shape {np.shape(start)}, not {shape}"
        # A copy, in C order; at least one element, so that a clipped subscript always has one.
        values = np.zeros(max(1, math.prod(shape)), tensor.dtype.numpy)
        values[: math.prod(shape)] = np.broadcast_to(start, shape).reshape(-1)
        stores[name] = arithmetic.exact(values, tensor.dtype)
    machine = Machine(with_exact_indices(c), s, arithmetic, stores)
    with np.errstate(all="ignore"):
        for statement, ranges in zip(machine.c.statements, s.ranges, strict=True):
            check_data_ranges(machine, statement, ranges)
            run(machine, statement, tuple(ranges[index] for index in statement.indices))
    return {name: whole(machine, name) for name in c.outputs}


@dataclass(frozen=True, slots=True)
class Machine(Generic[V]):
    """The program, its sizes, and what all tensors hold, each flat in C order."""

    c: Comprehension
    s: Specialisation
    arithmetic: Arithmetic[V]
    stores: dict[str, V]


def whole(m: Machine[V], name: str) -> V:
    """Return the tensor *name* in its own shape."""
    shape = m.s.shapes[name]
    used = m.arithmetic.take(m.stores[name], slice(math.prod(shape)))
    return m.arithmetic.spread(used, (math.prod(shape),), shape)


def run(m: Machine[V], st: Statement, ranges: Box) -> None:
    """Run all instances of *st*."""
    if st.reduction is not None and st.reduction.initialise:
        initialise(m, st, ranges[: st.n_left])
    left, reduced = ranges[: st.n_left], ranges[st.n_left :]
    if st.reduction is None and is_listed(st):
        assign(m, st, left)
    elif st.reduction is None:
        for box in boxes(left, 1 if is_sequential(st) else GRID):
            assign(m, st, box)
    elif is_sequential(st):
        for point in boxes(left, 1):
            # One element must not cost a pass over its whole tensor.
            nowhere = replace(grid(st.left, point), active=np.zeros((), bool))
            fold(m, st, (*point, *reduced), position(m, st, nowhere)[0])
    else:
        fold(m, st, ranges, None)


def assign(m: Machine[V], st: Statement, box: Box) -> None:
    """Run the instances of *box* of a statement without a reduction."""
    a, store = m.arithmetic, m.stores[st.target]
    for batch in batches(m, st, box):
        instances, value = terms(m, st, batch)
        active = np.broadcast_to(instances.active, instances.shape)
        elements, doubt = position(m, st, replace(instances, active=active))
        value = a.cast(value, st.value.dtype, m.c.tensors[st.target].dtype)
        last = last_writes(elements, active.reshape(-1))
        a.put(store, elements[last], a.take(a.spread(value, instances.shape, (-1,)), last))
        if doubt.any():  # an element may be any other: nothing is certain of the tensor
            a.put(store, slice(None), a.blurred(store, np.ones((), bool)))


def fold(m: Machine[V], st: Statement, ranges: Box, only: Array | None) -> None:
    """Run the instances of *ranges* of a reduction, all on the element *only* if it is given."""
    assert st.reduction is not None
    a, store, target = m.arithmetic, m.stores[st.target], m.c.tensors[st.target]
    operator, window = st.reduction.operator, slice(None) if only is None else only
    dtype = target.dtype if operator.is_arg else st.reduction.dtype
    held = a.cast(a.take(store, window), target.dtype, dtype)
    if only is None and not operator.is_arg and starts_as_nan(st, target.dtype):
        start = a.exact(identity(operator, dtype), dtype)
        held = a.select(a.call("isnan", (held,), BOOL), start, held)
    total: Accumulator[V] = a.accumulator(
        operator, st.reduction.dtype, held, is_own=has_own_accumulators(st)
    )
    anything = False
    for rows in rows_of(m, st, ranges, only):
        total.add(rows.elements, rows.terms, rows.runs, rows.first)
        anything = anything or rows.is_doubtful
    result = total.result()
    if operator.is_arg:  # an element without terms keeps what it has
        none = a.exact(a.numbers(result) < 0, BOOL)
        result = a.select(none, held, a.cast(result, INT64, dtype))
    result = a.cast(result, dtype, target.dtype)
    doubtful = np.asarray(anything)
    if is_distributed(st) and (nan := np.isnan(a.numbers(result))).any():
        doubtful = doubtful | (nan & ~has_nan_factor(m, st, ranges, held, only))
    a.put(store, window, a.blurred(result, doubtful))


@dataclass(frozen=True, slots=True)
class TermRows(Generic[V]):
    """Terms of a reduction, a row for each left-hand instance; those that are none do not run."""

    elements: Array  # [row]: which element of the target it adds to
    terms: V  # [row, reduced instance]
    runs: Array  # [row, reduced instance]
    first: int | Array  # the number of a row's first reduced instance
    is_doubtful: bool  # whether an element might be another


def rows_of(m: Machine[V], st: Statement, ranges: Box, only: Array | None) -> Iterator[TermRows[V]]:
    """Yield the terms of *ranges*, in lexicographic order; all of the element *only* if given."""
    for batch in batches(m, st, ranges):
        instances, value = terms(m, st, batch)
        shape, n = instances.shape, math.prod(instances.shape[: batch.lead])
        runs = np.broadcast_to(instances.active, shape).reshape(n, -1)
        active = np.asarray(runs.any(axis=1)).reshape(shape[: batch.lead])
        leading = instances.leading(st.left, batch.lead)
        elements, doubt = position(m, st, replace(leading, active=active))
        where = elements if only is None else np.zeros(n, np.int64)
        spread = m.arithmetic.spread(value, shape, runs.shape)
        yield TermRows(where, spread, runs, batch.first, bool(doubt.any()))


def is_distributed(st: Statement) -> bool:
    """Return whether factors may multiply sums of the others.

    There are three, and more, or all terms have one.

    Such a factor, if it is infinite, gives an infinity where some of its terms, as written, are
    NaN, for another factor is 0, or add up to NaN, for they have both signs.
    """
    assert st.reduction is not None
    is_sum = st.reduction.operator is Operator.ADD and st.reduction.dtype.is_float
    reduced, factors = set(st.indices[st.n_left :]), multiplied(st.value)
    has_outer = len(factors) > 1 and any(reduced.isdisjoint(index_names(f)) for f in factors)
    return is_sum and (len(factors) > 2 or (bool(reduced) and has_outer))


def has_nan_factor(m: Machine[V], st: Statement, ranges: Box, held: V, only: Array | None) -> Array:
    """Return for each element whether it is NaN in any order: if a factor is, or what it held."""
    a, found = m.arithmetic, np.isnan(m.arithmetic.numbers(held))
    for factor in multiplied(st.value):
        for rows in rows_of(m, replace(st, value=factor), ranges, only):
            is_nan = np.isnan(a.numbers(rows.terms)) & rows.runs
            np.logical_or.at(found, rows.elements, is_nan.any(axis=1))
    return np.asarray(found)


def starts_as_nan(st: Statement, dtype: DType) -> bool:
    """Return whether the infinity that *st* starts from is NaN in its target's *dtype*."""
    assert st.reduction is not None
    is_extreme = st.reduction.operator in (Operator.MAX, Operator.MIN)
    return st.reduction.initialise and is_extreme and dtype.is_float and not dtype.has_infinities


def has_own_accumulators(st: Statement) -> bool:
    """Return whether sums of *st* may be accumulated apart from its target, element by element.

    Not where scattered terms meet in an element, nor where the sum reads its own target.
    """
    if is_scattered(st):
        return False
    parts = [node for expr in (st.value, *st.conditions) for node in walk(expr)]
    reads = {node.tensor for node in parts if isinstance(node, Load)}
    return st.target not in reads and are_indices(st.subscripts)


def batches(m: Machine[V], st: Statement, ranges: Box) -> Iterator[Batch]:
    """Yield the instances of the box *ranges* in lexicographic order, or of its data ranges alone.

    What data ranges list is in the order of its left-hand indices only if these are not in them.
    """
    if not is_listed(st):
        for box in boxes(ranges, GRID):
            first = box[-1].start - ranges[-1].start if st.reduced else 0
            yield Batch(grid(st.indices, box), st.n_left, first)
        return

    def bounds(clause: IndexBounds, rows: Rows) -> tuple[Array, Array]:
        return range_of(m, clause, rows.instances())[:2]

    yield from listed(st, ranges, GRID, bounds)


def range_of(m: Machine[V], clause: IndexBounds, at: Instances) -> tuple[Array, Array, Array]:
    """Return the bounds of *clause* at the instances *at*, and where they are in doubt."""
    a = m.arithmetic
    low, high = (evaluated(m, bound, at) for bound in (clause.lower, clause.upper))
    doubt = a.doubtful(low) | a.doubtful(high)
    return a.numbers(low).astype(np.int64), a.numbers(high).astype(np.int64), doubt


def check_data_ranges(m: Machine[V], st: Statement, ranges: Mapping[str, range]) -> None:
    """Raise an error if a range from data leaves the range of its index.

    :raises LaunchError: TC079.
    """
    for clause in st.data_ranges:
        at = checked_instances(st, clause, ranges)
        for bounds in (*bounds_of(st, at.env.keys()), *checked_with(st, clause)):
            low, high, _ = range_of(m, bounds, at)
            at = at.where((at.env[bounds.index] >= low) & (at.env[bounds.index] < high))
        low, high, doubt = range_of(m, clause, at)
        whole = ranges[clause.index]
        outside = at.active & ~doubt & (low < high) & ((low < whole.start) | (high > whole.stop))
        if outside.any():
            low, high, outside = np.broadcast_arrays(low, high, outside)
            first = np.argmax(outside)
            reached = high.flat[first] if high.flat[first] > whole.stop else low.flat[first]
            text = clause_text(m.c.source, clause)
            raise data_range_error(m.c.source, text, int(reached), whole.stop)


def terms(m: Machine[V], st: Statement, batch: Batch) -> tuple[Instances, V]:
    """Return which instances of *batch* run, and the value of each."""
    instances, doubt = restricted(m, st, batch.instances)
    return instances, m.arithmetic.blurred(evaluated(m, st.value, instances), doubt)


def restricted(m: Machine[V], st: Statement, instances: Instances) -> tuple[Instances, Array]:
    """Return the instances that fulfil all clauses, or might, and where that is in doubt."""
    a, doubt = m.arithmetic, np.zeros((), bool)
    for clause in (*st.explicit, *st.data_ranges):
        index = instances.env[clause.index]
        low, high, unsure = range_of(m, clause, instances)
        instances = instances.where((index >= low) & (index < high))
        doubt = doubt | unsure
    for condition in st.conditions:
        holds = evaluated(m, condition, instances)
        instances = instances.where(a.numbers(holds) | a.doubtful(holds))
        doubt = doubt | a.doubtful(holds)
    return instances, doubt


def position(m: Machine[V], st: Statement, instances: Instances) -> tuple[Array, Array]:
    """Return the flat position of the element that each of *instances* writes, and doubt."""
    flat, doubt = address(m, st.target, st.subscripts, instances, st.target_span)
    return np.broadcast_to(flat, instances.shape).reshape(-1), doubt


def address(
    m: Machine[V], name: str, subscripts: tuple[Expr, ...], instances: Instances, span: Span
) -> tuple[Array, Array]:
    """Return the flat position of ``name(subscripts)``, clipped where it is not active, and doubt.

    :raises LaunchError: TC080, where an active subscript is out of range.
    """
    a = m.arithmetic
    flat, doubt = np.zeros((), np.int64), np.zeros((), bool)
    shape, origins = m.s.shapes[name], m.s.origins[name]
    for subscript, extent, origin in zip(subscripts, shape, origins, strict=True):
        value = evaluated(m, exact_subscript(subscript), instances)
        index = a.numbers(value) - origin
        doubt = doubt | a.doubtful(value)
        outside = instances.active & ~doubt & ((index < 0) | (index >= extent))
        if outside.any():
            first = int(np.broadcast_to(index, outside.shape)[outside].flat[0]) + origin
            is_wrapped = first < 0 and subscript.dtype == UINT64
            raise OUT_OF_RANGE(
                m.c.source, span, index=first + is_wrapped * 2**64, tensor=name, extent=extent,
                origin=_source_of(m, subscript, instances, outside),
            )  # fmt: skip
        flat = flat * extent + np.clip(index, 0, max(0, extent - 1))
    # Of an empty tensor nothing is active, whichever of its extents is 0.
    return np.minimum(flat, max(0, math.prod(shape) - 1)), doubt


def _source_of(m: Machine[V], subscript: Expr, instances: Instances, outside: Array) -> str:
    """Return from which element the first index that is *outside* comes, for its error."""
    load = next((node for node in walk(subscript) if isinstance(node, Load)), None)
    if load is None or not m.c.tensors[load.tensor].is_input:
        return ""
    position = []
    for part in load.subscripts:
        values = m.arithmetic.numbers(evaluated(m, part, instances))
        position.append(int(np.broadcast_to(values, outside.shape)[outside].flat[0]))
    return origin_text(element_text(load.tensor, position))


def last_writes(elements: Array, active: Array) -> Array:
    """Return, for each distinct element, which active instance writes it last."""
    running = np.flatnonzero(active)[::-1]
    return running[np.unique(elements[running], return_index=True)[1]]


def initialise(m: Machine[V], st: Statement, left: Box) -> None:
    """Set the hull of the left side's image to the identity, whether its instances run or not.

    The hull is a box, over all left-hand indices in their ranges; the whole tensor if a subscript
    depends on data.
    """
    assert st.reduction is not None
    a, store, shape = m.arithmetic, m.stores[st.target], m.s.shapes[st.target]
    elements = np.arange(math.prod(shape))
    if not any(isinstance(node, Load) for e in st.subscripts for node in walk(e)):
        sides = [np.arange(0)] * len(shape)
        for d, (e, origin) in enumerate(zip(st.subscripts, m.s.origins[st.target], strict=True)):
            index = a.numbers(evaluated(m, e, corners(st.left, left, e))).astype(np.int64) - origin
            sides[d] = np.arange(max(0, index.min()), min(shape[d], index.max() + 1))
        elements = elements.reshape(shape)[np.ix_(*sides)].reshape(-1)
    dtype = m.c.tensors[st.target].dtype
    start = a.exact(identity(st.reduction.operator, dtype), dtype)
    a.put(store, elements, a.spread(start, elements.shape, elements.shape))


def evaluated(m: Machine[V], e: Expr, at: Instances) -> V:
    """Return the value of *e* at the instances *at*; where they are not active it is arbitrary."""
    a = m.arithmetic
    match e:
        case Const(value=value, dtype=dtype):
            return a.exact(value, dtype)
        case Index(name=name, dtype=dtype):
            return a.exact(at.env[name], dtype)
        case Size(name=name, dtype=dtype):
            return a.exact(m.s.sizes[name], dtype)
        case Load(tensor=name, subscripts=subscripts, span=span):
            flat, doubt = address(m, name, subscripts, at, span)
            return a.blurred(a.take(m.stores[name], flat), doubt)
        case Unary(op=op, operand=operand, dtype=dtype):
            return a.unary(op, evaluated(m, operand, at), dtype)
        case Binary(op="&&" | "||" as op, left=left, right=right, dtype=dtype):
            first = evaluated(m, left, at)
            undecided = a.numbers(first) == (op == "&&")
            second = evaluated(m, right, at.where(undecided & ~a.doubtful(first)))
            return a.binary(op, first, second, dtype, left.dtype)
        case Binary(op=op, left=left, right=right, dtype=dtype):
            operands = evaluated(m, left, at), evaluated(m, right, at)
            return a.binary(op, *operands, dtype, left.dtype)
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            chosen = evaluated(m, condition, at)
            holds, sure = a.numbers(chosen), ~a.doubtful(chosen)
            yes = evaluated(m, if_true, at.where(holds & sure))
            no = evaluated(m, if_false, at.where(~holds & sure))
            return a.select(chosen, yes, no)
        case Cast(operand=operand, dtype=dtype):
            return a.cast(evaluated(m, operand, at), operand.dtype, dtype)
        case Call(function=function, args=args, dtype=dtype):
            return a.call(function, tuple(evaluated(m, arg, at) for arg in args), dtype)
