"""Rows in chunks that a block holds each: sums of exponentials beside the largest of their chunk.

    blocks (i, c)           q = largest of the chunk, in registers        x is read once
                            p = sum of exp(x - q)
    the last of (i, .)      m(i), s(i)                                    and what is small

The program has been rewritten for it (row_chunks.py, rewrites/scop/rescaling.py): a chunk is a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel import kept_rows
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.lowering import Lane, grid_axes
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Layout, Schedule, Tile
from tcdsl.strategies.template import Template
from tcdsl.strategies.templates import row
from tcdsl.strategies.templates.row import RowConfig, kept_config, row_of_problem, row_tiles


def why_not(problem: Problem) -> str | None:
    """Return why blocks share no rows, or None."""
    return "its rows are in no chunks" if problem.chunks is None else None


def space(problem: Problem) -> Iterator[RowConfig]:
    """Yield the configurations, first that of the threads that the chunks were cut for."""
    assert problem.chunks is not None, "why_not"
    own = row_of_problem(problem)
    whole = replace(problem, may_split=False)
    found = None
    if own.is_kept:
        threads = min(problem.chunks.cut.threads, power_of_two(own.groups))
        share = kept_rows.Share(threads, -(-own.groups // threads), resident_blocks=0)
        found = kept_config(problem, own, share)
        yield found
    yield from (config for config in row.space(whole) if config != found)


def schedule(problem: Problem, config: RowConfig) -> Schedule:
    """Return the schedule of blocks over chunks, the last of a row told apart."""
    assert problem.chunks is not None, "why_not"
    # The chunks are innermost: what is left to the last block of a row has none.
    index = problem.chunks.index
    tiles = sorted(row_tiles(problem, config), key=lambda t: problem.name_of(t.axis) != index)
    schedule = row.schedule_on(problem, config, tiles)
    cut = problem.chunks.cut
    first = f"sums of exponentials beside the largest of chunks of {cut.length}, each read once"
    own = row_of_problem(problem)
    lanes = {name: Lane(dim, 0, config.threads) for name, dim in own.lanes.items()}
    return replace(schedule, why=(first, *schedule.why), layout=_layout_of_rows(tiles, lanes))


def _layout_of_rows(tiles: Sequence[Tile], lanes: Mapping[str, Lane]) -> Layout:
    """Return the mapping of the last blocks, one a row."""
    chunks, *rows = tiles
    _, *numbers = grid_axes([tile.blocks for tile in tiles])
    threads = max(lane.threads for lane in lanes.values())
    return Layout(tuple(rows), tuple(numbers), (0, threads), chunks.blocks)


TEMPLATE = Template("row_split", RowConfig, why_not, space, schedule)
