"""One thread runs every statement as it was written: what is left where nothing else gets through.

y(i) +=! x(i,j)    --->    for i:  for j:  y(i) += x(i,j)
"""

from collections.abc import Iterator

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Template


@dataclass(frozen=True, slots=True)
class SerialConfig:
    """Nothing is left to choose."""


def why_not(problem: Problem) -> str | None:
    """Return why the loops are not as written, or None."""
    return None if problem.scheme is Scheme.SERIAL else "several threads are there"


def space(_: Problem) -> Iterator[SerialConfig]:
    """Yield the one configuration."""
    yield SerialConfig()


def schedule(problem: Problem, _: SerialConfig) -> Schedule:
    """Return the schedule of all loops in their order, without blocks or threads."""
    pieces = {
        name: tuple(
            Piece(Coordinate(dim), extent, shape.roles[dim], LoopKind.SERIAL)
            for dim, extent in enumerate(shape.extents)
        )
        for name, shape in ((name, problem.shapes[name]) for name in problem.group.members)
    }
    why = ("the loops as written, on one thread",)
    return Schedule(problem.group.members, (), pieces, why=why)


TEMPLATE = Template("serial", SerialConfig, why_not, space, schedule)
