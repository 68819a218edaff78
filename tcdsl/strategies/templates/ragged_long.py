"""Long rows of data, in chunks that blocks share (rewrites/scop/long_rows).

    s(q) +=! part(q, c)       blocks.x over chunks c, blocks.y over the long rows that data list,
                              threads along a chunk's entries

How many long rows there are is data too: the grid has a fixed size, and blocks take turns.
"""

from collections.abc import Iterator

from tcdsl.poly.loop_tree import Coordinate, LoopKind, X
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies import block_sizes
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.ragged_axes import is_of_long_rows
from tcdsl.strategies.schedule import OuterLoop, Schedule
from tcdsl.strategies.template import Template

CHUNK_BLOCKS, ROW_BLOCKS = 64, 32  # that share chunks of a long row, and long rows


@dataclass(frozen=True, slots=True)
class RaggedLongConfig:
    """Blocks that share the chunks of a long row, blocks over long rows, threads of a chunk."""

    chunk_blocks: int
    row_blocks: int
    threads: int


def why_not(problem: Problem) -> str | None:
    """Return why blocks do not share rows of data, or None."""
    return None if is_of_long_rows(problem) else "it lists no long rows"


def space(problem: Problem) -> Iterator[RaggedLongConfig]:
    """Yield the configurations, first the usual one."""
    threads = block_sizes.BLOCK_THREADS
    pairs = dict.fromkeys(((CHUNK_BLOCKS, ROW_BLOCKS), (32, 32), (128, 16), (128, 32)))
    yield from (RaggedLongConfig(chunks, rows, threads) for chunks, rows in pairs)


def schedule(problem: Problem, config: RaggedLongConfig) -> Schedule:
    """Return the schedule of rows that blocks share."""
    outer = []
    for number, (axis, width) in enumerate(
        zip(reversed(problem.group.axes), (config.chunk_blocks, config.row_blocks), strict=True)
    ):
        extent = problem.extent(axis)
        mapped = Role.PARALLEL, LoopKind.BLOCK, number, min(extent, width)
        pieces = {name: Piece(Coordinate(dim), extent, *mapped) for name, dim in axis.items()}
        outer.append(OuterLoop(pieces, LoopKind.BLOCK))
    outer.reverse()
    threads = config.threads
    remaining, partials, widths = {}, {}, {}
    for name in problem.group.members:
        shape = problem.shapes[name]
        remaining[name] = tuple(
            Piece(
                Coordinate(dim), shape.extents[dim], shape.roles[dim], LoopKind.THREAD, X, threads
            )
            for dim in range(2, len(shape.extents))
        )
        if shape.statement.kind is Kind.UPDATE and remaining[name]:
            entry = shape.statement.indices[2]
            partials[name] = (Partial(entry, 0, 1, threads, threads, True),)
            widths[name] = ((0, threads),)
    why = f"long rows: {config.chunk_blocks} x {config.row_blocks} blocks over their chunks"
    return Schedule(
        problem.group.members, tuple(outer), remaining, partials, why=(why,), threads=widths,
        in_registers=True,
    )  # fmt: skip


TEMPLATE = Template("ragged_long", RaggedLongConfig, why_not, space, schedule)
