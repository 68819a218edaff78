"""Ranges from data as what they are to isl: conditions, which loops may keep instead of guards.

    S[r, e] : 0 <= r < R and 0 <= e < E,  if ptr(r) <= e && e < ptr(r+1)
        --->    for r:  for (e = max(0, ptr[r]); e < min(E, ptr[r+1]); e++)  S

A statement is in the box that is known without the data, so that dependences, races, bounds and
completeness are those of whatever the data may hold.  Its conditions say which instances run, and
rewrites treat them as any others.  A loop over e *keeps* them iff the bounds are the same in all of
its iterations: they mention other indices alone, whose loops are outside, and no array that the
statement writes.  Where no loop does, they remain guards: right, but not in proportion.
"""

from collections.abc import Iterator
from math import prod
from weakref import WeakKeyDictionary

from tcdsl.lang.comprehension import Binary, Cast, Expr, Index, IndexBounds, Load, walk
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.types.dtypes import BOOL
from tcdsl.lang.types.elaborate import converted, joined
from tcdsl.poly.scop import Statement
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class DataRange:
    """``lowers[k] <= x_dim`` and ``x_dim < uppers[k]``: what *conditions* of a statement say."""

    dim: int
    lowers: tuple[Expr, ...]
    uppers: tuple[Expr, ...]
    conditions: tuple[Expr, ...]

    @property
    def key(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """What is equal for statements that run for the same values."""
        return self.lowers, self.uppers

    @property
    def indices(self) -> tuple[str, ...]:
        """The indices that the bounds mention."""
        return index_names(*self.lowers, *self.uppers)


def comparisons(bounds: IndexBounds) -> tuple[Expr, Expr]:
    """Return ``lower <= index`` and ``index < upper``."""
    index = Index(bounds.index, span=bounds.span)
    return _comparison("<=", bounds.lower, index), _comparison("<", index, bounds.upper)


def _comparison(op: str, left: Expr, right: Expr) -> Expr:
    dtype = joined(left.dtype, right.dtype)
    return Binary(op, converted(left, dtype), converted(right, dtype), BOOL, left.span)


_known: WeakKeyDictionary[Statement, tuple[DataRange, ...]] = WeakKeyDictionary()


def data_ranges_of(statement: Statement) -> tuple[DataRange, ...]:
    """Return the ranges that conditions of *statement* give to its indices, at most one to each."""
    if not statement.conditions:
        return ()
    if statement not in _known:
        _known[statement] = tuple(_found(statement))
    return _known[statement]


def _found(statement: Statement) -> Iterator[DataRange]:
    written = {write.array for write in statement.writes}
    for dim, index in enumerate(statement.indices):
        lowers: dict[Expr, Expr] = {}  # the bound, and the condition that it is of
        uppers: dict[Expr, Expr] = {}
        for condition in statement.conditions:
            match condition:
                case Binary(op="<=", left=bound, right=other) if _is_index(other, index):
                    found = lowers
                case Binary(op="<", left=other, right=bound) if _is_index(other, index):
                    found = uppers
                case _:
                    continue
            if not _loaded(bound) & written and index not in index_names(bound):
                found[bound] = condition
        if lowers and uppers and any(map(_loaded, (*lowers, *uppers))):
            conditions = (*lowers.values(), *uppers.values())
            yield DataRange(dim, tuple(lowers), tuple(uppers), conditions)


def _loaded(expr: Expr) -> set[str]:
    """Return the arrays that *expr* reads."""
    return {node.tensor for node in walk(expr) if isinstance(node, Load)}


def _is_index(expr: Expr, index: str) -> bool:
    """Return whether *expr* is the index, perhaps as a wider integer."""
    while isinstance(expr, Cast) and expr.dtype.is_integer and expr.dtype.size_bytes >= 4:
        expr = expr.operand
    return isinstance(expr, Index) and expr.name == index


def range_of_dim(statement: Statement, dim: int) -> DataRange | None:
    """Return the range from data of dimension *dim* of *statement*, None if it has none."""
    return next((found for found in data_ranges_of(statement) if found.dim == dim), None)


def is_scattered_by_range(statement: Statement) -> bool:
    """Return whether reduced indices say to which left-hand ones a range belongs.

    Its loop is inside theirs, and so are the updates of one element all over.
    """
    return any(
        found.dim < statement.n_left and set(found.indices) & set(statement.reduced)
        for found in data_ranges_of(statement)
    )


def typical_counts(statement: Statement, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return *extents*, those of ranges from data as if all of these together were one range.

    So many entries a row has a matrix of E entries in R rows: E / R.  What is rare has none.
    """
    counts = list(extents)
    for found in data_ranges_of(statement):
        if statement.is_rare:
            counts[found.dim] = 0
            continue
        rows = prod(extents[statement.indices.index(name)] for name in found.indices)
        counts[found.dim] = max(1, extents[found.dim] // max(rows, 1)) if extents[found.dim] else 0
    return tuple(counts)


def after_bounds(statement: Statement, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return *order* with every range from data below the indices that its bounds mention."""
    dims = list(order)
    for _ in order:  # one range may be within another
        for found in data_ranges_of(statement):
            needed = [dims.index(statement.indices.index(name)) for name in found.indices]
            at = dims.index(found.dim)
            if needed and max(needed) > at:
                dims.insert(max(needed), dims.pop(at))
    return tuple(dims)
