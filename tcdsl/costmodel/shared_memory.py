"""Shared memory that folds take of what a block has without asking for it."""

from collections.abc import Iterable

from tcdsl.lang.comprehension import Reduction

STATIC_BYTES = 48 << 10  # of a block
FOLDS_BYTES = 40 << 10  # of it, for folds: some is left for arrays
_PAIR_BYTES = 16  # a value and its index
_WAYS = 2  # for all threads, and for the first of them: each has memory of its own


def fold_bytes(reductions: Iterable[Reduction]) -> int:
    """Return the bytes for each thread of a block that folds *reductions*, one after another.

    Those of the same operator and type use the same memory.
    """
    kinds = {(r.operator, r.dtype.name): r for r in reductions}
    sizes = [_PAIR_BYTES if r.operator.is_arg else r.dtype.size_bytes for r in kinds.values()]
    return _WAYS * sum(sizes)
