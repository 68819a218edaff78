"""How many blocks a multiprocessor has at once, as their registers allow."""

from math import ceil

from tcdsl.costmodel.chip import Chip

OTHER_REGISTERS = 16  # of a thread, beside the values that it keeps, as NVRTC does it
REGISTER_BYTES = 4  # halves stay packed, two in one
# Of a block with so many warps for a producer, which leaves its threads a few registers: those of
# the others have many, which pays from so many sums of a thread on (with fewer, two blocks fit).
PRODUCING_WARPS, FEW_REGISTERS, MANY_REGISTERS = 4, 24, 240
MANY_SUMS = 96


def granted(gpu: Chip, needed: float) -> int:
    """Return the registers that a thread is given which needs so many."""
    return ceil(max(1, needed) / gpu.registers_granule) * gpu.registers_granule


def registers_of(gpu: Chip, kept_bytes: int, others: int = OTHER_REGISTERS) -> int:
    """Return the registers of a thread that keeps *kept_bytes*, and needs *others* beside."""
    return granted(gpu, others + ceil(kept_bytes / REGISTER_BYTES))


def blocks_at_once(gpu: Chip, threads: int, needed: float) -> int:
    """Return how many blocks of *threads* threads a multiprocessor has at once, 0 if none.

    :arg needed: the registers of a thread.
    """
    by_registers = gpu.registers_per_multiprocessor // (threads * granted(gpu, needed))
    by_threads = gpu.threads_per_multiprocessor // threads
    return min(by_registers, by_threads, gpu.blocks_per_multiprocessor)
