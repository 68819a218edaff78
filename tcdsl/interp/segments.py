"""The instances of ranges from data, listed: as many as there are, not as many as there may be.

    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r+1)

    ptr = 0 2 2 5     --->    r = 0    e = 0 1 .        a batch of rows of like lengths, padded to
                              r = 2    e = 2 3 4        the longest: (rows, length) instances

An index of a data range that is on the left, or that the bounds of another one mention, is listed
value by value: then a row is one pair, one triple, ...
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.interp.instances import Box, Instances, boxes, grid, is_injective, is_sequential
from tcdsl.lang.comprehension import IndexBounds, Statement
from tcdsl.lang.ranges.data_ranges import checked_with, ordered
from tcdsl.lang.ranges.reads import index_names
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """Instances whose first *lead* axes are left-hand; *first*: where arg reductions count from.

    That is the offset of the last axis' first value in the range of the last index: a number, or
    one a row.
    """

    instances: Instances
    lead: int
    first: int | Array


@dataclass(frozen=True, slots=True)
class Rows:
    """Instances in a list, *count* of them: *env* has the values of each index."""

    env: Mapping[str, Array]
    count: int

    def instances(self) -> Instances:
        return Instances(self.env, (self.count,), np.ones((), bool))

    def chosen(self, positions: Array) -> "Rows":
        return Rows({v: values[positions] for v, values in self.env.items()}, len(positions))

    def repeated(self, index: str, low: Array, counts: Array) -> "Rows":
        """Return every row once for each value ``low, low + 1, ...`` of *index*."""
        rows = np.repeat(np.arange(self.count), counts)
        before = np.cumsum(counts) - counts
        values = np.arange(len(rows)) - before[rows] + low[rows]
        return Rows({**self.chosen(rows).env, index: values}, len(rows))


BoundsOf = Callable[[IndexBounds, Rows], tuple[Array, Array]]


def is_listed(st: Statement) -> bool:
    """Return whether the instances of *st* are listed: in any order, and each for itself."""
    if not st.data_ranges or len(ordered(st.data_ranges)) < len(st.data_ranges):
        return False
    on_left = {bounds.index for bounds in st.data_ranges} & set(st.left)
    if st.reduction is None:
        return is_injective(st) and not is_sequential(st)
    return not (on_left and (st.reduction.operator.is_arg or is_sequential(st)))


def bounds_of(st: Statement, indices: Collection[str]) -> list[IndexBounds]:
    """Return the affine ranges of *st* that are about *indices* alone."""
    return [b for b in st.explicit if {b.index, *index_names(b.lower, b.upper)} <= set(indices)]


def checked_instances(st: Statement, clause: IndexBounds, ranges: Mapping[str, range]) -> Instances:
    """Return the values of the indices at which the bounds of *clause* must be in range."""
    needed = set(index_names(clause.lower, clause.upper))
    for other in checked_with(st, clause):
        needed |= set(index_names(other.lower, other.upper))
    used = tuple(v for v in st.indices if v in needed)
    return grid(used, tuple(ranges[v] for v in used))


def listed(st: Statement, ranges: Box, limit: int, bounds: BoundsOf) -> Iterator[Batch]:
    """Yield the instances in the data ranges of *st*, at most *limit* at once or one row.

    :arg ranges: of the indices of *st*, without the data ranges.
    :arg bounds: evaluates a data range at some rows.
    """
    whole = dict(zip(st.indices, ranges, strict=True))
    clauses = ordered(st.data_ranges)
    ranged = list(dict.fromkeys(clause.index for clause in clauses))
    dense = tuple(v for v in st.indices if v not in ranged)
    padded = ranged[-1] if ranged[-1] in st.reduced else None

    def span(rows: Rows, index: str) -> tuple[Array, Array]:
        """Return the values of *index* that each of *rows* has: the first, and how many."""
        low = np.full(rows.count, whole[index].start)
        high = np.full(rows.count, whole[index].stop)
        for clause in clauses:
            if clause.index == index:
                first, last = bounds(clause, rows)
                low, high = np.maximum(low, first), np.minimum(high, last)
        return low, np.maximum(high - low, 0)

    for box in boxes(tuple(whole[v] for v in dense), limit):
        rows = _listed_box(dense, box)
        for index in ranged[: len(ranged) - (padded is not None)]:
            rows = rows.repeated(index, *span(rows, index))
        if padded is None and rows.count:
            yield _in_order(st, rows)
        elif padded is not None:
            yield from _padded(rows, padded, whole[padded].start, limit, *span(rows, padded))


def _listed_box(indices: tuple[str, ...], box: Box) -> Rows:
    """Return the points of *box* as a list, in lexicographic order."""
    shape = tuple(map(len, box))
    env = grid(indices, box).env
    flat = {v: np.broadcast_to(values, shape).reshape(-1) for v, values in env.items()}
    return Rows(flat, math.prod(shape))


def _in_order(st: Statement, rows: Rows) -> Batch:
    """Return *rows* in the order of their left-hand indices, one instance each."""
    keys = [rows.env[v] for v in reversed(st.left)]
    if keys:
        rows = rows.chosen(np.lexsort(keys))
    env = {v: values[:, None] for v, values in rows.env.items()}
    return Batch(Instances(env, (rows.count, 1), np.ones((), bool)), 1, 0)


def _padded(
    rows: Rows, index: str, start: int, limit: int, low: Array, counts: Array
) -> Iterator[Batch]:
    """Yield *rows* with the values of *index* as a second axis, those of like lengths together."""
    kinds = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    for kind in np.unique(kinds[counts > 0]):
        members = np.flatnonzero((kinds == kind) & (counts > 0))
        length = int(counts[members].max())
        step = max(1, limit // length)
        for part in (members[at : at + step] for at in range(0, len(members), step)):
            env = {v: values[:, None] for v, values in rows.chosen(part).env.items()}
            offsets = np.arange(length)
            env[index] = low[part][:, None] + offsets
            active = offsets < counts[part][:, None]
            env[index] = np.where(active, env[index], low[part][:, None])
            yield Batch(Instances(env, active.shape, active), 1, low[part] - start)
