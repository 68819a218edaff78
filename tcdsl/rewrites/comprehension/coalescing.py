"""Coalescing: indices that always stand together, over contiguous dimensions, become one index.

    y(n,c,h,w) = x(n,c,h,w) * s(c)     --->     y(n,c,p) = x(n,c,p) * s(c)      p = h * W + w

Dimensions p and p+1 of a tensor merge iff they are contiguous in memory (the stride of p is the
stride times the extent of p+1) and every access to the tensor subscripts them by two plain indices
(a, b), b running over the whole extent, such that a and b occur nowhere else but in such pairs, in
front of one another, of dimensions that merge too, or in a subscript ``extent * a + b``, which is
the merged index; a and b are both left-hand or both reduced.
Of what is innermost, and shorter than a warp, the outer index may have a number beside it::

    y(w,c) = x(w,c) + x(w+2,c)         --->     y(p) = x(p) + x(p + 2 C)            p = w * C + c

(neighbours are neighbours in memory then, not C apart), but where a recurrence reads its own
results: they would be C apart for no index to run along.
That is a greatest fixed point: all pairs are candidates, and those with an objection fall out until
none does.  Iteration order is kept (p is lexicographic in (a, b)), so that it is always legal.

Nothing is copied: the merged tensor is another view of the same memory, without any division.
Interleaved axes are left to flattening.py.  After Panamera's dimension flattening (PACT 2022,
doi:10.1145/3559009.3569656), which does the same before scheduling, for isl avoids it.
"""

from collections.abc import Iterator

from tcdsl.lang.comprehension import Comprehension, Expr, Index, Statement
from tcdsl.lang.ranges.open_sizes import AnySpecialisation, Extent, is_range, is_same_extent
from tcdsl.rewrites.comprehension.merging import (
    AnyRanges,
    Coalesced,
    Groups,
    Strides,
    accesses_of,
    indices_elsewhere,
    merge,
    near_index,
    run_of,
)

SHORT = 32  # neighbours in memory, of which the threads of a warp have several
Pair = tuple[str, int]  # (tensor, p): the dimensions p and p + 1


def coalesce(c: Comprehension, special: AnySpecialisation, strides: Strides) -> Coalesced:
    """Return *c* with every pair of dimensions merged that may be."""
    pairs = mergeable_pairs(c, special, strides)
    merged = {name: _groups(tensor.rank, name, pairs) for name, tensor in c.tensors.items()}
    if not pairs:
        return Coalesced(c, special, strides, merged, ({},) * len(c.statements))
    return merge(c, special, strides, merged)


def mergeable_pairs(c: Comprehension, special: AnySpecialisation, strides: Strides) -> set[Pair]:
    """Return the greatest set of dimension pairs that merge (see the module's docstring)."""
    pairs = {
        (name, p)
        for name, tensor in c.tensors.items()
        for p in range(tensor.rank - 1)
        if _is_contiguous(name, p, special, strides)
    }
    uses = [_Uses(s, r, special) for s, r in zip(c.statements, special.ranges, strict=True)]
    while True:
        refused = {pair for use in uses for pair in use.refused(pairs)}
        if not refused:
            return pairs
        pairs -= refused


def _is_contiguous(name: str, p: int, special: AnySpecialisation, strides: Strides) -> bool:
    """Return whether p and p + 1 are contiguous; never across an open stride.

    An open extent may be the inner one where those before it are numbers: the product of two open
    sizes would be no affine function of them.
    """
    *before, inner = special.shapes[name][: p + 2]
    origin, steps = special.origins[name][p + 1], strides.get(name)
    if not isinstance(origin, int) or origin != 0:
        return False
    if not isinstance(inner, int):
        return steps is None and all(isinstance(extent, int) for extent in before)
    if steps is None:
        return True
    outer_step, step = steps[p], steps[p + 1]
    return isinstance(step, int) and outer_step == step * inner


class _Uses:
    """Where one statement's indices occur."""

    def __init__(self, statement: Statement, ranges: AnyRanges, special: AnySpecialisation) -> None:
        self.statement = statement
        self.ranges = ranges
        self.special = special
        self.accesses = list(accesses_of(statement))
        self.elsewhere = set(indices_elsewhere(statement, but_in_runs=True))
        subscripts = (s for _, own in self.accesses for s in own)
        self.runs = {run for s in subscripts if (run := run_of(s)) is not None}

    def refused(self, pairs: set[Pair]) -> Iterator[Pair]:
        """Yield the pairs of tensors used here that cannot merge if *pairs* are all that may."""
        for tensor, subscripts in self.accesses:
            for p in range(len(subscripts) - 1):
                if (tensor, p) in pairs and not self._accepts(tensor, p, subscripts, pairs):
                    yield tensor, p

    def _accepts(self, tensor: str, p: int, subscripts: tuple[Expr, ...], pairs: set[Pair]) -> bool:
        first, second = near_index(subscripts[p]), subscripts[p + 1]
        if first is None or not isinstance(second, Index):
            return False
        (a, far), b = first, second.name
        extent = self.special.shapes[tensor][p + 1]
        if far and not self._may_be_far(tensor, p, extent):
            return False
        if a == b or {a, b} & self.elsewhere or not is_range(self.ranges[b], extent):
            return False
        own = (a, b, extent if isinstance(extent, int) else 0)
        if any({a, b} & {run[0], run[1]} and run != own for run in self.runs):
            return False
        left = self.statement.left
        if (a in left) != (b in left) or not self._keeps_order(a, b):
            return False
        return all(
            self._stands_in_pair(other, place, found, (a, b), extent, pairs)
            for other, found in self.accesses
            for place, subscript in enumerate(found)
            if (near := near_index(subscript)) is not None and near[0] in (a, b)
        )

    def _may_be_far(self, tensor: str, p: int, extent: Extent) -> bool:
        """Return whether the outer one of p and p + 1 may have a number beside it."""
        is_innermost = p + 2 == len(self.special.shapes[tensor])
        is_short = isinstance(extent, int) and extent < SHORT
        return is_innermost and is_short and tensor != self.statement.target

    def _keeps_order(self, a: str, b: str) -> bool:
        """Return whether merging keeps the order of instances, which matters to a recurrence."""
        names = self.statement.indices
        if names.index(b) == names.index(a) + 1:
            return True
        target = self.statement.target
        return not any(
            name == target and subscripts != self.statement.subscripts
            for name, subscripts in self.accesses
        )

    def _stands_in_pair(
        self,
        tensor: str,
        place: int,
        subscripts: tuple[Expr, ...],
        names: tuple[str, str],
        extent: Extent,
        pairs: set[Pair],
    ) -> bool:
        """Return whether an occurrence of a or b is half of a mergeable pair (a, b)."""
        a, b = names
        own = near_index(subscripts[place])
        assert own is not None
        p = place if own[0] == a else place - 1
        if (tensor, p) not in pairs:
            return False
        first, second = near_index(subscripts[p]), subscripts[p + 1]
        if first is None or not isinstance(second, Index):
            return False
        is_same = is_same_extent(self.special.shapes[tensor][p + 1], extent)
        return (first[0], second.name) == (a, b) and is_same


def _groups(rank: int, name: str, pairs: set[Pair]) -> Groups:
    """Return the dimensions of a tensor, those that merge together in one tuple."""
    groups: list[tuple[int, ...]] = []
    for dim in range(rank):
        if dim and (name, dim - 1) in pairs:
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    return tuple(groups)
