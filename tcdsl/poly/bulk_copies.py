"""Tiles that requests of whole boxes or rows of pixels bring (TMA), as functions of their lines.

    tile[e0, e1] = 0 <= h(m) + r - 1 < H && ... ? I[n(m), h(m) + r - 1, w(m) + s - 1, c + e1] : 0
        where m = 128 o + e0 = (n H + h) W + w
    --->  line m has n(m) along n, -1 + h(m) + r along h, -1 + w(m) + s along w

A line m has, along each dimension of the array but one, ``first + step * digit + tap``: the
digits are those of m, and all lines of a tile have one tap.  Where m has one digit alone, of
step 1, or digits of dimensions that lie in memory like one, the lines are a box ("tiled mode").
Else they are what the driver calls im2col: from a pixel on, along the fastest dimension by its
step, from its lower to its upper corner, then along the next one.  Corners are the first and the
last place of a digit, told from the array's ends; taps are offsets.

PTX ISA, "Tensor access modes".  Legal iff what the statement reads is exactly what a request
brings: the elements at these places, zeros where the array has none (:func:`why_not_brought`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.poly.accesses import access, builder_of, elements_in
from tcdsl.poly.isl_utils import Extent, greatest, times
from tcdsl.poly.scop import Array, BulkCopy, BulkDim, Scop, Statement
from tcdsl.records import dataclass

MOST_DIMS = 5  # of a map
# Of rows of pixels, by the map's dimensions: the corners' range, and the largest offset.
CORNERS: Mapping[int, int] = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
OFFSETS: Mapping[int, int] = {3: (1 << 16) - 1, 4: (1 << 8) - 1, 5: (1 << 5) - 1}
MOST_STEP = 8
_WHOLE = BulkDim(1, 1, 0, Const(0, INT32))


@dataclass(frozen=True, slots=True)
class Walked:
    """A dimension of a map: *size* elements, *stride* apart, *after* values of m to a digit.

    Of the slowest digit's the size may be open.
    """

    size: Extent
    stride: int
    of: BulkDim
    after: int = 1

    @property
    def corners(self) -> tuple[int, int]:
        """The first place of its digit, from the array's start, and the last from its end."""
        of = self.of
        assert isinstance(self.size, int), "it is not the slowest"
        return of.first, of.first + of.step * (of.extent - 1) - (self.size - 1)


def walked(array: Array, strides: Sequence[int], bulk: BulkCopy) -> tuple[Walked, ...]:
    """Return the dimensions of a map for *bulk*, but the lines' own: the fastest digit's first.

    Dimensions without a digit come first; those that lie in memory like one are one.  Where the
    array goes on, one of a single element comes last: whatever is after the last line is outside.
    """
    sizes = array.shape
    # Of one element alone no stride matters, but the driver takes multiples of 16 bytes.
    most = max(strides)
    strides = [most if greatest(own) == 1 else n for n, own in zip(strides, sizes, strict=True)]
    rest = [d for d in range(array.rank) if d not in bulk.order and d != bulk.near]
    found = [Walked(sizes[d], strides[d], bulk.dims[d]) for d in rest]
    found = [one for one in found if greatest(one.size) != 1 or one.of != _WHOLE]
    after, begin = 1, len(found)
    for d in bulk.order:
        own = Walked(sizes[d], strides[d], bulk.dims[d], after)
        after *= own.of.extent
        both = _together(found[-1], own) if len(found) > begin else None
        found[len(found) - (both is not None) :] = [both or own]
    if bulk.goes_on:
        found.append(Walked(1, strides[bulk.order[-1]], _WHOLE, after))
    return tuple(found)


def _together(fast: Walked, slow: Walked) -> Walked | None:
    """Return both dimensions as one, None unless they lie in memory like one."""
    if (
        not isinstance(fast.size, int)
        or fast.of != replace(_WHOLE, extent=fast.size)
        or slow.of.step != 1
        or slow.stride != fast.stride * fast.size
    ):
        return None
    first, tap = slow.of.first * fast.size, scaled(slow.of.tap, fast.size)
    of = BulkDim(fast.size * slow.of.extent, 1, first, tap)
    return Walked(times(slow.size, fast.size), fast.stride, of, fast.after)


def scaled(expr: Expr, factor: int) -> Expr:
    """Return *factor* times *expr*."""
    if isinstance(expr, Const):
        return Const(int(expr.value) * factor, INT32)
    return expr if factor == 1 else Binary("*", Const(factor, INT32), expr, INT32)


def is_box(dims: Sequence[Walked]) -> bool:
    """Return whether lines are a box of the map's dimensions *dims*."""
    return dims[-1].of.step == 1 and all(one.of.extent == 1 for one in dims[:-1])


