"""How long the blocks of tiled kernels take: a limit for every unit of the chip, wave by wave.

Of products, stencils and transpositions, whose blocks copy to shared memory what they compute with
later: ``costmodel.estimate`` is of kernels that compute with loads as these arrive.  Tiles' own
coefficients were fitted with this, and no candidates of theirs have been compared with the other.

A *wave* is what the chip holds of blocks at once.  Its limits are the times that one unit needs for
all of them::

    memory      bytes / min(rate, multiprocessors that run x the rate of one alone,
                            bytes in flight / latency)                              (Little's law)
    L2, shared  bytes / rate
    units       operations / rate x multiprocessors that run; divided by the part of the latency of
                an instruction that warps x independent instructions hide
    issue       instructions of warps / (schedulers x clock)

A wave takes the longest of them, or one block's latency.  Blocks wait at times that chance says, so
that terms of like length take longer together than the longest of them (``_together``).  Where
blocks are few, multiprocessors idle (the ``WBRatio`` of DeepCuts), and one may have a block more
than others (*own*: what it loads, at its own rate).

Source: W. Jung, T. T. Dao, J. Lee, DeepCuts: a deep learning optimization framework for versatile
GPU workloads, PLDI 2021, doi:10.1145/3453483.3454038 (roofline x latency of shared memory x wave
balance x fits).
"""

from collections.abc import Mapping
from math import ceil, hypot, inf, sqrt

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.occupancy import hidden, resident_blocks, usable
from tcdsl.costmodel.rates import dram_rate
from tcdsl.costmodel.work import Work, chain_seconds

# Of the first loads' latency, of a chip full of threads: until all of it loads, and at its end.
FILL = 0.28 / (0.8e-6 * 270336)
LINE_CYCLES = 2.07  # of a lookup in the first-level cache
MOVING = ("memory", "L2")
WAITS = 1.6  # of a block among others, for each of one that is alone


def seconds_in_waves(work: Work, chip: Chip) -> tuple[float, dict[str, float]]:
    """Return how long the blocks of *work* take, and what each term alone would take."""
    resident = resident_blocks(work, chip)
    wave = max(1, resident) * usable(work, chip)
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
    starts = work.blocks * (chip.cluster_block_start_s if work.cluster > 1 else chip.block_start_s)
    limits |= {"latency": latency, "own": own, "starts": starts}
    return hypot(max(latency, _together(max(streaming + fill, own), waits)), starts), limits


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


# --- limits of a wave --------------------------------------------------------------------------


def _limits(work: Work, chip: Chip, blocks: int) -> dict[str, float]:
    """Return the seconds that each unit needs for *blocks* blocks that run at once."""
    part = blocks / work.blocks
    running = min(blocks, usable(work, chip))  # multiprocessors that have a block
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
    part_hidden = hidden(work, chip, ceil(blocks / running))
    for unit, count in work.operations:
        rate = chip.rate(unit)
        found[str(unit)] = on_chip * count / rate / part_hidden if rate else inf
    if work.instructions:
        a_second = chip.schedulers_per_multiprocessor * chip.clock_hz * chip.multiprocessors
        warps = work.instructions / chip.threads_per_warp
        found["issue"] = on_chip * warps / a_second / part_hidden
    return found


def _dram_rate(work: Work, chip: Chip, blocks: int) -> float:
    """Return the bytes a second that *blocks* blocks move at once."""
    own = min(blocks, chip.multiprocessors) * chip.multiprocessor_bytes_per_s
    return min(dram_rate(work, chip), own, _in_flight(work, blocks) / chip.dram_loaded_latency_s)


def _in_flight(work: Work, blocks: int) -> float:
    """Return the bytes that are on their way while *blocks* blocks run (stores wait for nobody)."""
    moved = work.dram_bytes / work.read_bytes if work.read_bytes else 2.0
    return max(1.0, blocks * work.threads * work.in_flight_bytes * moved)


def _alone(work: Work, chip: Chip) -> float:
    """Return the seconds of a block between its start and its end, if nobody is in its way."""
    limits = _limits(work, chip, 1)
    if work.dram_bytes:  # the memory is idle, and cold
        rate = min(chip.multiprocessor_bytes_per_s, _in_flight(work, 1) / chip.dram_latency_s)
        first = chip.dram_latency_s if work.read_bytes else 0.0
        limits["memory"] = max(first, work.dram_bytes / work.blocks / rate)
    return max(limits.values(), default=0.0) + chain_seconds(work.chain, chip)
