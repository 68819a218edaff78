"""How long a kernel takes: as long as the chip's memory, or as its busiest multiprocessor.

*Does it fit.*  A block has at most what a block may have; a multiprocessor holds *resident* blocks,
as many as threads, registers and shared memory allow.

*The chip* moves all bytes at the rates of memory and of the second-level cache.

*A multiprocessor* has the blocks of the kernel / multiprocessors, rounded up; r of them at once,
each of which is followed by another one.  A block asks each of its stations for some time, one
after another, and waits meanwhile for nobody::

    station      D_start     until a block has begun, after the one before it
                 D_own       its bytes at the rate at which a multiprocessor alone loads
                 D_compute   its arithmetic, instructions, lines of the first-level cache or
                             bytes of shared memory: the longest of them
    waiting      Z           folds, barriers, tickets, and what loads take beyond D_own

    block 1   | D |    Z    | D |    Z    |        r = 2: the station is idle at times
    block 2       | D |    Z    | D |    Z    |
    station   |DDDDDDD|.....|DDDDDDD|.....|

How many blocks a second leave is said by mean value analysis of that closed network: who comes to a
station finds there those who would be there on average if he did not exist::

    R_k(n) = D_k (1 + Q_k(n - 1))          the time at station k, one of n blocks
    X(n)   = n / (Z + sum of R_k(n))       blocks a second
    Q_k(n) = X(n) R_k(n)                   blocks at station k

X grows from 1 / (Z + sum of D_k), one block alone, to 1 / max D_k.

*Loads.*  A thread has *in flight* bytes on their way (Little's law), so that a block of b bytes
needs b / (threads x in flight) rounds, of a latency each, with its arithmetic between them.  That
overlaps with D_own where several threads are in different rounds (``_together``).

*The kernel* is the longer of both, and a share more for its last blocks: those that run at once
do not end at once.  It begins with a launch and ends with what only its last block does.

Sources: M. Reiser, S. S. Lavenberg, Mean-value analysis of closed multichain queuing networks, JACM
27(2), 1980, doi:10.1145/322186.322195.  S. Williams, A. Waterman, D. Patterson, Roofline, CACM
52(4), 2009, doi:10.1145/1498765.1498785.  V. Volkov, Understanding latency hiding on GPUs,
dissertation, UC Berkeley, 2016 (bytes in flight, warps x independent instructions).  S. Hong,
H. Kim, An analytical model for a GPU architecture with memory-level and thread-level parallelism
awareness, ISCA 2009, doi:10.1145/1555754.1555775 (waiting and computing warps take turns).
"""

from math import ceil, inf

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.work import Chain, Work
from tcdsl.records import dataclass

# From a sweep of reductions on an H200 (docs/performance_gpu.md).
READ_SHARE = 4.3 / 4.378  # of the rate at which nothing but reads go
# Fitted to measured candidates (benchmarks/candidates.py, an H200).
TAIL = 0.05  # of a kernel whose blocks all run at once; less, the more there are one after another
OVERLAP = 3  # the power of the norm of a block's rounds of loads, and of its bytes
SHARP = 16  # the same, of chip and multiprocessor: almost the longer of them
LINE_CYCLES = 1.0  # of a lookup in the first-level cache
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
    running = min(work.blocks, _usable(work, chip))
    blocks = ceil(work.blocks / running)  # of the busiest multiprocessor
    resident = max(1, min(resident_blocks(work, chip), blocks))
    of_chip = _of_chip(work, chip)
    of_block = _of_block(work, chip, resident)
    stations = _stations(work, of_block)
    waiting = _waiting(work, chip, of_block)
    longest = max(of_chip.values())
    busiest = blocks / _blocks_a_second(resident, stations, waiting)
    body = _together(busiest, longest, SHARP) * (1 + TAIL * resident / blocks)
    launch = work.launches * _launch(work, chip)
    finish = chain_seconds(work.finish, chip) + work.same_atomics * chip.same_atomic_s
    alone = waiting + sum(stations)
    terms = of_chip | {name: blocks * seconds for name, seconds in of_block.items()}
    terms |= {"latency": ceil(blocks / resident) * alone, "launch": launch, "finish": finish}
    terms = {name: seconds for name, seconds in terms.items() if seconds}
    limiter = max(terms, key=lambda name: terms[name], default="launch")
    return Estimate(launch + body + finish, limiter, tuple(terms.items()))


def _together(one: float, other: float, power: float) -> float:
    """Return the time of two things that overlap: a norm of theirs, the longer one at least."""
    longest = max(one, other)
    if longest in (0.0, inf):
        return longest
    return float(longest * ((one / longest) ** power + (other / longest) ** power) ** (1 / power))


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


