"""Shared memory that folds take of what a block has without asking for it."""

from collections.abc import Iterable

from tcdsl.costmodel.chip import WARP
from tcdsl.lang.comprehension import Reduction

STATIC_BYTES = 48 << 10  # that a block of any GPU may declare
FOLDS_BYTES = 40 << 10  # of it, for folds: some is left for arrays
_PAIR_BYTES = 16  # a value and its index
_WAYS = 2  # for all threads, and for the first of them: each has memory of its own


def fold_bytes(reductions: Iterable[Reduction]) -> int:
    """Return the bytes for each thread of a block that folds *reductions*, one after another.

    Those of the same operator and type use the same memory.  It is an upper bound, for who does not
    know yet which threads fold.
    """
    kinds = {(r.operator, r.dtype.name): r for r in reductions}
    sizes = [_PAIR_BYTES if r.operator.is_arg else r.dtype.size_bytes for r in kinds.values()]
    return _WAYS * sum(sizes)


def row_slots(row: int, rows: int) -> int:
    """Return how many values a block keeps that folds *rows* of *row* threads, each on its own.

    One for each part of a row that is in one warp (device library, ``tc_fold_row``).
    """
    if row <= WARP and _is_power_of_two(row):
        return 0
    may_straddle = row % WARP != 0 and rows > 1
    return rows * (-(-row // WARP) + may_straddle)


def column_slots(x: int, y: int) -> int:
    """Return how many values a block keeps that folds *x* columns of *y* threads, each on its own.

    Narrow columns are folded within warps first (device library, ``tc_fold_column``).
    """
    is_in_warps = x < WARP and _is_power_of_two(x) and x * y % WARP == 0
    height = x * y // WARP if is_in_warps else y
    return height * x if height > 1 else 0


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0
