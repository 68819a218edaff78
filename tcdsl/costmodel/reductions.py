"""How many threads and blocks share a reduction: the least estimated time.

A tile is *width* results, for each of which a thread loads *steps* x *times* vectors.  A block has
*width* x *lanes* threads, that share the steps, and takes one of *chunks* pieces of them (or of the
times); the last of a tile's blocks adds up their sums::

    bytes      on their way at once: IN_FLIGHT loads of every thread
    chain      loads that start after those
    finish     a fold of the block; with several chunks a ticket, loads of the partial sums, a fold

What that costs is a ``Work``, and how long it takes is what ``costmodel.estimate`` says.

The coefficients are of an H200 (docs/performance_gpu.md); they need not be exact, for they decide
between a few and many blocks, where times differ by factors.
"""

from collections.abc import Iterable, Iterator
from math import ceil, log2

from tcdsl.costmodel.chip import WARP, Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.work import Chain, Work
from tcdsl.records import dataclass

# Coefficients of the model, from a sweep on an H200; what is the chip's is in its data file.
STEP = 1 / 8  # of a load's latency, until the next one that is on its way is there, and used
IN_FLIGHT = 4  # loads of a thread, which the compiler starts together
PARTIAL = 2.5  # latencies of the second-level cache until a load of what was just stored is there
ALIKE = 1.03  # times that differ by less are the same, as far as this model can tell
LEAST_LOADS = 2  # of a thread of a row that many share
ROW_STEP_CYCLES = 96  # a fold of a row has as many steps as the logarithm of its threads
COLUMN_STEP_CYCLES = 64  # of a fold, a thread of a column, or a warp where it has several
TICKET = 1.5  # atomics whose value is waited for: barrier, fence and atomic of a block
BLOCKS_EACH = (0.25, 0.5, 1, 2, 4)  # of a multiprocessor, to choose from
STREAMED_BYTES = (8 << 20, 200 << 20)  # of a reduction, loaded past the first-level cache


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is to be shared; see the module's docstring.

    *pieces* is how many pieces of the times there may be, 0 if chunks are pieces of the steps.
    """

    tiles: int
    width: int
    steps: int
    times: int
    load_bytes: int
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """A way to share it: *per_chunk* steps (a multiple of *lanes*), or of the pieces."""

    lanes: int
    chunks: int
    per_chunk: int
    seconds: float


def best_split(
    gpu: Chip, reduction: Reduction, lanes: Iterable[int], *, may_chunk: bool = True
) -> Split:
    """Return the split that takes least time.

    :arg lanes: the numbers of threads along the steps to choose from.
    :arg may_chunk: whether several blocks may share a tile.
    """
    found = [s for n in lanes for s in _splits(gpu, reduction, n, may_chunk)]
    best = min(found, key=lambda split: (split.seconds, split.chunks, split.lanes))
    if reduction.width > 1:
        return best
    # Of long rows that take as long, those of more threads end more evenly.
    even = [
        s
        for s in found
        if s.seconds <= ALIKE * best.seconds
        and s.chunks == best.chunks
        and ceil(s.per_chunk / s.lanes) * reduction.times >= LEAST_LOADS
    ]
    return max([best, *even], key=lambda split: split.lanes)


def _splits(gpu: Chip, reduction: Reduction, lanes: int, may_chunk: bool) -> Iterator[Split]:
    unit, whole = (1, reduction.pieces) if reduction.pieces else (lanes, reduction.steps)
    seen: set[int] = set()
    for each in (0, *(BLOCKS_EACH if may_chunk else ())):
        wanted = max(1, ceil(each * gpu.multiprocessors / reduction.tiles))
        # A chunk of one value would be no chunk: a loop over it is one over the values.
        per_chunk = ceil(max(2, ceil(whole / wanted)) / unit) * unit if wanted > 1 else whole
        chunks = ceil(whole / per_chunk)
        if chunks not in seen:
            seen.add(chunks)
            seconds = _seconds(gpu, reduction, lanes, chunks, per_chunk)
            yield Split(lanes, chunks, per_chunk, seconds)


def first_loads_s(gpu: Chip, loads: int) -> float:
    """Return the seconds until a thread has the *loads* that it starts together."""
    return gpu.dram_latency_s + min(loads - 1, IN_FLIGHT) * STEP * gpu.dram_latency_s


def partial_s(gpu: Chip) -> float:
    """Return the seconds until a load of what another block has just stored is there."""
    return PARTIAL * gpu.l2_latency_s


def row_fold_s(gpu: Chip, threads: int) -> float:
    """Return the seconds of the fold of a row that *threads* threads of a block share."""
    return ROW_STEP_CYCLES / gpu.clock_hz * (log2(threads) + (2 if threads > WARP else 0))


def _seconds(gpu: Chip, reduction: Reduction, lanes: int, chunks: int, per_chunk: int) -> float:
    """Return the seconds of a kernel that is running, without its launch, which all splits have."""
    return estimate(work_of_split(gpu, reduction, lanes, chunks, per_chunk), gpu).seconds


def work_of_split(gpu: Chip, reduction: Reduction, lanes: int, chunks: int, per_chunk: int) -> Work:
    """Return what *reduction* costs with *lanes* threads a row, and *chunks* of *per_chunk*."""
    r = reduction
    blocks, threads = r.tiles * chunks, max(r.width * lanes, WARP)
    if r.pieces:
        loads = ceil(r.steps / lanes) * ceil(r.times * per_chunk / r.pieces)
    else:
        loads = ceil(per_chunk / lanes) * r.times
    together = min(loads, IN_FLIGHT)
    total = r.tiles * r.width * r.steps * r.times * r.load_bytes
    # Those that are left wait as long as a whole number of them that start together.
    rounds = max(1.0, total / (blocks * threads * together * r.load_bytes))
    waits = ceil(loads / IN_FLIGHT) - rounds + min(loads - 1, IN_FLIGHT) * STEP
    if r.width == 1:
        fold = row_fold_s(gpu, lanes) * gpu.clock_hz
    else:
        fold = COLUMN_STEP_CYCLES * (lanes if r.width >= WARP else ceil(lanes * r.width / WARP))
    finish = Chain(cycles=fold)
    if chunks > 1:
        again = ceil(ceil(chunks / lanes) / IN_FLIGHT)
        finish = Chain(atomics=TICKET, l2_loads=PARTIAL * again, cycles=2 * fold)
    return Work(
        blocks, threads, read_bytes=total,
        in_flight_bytes=together * r.load_bytes, chain=Chain(dram_loads=waits), finish=finish,
        same_atomics=blocks if chunks > 1 else 0, launches=0,
    )  # fmt: skip


def is_brief(gpu: Chip, block_bytes: int) -> bool:
    """Return whether a block reads *block_bytes* in less time than another kernel takes at all."""
    return block_bytes <= gpu.launch_s * gpu.multiprocessor_bytes_per_s


def is_streamed(read_bytes: int) -> bool:
    """Return whether a reduction loads *read_bytes* faster past the first-level cache.

    Measured on an H200: up to an eighth less time at 8 to 200 MB, 4 % more from 800 MB on.
    """
    return STREAMED_BYTES[0] <= read_bytes <= STREAMED_BYTES[1]
