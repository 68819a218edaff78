"""Chains of stencils in overlapped tiles: threads over tiles, each stage of a tile after another.

    parallel t                                   h' is an array of the thread, on its stack
      { for u: h'(u) = ...; for u: y(T t + u) = ... }

The sizes of tiles are the scop's by then (strategies/stencils.py has chosen them).
"""

from collections.abc import Iterator

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import OuterLoop, Schedule
from tcdsl.strategies.template import Template
from tcdsl.strategies.tiled_chains import count, tiled_chain


@dataclass(frozen=True, slots=True)
class CpuStencilConfig:
    """The axes of tiles that threads share, the outermost ones."""

    axes: int


def why_not(problem: Problem) -> str | None:
    """Return why the members are no chain in tiles, or None."""
    return None if tiled_chain(problem) is not None else "it is no chain of stencils in tiles"


def space(problem: Problem) -> Iterator[CpuStencilConfig]:
    """Yield the configurations: all axes, or fewer."""
    chain = tiled_chain(problem)
    assert chain is not None, "why_not"
    most = len(chain.outside) + len(chain.tiles)
    yield from (CpuStencilConfig(axes) for axes in range(most, 0, -1))


def schedule(problem: Problem, config: CpuStencilConfig) -> Schedule:
    """Return the schedule of threads over tiles."""
    chain = tiled_chain(problem)
    assert chain is not None, "why_not"
    shapes, members = problem.shapes, problem.group.members
    around = (*chain.outside, *chain.tiles)
    outer = []
    for number, axis in enumerate(around):
        kind = LoopKind.PARALLEL if number < config.axes else LoopKind.SERIAL
        pieces = {
            name: Piece(Coordinate(dim), shapes[name].extents[dim], Role.PARALLEL)
            for name, dim in axis.items()
        }
        outer.append(OuterLoop(pieces, kind))
    taken = {name: {axis[name] for axis in around} for name in members}
    remaining = {
        name: tuple(
            Piece(Coordinate(dim), shapes[name].extents[dim], shapes[name].roles[dim])
            for dim in shapes[name].order
            if dim not in taken[name]
        )
        for name in members
    }
    why = f"threads over tiles ({count(problem, around[: config.axes])} iterations)"
    return Schedule(members, tuple(outer), remaining, why=(why,))


TEMPLATE = Template("cpu_stencil", CpuStencilConfig, why_not, space, schedule)
