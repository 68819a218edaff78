"""The bytes a second that memory moves, by what part of them is read."""

from math import ceil

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.work import Work

# From a sweep of reductions on an H200 (docs/performance_gpu.md).
READ_SHARE = 4.3 / 4.378  # of the rate at which nothing but reads go
FOLDED_ROW_BYTES = 64  # of a row of partial sums, that a block folds: so many blocks load them


def read_rate(chip: Chip) -> float:
    """Return the bytes a second that all multiprocessors together read in a reduction."""
    return READ_SHARE * chip.dram_read_bytes_per_s


def fold_rate(chip: Chip, row_bytes: float) -> float:
    """Return the bytes a second at which partial sums are loaded that are folded.

    :arg row_bytes: of one partial sum of each result, a part of which each block folds.
    """
    loading = max(1, min(chip.multiprocessors, ceil(row_bytes / FOLDED_ROW_BYTES)))
    return min(chip.l2_bytes_per_s, loading * chip.multiprocessor_bytes_per_s)


def dram_rate(work: Work, chip: Chip) -> float:
    """Return the bytes a second that memory moves for *work*.

    A kernel that reads alone reads faster than one that also writes; a copy is half and half.
    Between, what is written costs what it costs a copy.
    """
    read = work.read_bytes / work.dram_bytes if work.dram_bytes else 1.0
    mixed = max(0.0, 2 * read - 1)
    return mixed * read_rate(chip) + (1 - mixed) * chip.dram_copy_bytes_per_s
