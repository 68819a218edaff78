"""Strides and extents: how the accesses of a statement move through memory, loop by loop.

The stride of an access along a dimension is the distance in elements between the elements that two
neighbouring instances touch; 0 means reuse.  Loops are ordered so that the largest strides are
outermost and neighbours in memory are neighbours in time.
"""

from collections import Counter
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import gcd, prod
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Unary,
    fold,
    walk,
)
from tcdsl.lang.ranges.index_bounds import Values
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.data_ranges import after_bounds, range_of_dim, typical_counts
from tcdsl.poly.isl_utils import (
    Extent,
    are_bounded,
    constant_bounds,
    dim_bounds,
    divisor_of,
    greatest,
    rest_of,
)
from tcdsl.poly.known_values import values_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Array, Interleaved, Scop, Statement, Stride
from tcdsl.records import dataclass

UNKNOWN_STRIDE = 64  # what a gather's counts as in a cost
OPEN_EXTENT = 1024  # what an open size counts as in a cost
STEPS_SEEN = 64  # of digits, to tell by how much most of them move an access
SELDOM = 64  # a remainder of this begins again in one of so many steps, at most


@dataclass(frozen=True, eq=False)
class Shape:
    """The box around a statement's instances, and the strides of its accesses.

    What costs ask of a range from data is in *counts*: as if all of them were disjoint and whole.

    An open extent counts as ``OPEN_EXTENT``; *ends* are exact: numbers, or functions of the sizes.
    """

    statement: Statement
    lower: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]  # one row an access (writes first), one entry a dimension
    roles: tuple[Role, ...]
    ends: tuple[Extent, ...] = ()

    def end(self, dim: int) -> Extent:
        """Return the value above all those of dimension *dim*."""
        return self.ends[dim] if self.ends else self.lower[dim] + self.extents[dim]

    def is_open(self, dim: int) -> bool:
        """Return whether the extent of dimension *dim* is only known at the call."""
        return not isinstance(self.end(dim), int)

    @cached_property
    def box(self) -> str:
        """What loops depend on, as a text: statements for which this is equal have the same."""
        return f"{self.lower} {self.extents} {' '.join(self.roles)} {self.order}"

    @property
    def has_open(self) -> bool:
        """Return whether the number of instances is only known at the call."""
        return any(map(self.is_open, range(len(self.extents))))

    @cached_property
    def instances(self) -> int:
        """How many instances the box holds, as far as ranges from data let them run."""
        return prod(self.counts)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many values of each dimension one of the dimensions around it meets."""
        return typical_counts(self.statement, self.extents)

    def is_ragged(self, dim: int) -> bool:
        """Return whether data say which values of dimension *dim* run."""
        return range_of_dim(self.statement, dim) is not None

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The dimensions, outermost loop first (see :func:`preferred_order`)."""
        return preferred_order(self)


@dataclass(frozen=True, slots=True)
class _Box:
    """What a shape has besides its roles: in this context, and with arrays like these."""

    context: isl.Set
    arrays: tuple[Array, ...]
    lower: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    ends: tuple[Extent, ...]


_boxes: WeakKeyDictionary[Statement, _Box] = WeakKeyDictionary()  # rewrites leave most as they are


def shape_of(scop: Scop, statement: Statement, roles: tuple[Role, ...]) -> Shape:
    """Return the box and the strides of *statement*."""
    arrays = tuple(scop.arrays[a.array] for a in (*statement.writes, *statement.reads))
    box = _boxes.get(statement)
    if box is None or box.context is not scop.context or box.arrays != arrays:
        box = _boxes[statement] = _box_of(scop, statement, arrays)
    return Shape(statement, box.lower, box.extents, box.strides, roles, box.ends)


