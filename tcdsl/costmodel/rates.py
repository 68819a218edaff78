"""The bytes a second that memory moves, by what part of them is read."""

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.work import Work

# From a sweep of reductions on an H200 (docs/performance_gpu.md).
READ_SHARE = 4.3 / 4.378  # of the rate at which nothing but reads go


def read_rate(chip: Chip) -> float:
    """Return the bytes a second that all multiprocessors together read in a reduction."""
    return READ_SHARE * chip.dram_read_bytes_per_s


def dram_rate(work: Work, chip: Chip) -> float:
    """Return the bytes a second that memory moves for *work*.

    A kernel that reads alone reads faster than one that also writes; a copy is half and half.
    Between, what is written costs what it costs a copy.
    """
    read = work.read_bytes / work.dram_bytes if work.dram_bytes else 1.0
    mixed = max(0.0, 2 * read - 1)
    return mixed * read_rate(chip) + (1 - mixed) * chip.dram_copy_bytes_per_s
