"""How long a kernel takes: as long as memory, or as the busiest of the units that compute.

Both work at the same time, on any machine, and begin with a start that costs something by itself::

    t = start + together(busiest unit, memory) + end     together: a norm, the longer one at least

*A CPU.*  A unit is a core, and each phase of a kernel has a term of its own, after the forks that
start the threads.  It computes while what it reads comes nearer, level by level::

    core      |  max(operations / rate, l1_bytes / rate, waits) + starts   |   of each thread
    beyond    |  l2_bytes / rate + l3_bytes / rate | memory, which threads share

A byte from memory goes through all caches, one after another: the execution-cache-memory model.

*A GPU.*  A unit is a multiprocessor, and how busy it is depends on the blocks that it holds.

*Does it fit.*  A block has at most what a block may have; a multiprocessor holds *resident* blocks,
as many as threads, registers and shared memory allow.

*The chip* moves all bytes at the rates of memory and of the second-level cache.

*A multiprocessor* has b of the kernel's blocks (those of the busiest one: rounded up), r of them at
once, and each that ends is followed by another one.  A block uses the stations of its
multiprocessor, one after another, and waits in between for what is no station::

    station      D_start     until a block has begun, after the one before it
                 D_own       its bytes at the rate at which a multiprocessor alone loads
                 D_compute   its arithmetic, instructions, lines of the first-level cache or
                             bytes of shared memory: the longest of them
    waiting      Z           folds, barriers, tickets, and what loads take beyond D_own

    block 1   | D |    Z    | D |    Z    |
    block 2       | D |    Z    | D |    Z    |        r = 2: the station is idle at times
    station   |D D D D|.....|D D D D|.....|

Mean value analysis says how many blocks a second leave this closed network: a block that comes to
a station finds as many others there as there are on average without it::

    R_k(n) = D_k (1 + Q_k(n - 1))          the time at station k, one of n blocks
    X(n)   = n / (Z + sum of R_k(n))       blocks a second
    Q_k(n) = X(n) R_k(n)                   blocks at station k

X grows from 1 / (Z + sum of D_k), one block alone, to 1 / max D_k; all blocks take b / X(r).  Where
there is one block at a time, and another after it, its own warps are the customers: some compute
with what has come while others load, for half of the shorter of D_own and D_compute.  (Blocks that
all begin at once, and those of clusters, were measured to do so less.)

*Loads.*  A thread has *in flight* bytes on their way (Little's law), so that a block of b bytes
needs b / (threads x in flight) rounds, of a latency each, with its arithmetic between them.  That
overlaps with D_own where several threads are in different rounds (``together``).

*Tiles* are copied to shared memory, and computed with later (``Work.is_tiled``).  D_own and
D_compute are then one station, as long as the longer of them; the chain says how late copies are.

*The kernel* is both together, and a share more for its last blocks: those that run at once do not
end at once.  Blocks that begin together come to their folds and barriers together, and the
chip moves nothing meanwhile.  Where all blocks run at once, what they store waits for a chain, and
for a share of it where others follow; where multiprocessors have one block at a time, what is
loaded waits for all chains.  Where they have several, it waits for the fences and atomics of all
blocks but the last ones: a fence waits for what its multiprocessor loads and stores, and empties
the first-level cache.  The kernel begins with a launch and ends with what only its last block does.

Sources: M. Reiser, S. S. Lavenberg, Mean-value analysis of closed multichain queuing networks, JACM
27(2), 1980, doi:10.1145/322186.322195.  S. Williams, A. Waterman, D. Patterson, Roofline, CACM
52(4), 2009, doi:10.1145/1498765.1498785.  V. Volkov, Understanding latency hiding on GPUs,
dissertation, UC Berkeley, 2016 (bytes in flight, warps x independent instructions).  S. Hong,
H. Kim, An analytical model for a GPU architecture with memory-level and thread-level parallelism
awareness, ISCA 2009, doi:10.1145/1555754.1555775 (waiting and computing warps take turns).
H. Stengel, J. Treibig, G. Hager, G. Wellein, Quantifying performance bottlenecks of stencil
computations using the execution-cache-memory model, ICS 2015, doi:10.1145/2751205.2751240.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import ceil, inf

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.machine import Cpu, Machine
from tcdsl.costmodel.occupancy import hidden, resident_blocks, usable, why_not_fitting
from tcdsl.costmodel.rates import dram_rate
from tcdsl.costmodel.work import AnyWork, CpuWork, Phase, Work, chain_seconds
from tcdsl.records import dataclass

# Fitted to measured candidates (benchmarks/candidates.py, an H200).
TAIL = 0.05  # of a kernel whose blocks all run at once; less, the more there are one after another
MOST_TAIL_S = 5e-6  # of a long one: blocks that run for long end no later
STORED = 2.0  # stores that wait for chains in full: half as many bytes as loads, or more
OVERLAP = 3  # the power of the norm of a block's rounds of loads, and of its bytes
ROUNDED = 1e-9  # what two orders of the same operations may differ by
SHARP = 16  # the same, of chip and multiprocessor: almost the longer of them
TILED_SHARP = 4  # the same, of tiles (2.5 to 8 are alike for measured candidates)
ALONE = 0.5  # what a block alone computes as it loads, of the shorter of both; 0.3 to 0.8 are alike
LINE_CYCLES = 1.0  # of a lookup in the first-level cache
# The same where shared memory, which is the same memory, is busy too.  Measured candidates are as
# well with 1 to 2; with these Kronecker's products of 64 have the plan that was fastest on an H200.
TILED_LINE_CYCLES = 1.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long *work* takes, what limits it, and what each term alone would take, in seconds.

    A kernel that does not fit takes an infinite time, and *why_not* says why.
    """

    seconds: float
    terms: Mapping[str, float] = field(default_factory=dict)
    why_not: str | None = None

    @property
    def limiter(self) -> str:
        """The longest of the terms."""
        return "does not fit" if self.why_not else max(self.terms, key=self.term)

    def term(self, name: str) -> float:
        return self.terms.get(name, 0.0)


