"""Which tiles of an implicit product's factors requests of a producer bring: legality.

    (h+r >= 1 && ... ? I(n,h+r-1,w+s-1,c) : 0)     lines n_h_w, neighbours c, taps r, s
    K(f,r,s,c)                                     lines f, neighbours c, taps r, s

The lines of a tile are one class of indices, its neighbours another; all others are taps.  Legal
iff

- subscripts are affine: that of the dimension of neighbours in memory is their innermost index,
  plus taps, and no other mentions that; each index of the lines is in one other subscript, alone
  and forwards;
- the guard holds exactly where the array has an element, and where lines, or neighbours, end the
  array ends too, or a tile does: so that both have zeros;
- all taps of 64 neighbours are one: their last index has a multiple of 64 values, or is alone;
- strides are multiples of 16 bytes, and a request can say it (poly/bulk_copies.py).

Everything else is copied by threads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.costmodel.locality import array_strides
from tcdsl.lang.comprehension import Binary, Const, Expr, Index
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import access, builder_of, elements_in
from tcdsl.poly.bulk_copies import plus, scaled, walked, why_not_requested
from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.scop import Array, BulkCopy, BulkDim, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import Merged
from tcdsl.rewrites.scop.packing import Factor
from tcdsl.strategies.implicit_product import Classes, classes_of, factors_of, flat_classes_of
from tcdsl.strategies.problem import Problem, analysis

STRIDE_BYTES, LINE_BYTES = 16, 128


@dataclass(frozen=True, slots=True)
class BulkTile:
    """The *copy* of merged indices; tiles have a divisor of *whole* neighbours, 0: any."""

    copy: BulkCopy
    whole: int


@analysis
def bulk_tile_of(problem: Problem, is_flat: bool, number: int) -> BulkTile | str:
    """Return how requests bring a tile of the rows' or the columns' factor, or why they do not.

    :arg is_flat: all reduced indices are among the terms.
    :arg number: 0: of the rows, 1: of the columns.
    """
    classes = flat_classes_of(problem) if is_flat else classes_of(problem)
    statement = problem.shapes[problem.lead].statement
    factors = factors_of(statement)
    assert classes is not None and factors is not None, "the template asks first"
    factor = factors[classes.factors[number]]
    array = problem.scop.arrays[factor.load.tensor]
    lines, within = ((classes.row, classes.column)[number], classes.term)
    if not classes.loaded[number].is_along_terms:
        lines, within = within, lines
    builder = builder_of(statement.indices, statement.name, problem.scop.sizes)
    if reason := _why_not_array(array) or _why_not_guarded(builder, statement, factor, array):
        return reason
    sums = []
    for subscript in factor.load.subscripts:
        own = _sum_of(builder, subscript, statement.indices)
        if own is None:
            return "a subscript is not affine"
        sums.append(own)
    extents = dict(zip(statement.indices, problem.shapes[problem.lead].extents, strict=True))
    near = _near(array)
    assert near is not None, "_why_not_array"
    tile = _Tile(sums, array, extents, near)
    whole, copy = tile.whole(within), tile.copy(lines)
    if isinstance(whole, str) or isinstance(copy, str):
        return whole if isinstance(whole, str) else str(copy)
    dims = walked(array, array_strides(array), copy)
    taps = [_most(builder, statement, one.of.tap) for one in dims[:-1]]
    if reason := why_not_requested(dims, taps):
        return reason
    return BulkTile(_over_classes(copy, classes), whole)


def _over_classes(copy: BulkCopy, classes: Classes) -> BulkCopy:
    """Return *copy* in terms of merged indices."""
    values: dict[str, Expr] = {}
    for one in classes.all:
        values |= one.values()

    def change(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, Index) else node

    dims = tuple(replace(one, tap=rewrite(one.tap, change)) for one in copy.dims)
    return replace(copy, dims=dims)


def _most(builder: Builder, statement: Statement, tap: Expr) -> int:
    function = builder.affine(tap)
    assert function is not None, "a sum"
    return int(function.intersect_domain(statement.domain).max_val().to_python())


def _why_not_array(array: Array) -> str | None:
    plain = (*array.origin, *array.shape[1:], *(array.strides or ()))  # the first may be open
    if array.shift is not None or any(not isinstance(n, int) for n in plain):
        return f"{array.name} has no plain strides"
    near, element = _near(array), array.dtype.size_bytes
    strides = [
        n
        for d, (n, size) in enumerate(zip(array_strides(array), array.shape, strict=True))
        if d != near and greatest(size) != 1
    ]
    if near is None or any(n <= 0 or n * element % STRIDE_BYTES for n in strides):
        return f"strides of {array.name} are no multiples of {STRIDE_BYTES} bytes"
    return None


def _near(array: Array) -> int | None:
    """Return along which dimension elements of *array* are neighbours, None if along none."""
    strides = enumerate(array_strides(array))
    return next((d for d, n in strides if n == 1 and greatest(array.shape[d]) != 1), None)


def _why_not_guarded(
    builder: Builder, statement: Statement, factor: Factor, array: Array
) -> str | None:
    """Return why a guard holds elsewhere than where the array has an element, or None."""
    everything = access(
        builder, array.name, factor.load.subscripts, {array.name: array}, statement.domain
    )
    if everything.inexact:
        return "a subscript is not affine"
    inside = elements_in(array, everything.relation.get_space().range())
    there = everything.relation.intersect_range(inside).domain()
    holds: isl.Set | None = statement.domain
    if factor.condition is not None:
        exact = builder.truth(factor.condition).exact
        holds = None if exact is None else exact.intersect(statement.domain)
    is_same = holds is not None and holds.is_equal(there)
    return None if is_same else "its guard holds elsewhere than where the array has an element"


@dataclass(frozen=True, slots=True)
class _Sum:
    """``constant + sum of factor * index``."""

    factors: Mapping[str, int]
    constant: int

    def least(self, extents: Mapping[str, int]) -> int:
        return self.constant + sum(min(0, f * (extents[i] - 1)) for i, f in self.factors.items())

    def without(self, index: str) -> "_Sum":
        return _Sum({i: f for i, f in self.factors.items() if i != index}, self.constant)

    def minus(self, least: int) -> Expr:
        """Return it as an expression, less *least*."""
        total: Expr = Const(self.constant - least, INT32)
        for index, factor in sorted(self.factors.items(), key=lambda pair: -pair[1]):
            term = scaled(Index(index), abs(factor))
            total = plus(term, total) if factor > 0 else Binary("-", total, term, INT32)
        return total


def _sum_of(builder: Builder, expr: Expr, indices: Sequence[str]) -> _Sum | None:
    """Return *expr* as a sum, None if it is none."""
    function = builder.affine(expr)
    pieces = [] if function is None else function.get_pieces()
    if len(pieces) != 1:
        return None
    (_, aff), in_, param = pieces[0], isl.dim_type.in_, isl.dim_type.param
    if aff.dim(isl.dim_type.div) or aff.involves_dims(param, 0, aff.dim(param)):
        return None
    factors = {
        index: int(aff.get_coefficient_val(in_, position).to_python())
        for position, index in enumerate(indices)
        if not aff.get_coefficient_val(in_, position).is_zero()
    }
    return _Sum(factors, int(aff.get_constant_val().to_python()))


@dataclass(frozen=True, slots=True)
class _Tile:
    """The subscripts of a factor, *sums* of indices of these *extents*; neighbours are *near*."""

    sums: Sequence[_Sum]
    array: Array
    extents: Mapping[str, int]
    near: int

    @property
    def others(self) -> Sequence[tuple[int, _Sum]]:
        """The other dimensions."""
        return [(dim, own) for dim, own in enumerate(self.sums) if dim != self.near]

    def whole(self, within: Merged) -> int | str:
        """Return of which number of neighbours a tile has a divisor, 0: any; or why of none."""
        several = [i for i in within.indices if self.extents[i] > 1] or [within.indices[-1]]
        inner, own = several[-1], self.sums[self.near]
        if own.factors.get(inner) != 1 or any(inner in one.factors for _, one in self.others):
            return "neighbours of a line are not neighbours in memory"
        at_once = LINE_BYTES // self.array.dtype.size_bytes
        if len(several) > 1:
            is_whole = self.extents[inner] % at_once == 0
            return within.extent if is_whole else "lines of 128 bytes have several taps"
        end = own.without(inner).least(self.extents) + self.extents[inner]
        origin, size = self.array.origin[self.near], self.array.shape[self.near]
        assert isinstance(origin, int) and isinstance(size, int)
        return 0 if end >= origin + size else within.extent

    def copy(self, lines: Merged) -> BulkCopy | str:
        """Return the copy of *lines*, its taps in terms of the product's indices, or why not."""
        own = [i for i in reversed(lines.indices) if self.extents[i] > 1]
        if not own or any(i in self.sums[self.near].factors for i in own):
            return "lines lie along neighbours in memory"
        dims, of = [BulkDim(1, 1, 0, Const(0, INT32))] * len(self.sums), dict[str, int]()
        for dim, sum_ in self.others:
            digits = [i for i in own if i in sum_.factors]
            if len(digits) > 1 or any(i in of or sum_.factors[i] < 0 for i in digits):
                return "a dimension has no single index of the lines"
            of |= dict.fromkeys(digits, dim)
            rest = sum_.without(digits[0]) if digits else sum_
            least, origin = rest.least(self.extents), self.array.origin[dim]
            assert isinstance(origin, int)
            extent, step = (self.extents[digits[0]], sum_.factors[digits[0]]) if digits else (1, 1)
            dims[dim] = BulkDim(extent, step, least - origin, rest.minus(least))
        if len(of) < len(own):
            return "lines are repeated"
        slowest = of[own[-1]]
        last, size = dims[slowest], greatest(self.array.shape[slowest])
        assert size is not None, "sizes are bounded on a GPU"
        goes_on = last.step > 1 or last.first + last.step * last.extent < size
        is_open = not isinstance(self.array.shape[0], int)
        if is_open and (goes_on or slowest != 0 or last.first or not lines.size):
            return "an open dimension is not that of the slowest lines"
        order = tuple(of[i] for i in own)
        return BulkCopy(Index(lines.name), self.near, tuple(dims), order, goes_on)
