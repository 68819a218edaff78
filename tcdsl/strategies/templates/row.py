"""Every member's innermost axis along threads.x; shared axes over blocks, or packed into them.

    y(i) +=! x(i,j)            long rows    blocks over i, threads.x along j, and chunks if few
    z(i,j) = x(i,j) / y(i)     short ones   threads.y along i, so that a block has several rows
                               kept ones    x in registers between members (row_registers.py)

A row that one warp adds up needs no barrier, and of rows of a few values a thread takes several.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds, kept_rows
from tcdsl.records import dataclass
from tcdsl.strategies import block_sizes
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.lowering import Lane
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_registers import (
    MAX_RESIDENT,
    MOST_RESIDENT,
    Row,
    blocks_of_registers,
    resident_arrays,
    row_of,
    share_of_row,
)
from tcdsl.strategies.schedule import VECTOR_BYTES, Schedule, Tile
from tcdsl.strategies.shared_sums import chunk_of, chunk_sizes, share_of_sum
from tcdsl.strategies.template import Template, assembled

ROW_LOADS = gpu_thresholds.WARP_ROW_LOADS
SHORT_BYTES = gpu_thresholds.WARP_ROW_VECTORS * block_sizes.WARP * VECTOR_BYTES
ALONE = gpu_thresholds.LONE_THREAD_VALUES


@dataclass(frozen=True, slots=True)
class RowConfig:
    """Threads of a row, rows of a block, and what a block has of a row."""

    threads: int  # that share a row
    vector: int = 1  # elements of a vector
    keep: int = 0  # vectors of a row that a thread keeps in registers; 0: the row is read again
    rows: int = 1  # of a block at once
    repeat: int = 1  # rows of a thread
    chunk: int = 0  # values of the reduced axis that a block has; 0: all
    resident_blocks: int = 0  # of a multiprocessor; 0: as many as fit


def why_not(problem: Problem) -> str | None:
    """Return why threads are not along rows, or None."""
    if problem.is_ragged:
        return "data say how long rows are"
    if problem.along is not None:
        return f"neighbours in memory are along {problem.name_of(problem.along)}, which all share"
    return None


def space(problem: Problem) -> Iterator[RowConfig]:
    """Yield the configurations, first the one that measurements favour."""
    row = row_of_problem(problem)
    likeliest = _likeliest(problem, row)
    yield likeliest
    for config in dict.fromkeys((*_kept(problem, row), *_read_again(problem, row))):
        if config != likeliest:
            yield config


def schedule(problem: Problem, config: RowConfig) -> Schedule:
    """Return the schedule of threads along rows."""
    return schedule_on(problem, config, row_tiles(problem, config))


def row_tiles(problem: Problem, config: RowConfig) -> list[Tile]:
    """Return the tiles of rows over blocks, several rows in a block as *config* says."""
    tiles = problem.unit_tiles
    if tiles:
        axis = 1 if config.rows > 1 else -1
        tiles[0] = replace(tiles[0], thread_axis=axis, threads=config.rows, repeat=config.repeat)
    return tiles


def schedule_on(problem: Problem, config: RowConfig, tiles: Sequence[Tile]) -> Schedule:
    """Return the schedule of threads along rows, blocks along *tiles*."""
    row = row_of_problem(problem)
    chunk, why = chunk_of(problem, config.chunk)
    if config.resident_blocks:
        why = (*why, f"registers for {config.resident_blocks} blocks on a multiprocessor")
    rows = f", {config.rows * config.repeat} rows a block" if config.rows > 1 else ""
    why = (*why, f"{config.threads} threads a row{rows}")
    if config.keep:
        values = config.keep * config.vector
        why = (*why, f"rows of {', '.join(row.resident)} in registers: {values} values a thread")
    threads = config.threads if row.lanes else 1
    lanes = {
        name: Lane(dim, 0, threads, config.vector, config.keep)
        if problem.shapes[name].extents[dim] == row.length
        else Lane(dim, 0, threads)
        for name, dim in row.lanes.items()
    }
    schedule = assembled(problem, tiles, lanes, chunk, why)
    return replace(
        schedule,
        resident=row.resident if config.keep else (),
        code=replace(schedule.code, resident_blocks=config.resident_blocks),
    )


@analysis
def row_of_problem(problem: Problem) -> Row:
    """Return the rows of the problem's members."""
    lanes = problem.lanes
    length = max((problem.shapes[name].extents[dim] for name, dim in lanes.items()), default=1)
    return row_of(problem, lanes, length, resident_arrays(problem, lanes, length))


# --- the likeliest ---------------------------------------------------------------------------