def _box_of(scop: Scop, statement: Statement, arrays: tuple[Array, ...]) -> _Box:
    lower: list[int] = []
    extents: list[int] = []
    ends: list[Extent] = []
    # Of sizes that have a greatest value the costs are those at that.
    is_closed = scop.context.dim(isl.dim_type.param) == 0 or are_bounded(scop.context)
    for dim in range(len(statement.indices)):
        bounds = constant_bounds(statement.domain, dim)
        start = 0 if bounds is None else bounds[0]
        end: Extent = 0 if bounds is None else bounds[1] + 1
        if not is_closed:
            low, end = dim_bounds(statement.domain, dim, scop.context)
            start = low if isinstance(low, int) else 0
        lower.append(start)
        ends.append(end)
        if bounds is None and not isinstance(end, int):
            extents.append(OPEN_EXTENT)
        else:
            extents.append(0 if bounds is None else bounds[1] + 1 - start)
    accesses = (*statement.writes, *statement.reads)
    strides = tuple(
        tuple(access_stride(array, access, index) for index in statement.indices)
        for array, access in zip(arrays, accesses, strict=True)
    )
    return _Box(scop.context, arrays, tuple(lower), tuple(extents), strides, tuple(ends))


def array_strides(array: Array) -> tuple[int, ...]:
    """Return the strides of *array* in elements; what is open counts as ``OPEN_EXTENT``.

    Interleaved axes count as what they are within a run.
    """
    if array.strides is not None:
        return tuple(map(_plain, array.strides))
    strides, step = [], 1
    for extent in reversed(array.shape):
        strides.append(step)
        most = greatest(extent)
        step *= OPEN_EXTENT if most is None else most
    return tuple(reversed(strides))


def stride_divisors(array: Array) -> tuple[int, ...]:
    """Return numbers that divide the strides of *array*: themselves, unless a size is open."""
    if array.strides is not None:
        return tuple(
            divisor_of(n) if isinstance(n, isl.PwAff) else 1 if n is None else _plain(n)
            for n in array.strides
        )
    found, step = [], 1
    for extent in reversed(array.shape):
        found.append(step)
        step *= divisor_of(extent)
    return tuple(reversed(found))


def stride_rests(array: Array, divisor: int) -> tuple[int | None, ...]:
    """Return the strides of *array* modulo *divisor*, None where they are not known so far."""
    if array.strides is not None:
        return tuple(
            None if n is None else rest_of(n.step if isinstance(n, Interleaved) else n, divisor)
            for n in array.strides
        )
    found: list[int | None] = []
    step: int | None = 1 % divisor
    for extent in reversed(array.shape):
        found.append(step)
        own = rest_of(extent, divisor)
        is_whole = 0 in (step, own)  # whatever the other one is
        step = 0 if is_whole else None if step is None or own is None else step * own % divisor
    return tuple(reversed(found))


def _plain(stride: Stride) -> int:
    if isinstance(stride, Interleaved):
        return stride.step
    most = None if stride is None else greatest(stride)
    return OPEN_EXTENT if most is None else most


def runs_of(array: Array, access: Access, index: str) -> tuple[Interleaved, ...]:
    """Return the interleaved axes of *array* that *access* moves along when *index* grows."""
    return tuple(
        stride
        for subscript, stride in zip(access.subscripts, array.strides or (), strict=False)
        if isinstance(stride, Interleaved) and coefficient_of(subscript, index) != 0
    )


def access_stride(array: Array, access: Access, index: str) -> int:
    """Return the stride of *access* along *index*, 64 where it cannot be told (a gather)."""
    total = 0
    for subscript, stride in zip(access.subscripts, array_strides(array), strict=True):
        coefficient = coefficient_of(subscript, index)
        if coefficient is None:
            return max(UNKNOWN_STRIDE, abs(total))
        total += coefficient * stride
    return abs(total)


_Strides = tuple[tuple[float, ...], ...]  # one row an access, one entry a dimension
_usual: WeakKeyDictionary[Statement, tuple[tuple[Array, ...], _Strides]] = WeakKeyDictionary()


