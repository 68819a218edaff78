"""What the last blocks of a kernel run, on its blocks and threads (finish.py).

part[c, g] = sum of a chunk          the kernel: tiles of g, and chunks c, over blocks
y[g] = sum over c of part[c, g]      the last block of each tile of g: threads along c, or one
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass
from tcdsl.strategies.lowering import Lane, Lowering
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule, Tile
from tcdsl.strategies.template import Template
from tcdsl.strategies.work import work_of

MOST_LOADS = gpu_thresholds.LAST_BLOCK_LOADS


@dataclass(frozen=True, slots=True)
class LastBlockConfig:
    """How many threads share what is left of a result: those that the kernel has there, or one."""

    threads: int


def why_not(problem: Problem) -> str | None:
    """Return why no last block runs *problem*, or None."""
    if problem.finish is None:
        return "it is no finish of a kernel"
    if _tiles(problem) is None:
        return "it does not fit the blocks and threads of the kernel before it"
    return None if _is_short(problem) else f"a thread would have more than {MOST_LOADS} values"


def space(problem: Problem) -> Iterator[LastBlockConfig]:
    """Yield the configurations, that of all threads first."""
    assert problem.finish is not None, "why_not"
    _, threads = problem.finish.layout.lane
    yield LastBlockConfig(threads)
    if _lanes(problem, threads):
        yield LastBlockConfig(1)


def schedule(problem: Problem, config: LastBlockConfig) -> Schedule:
    """Return the schedule on the tiles of the kernel before."""
    finish, tiles = problem.finish, _tiles(problem)
    assert finish is not None and tiles is not None, "why_not"
    count = finish.layout.count
    why = (f"by the last of {count} blocks",) if count > 1 else ()
    lanes = _lanes(problem, config.threads)
    lowering = Lowering(
        problem.group, problem.shapes, problem.gpu, tiles, lanes, grid=finish.layout.numbers
    )
    schedule = lowering.schedule(why)
    return replace(schedule, work=replace(work_of(problem, schedule), launches=0))


def _lanes(problem: Problem, threads: int) -> dict[str, Lane]:
    """Return the members' own axes that *threads* share."""
    assert problem.finish is not None, "why_not"
    axis, _ = problem.finish.layout.lane
    # Any dimension is worth it.
    dims = {name: problem.longest_rest(name, 2) for name in problem.group.members}
    return {
        name: Lane(dim, axis, threads)
        for name, dim in dims.items()
        if dim is not None and threads > 1
    }


def _is_short(problem: Problem) -> bool:
    """Return whether the kernel's threads have few values each of every member."""
    finish, tiles = problem.finish, _tiles(problem)
    assert finish is not None and tiles is not None, "why_not"
    _, threads = finish.layout.lane
    lanes = _lanes(problem, threads)
    return all(
        _rest(problem, name, tiles) <= MOST_LOADS * (threads if name in lanes else 1)
        for name in problem.group.members
    )


def _rest(problem: Problem, name: str, tiles: Sequence[Tile]) -> int:
    """Return how many instances of *name* a thread has for each of its tiles' positions."""
    taken = {tile.axis[name] for tile in tiles}
    extents = problem.shapes[name].extents
    own = prod(extent for dim, extent in enumerate(extents) if dim not in taken)
    return own * prod(tile.repeat for tile in tiles)


def _tiles(problem: Problem) -> list[Tile] | None:
    """Return the tiles of the kernel before along the group's axes; None if there are others."""
    assert problem.finish is not None, "why_not"
    tiles = []
    for tile in problem.finish.layout.tiles:
        dims = along(tile, problem.finish.folds, problem.shapes)
        axis = next((a for a in problem.parallel if dims.items() <= a.items()), None)
        if axis is None or problem.lower(axis) != tile.lower:
            return None
        if problem.extent(axis) != tile.extent:
            return None
        tiles.append(replace(tile, axis=axis))
    return tiles if len(tiles) == len(problem.parallel) else None


def along(tile: Tile, folds: Sequence[str], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return the dimension of each of *folds* that is along *tile*.

    A fold has the left-hand indices of the updates whose chunks it adds, and these are a member of
    the kernel; another member may have other names for them, or the same names for others.
    """
    found = {}
    for fold in folds:
        own = shapes[fold].statement
        updates = next(
            shapes[name].statement
            for name in tile.axis
            if name in shapes
            and shapes[name].statement.kind is Kind.UPDATE
            and shapes[name].statement.source_name == own.source_name
        )
        found[fold] = own.indices.index(updates.indices[tile.axis[updates.name]])
    return found


TEMPLATE = Template("last_block", LastBlockConfig, why_not, space, schedule)
