"""What updates by atomics take: in memory, and in copies of the result in shared memory.

    in memory    those of one sector follow one another, and all sectors' have a rate at most
    in shared    a warp's at once, but for those whose elements are in one bank: of n that data
                 choose some 1 + log2(n) / 2; of floats each is a loop of compare-and-swap

On an H200, with elements that data choose, updates of one sector took 5 ns each (kmeans_step 1e6 x
32 float32 onto 64 rows of 32: 718 us; moe_gate 65536 int32 onto 64: 36; batch_metrics 2.5e7 int32
onto 6144, of which some 400 take a third: 800).  Onto 175 copies in memory batch_metrics' took some
370 us, in shared memory 60; kmeans_step's in shared memory 110, with blocks enough.  Integers that
a warp updates together, neighbours of a sector, are one update: 512 blocks added 64 counts each in
less than 1 us, where one by one they would take 20.
"""

from math import log2

from tcdsl.costmodel.chip import Chip
from tcdsl.records import dataclass

SAME_SECTOR_S = 5e-9  # that an update delays others of its sector
SECTORS_PER_S = 6.8e10  # in which the chip updates elements, one or all of them
NATIVE_CYCLES = 4.0  # of a warp's updates of integers in shared memory, without conflicts
LOOP_CYCLES = 20.0  # of floats: a loop of compare-and-swap
BANKS = 32


@dataclass(frozen=True, slots=True)
class Updates:
    """So many updates of a target of *elements* elements; *is_native* if they are integers'.

    *apart* threads of a warp update rows of the target that data choose, others their neighbours,
    *step* elements on.
    """

    count: float
    elements: float
    element_bytes: int
    is_native: bool
    apart: int = BANKS
    step: int = 1


def seconds_in_memory(updates: Updates, chip: Chip, copies: int = 1) -> float:
    """Return how long *updates* of memory take, spread over *copies* of their target."""
    of_sector = max(1, chip.sector_bytes // updates.element_bytes)
    sectors = copies * max(1.0, updates.elements / of_sector)
    together = max(1, min(of_sector // updates.step, BANKS // updates.apart))
    rate = updates.count / together / SECTORS_PER_S
    following = updates.count / (together if updates.is_native else 1)
    return max(following * SAME_SECTOR_S / sectors, rate)


def seconds_in_copies(updates: Updates, copies: int, copy_elements: float, chip: Chip) -> float:
    """Return how long they take in *copies* in shared memory, which are then added to memory."""
    warps = updates.count / chip.threads_per_warp / chip.multiprocessors
    cycles = NATIVE_CYCLES if updates.is_native else LOOP_CYCLES
    conflicts = max(1 + log2(updates.apart) / 2, BANKS / max(copy_elements, 1.0))
    inside = warps * cycles * conflicts / chip.clock_hz
    added = min(copies * copy_elements, updates.count)
    at_end = Updates(added, updates.elements, updates.element_bytes, updates.is_native, 1)
    return inside + seconds_in_memory(at_end, chip)


def seconds_of_fold(elements: float, element_bytes: int, copies: int, chip: Chip) -> float:
    """Return how long kernels take that initialise *copies* in memory, and add them up."""
    moved = 2 * copies * elements * element_bytes / chip.l2_bytes_per_s
    return 2 * chip.launch_s + chip.dram_latency_s + moved