def why_not_requested(dims: Sequence[Walked], taps: Sequence[int]) -> str | None:
    """Return why no request brings lines along *dims*, whose largest *taps* these are, or None."""
    rank = 1 + len(dims)
    if rank > MOST_DIMS:
        return "it has too many dimensions"
    if is_box(dims):
        return None
    if rank not in CORNERS:
        return "it has too few dimensions"
    for own, tap in zip(dims[:-1], taps, strict=True):
        most = CORNERS[rank]
        if not all(-most <= corner < most for corner in own.corners):
            return "its corners are too far from the array's"
        if tap > OFFSETS[rank] or not 1 <= own.of.step <= MOST_STEP:
            return "its offsets or steps are too large"
    return None


def place(one: Walked, line: Expr, *, is_last: bool) -> Expr:
    """Return where the line number *line* is along *one*, without the tap."""
    digit: Expr = line
    if one.after > 1:
        digit = Binary("/", digit, Const(one.after, INT32), INT32)
    if not is_last:
        digit = Binary("%", digit, Const(one.of.extent, INT32), INT32)
    if one.of.extent == 1 and not is_last:  # of which there is no digit
        digit = Const(0, INT32)
    return plus(scaled(digit, one.of.step), Const(one.of.first, INT32))


def plus(one: Expr, other: Expr) -> Expr:
    """Return the sum of two numbers, without a zero."""
    if isinstance(other, Const):
        return one if other.value == 0 else Binary("+", one, other, INT32)
    return other if one == Const(0, INT32) else Binary("+", one, other, INT32)


def numbers_of(copy: Statement, array: Array, dims: Sequence[Walked]) -> tuple[Expr, ...]:
    """Return the indices of a request for *copy*: of neighbours, along *dims*; then its offsets.

    They are those of the tile's first element where the copy's indices of an element are 0.
    """
    bulk = copy.bulk
    assert bulk is not None
    origin = array.origin[bulk.near]
    assert isinstance(origin, int), "bulk_tile_of"
    first = plus(copy.reads[0].subscripts[bulk.near], Const(-origin, INT32))
    places = [place(one, bulk.line, is_last=one is dims[-1]) for one in dims]
    if is_box(dims):
        return (first, *(plus(at, one.of.tap) for at, one in zip(places, dims, strict=True)))
    places[-1] = plus(places[-1], dims[-1].of.tap)
    return (first, *places, *(one.of.tap for one in dims[:-1]))


def why_not_brought(scop: Scop, copy: Statement) -> str | None:
    """Return why requests do not bring what *copy* reads, or None: compared as relations.

    { copy[o, e] -> I[x] : the condition }  =  { copy[o, e] -> I[places of line m] }, in the array:
    as functions, and where they are defined, which isl does in a tenth of the time.
    """
    bulk, read = copy.bulk, copy.reads[0]
    assert bulk is not None
    array = scop.arrays[read.array]
    builder = builder_of(copy.indices, copy.name, scop.sizes)
    subscripts = _subscripts(array, copy)
    everything = access(builder, array.name, subscripts, scop.arrays, copy.domain).relation
    inside = elements_in(array, everything.get_space().range())
    there = everything.intersect_range(inside).domain()
    if bulk.goes_on:
        n_lines = prod(bulk.dims[d].extent for d in bulk.order)
        own = Binary("<", bulk.line, Const(n_lines, INT32), BOOL)
        there = there.intersect(builder.truth(own).below)
    for place_, subscript in zip(subscripts, read.subscripts, strict=True):
        made, wanted = builder.affine(place_), builder.affine(subscript)
        if made is None or wanted is None or not _is_same(made, wanted, there):
            return "it reads other elements"
    if not there.is_equal(read.relation.domain()):
        return "it reads where the statement has zeros, or the reverse"
    for one in bulk.dims:
        tap = builder.affine(one.tap)
        if tap is None or not copy.domain.is_subset(tap.ge_set(builder.constant(0))):
            return "a tap is below 0"
    return None


def _is_same(one: isl.PwAff, other: isl.PwAff, where: isl.Set) -> bool:
    return bool(one.is_equal(other)) or bool(where.is_subset(one.eq_set(other)))


def _subscripts(array: Array, copy: Statement) -> tuple[Expr, ...]:
    """Return where requests for *copy* find the element of an instance."""
    bulk, after = copy.bulk, 1
    assert bulk is not None
    places = [plus(Const(one.first, INT32), one.tap) for one in bulk.dims]
    for d in bulk.order:
        own = Walked(0, 0, bulk.dims[d], after)
        is_last = d == bulk.order[-1] and not bulk.goes_on
        places[d] = plus(place(own, bulk.line, is_last=is_last), own.of.tap)
        after *= own.of.extent
    origins = [Const(origin, INT32) for origin in array.origin if isinstance(origin, int)]
    at = [plus(*both) for both in zip(places, origins, strict=True)]
    at[bulk.near] = copy.reads[0].subscripts[bulk.near]
    return tuple(at)
