"""How long a kernel takes: a limit for every unit of the chip, and what one block waits for.

*Does it fit.*  A block has at most what a block may have; a multiprocessor holds *resident* blocks,
as many as threads, registers and shared memory allow, and the chip a *wave* of them at once.

*Limits of a wave* of n blocks, each the time that one unit needs for all of them::

    memory      bytes / min(rate, multiprocessors that run x the rate of one alone,
                            bytes in flight / latency)                              (Little's law)
    L2, shared  bytes / rate
    units       operations / rate x multiprocessors that run; divided by the part of the latency of
                an instruction that warps x independent instructions hide
    issue       instructions of warps / (schedulers x clock)

*Blocks take turns*: where one waits, others of its multiprocessor use the unit.  With r blocks
there, of which each needs the busiest unit for m and waits in its chain for c::

    r = 1   | m |   c   | m |   c   |         a wave takes m + c
    r = 3   | m | m | m |                     a wave takes max(r m, m + c)
                | c     |

so that a wave is limited by a unit or by one block's latency.  Blocks wait at times that chance
says: while several do, the unit is idle, so that terms of like length take longer together than
the longest of them (``_together``).  *Waves*: those that are full, and
the last one at the rate that its blocks reach; where blocks are few, multiprocessors idle (the
``WBRatio`` of DeepCuts), and one may have a block more than others (*own*: what it loads, at its
own rate).  A kernel begins with a launch, until the chip is full of loads, and ends with what only
its last block does.

Sources: S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009,
doi:10.1145/1498765.1498785.  W. Jung, T. T. Dao, J. Lee, DeepCuts: a deep learning optimization
framework for versatile GPU workloads, PLDI 2021, doi:10.1145/3453483.3454038 (roofline x latency
of shared memory x wave balance x fits).  V. Volkov, Understanding latency hiding on GPUs,
dissertation, UC Berkeley, 2016 (bytes in flight, warps x independent instructions).  S. Hong,
H. Kim, An analytical model for a GPU architecture with memory-level and thread-level parallelism
awareness, ISCA 2009, doi:10.1145/1555754.1555775 (waiting and computing warps take turns).
"""

from collections.abc import Mapping
from math import ceil, hypot, inf, sqrt

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.work import Chain, Work
from tcdsl.records import dataclass