def usual_strides(statement: Statement, arrays: tuple[Array, ...]) -> _Strides:
    """Return the usual strides of the accesses of *statement*, to *arrays*, writes first."""
    known = _usual.get(statement)
    if known is None or known[0] != arrays:
        accesses = zip(arrays, (*statement.writes, *statement.reads), strict=True)
        rows = tuple(
            tuple(usual_stride(array, access, index) for index in statement.indices)
            for array, access in accesses
        )
        known = _usual[statement] = arrays, rows
    return known[1]


def usual_stride(array: Array, access: Access, index: str) -> float:
    """Return the stride of *access* along *index*, for costs: that of most values of the index.

    x((j + 1) % W) moves along neighbours of x but for one of W steps, x(j / 32) by 1 / 32 of one.
    Quotients and remainders together are digits, which no sum of their own strides tells:
    x(j / 7, j % 7) moves along neighbours always.
    """
    if (step := _step_of_digits(array, access, index)) is not None:
        return abs(step)
    total = 0.0
    for subscript, stride in zip(access.subscripts, array_strides(array), strict=True):
        usual = rewrite(subscript, _without_turns)
        found = fold(usual, lambda node, operands: _linear(node, operands, index, divides=True))
        if found is None:
            return max(float(UNKNOWN_STRIDE), abs(total))
        total += float(found[0]) * stride
    return abs(total)


def _step_of_digits(array: Array, access: Access, index: str) -> float | None:
    """Return by how much most steps of *index* move *access*, of its first ones.

    None where *index* has no digits there, nobody knows them, or most steps move nothing.
    """
    nodes = [node for one in access.subscripts for node in walk(one)]
    parts = [node for node in nodes if _is_digit(node, index)]
    is_gather = any(isinstance(node, Load) for node in nodes)
    if is_gather or len({node.op for node in parts if isinstance(node, Binary)}) < 2:
        return None
    others = {node.name: Values(0, 0) for node in nodes if isinstance(node, Index)}
    places = []
    for value in range(STEPS_SEEN + 1):
        named = {**others, index: Values(value, value)}
        own = [values_of(one, named, {}) for one in access.subscripts]
        if any(at.low != at.high for at in own):
            return None
        pairs = zip(own, array_strides(array), strict=True)
        places.append(sum(at.low * stride for at, stride in pairs))
    ((most, _),) = Counter(b - a for a, b in pairwise(places)).most_common(1)
    return float(most) or None


def _is_digit(node: Expr, index: str) -> bool:
    """Return whether *node* is a quotient or a remainder, by a number, of what *index* is in."""
    match node:
        case Binary(op="/" | "%", left=left, right=Const()):
            return any(isinstance(one, Index) and one.name == index for one in walk(left))
        case _:
            return False


def _without_turns(node: Expr) -> Expr:
    """Return what *node* is a remainder of, if that is seldom less than it; else *node*."""
    match node:
        case Binary(op="%", left=value, right=Const(value=turn)) if int(turn) >= SELDOM:
            return value
        case Binary(op="%", left=value, right=Size()):
            return value
        case Select(condition=Binary(left=value), if_true=Binary(left=moved, right=Size())) if (
            moved == value
        ):  # the same by comparisons: lang/remainders
            return value
    return node


def coefficient_of(expr: Expr, index: str) -> int | None:
    """Return how much *expr* grows when *index* does by one, None if that varies."""
    if isinstance(expr, Index):  # most are
        return int(expr.name == index)
    value = fold(expr, lambda node, operands: _linear(node, operands, index))
    return None if value is None else int(value[0])


def constant_run(access: Access, index: str) -> int:
    """Return how many values of *index*, from a multiple of that on, *access* is the same for.

    x(k / 32) is for 32, x((k + 2 * j) / 32) for 2.  0: for all; 1: for none.
    """
    found = 0
    for subscript in access.subscripts:
        found = gcd(found, _constant_run(subscript, index))
    return found


