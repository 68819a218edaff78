"""How many blocks share rows that are reduced along both of their axes: the least estimated time.

A block has *threads* threads and takes one row after another.  A thread keeps its part of the row,
and its sums of columns from the first row to the last; as many blocks are on a multiprocessor as
the registers for that allow, and all blocks of the kernel are on the chip at once::

    row      one load's latency, the row's bytes at the rate of a multiprocessor whose neighbours
             are idle, what is computed, the folds of the row's own sums; or, if longer, the bytes
             of the rows of all its blocks at its share of the chip's rate
    kernel   a block's rows x row + the columns' partial sums, stored and loaded again + a launch

A row that no block keeps is shared by the blocks of a cluster, each with its part of the columns;
the row's own sums are folded over the cluster.  Of rows that a part of a warp has, a block takes
several at once, folds them in the warp, and the sums of columns over these rows at its end.

More blocks hide more of each other's waiting, and leave more partial sums.  Measured on an H200:
layernorm's backward of (16384, 4096) takes 267 us with one block of 1024 threads on a
multiprocessor, 214 with two of 256 or of 512, 425 with four of 256 (their registers do not
suffice), and 321 in a kernel for either direction.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from tcdsl.costmodel.chip import WARP, Chip
from tcdsl.costmodel.rates import fold_rate, read_rate
from tcdsl.costmodel.registers import REGISTER_BYTES, blocks_at_once, registers_of
from tcdsl.records import dataclass

FOLD_CYCLES = 320  # of a row's sum, in a block that has nothing else to do
WARP_FOLD_CYCLES = 150  # of one that a warp or less of it has: no barrier
IN_TURNS = 0.5  # of a cluster's barrier, for a fold in turns: its slots count what is put there
LEAST_ROWS = 4  # of a block: its sums must be worth storing
ELEMENT_CYCLES = 0.16  # of a multiprocessor, to compute with an element of a row
MOST_REPEAT = 4  # vectors of a thread
SHORT_BLOCKS = (128, 256, 512)  # threads of a block that has several rows at once
MOST_VALUES = 16  # of a row in a thread
ENOUGH_THREADS = 256  # of a block, where another number is as good
OWN_REGISTERS = 30  # of a thread, for addresses and what is computed with


@dataclass(frozen=True, slots=True)
class RowsAndColumns:
    """What is to be shared.

    *rows* is how many rows there are, *pieces* how many of the axis along which blocks share them
    (of which each has rows / pieces), for each of *tiles* independent problems.  A row has *groups*
    vectors of *vector* elements; *kept_bytes* is what a thread keeps for each element of its part,
    *sums_bytes* is what a column has of partial sums, *row_bytes* is what a row moves.
    """

    tiles: int
    rows: int
    pieces: int
    groups: int
    vector: int
    kept_bytes: int
    sums_bytes: int
    row_bytes: int
    folds: int  # sums of a row


@dataclass(frozen=True, slots=True)
class Share:
    """A way to share it: *threads* of each block of a *cluster* have *repeat* vectors of a row.

    A block has *rows* rows at once.
    """

    threads: int
    repeat: int
    per_block: int  # pieces of a block, or of a cluster
    blocks: int  # or clusters that share the rows of a problem
    resident_blocks: int  # blocks that a multiprocessor holds at once
    seconds: float
    cluster: int = 1
    rows: int = 1


def best_share(gpu: Chip, problem: RowsAndColumns) -> Share | None:
    """Return the share that takes least time, None if no block could keep a row and its sums."""
    near = ENOUGH_THREADS
    return min(
        shares(gpu, problem),
        key=lambda s: (s.seconds, s.blocks, abs(s.threads * s.rows - near), s.threads),
        default=None,
    )


def element_s(gpu: Chip) -> float:
    """Return the seconds that a multiprocessor computes with an element of a row."""
    return ELEMENT_CYCLES / gpu.clock_hz


def apart_seconds(gpu: Chip, moved_bytes: int, elements: int) -> float:
    """Return how long a kernel takes that goes one way: its bytes, or what it computes."""
    computing = elements * element_s(gpu) / gpu.multiprocessors
    return max(moved_bytes / read_rate(gpu), computing) + gpu.launch_s


def shares(gpu: Chip, problem: RowsAndColumns) -> Iterator[Share]:
    """Yield the ways that fit the registers of blocks: of one, else of so few in a cluster."""
    cluster, is_kept = 1, False
    while cluster <= gpu.blocks_per_cluster and not is_kept:
        for threads, repeat, rows in _threads(gpu, problem, cluster):
            most = _most_resident_blocks(gpu, problem, threads * rows, repeat)
            is_kept = is_kept or most > 0
            for resident in range(1, most + 1):
                wanted = Share(threads, repeat, 0, 0, resident, 0.0, cluster, rows)
                share = _share(gpu, problem, wanted)
                if share is not None:
                    yield share
        cluster *= 2


def _threads(gpu: Chip, problem: RowsAndColumns, cluster: int) -> Iterator[tuple[int, int, int]]:
    """Yield threads of a row in a block of *cluster*, vectors of each of them, and rows at once.

    Of a cluster every block has some.
    """
    seen: set[int] = set()
    for repeat in range(1, MOST_REPEAT + 1):
        if cluster == 1 and (threads := _of_short(problem, repeat)):
            turns = ceil(problem.groups / threads)
            yield from ((threads, turns, size // threads) for size in SHORT_BLOCKS)
        threads = ceil(problem.groups / cluster / repeat / WARP) * WARP
        is_long = repeat > 1 and repeat * problem.vector > MOST_VALUES
        if threads in seen or is_long or threads > gpu.threads_per_block:
            continue
        seen.add(threads)
        turns = ceil(problem.groups / cluster / threads)
        if cluster == 1 or problem.groups > turns * threads * (cluster - 1):
            yield threads, turns, 1


def _of_short(problem: RowsAndColumns, repeat: int) -> int:
    """Return the threads of a row that half a warp has at most, 0 for longer ones.

    Blocks share one axis of the rows alone, and a row has powers of two, which warps divide.
    """
    threads: int = 1 << (ceil(problem.groups / repeat) - 1).bit_length()
    return threads if threads <= WARP // 2 and problem.rows == problem.pieces else 0


def _most_resident_blocks(gpu: Chip, problem: RowsAndColumns, threads: int, repeat: int) -> int:
    """Return how many blocks of *threads* threads a multiprocessor holds at once."""
    registers = _registers(gpu, problem, repeat)
    is_held = registers <= gpu.registers_per_thread
    return blocks_at_once(gpu, threads, registers) if is_held else 0


def _registers(gpu: Chip, problem: RowsAndColumns, repeat: int) -> int:
    """Return the registers of a thread, as estimated: a value of half a register has one."""
    each = ceil(problem.kept_bytes / REGISTER_BYTES)
    return registers_of(gpu, repeat * problem.vector * each * REGISTER_BYTES, OWN_REGISTERS)


def _share(gpu: Chip, problem: RowsAndColumns, wanted: Share) -> Share | None:
    """Return *wanted* with the rows of its blocks and its time, None if there are too few rows."""
    p, cluster, resident = problem, wanted.cluster, wanted.resident_blocks
    at_once = resident * gpu.multiprocessors // cluster
    per_block = ceil(ceil(p.pieces / max(1, at_once // p.tiles)) / wanted.rows) * wanted.rows
    blocks = ceil(p.pieces / per_block)
    rows = ceil(p.rows * per_block / p.pieces)
    turns = rows / wanted.rows
    if blocks < 2 or per_block < 2 or turns < LEAST_ROWS:
        return None
    share = wanted.rows / cluster  # of a row, in each turn of a block
    own_bytes, own_values = p.row_bytes * share, p.groups * p.vector * share
    own_rate = read_rate(gpu) / gpu.multiprocessors
    neighbours = min(resident, ceil(p.tiles * blocks * cluster / gpu.multiprocessors))
    together = neighbours * own_bytes / own_rate
    cycles = WARP_FOLD_CYCLES if wanted.rows > 1 else FOLD_CYCLES
    fold_s = cycles / gpu.clock_hz + (IN_TURNS * gpu.cluster_barrier_s if cluster > 1 else 0.0)
    alone = gpu.dram_latency_s + own_bytes / gpu.multiprocessor_bytes_per_s
    alone += p.folds * fold_s + own_values * element_s(gpu)
    waves = ceil(p.tiles * blocks / at_once)
    seconds = waves * turns * max(alone, together) + _sums_seconds(gpu, p, blocks) + gpu.launch_s
    return replace(wanted, per_block=per_block, blocks=blocks, seconds=seconds)


def _sums_seconds(gpu: Chip, problem: RowsAndColumns, blocks: int) -> float:
    """Return how long it takes to store the partial sums of *blocks*, and to load them again."""
    row_bytes = problem.groups * problem.vector * problem.sums_bytes
    total = problem.tiles * blocks * row_bytes
    loading = total / fold_rate(gpu, problem.tiles * row_bytes)
    return total / gpu.l2_bytes_per_s + loading