# --- the chip ----------------------------------------------------------------------------------


def _of_chip(work: Work, chip: Chip) -> dict[str, float]:
    """Return the seconds that memory and the second-level cache need for all bytes."""
    l2 = max(work.l2_bytes, work.dram_bytes) / chip.l2_bytes_per_s
    return {"memory": work.dram_bytes / _dram_rate(work, chip), "L2": l2}


def _dram_rate(work: Work, chip: Chip) -> float:
    """Return the bytes a second that memory moves."""
    read = work.read_bytes / work.dram_bytes if work.dram_bytes else 1.0
    # A kernel that reads alone reads faster than one that also writes; a copy is half and half.
    # Between, what is written costs what it costs a copy.
    mixed = max(0.0, 2 * read - 1)
    reads = READ_SHARE * chip.dram_read_bytes_per_s
    return mixed * reads + (1 - mixed) * chip.dram_copy_bytes_per_s


# --- a multiprocessor --------------------------------------------------------------------------


def _of_block(work: Work, chip: Chip, resident: int) -> dict[str, float]:
    """Return the seconds that a block needs of each unit of its multiprocessor."""
    moved = max(work.l2_bytes, work.dram_bytes)
    start = chip.cluster_block_start_s if work.cluster > 1 else chip.block_start_s
    found = {
        "starts": start * _usable(work, chip),
        "own": moved / work.blocks / chip.multiprocessor_bytes_per_s,
        "L1": LINE_CYCLES * work.lines / work.blocks / chip.clock_hz,
    }
    each = chip.multiprocessors / work.blocks  # of the chip's time
    found["shared memory"] = each * work.shared_traffic_bytes / chip.shared_bytes_per_s
    hidden = _hidden(work, chip, resident)
    for unit, count in work.operations:
        rate = chip.rate(unit)
        found[str(unit)] = each * count / rate / hidden if rate else inf
    a_second = chip.schedulers_per_multiprocessor * chip.clock_hz * chip.multiprocessors
    warps = work.instructions / chip.threads_per_warp
    found["issue"] = each * warps / a_second / hidden
    return found


def _hidden(work: Work, chip: Chip, resident: int) -> float:
    """Return the part of the pipelines' latency that other warps and instructions hide."""
    each = resident * _warps(work, chip) / chip.schedulers_per_multiprocessor
    stalled = 1.0 + work.stalls / max(1.0, each)
    return min(1.0, each * work.independent / PIPELINE_CYCLES) / stalled


def _computing(of_block: dict[str, float]) -> float:
    """Return the seconds of the busiest unit of those that work beside the loads."""
    return max(seconds for name, seconds in of_block.items() if name not in ("starts", "own"))


def _stations(work: Work, of_block: dict[str, float]) -> tuple[float, ...]:
    """Return the times of a block at its stations; who loads ahead computes meanwhile."""
    own, computing = of_block["own"], _computing(of_block)
    both = (max(own, computing),) if work.is_ahead else (own, computing)
    return of_block["starts"], *both


def _waiting(work: Work, chip: Chip, of_block: dict[str, float]) -> float:
    """Return how long a block is at no station: in its chain, and while its loads are on their way.

    It begins with its arguments, from the second-level cache.
    """
    bytes_of_block = max(work.l2_bytes, work.dram_bytes) / work.blocks
    # Stores wait for nobody.
    stored = work.dram_bytes / work.read_bytes if work.read_bytes else 2.0
    rounds = max(1.0, bytes_of_block / (work.threads * work.in_flight_bytes * stored))
    latency = chip.dram_loaded_latency_s if work.dram_bytes else chip.l2_latency_s
    busiest = max(of_block.values())
    loading = rounds * latency + (0.0 if work.is_ahead else _computing(of_block))
    beyond = _together(loading, busiest, OVERLAP) - busiest if bytes_of_block else 0.0
    return chain_seconds(work.chain, chip) + beyond + chip.l2_latency_s


def _blocks_a_second(resident: int, stations: tuple[float, ...], waiting: float) -> float:
    """Return how many blocks leave in a second, of *resident* ones: by mean value analysis."""
    at_stations = [0.0] * len(stations)
    rate = 0.0
    for count in range(1, resident + 1):
        times = [own * (1 + others) for own, others in zip(stations, at_stations, strict=True)]
        rate = count / (waiting + sum(times))
        at_stations = [rate * seconds for seconds in times]
    return rate


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