def estimate(work: AnyWork, machine: Machine) -> Estimate:
    """Return how long *work* takes on *machine*, which must be of its kind."""
    if isinstance(work, Work):
        assert isinstance(machine, Chip), "a GPU's work"
        return _on_gpu(work, machine)
    assert isinstance(machine, Cpu), "a CPU's work"
    return _on_cpu(work, machine)


def _on_gpu(work: Work, chip: Chip) -> Estimate:
    if reason := why_not_fitting(work, chip):
        return Estimate(inf, why_not=reason)
    body, terms = _of_blocks(work, chip)
    launch = work.launches * _launch(work, chip)
    finish = chain_seconds(work.finish, chip) + work.same_atomics * chip.same_atomic_s
    return Estimate(launch + body + finish, terms | {"launch": launch, "finish": finish})


def lower_bound(work: Work, chip: Chip) -> float:
    """Return a time that the estimate of *work* is not below, some times faster than that.

    A station serves all blocks of the busiest multiprocessor, a block meets all stations and waits
    for its chain (X is at most 1 / max D and n / (Z + sum of D)), and the chip moves all bytes.
    """
    moved = max(work.l2_bytes, work.dram_bytes)
    of_chip = max(moved / chip.l2_bytes_per_s, work.dram_bytes / dram_rate(work, chip))
    warps = work.instructions / chip.threads_per_warp / chip.schedulers_per_multiprocessor
    own = moved / chip.multiprocessor_bytes_per_s
    computing = max(warps, _line_cycles(work) * work.lines) / chip.clock_hz
    loaded, start = max(own, computing) / work.blocks, _start(work, chip)
    alone = start + loaded + chain_seconds(work.chain, chip) + chip.l2_latency_s
    busiest = max(alone, ceil(work.blocks / usable(work, chip)) * max(start, loaded))
    finish = chain_seconds(work.finish, chip) + work.same_atomics * chip.same_atomic_s
    found = work.launches * _launch(work, chip) + max(busiest, of_chip) + finish
    return found * (1 - ROUNDED)


