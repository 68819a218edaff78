"""Rows whose lengths are data: so many threads a row as an average one keeps busy.

    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r+1)

    blocks over tiles of r, threads.y along r, threads.x along e: each takes every x-th entry of the
    row from its first one on, and the partial sums of a row are folded

    y(r,d) +=! val(e) * X(col(e), d)       threads along d, neighbours in memory; e in each thread

A row has E / R entries on average, which is all that is known of it.  Few rows get more threads,
for nothing else would fill the chip.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.loop_tree import LoopKind, Y
from tcdsl.poly.parallelism import Role
from tcdsl.records import dataclass
from tcdsl.strategies import block_sizes
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.lowering import Lane
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.ragged_axes import axis_inside_ranges, is_of_long_rows
from tcdsl.strategies.schedule import OuterLoop, Schedule, Tile
from tcdsl.strategies.template import Template, assembled

ENTRIES = gpu_thresholds.RAGGED_ENTRIES
# Rows that a thread looks at one after another, of which hardly any has entries: with one row each,
# blocks began and ended for 59 us (4096 x 4096 rows) and 88 us (100352 x 128), on an H200.
LOOKED_AT = 8


@dataclass(frozen=True, slots=True)
class RaggedConfig:
    """Threads of a row, and rows of a block."""

    threads: int
    rows: int = 1


def why_not(problem: Problem) -> str | None:
    """Return why threads are not along rows of data, or None."""
    if not problem.is_ragged:
        return "no range comes from data"
    if is_of_long_rows(problem):
        return "blocks share its rows"
    inner = axis_inside_ranges(problem)
    return None if inner is None else f"{problem.name_of(inner)} is inside the ranges"


def space(problem: Problem) -> Iterator[RaggedConfig]:
    """Yield the configurations, first the one that an average row keeps busy."""
    tiles = problem.unit_tiles
    likeliest = _packed(tiles, _threads_of_row(problem, _lanes(problem), tiles))
    yield likeliest
    for threads in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        config = _packed(tiles, threads)
        if config != likeliest and threads <= block_sizes.MAX_ROW_THREADS:
            yield config


def schedule(problem: Problem, config: RaggedConfig) -> Schedule:
    """Return the schedule of threads along rows of data."""
    tiles = problem.unit_tiles
    if tiles and config.rows > 1:
        tiles[0] = replace(tiles[0], thread_axis=Y, threads=config.rows)
    y = f", {config.rows} rows a block" if config.rows > 1 else ""
    lanes = {name: Lane(dim, 0, config.threads) for name, dim in _lanes(problem).items()}
    made = assembled(problem, tiles, lanes, why=(f"{config.threads} threads a row of data{y}",))
    return _in_turn(made, problem.gpu.threads) if _is_rare(problem) else made


def _lanes(problem: Problem) -> Mapping[str, int]:
    """Return the dimension of each member that threads share: of rare rows the results'.

    Each of these has a sum of its own, and which of them there are says the range.
    """
    if not _is_rare(problem):
        return problem.lanes
    found = {name: _bounded(problem.shapes[name]) for name in problem.group.members}
    return {name: dim for name, dim in found.items() if dim is not None}


def _bounded(shape: Shape) -> int | None:
    """Return the last parallel dimension of *shape* that data bound, or None."""
    dims = reversed(shape.order)
    return next((d for d in dims if shape.is_ragged(d) and shape.roles[d] is Role.PARALLEL), None)


def _in_turn(schedule: Schedule, threads: int) -> Schedule:
    """Return *schedule* with fewer blocks along its longest loop over blocks, each some in turn.

    Not fewer than are *threads* on the chip at once.
    """
    blocks = [loop for loop in schedule.outer if loop.kind is LoopKind.BLOCK]
    if not blocks:
        return schedule
    longest = max(blocks, key=_extent)
    every = prod(map(_extent, blocks))
    turns = min(LOOKED_AT, every * block_sizes.BLOCK_THREADS / threads)
    if turns <= 1:
        return schedule
    pieces = {
        name: replace(piece, width=max(1, min(piece.width, ceil(piece.extent / turns))))
        for name, piece in longest.pieces.items()
    }
    fewer = replace(longest, pieces=pieces)
    return replace(schedule, outer=tuple(fewer if x is longest else x for x in schedule.outer))


def _extent(loop: OuterLoop) -> int:
    return next(iter(loop.pieces.values())).extent


def _threads_of_row(problem: Problem, lanes: Mapping[str, int], tiles: list[Tile]) -> int:
    """Return how many threads share a row, whose members they share along *lanes*.

    Of a statement that is not ragged along its lane each has a value of its own, in a register.
    """
    shapes = {name: problem.shapes[name] for name in lanes}
    if _is_rare(problem):  # hardly any has entries, but one that has may have as many as there are
        return block_sizes.WARP
    beside = [
        shape.extents[lanes[name]]
        for name, shape in shapes.items()
        if not shape.is_ragged(lanes[name]) and any(map(shape.is_ragged, shape.order))
    ]
    if beside:
        return min(power_of_two(max(beside)), block_sizes.MAX_ROW_THREADS)
    count = max((shape.counts[lanes[name]] for name, shape in shapes.items()), default=1)
    rows = prod(tile.extent for tile in tiles)
    wanted = -(-count // ENTRIES)
    if rows * wanted < problem.gpu.threads:
        wanted = min(count, -(-problem.gpu.threads // rows))
    x = min(power_of_two(max(wanted, 1)), block_sizes.MAX_ROW_THREADS)
    # A block of several warps folds through shared memory: only where a row is worth it.
    return x if x <= block_sizes.WARP or count >= 2 * x else block_sizes.WARP


def _is_rare(problem: Problem) -> bool:
    """Return whether nothing runs of most rows, which threads only look at."""
    members = problem.group.members
    return any(problem.shapes[name].statement.is_rare for name in members)


def _packed(tiles: Sequence[Tile], threads: int) -> RaggedConfig:
    """Return as many rows as fit a block, each of *threads*."""
    if not tiles:
        return RaggedConfig(threads)
    rows = max(block_sizes.BLOCK_THREADS // threads, 1)
    return RaggedConfig(threads, min(rows, power_of_two(tiles[0].extent)))


TEMPLATE = Template("ragged", RaggedConfig, why_not, space, schedule)