def _constant_run(expr: Expr, index: str) -> int:
    if coefficient_of(expr, index) == 0:
        return 0
    match expr:
        case Cast(operand=value) | Unary(op="-", operand=value):
            return _constant_run(value, index)
        case Binary(op="+" | "-" | "*", left=left, right=right):
            return gcd(_constant_run(left, index), _constant_run(right, index))
        case Binary(op="/", left=left, right=Const(value=divisor)) if divisor > 0:
            found = fold(left, lambda node, operands: _multiple(node, operands, index))
            return gcd(int(divisor), found)
    return 1


def _multiple(expr: Expr, operands: tuple[int, ...], index: str) -> int:
    """Return a number that divides what *expr* adds to *index*, 1 if it does not just add."""
    match expr:
        case Index(name=name):
            return 0 if name == index else 1
        case Const(value=value) if not expr.dtype.is_float:
            return int(value)
        case Cast():
            return operands[0]
        case Binary(op="+") | Binary(op="-", right=Const()):
            return gcd(*operands)
        case Binary(op="*") if coefficient_of(expr, index) == 0:
            return operands[0] * operands[1]
    return 1


# Of a * index + b: a, and b if it is constant; None where it is not of this form.
_Linear = tuple[Fraction, Fraction | None] | None


def _linear(
    expr: Expr, operands: tuple[_Linear, ...], index: str, *, divides: bool = False
) -> _Linear:
    """Return ``(a, b)`` for ``a * index + b``; b is None where other indices take part.

    :arg divides: whether a quotient counts as the part of its dividend that it is.
    """
    if any(operand is None for operand in operands):
        return None
    known = [operand for operand in operands if operand is not None]
    match expr:
        case Const(value=value, dtype=dtype):  # one of a condition may be infinite
            return Fraction(0), None if dtype.is_float else Fraction(int(value))
        case Index(name=name):
            return Fraction(name == index), None
        case Size():
            return Fraction(0), None
        case Cast():
            return known[0]
        case Unary(op="-"):
            (a, b) = known[0]
            return -a, None if b is None else -b
        case Binary(op="+" | "-" as op):
            sign = 1 if op == "+" else -1
            (a, b), (c, d) = known
            return a + sign * c, None if b is None or d is None else b + sign * d
        case Binary(op="*"):
            return _product(known[0], known[1])
        case Binary(op="/", right=Const(value=divisor)) if divides and divisor:
            return known[0][0] / int(divisor), None
        case _:
            return (Fraction(0), None) if all(a == 0 for a, _ in known) and known else None


def _product(
    left: tuple[Fraction, Fraction | None], right: tuple[Fraction, Fraction | None]
) -> _Linear:
    (a, b), (c, d) = left, right
    if d is not None and c == 0:
        return a * d, None if b is None else b * d
    if b is not None and a == 0:
        return c * b, None if d is None else d * b
    return (Fraction(0), None) if a == 0 and c == 0 else None


def preferred_order(shape: Shape) -> tuple[int, ...]:
    """Return the dimensions, outermost first: large strides outside, unit strides inside.

    A write counts twice: it is read and written.  Recurrences keep their order among themselves,
    and ranges from data stand below what their bounds mention.
    """
    n_writes = len(shape.statement.writes)

    def weight(dim: int) -> tuple[int, int]:
        total = sum(
            row[dim] * (2 if position < n_writes else 1)
            for position, row in enumerate(shape.strides)
        )
        return -total, dim

    order = sorted(range(len(shape.extents)), key=weight)
    ordered = [dim for dim in range(len(shape.extents)) if shape.roles[dim] is Role.ORDERED]
    remaining = iter(ordered)
    kept = tuple(next(remaining) if dim in ordered else dim for dim in order)
    moved = after_bounds(shape.statement, kept)
    return moved if [dim for dim in moved if dim in ordered] == ordered else kept
