"""What a dense program computes, by PyTorch, on the device that has its tensors.

A GPU's hunts have graphs of 64 M elements, on which the NumPy reference takes a second; a GPU takes
milliseconds.  A program is *dense* if every subscript is a bare index, as those of
:func:`tcdsl.testing.graphs` are: each read is then its tensor with its axes in the statement's
order, and a reduction folds over the axes that the left side lacks.

Values are float64 pairs (v, e) as in :mod:`tcdsl.interp.error_bounds`, by first-order rules:

    x + y    ex + ey + u |r|              x y    |x| ey + |y| ex + u |r|
    f(x)     |f'(x)| ex + k u |r|         sum    sum e + c u sum |x|
    ? :      the hull of both branches where the condition is undecided

c is the longest chain of additions that a good plan makes, not the number of terms, so that sums of
millions are still checked.  The bounds are thus no proof: what exceeds them is *suspect*, and goes
to :func:`tcdsl.testing.check`, which derives its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Comprehension,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Statement,
    Unary,
    fold,
)
from tcdsl.lang.types.dtypes import FLOAT64, DType
from tcdsl.testing import check, poisoned

CHAIN = 512  # additions one after another, of which a plan's sums have fewer
ULPS = 8  # of exp and tanh, twice what CUDA documents
SLACK = 1.5  # second-order terms
ROUNDOFFS = {"float64": 2.0**-52, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
LARGEST = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}
TINY = 2.0**-126  # a result below may be flushed
LARGE = 1 << 24  # instances of a statement, of which float64 pairs take much of a chip's memory

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Near:
    """A value and how far an implementation may be off: both broadcast along all indices."""

    v: Tensor
    e: Tensor


class NotDense(Exception):
    """The program has subscripts, clauses or operators that are not those of graphs."""


def results(c: Comprehension, inputs: dict[str, Tensor]) -> dict[str, Near]:
    """Return the outputs of *c*, each with its bounds.

    :raises NotDense: *c* has more than dense statements.
    """
    held = {name: exact(x) for name, x in inputs.items()}
    for st in c.statements:
        if st.conditions or st.explicit or st.data_ranges:
            raise NotDense(st.name)
        held[st.target] = stored(computed(st, held), c.tensors[st.target].dtype)
    return {name: held[name] for name in c.outputs}


def check_dense(f: Any, inputs: Mapping[str, Any], target: str, device: str) -> None:
    """Run *f* on *inputs*, arrays of NumPy, with poisoned results; compare, and check if suspect.

    :raises AssertionError: a result is wrong.
    """
    c, s = f.comprehension, f.specialise(*inputs.values())
    with turn(max(prod(map(len, ranges.values())) for ranges in s.ranges)):
        given = {name: as_tensor(x).to(device) for name, x in inputs.items()}
        expected = results(c, given)
        own = {o: poisoned(c.tensors[o].dtype, s.shapes[o]) for o in c.outputs}
        buffers = tuple(as_tensor(x).to(device) for x in own.values())
        scalars = {name: float(x) for name, x in inputs.items() if not s.shapes[name]}
        out = buffers if len(buffers) > 1 else buffers[0]
        f(*(given | scalars).values(), out=out, target=target)
        is_suspect = any(suspect(expected[o], x) for o, x in zip(own, buffers, strict=True))
    if is_suspect:
        check(f, *inputs.values(), targets=(target,))


@contextmanager
def turn(instances: int) -> Iterator[None]:
    """Wait until no other process has a large program, if this one is: they share a chip."""
    if instances <= LARGE:
        yield
        return
    with FileLock(Path(gettempdir()) / "tcdsl-dense-oracle.lock"):
        try:
            yield
        finally:
            torch.cuda.empty_cache()


def as_tensor(x: Any) -> Tensor:
    """Return a NumPy array as a tensor on the CPU; bfloat16 has no NumPy type of its own."""
    x = np.asarray(x)
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def exact(x: Tensor) -> Near:
    return Near(x.double(), torch.zeros((), dtype=torch.float64, device=x.device))


def names_of(subscripts: tuple[Expr, ...]) -> tuple[str, ...]:
    if not all(isinstance(s, Index) for s in subscripts) or len(set(subscripts)) < len(subscripts):
        raise NotDense(str(subscripts))
    return tuple(s.name for s in subscripts if isinstance(s, Index))


def computed(st: Statement, held: dict[str, Near]) -> Near:
    """Return the tensor that *st* makes, its axes in the order of the left side."""

    def combine(e: Expr, operands: tuple[Near, ...]) -> Near:
        return read(e, st.indices, held) if isinstance(e, Load) else applied(e, operands)

    left = names_of(st.subscripts)
    value = fold_dense(st.value, combine)
    order = [st.indices.index(name) for name in left]
    reduced = [d for d, name in enumerate(st.indices) if name not in left]
    if st.reduction is not None:
        value = reduction(st, value, extents(st, held), reduced)
    v, e = (t.expand(torch.broadcast_shapes(value.v.shape, t.shape)) for t in (value.v, value.e))
    v, e = (t.permute((*order, *reduced)) for t in (v, e))
    return Near(*(t.reshape(t.shape[: len(left)]) for t in (v, e)))


def fold_dense(e: Expr, combine: Any) -> Near:
    """Fold *e*, whose reads are leaves: their subscripts are indices, and no values."""

    def visit(node: Expr, operands: tuple[Any, ...]) -> Any:
        return None if isinstance(node, Index) else combine(node, operands)

    found = fold(e, visit)
    if found is None:
        raise NotDense("an index as a value")
    return found  # type: ignore[no-any-return]


def extents(st: Statement, held: dict[str, Near]) -> dict[str, int]:
    """Return how many values each index takes, which its reads tell."""
    found: dict[str, int] = {}

    def visit(e: Expr, _: tuple[None, ...]) -> None:
        if isinstance(e, Load):
            found.update(zip(names_of(e.subscripts), held[e.tensor].v.shape, strict=True))

    fold(st.value, visit)
    return found


def read(e: Load, indices: tuple[str, ...], held: dict[str, Near]) -> Near:
    """Return the tensor with one axis for each of *indices*, of extent 1 where it has none."""
    names, tensor = names_of(e.subscripts), held[e.tensor]

    def aligned(t: Tensor) -> Tensor:
        if t.ndim < len(names):  # one bound for all elements
            return t.reshape((1,) * len(indices))
        order = sorted(range(len(names)), key=lambda d: indices.index(names[d]))
        shape = [t.shape[names.index(name)] if name in names else 1 for name in indices]
        return t.permute(tuple(order)).reshape(shape)

    return Near(aligned(tensor.v), aligned(tensor.e))


def applied(e: Expr, operands: tuple[Near, ...]) -> Near:
    """Return the value of *e*, no read, of its operands."""
    match e:
        case Const(value=float(value)):  # of no axes: it is anywhere that its partner is
            return exact(torch.tensor(value, dtype=torch.float64))
        case Cast(dtype=dtype) if dtype.is_float:
            return stored(operands[0], dtype)
        case Unary(op="-"):
            return Near(-operands[0].v, operands[0].e)
        case Binary(op=op, dtype=dtype):
            return binary(op, *operands, dtype)
        case Select():
            return select(*operands)
        case Call(function=function, dtype=dtype):
            return called(function, operands, dtype)
    raise NotDense(str(e))


def rounded(v: Tensor, e: Tensor, dtype: DType, units: float = 1) -> Near:
    """Return *v* with *units* roundings more; nothing is known of what may overflow."""
    name = str(dtype)
    e = e + units * ROUNDOFFS[name] * (v.abs() + e) + TINY
    over = (v.abs() + e > LARGEST[name]) | e.isnan()
    return Near(v, torch.where(over, torch.inf, e))


def stored(a: Near, dtype: DType) -> Near:
    """Return *a* as *dtype* holds it."""
    narrow = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
    if dtype == FLOAT64:
        return a
    v = a.v.to(narrow[str(dtype)]).double()
    return Near(v, rounded(v, a.e + (v - a.v).abs().nan_to_num(0.0), dtype, units=0).e)


def binary(op: str, a: Near, b: Near, dtype: DType) -> Near:
    x, y, ex, ey = a.v, b.v, a.e, b.e
    match op:
        case "+":
            return rounded(x + y, ex + ey, dtype)
        case "-":
            return rounded(x - y, ex + ey, dtype)
        case "*":
            return rounded(x * y, x.abs() * ey + y.abs() * ex + ex * ey, dtype)
        case "/":
            size = (y.abs() - ey).clamp(min=0)
            return rounded(x / y, (ex + (x / y).abs() * ey) / size, dtype)
        case ">":
            return Near(x > y, undecided(x - y, ex + ey))
        case "<":
            return Near(x < y, undecided(x - y, ex + ey))
    raise NotDense(op)


def undecided(gap: Tensor, e: Tensor) -> Tensor:
    """Return 1.0 where a comparison may go either way."""
    return ((gap.abs() <= e) & (e > 0)).double()


def select(condition: Near, a: Near, b: Near) -> Near:
    v = torch.where(condition.v, a.v, b.v)
    e = torch.where(condition.v, a.e, b.e)
    hull = (a.v - b.v).abs() + torch.maximum(a.e, b.e)
    return Near(v, torch.where(condition.e > 0, hull, e))


def called(function: str, operands: tuple[Near, ...], dtype: DType) -> Near:
    a = operands[0]
    match function:
        case "exp":
            v = a.v.exp()
            return rounded(v, v * torch.expm1(a.e), dtype, ULPS)
        case "tanh":
            return rounded(a.v.tanh(), a.e.clamp(max=2.0), dtype, ULPS)
        case "sqrt":
            v = a.v.sqrt()
            low = (a.v - a.e).clamp(min=0).sqrt()
            return rounded(v, v - low, dtype, 2)
        case "fabs" | "abs":
            return Near(a.v.abs(), a.e)
        case "fmax" | "max":
            return Near(torch.fmax(a.v, operands[1].v), torch.maximum(a.e, operands[1].e))
        case "fmin" | "min":
            return Near(torch.fmin(a.v, operands[1].v), torch.maximum(a.e, operands[1].e))
    raise NotDense(function)


def reduction(st: Statement, value: Near, sizes: dict[str, int], over: list[int]) -> Near:
    """Return the terms folded along the axes *over*, and as they are if there are none."""
    assert st.reduction is not None
    if not over:
        return value
    v, e = value.v, value.e.expand(value.v.shape)
    match st.reduction.operator:
        case Operator.ADD:
            dtype, missing = st.reduction.dtype, [d for d in over if v.shape[d] == 1]
            copies = prod(sizes[st.indices[d]] for d in missing)  # of terms that an axis repeats
            terms = prod(sizes[st.indices[d]] for d in over)
            rounding = min(terms, CHAIN) * ROUNDOFFS[str(dtype)] * v.abs()
            total, own = (copies * t.sum(over, keepdim=True) for t in (v, e + rounding))
            return rounded(total, own, dtype)
        case Operator.MAX:
            return Near(v.amax(over, keepdim=True), e.amax(over, keepdim=True))
        case Operator.MIN:
            return Near(v.amin(over, keepdim=True), e.amax(over, keepdim=True))
    raise NotDense(st.reduction.operator)


def suspect(expected: Near, actual: Tensor) -> int:
    """Return how many elements of *actual* are farther from what is expected than the bounds."""
    found = actual.double()
    same = (found == expected.v) | (found.isnan() & expected.v.isnan())
    near = (found - expected.v).abs() <= SLACK * expected.e
    unknown = expected.e.isinf()
    return int((~(same | near | unknown)).sum())
