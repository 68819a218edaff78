"""Does a block fit, and how many of them does a multiprocessor hold at once?

As many as threads, registers and shared memory allow.
"""

from math import ceil

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.registers import blocks_at_once, granted
from tcdsl.costmodel.work import Work

PIPELINE_CYCLES = 4  # of an arithmetic instruction, since Volta (Maxwell 6, Kepler 9: Volkov)


def why_not_fitting(work: Work, chip: Chip) -> str | None:
    """Return why no block of *work* can run on *chip*, None if some can."""
    registers = granted(chip, work.registers) * _whole_warps(work, chip)
    for what, has, most in (
        ("threads", work.threads, chip.threads_per_block),
        ("bytes of shared memory", work.shared_bytes, chip.shared_bytes_per_block),
        ("registers a thread", work.registers, chip.registers_per_thread),
        ("registers", registers, chip.registers_per_multiprocessor),
    ):
        if has > most:
            return f"a block would have {has} {what}, of {most} at most"
    most = chip.most_blocks_per_cluster
    if work.cluster > most:
        return f"a cluster would have {work.cluster} blocks, of {most} at most"
    return None if work.blocks > 0 else "there are no blocks"


def resident_blocks(work: Work, chip: Chip) -> int:
    """Return how many blocks of *work* a multiprocessor holds at once, 0 if none."""
    shared = work.shared_bytes + chip.reserved_shared_bytes_per_block
    by_shared = chip.shared_bytes_per_multiprocessor // shared
    return min(by_shared, blocks_at_once(chip, _whole_warps(work, chip), work.registers))


def warps_of(work: Work, chip: Chip) -> int:
    return max(1, ceil(work.threads / chip.threads_per_warp))


def _whole_warps(work: Work, chip: Chip) -> int:
    """Return the threads that a block takes the room of."""
    return warps_of(work, chip) * chip.threads_per_warp


def usable(work: Work, chip: Chip) -> int:
    """Return the multiprocessors that blocks can be on.

    Neighbours make room for pairs, of which no other waits for a place, or which end together, as
    those of products do; larger clusters leave some.  Of the largest ones few find a group of
    multiprocessors that has them all: seven of sixteen blocks on an H200, 112 of 132.
    """
    if work.cluster > chip.blocks_per_cluster:
        return min(chip.multiprocessors, chip.largest_clusters * work.cluster)
    is_paired = work.cluster == 2 and (work.blocks <= chip.multiprocessors or work.is_tiled)
    share = 1.0 if work.cluster == 1 or is_paired else chip.cluster_share
    return max(1, int(chip.multiprocessors * share))


def threads_at_once(work: Work, chip: Chip) -> int:
    """Return the threads of *work* that the busiest multiprocessor has at once."""
    blocks = ceil(work.blocks / min(work.blocks, usable(work, chip)))
    return min(blocks, resident_blocks(work, chip)) * work.threads


def hidden(work: Work, chip: Chip, resident: int) -> float:
    """Return the part of the pipelines' latency that other warps and instructions hide."""
    each = resident * warps_of(work, chip) / chip.schedulers_per_multiprocessor
    stalled = 1.0 + work.stalls / max(1.0, each)
    return min(1.0, each * work.independent / PIPELINE_CYCLES) / stalled
