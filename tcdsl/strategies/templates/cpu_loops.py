"""A statement's loops in their order on a CPU: as they are written, or by the strides.

y(i) +=! x(i,j)    --->    parallel i:  for j:  y(i) += x(i,j)

What always applies to a statement alone: where nothing else gets through, and where it is asked
for.  As written no loop is in vectors.
"""

from collections.abc import Iterator
from dataclasses import replace

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.generic import plain_schedule
from tcdsl.strategies.operations import PARALLEL_WORK, work_of
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.schedule import OuterLoop, Schedule
from tcdsl.strategies.template import Template

WRITTEN, STRIDES = "as written", "by strides"
_ORDERS = {
    Scheme.PLAIN: (STRIDES,),
    Scheme.TEXTUAL: (WRITTEN,),
    Scheme.SERIAL: (WRITTEN,),
}


@dataclass(frozen=True, slots=True)
class CpuLoopsConfig:
    """The order of the loops."""

    order: str


def why_not(problem: Problem) -> str | None:
    """Return why the loops are not those of a statement alone, or None."""
    if len(problem.group.members) > 1:
        return "it has several statements"
    return "the loops are to be isl's" if problem.scheme is Scheme.ISL else None


def space(problem: Problem) -> Iterator[CpuLoopsConfig]:
    """Yield the orders."""
    orders = _ORDERS.get(problem.scheme, (STRIDES, WRITTEN)) if problem.scheme else (STRIDES,)
    yield from map(CpuLoopsConfig, orders)


def schedule(problem: Problem, config: CpuLoopsConfig) -> Schedule:
    """Return the schedule of the loops in order, the outermost parallel where it may be."""
    if config.order == STRIDES:
        return plain_schedule(problem.group, problem.shapes, problem.cpu)
    (name,) = problem.group.members
    shape = problem.shapes[name]
    pieces = [
        Piece(Coordinate(dim), extent, shape.roles[dim], LoopKind.SERIAL)
        for dim, extent in enumerate(shape.extents)
    ]
    outermost = next((d for d, extent in enumerate(shape.extents) if extent > 1), None)
    pays = problem.cpu.threads > 1 and work_of(shape) >= PARALLEL_WORK
    outer: tuple[OuterLoop, ...] = ()
    if pays and outermost is not None and shape.roles[outermost] is Role.PARALLEL:
        piece = replace(pieces.pop(outermost), kind=None)
        outer = (OuterLoop({name: piece}, LoopKind.PARALLEL),)
    return Schedule((name,), outer, {name: tuple(pieces)}, why=("the loops as written",))


TEMPLATE = Template("cpu_loops", CpuLoopsConfig, why_not, space, schedule)