def fastest(works: Sequence[Work], chip: Chip) -> tuple[float, int]:
    """Return the least time among *works*, and the number of the first that takes it.

    The one with the least lower bound comes first: it rules out most of the others.
    """
    bounds = [lower_bound(work, chip) for work in works]
    least = inf, 0
    for number in sorted(range(len(works)), key=lambda n: bounds[n]):
        if bounds[number] > least[0]:
            break
        least = min(least, (estimate(works[number], chip).seconds, number))
    return least


def together(one: float, other: float, power: float) -> float:
    """Return the time of two things that overlap: a norm of theirs, the longer one at least."""
    longest = max(one, other)
    if longest in (0.0, inf):
        return longest
    return float(longest * ((one / longest) ** power + (other / longest) ** power) ** (1 / power))


# --- a CPU -------------------------------------------------------------------------------------


def _on_cpu(work: CpuWork, cpu: Cpu) -> Estimate:
    seconds = work.forks * cpu.fork_s
    terms = {"threads": seconds}
    for phase in work.phases:
        found = _of_phase(phase, cpu)
        for name, own in found.items():
            terms[name] = terms.get(name, 0.0) + own
        core = max(found["arithmetic"], found["dependent operations"], found["L1"]) + found["loops"]
        beyond = found["L2"] + found["L3"] + found["memory"]
        seconds += together(core, beyond, cpu_thresholds.OVERLAP)
    return Estimate(seconds, terms)


def _of_phase(phase: Phase, cpu: Cpu) -> dict[str, float]:
    """Return the seconds that *phase* takes of each thing."""
    each = 1 / max(1.0, phase.threads)
    return {
        "arithmetic": each * sum(count / cpu.rate(unit) for unit, count in phase.operations),
        "dependent operations": each * phase.waits * cpu.fma_latency_s,
        "loops": each * phase.starts * cpu_thresholds.LOOP_START_SECONDS,
        "L1": each * phase.l1_bytes / cpu.l1_bytes_per_s,
        "L2": each * phase.l2_bytes / cpu.l2_bytes_per_s,
        "L3": each * phase.l3_bytes / cpu.l3_bytes_per_s,
        "memory": phase.dram_bytes / cpu.dram_copy_bytes_per_s,
    }


# --- a GPU -------------------------------------------------------------------------------------


def _of_blocks(work: Work, chip: Chip) -> tuple[float, dict[str, float]]:
    """Return how long the blocks of *work* take, and what each term alone would take."""
    running = min(work.blocks, usable(work, chip))
    blocks = ceil(work.blocks / running)  # of the busiest multiprocessor
    resident = max(1, min(resident_blocks(work, chip), blocks))
    of_chip, of_block = _of_chip(work, chip), _of_block(work, chip, resident)
    stations = _stations(work, of_block, in_turn=resident == 1 < blocks)
    waiting = _waiting(work, chip, of_block)
    terms = of_chip | {name: blocks * seconds for name, seconds in of_block.items()}
    terms["latency"] = ceil(blocks / resident) * waiting
    if inf in terms.values():  # the chip lacks a unit
        return inf, terms
    busiest = blocks / blocks_a_second(resident, stations, waiting)
    # Blocks begin together: what they store waits for the chains of those that run at once, ...
    if work.is_tiled:
        return together(busiest, max(of_chip.values()), TILED_SHARP), terms
    stored = min(1.0, STORED * work.written_bytes / max(1.0, work.read_bytes))
    # ... and where there is one after another, so does what the next one loads.
    chains = stored * resident / blocks + (blocks - 1 if resident == 1 else 0)
    idle = chains * chain_seconds(work.chain, chip)
    if resident > 1:
        idle += (blocks - resident) * work.chain.atomics * chip.atomic_s
    whole = max(of_chip.values()) + idle
    body = together(busiest, whole, SHARP)
    return body + min(TAIL * body, MOST_TAIL_S) * resident / blocks, terms


def _launch(work: Work, chip: Chip) -> float:
    may_overlap = work.is_programmatic and chip.overlaps_kernels
    return chip.programmatic_launch_s if may_overlap else chip.launch_s