# From a sweep of reductions on an H200 (docs/performance_gpu.md).
READ_SHARE = 4.3 / 4.378  # of the rate at which nothing but reads go
# Of the first loads' latency, of a chip full of threads: until all of it loads, and at its end.
FILL = 0.28 / (0.8e-6 * 270336)
LINE_CYCLES = 2.07  # of a lookup in the first-level cache
MOVING = ("memory", "L2")
WAITS = 1.6  # of a block among others, for each of one that is alone
PIPELINE_CYCLES = 4  # of an arithmetic instruction, since Volta (Maxwell 6, Kepler 9: Volkov)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long *work* takes, what limits it, and what each term alone would take, in seconds.

    A kernel that does not fit takes an infinite time, and *why_not* says why.
    """

    seconds: float
    limiter: str
    terms: tuple[tuple[str, float], ...] = ()
    why_not: str | None = None

    def term(self, name: str) -> float:
        return dict(self.terms).get(name, 0.0)


def estimate(work: Work, chip: Chip) -> Estimate:
    """Return how long *work* takes on *chip*."""
    if reason := why_not_fitting(work, chip):
        return Estimate(inf, "does not fit", why_not=reason)
    resident = resident_blocks(work, chip)
    wave = max(1, resident) * _usable(work, chip)
    full, late = divmod(work.blocks, wave)
    limits: dict[str, float] = {}
    streaming = 0.0
    for count, blocks in ((full, wave), (1, late)):
        if count and blocks:
            of_wave = _limits(work, chip, blocks)
            may_wait = bool(work.chain.block_barriers) and resident <= 1
            streaming += count * _busy(of_wave, is_alone=may_wait)
            for name, seconds in of_wave.items():
                limits[name] = limits.get(name, 0.0) + count * seconds
    waves = full + (late > 0)
    latency = waves * _alone(work, chip)
    waits = WAITS * (waves - 1) * _waiting(work, chip)
    # What one multiprocessor loads, of which some have a block more than others.
    share = ceil(work.blocks / chip.multiprocessors) / work.blocks * work.dram_bytes
    own = share / chip.multiprocessor_bytes_per_s
    fill = min(_fill(work, chip, min(work.blocks, wave)), streaming / 2)
    launch = work.launches * _launch(work, chip)
    finish = chain_seconds(work.finish, chip) + work.same_atomics * chip.same_atomic_s
    starts = work.blocks * (chip.cluster_block_start_s if work.cluster > 1 else chip.block_start_s)
    body = hypot(max(latency, _together(max(streaming + fill, own), waits)), starts)
    limits |= {"latency": latency, "own": own, "starts": starts, "launch": launch, "finish": finish}
    limiter = max(limits, key=lambda name: limits[name])
    return Estimate(launch + body + finish, limiter, tuple(limits.items()))


def _fill(work: Work, chip: Chip, blocks: int) -> float:
    """Return what it costs that the chip fills with loads, and empties: less, the more threads."""
    if not work.dram_bytes or work.is_ahead:
        return 0.0
    return FILL * chip.dram_latency_s * chip.threads / (blocks * work.threads)


def _together(one: float, other: float) -> float:
    """Return the time of two things that overlap, but for what chance puts one after the other.

    Of powers: the first would add them, the infinite one take the longer; this is the fourth.
    """
    return sqrt(hypot(one**2, other**2))


def _busy(limits: Mapping[str, float], *, is_alone: bool) -> float:
    """Return how long the units of a wave are busy: at once, as far as other blocks load meanwhile.

    A block that *is_alone* on its multiprocessor, and whose threads wait for one another between
    loads and arithmetic, takes the sum.
    """
    longest = max(limits.values(), default=0.0)
    if not is_alone:
        return longest
    moving = max((s for name, s in limits.items() if name in MOVING), default=0.0)
    computing = max((s for name, s in limits.items() if name not in MOVING), default=0.0)
    return longest + min(moving, computing)


def _waiting(work: Work, chip: Chip) -> float:
    """Return how long a block loads nothing: until its first bytes are there, and in its chain."""
    first = chip.dram_latency_s if work.read_bytes else 0.0
    return first + chain_seconds(work.chain, chip)


def _launch(work: Work, chip: Chip) -> float:
    may_overlap = work.is_programmatic and chip.overlaps_kernels
    return chip.programmatic_launch_s if may_overlap else chip.launch_s


# --- does it fit -------------------------------------------------------------------------------


def why_not_fitting(work: Work, chip: Chip) -> str | None:
    """Return why no block of *work* can run on *chip*, None if some can."""
    registers = _registers(work, chip) * _warps(work, chip) * chip.threads_per_warp
    for what, has, most in (
        ("threads", work.threads, chip.threads_per_block),
        ("bytes of shared memory", work.shared_bytes, chip.shared_bytes_per_block),
        ("registers a thread", work.registers, chip.registers_per_thread),
        ("registers", registers, chip.registers_per_multiprocessor),
    ):
        if has > most:
            return f"a block would have {has} {what}, of {most} at most"
    if work.cluster > chip.blocks_per_cluster:
        return f"a cluster would have {work.cluster} blocks, of {chip.blocks_per_cluster} at most"
    return None if work.blocks > 0 else "there are no blocks"


def resident_blocks(work: Work, chip: Chip) -> int:
    """Return how many blocks of *work* a multiprocessor holds at once, 0 if none."""
    warps = _warps(work, chip)
    by_warps = chip.threads_per_multiprocessor // chip.threads_per_warp // warps
    by_registers = chip.registers_per_multiprocessor // (
        _registers(work, chip) * warps * chip.threads_per_warp
    )
    shared = work.shared_bytes + chip.reserved_shared_bytes_per_block
    by_shared = chip.shared_bytes_per_multiprocessor // shared
    return min(by_warps, by_registers, by_shared, chip.blocks_per_multiprocessor)


def _warps(work: Work, chip: Chip) -> int:
    return max(1, ceil(work.threads / chip.threads_per_warp))


def _registers(work: Work, chip: Chip) -> int:
    """Return the registers that a thread is given."""
    return ceil(max(1, work.registers) / chip.registers_granule) * chip.registers_granule


def _usable(work: Work, chip: Chip) -> int:
    """Return the multiprocessors that blocks can be on."""
    share = chip.cluster_share if work.cluster > 1 else 1.0
    return max(1, int(chip.multiprocessors * share))


# --- limits of a wave --------------------------------------------------------------------------


def _limits(work: Work, chip: Chip, blocks: int) -> dict[str, float]:
    """Return the seconds that each unit needs for *blocks* blocks that run at once."""
    part = blocks / work.blocks
    running = min(blocks, _usable(work, chip))  # multiprocessors that have a block
    busiest = ceil(blocks / running) * running / blocks  # they have whole blocks
    of_chip = running / chip.multiprocessors
    found = {}
    if work.dram_bytes:
        found["memory"] = part * work.dram_bytes / _dram_rate(work, chip, blocks)
    if crossing := max(work.l2_bytes, work.dram_bytes):
        own = running * chip.multiprocessor_bytes_per_s
        rate = min(chip.l2_bytes_per_s, own, _in_flight(work, blocks) / chip.l2_latency_s)
        found["L2"] = part * crossing / rate
    on_chip = part * busiest / of_chip
    if work.lines:
        found["L1"] = on_chip * LINE_CYCLES * work.lines / (chip.clock_hz * chip.multiprocessors)
    if work.shared_traffic_bytes:
        found["shared memory"] = on_chip * work.shared_traffic_bytes / chip.shared_bytes_per_s
    hidden = _hidden(work, chip, ceil(blocks / running))
    for unit, count in work.operations:
        rate = chip.rate(unit)
        found[str(unit)] = on_chip * count / rate / hidden if rate else inf
    if work.instructions:
        a_second = chip.schedulers_per_multiprocessor * chip.clock_hz * chip.multiprocessors
        warps = work.instructions / chip.threads_per_warp
        found["issue"] = on_chip * warps / a_second / hidden
    return found


def _dram_rate(work: Work, chip: Chip, blocks: int) -> float:
    """Return the bytes a second that *blocks* blocks move at once."""
    read = work.read_bytes / work.dram_bytes
    # A kernel that reads alone reads faster than one that also writes; a copy is half and half.
    # Between, what is written costs what it costs a copy.
    mixed = max(0.0, 2 * read - 1)
    reads = READ_SHARE * chip.dram_read_bytes_per_s
    rate = mixed * reads + (1 - mixed) * chip.dram_copy_bytes_per_s
    own = min(blocks, chip.multiprocessors) * chip.multiprocessor_bytes_per_s
    return min(rate, own, _in_flight(work, blocks) / chip.dram_loaded_latency_s)


def _in_flight(work: Work, blocks: int) -> float:
    """Return the bytes that are on their way while *blocks* blocks run (stores wait for nobody)."""
    moved = work.dram_bytes / work.read_bytes if work.read_bytes else 2.0
    return max(1.0, blocks * work.threads * work.in_flight_bytes * moved)


def _hidden(work: Work, chip: Chip, resident: int) -> float:
    """Return the part of the pipelines' latency that other warps and instructions hide."""
    each = resident * _warps(work, chip) / chip.schedulers_per_multiprocessor
    stalled = 1.0 + work.stalls / max(1.0, each)
    return min(1.0, each * work.independent / PIPELINE_CYCLES) / stalled


def _alone(work: Work, chip: Chip) -> float:
    """Return the seconds of a block between its start and its end, if nobody is in its way."""
    limits = _limits(work, chip, 1)
    if work.dram_bytes:  # the memory is idle, and cold
        rate = min(chip.multiprocessor_bytes_per_s, _in_flight(work, 1) / chip.dram_latency_s)
        first = chip.dram_latency_s if work.read_bytes else 0.0
        limits["memory"] = max(first, work.dram_bytes / work.blocks / rate)
    return max(limits.values(), default=0.0) + chain_seconds(work.chain, chip)


def chain_seconds(chain: Chain, chip: Chip) -> float:
    """Return how long the things of *chain* take, one after another."""
    return (
        chain.dram_loads * chip.dram_latency_s
        + chain.l2_loads * chip.l2_latency_s
        + chain.shared_loads * chip.shared_latency_s
        + chain.block_barriers * chip.block_barrier_s
        + chain.cluster_barriers * chip.cluster_barrier_s
        + chain.grid_barriers * chip.grid_barrier_s
        + chain.atomics * chip.atomic_s
        + chain.cycles / chip.clock_hz
    )