def _likeliest(problem: Problem, row: Row) -> RowConfig:
    if row.is_kept:
        return kept_config(problem, row, share_of_row(problem, row))
    tiles = problem.unit_tiles
    warp = block_sizes.WARP
    row_bytes = row.groups * row.vector * _value_bytes(problem)
    if row_bytes <= SHORT_BYTES + VECTOR_BYTES and _are_many(problem, tiles):
        threads = 1 if row.length <= ALONE else min(warp, power_of_two(row.groups))
        return packed(problem, row, RowConfig(threads, row.vector))
    choices = _choices(row)
    threads, chunk = share_of_sum(problem, tiles, row.lanes, row.vector, choices)
    return packed(problem, row, RowConfig(threads, row.vector, chunk=chunk))


def kept_config(problem: Problem, row: Row, share: kept_rows.Share) -> RowConfig:
    """Return the configuration of rows in registers that are shared so."""
    config = RowConfig(
        share.threads, row.vector, share.items, resident_blocks=share.resident_blocks
    )
    return packed(problem, row, config)


def packed(problem: Problem, row: Row, config: RowConfig) -> RowConfig:
    """Return *config* with several rows in a block where a warp has one, and there are many."""
    tiles = problem.unit_tiles
    if config.threads > block_sizes.WARP or not tiles or not _are_many(problem, tiles):
        return config
    x = config.threads
    rows = min(block_sizes.BLOCK_THREADS // x, power_of_two(tiles[0].extent))
    is_alone = x == 1 < row.groups
    repeat = 1
    if not config.keep and not is_alone:
        repeat = _rows_of_thread(problem, -(-row.groups // x), rows)
    return replace(config, rows=rows, repeat=repeat)


def _choices(row: Row) -> list[int]:
    """Return the numbers of threads to choose from for a row that is not kept."""
    most = min(block_sizes.MAX_ROW_THREADS, power_of_two(row.groups))
    # Several passes over long rows: few at once, so that the cache has them still.
    least = most if row.resident else min(block_sizes.WARP, most)
    choices = [most >> n for n in range(6) if most >> n >= least]
    return choices + [t for t in _fitting(row.groups) if least <= t <= most]


def _are_many(problem: Problem, tiles: Sequence[Tile]) -> bool:
    """Return whether there are several rows for each multiprocessor."""
    return prod(tile.extent for tile in tiles) >= 4 * problem.gpu.multiprocessors


def _value_bytes(problem: Problem) -> int:
    """Return the bytes of the widest element that the lead loads."""
    reads = problem.shapes[problem.lead].statement.reads
    return max((problem.scop.arrays[r.array].dtype.size_bytes for r in reads), default=1)


def _rows_of_thread(problem: Problem, loads: int, threads: int) -> int:
    """Return how many rows a thread takes: several where one has few loads to start at once."""
    turns = max(1, ROW_LOADS // loads)
    while turns > 1 and problem.results < 8 * problem.gpu.multiprocessors * threads * turns:
        turns //= 2
    return turns


def _fitting(groups: int) -> list[int]:
    """Return numbers of threads, whole warps, of which few idle in the last turn of *groups*."""
    warp = block_sizes.WARP
    return [-(-groups // (turns * warp)) * warp for turns in range(1, 5)]


# --- the others ------------------------------------------------------------------------------


def _thread_counts(groups: int) -> Iterator[int]:
    """Yield the numbers of threads of a row that are worth trying."""
    most = min(block_sizes.MAX_ROW_THREADS, power_of_two(groups))
    threads = most
    while threads >= 1 and threads >= most >> 5:
        yield threads
        threads //= 2
    yield from (t for t in _fitting(groups) if t <= most)


def _kept(problem: Problem, row: Row) -> Iterator[RowConfig]:
    """Yield configurations of rows in registers, where they fit."""
    if not row.is_kept:
        return
    most = MAX_RESIDENT if row.live > 1 else MOST_RESIDENT
    for threads in _thread_counts(row.groups):
        keep = -(-row.groups // threads)
        if keep * row.vector * row.live <= most:
            config = packed(problem, row, RowConfig(threads, row.vector, keep))
            yield config
            for blocks in blocks_of_registers(problem, row, config.threads, keep):
                yield replace(config, resident_blocks=blocks)


def _read_again(problem: Problem, row: Row) -> Iterator[RowConfig]:
    """Yield configurations of rows that are read by each member that uses them."""
    blocks = prod(tile.blocks for tile in problem.unit_tiles)
    for threads in _thread_counts(row.groups):
        config = RowConfig(threads, row.vector)
        yield packed(problem, row, config)
        for size in chunk_sizes(problem, blocks, threads * row.vector):
            yield replace(config, chunk=size)


TEMPLATE = Template("row", RowConfig, why_not, space, schedule)