# --- the chip ----------------------------------------------------------------------------------


def _of_chip(work: Work, chip: Chip) -> dict[str, float]:
    """Return the seconds that memory and the second-level cache need for all bytes."""
    l2 = max(work.l2_bytes, work.dram_bytes) / chip.l2_bytes_per_s
    return {"memory": work.dram_bytes / dram_rate(work, chip), "L2": l2}


# --- a multiprocessor --------------------------------------------------------------------------


def _of_block(work: Work, chip: Chip, resident: int) -> dict[str, float]:
    """Return the seconds that a block needs of each unit of its multiprocessor."""
    moved = max(work.l2_bytes, work.dram_bytes)
    found = {
        "starts": _start(work, chip),
        "own": moved / work.blocks / chip.multiprocessor_bytes_per_s,
        "L1": _line_cycles(work) * work.lines / work.blocks / chip.clock_hz,
    }
    each = chip.multiprocessors / work.blocks  # of the chip's time
    found["shared memory"] = each * work.shared_traffic_bytes / chip.shared_bytes_per_s
    part_hidden = hidden(work, chip, resident)
    for unit, count in work.operations:
        rate = chip.rate(unit)
        found[str(unit)] = each * count / rate / part_hidden if rate else inf
    a_second = chip.schedulers_per_multiprocessor * chip.clock_hz * chip.multiprocessors
    warps = work.instructions / chip.threads_per_warp
    found["issue"] = each * warps / a_second / part_hidden
    return found


def _start(work: Work, chip: Chip) -> float:
    """Return the seconds until a multiprocessor has its next block, as all others have."""
    each = chip.cluster_block_start_s if work.cluster > 1 else chip.block_start_s
    return each * usable(work, chip)


def _line_cycles(work: Work) -> float:
    return TILED_LINE_CYCLES if work.is_tiled else LINE_CYCLES


def _stations(work: Work, of_block: dict[str, float], *, in_turn: bool) -> tuple[float, ...]:
    """Return the seconds that a block needs of each station.

    :arg in_turn: whether blocks are alone in their multiprocessor, one after another.
    """
    own, computing = of_block["own"], _computing(of_block)
    if work.is_tiled:
        return (of_block["starts"], max(own, computing))
    if in_turn and work.cluster == 1:
        computing -= ALONE * min(own, computing)
    return (of_block["starts"], own, computing)


def _computing(of_block: dict[str, float]) -> float:
    """Return the seconds of the busiest unit of those that work beside the loads."""
    return max(seconds for name, seconds in of_block.items() if name not in ("starts", "own"))


def _waiting(work: Work, chip: Chip, of_block: dict[str, float]) -> float:
    """Return how long a block is at no station: in its chain, and while its loads are on their way.

    It begins with its arguments, from the second-level cache.
    """
    bytes_of_block = max(work.l2_bytes, work.dram_bytes) / work.blocks
    # Stores wait for nobody.
    stored = work.dram_bytes / work.read_bytes if work.read_bytes else 2.0
    rounds = max(1.0, bytes_of_block / (work.threads * work.in_flight_bytes * stored))
    is_from_memory = work.dram_bytes > 0 and not work.is_prefetched
    latency = chip.dram_loaded_latency_s if is_from_memory else chip.l2_latency_s
    busiest = max(of_block.values())
    loading = rounds * latency + _computing(of_block)
    is_late = bytes_of_block > 0 and not work.is_tiled
    beyond = together(loading, busiest, OVERLAP) - busiest if is_late else 0.0
    return chain_seconds(work.chain, chip) + beyond + chip.l2_latency_s


def blocks_a_second(resident: int, stations: tuple[float, ...], waiting: float) -> float:
    """Return how many blocks leave in a second, of *resident* ones: by mean value analysis."""
    times, rate = stations, 0.0  # of no others: as long as alone
    for count in range(1, resident + 1):
        times = tuple([own * (1 + rate * s) for own, s in zip(stations, times, strict=True)])
        rate = count / (waiting + sum(times))
    return rate
