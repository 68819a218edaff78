"""The loops that isl's scheduler finds, on a CPU (generic.py).

    y(t,i) = f(y(t-1,i), y(t,i-1))    wavefronts of tiles, one after another; parallel tiles of one

Where a recurrence in several dimensions leaves no parallel loop, or where isl is asked for.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, prod

from tcdsl.costmodel.work import CpuWork
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Loop, LoopKind, Node
from tcdsl.strategies.cpu_work import cpu_work_of
from tcdsl.strategies.generic import (
    IslLoops,
    bare_schedule,
    has_parallel_loop,
    is_recurrence,
    wavefront_tile,
)
from tcdsl.strategies.problem import Problem, Scheme, own_analysis
from tcdsl.strategies.schedule import Bands, Schedule
from tcdsl.strategies.template import Template

WHY = "the loops that isl's scheduler found"


def why_not(problem: Problem) -> str | None:
    """Return why isl's schedule makes no better kernel, or None."""
    if problem.scheme is Scheme.ISL:
        return None
    if problem.scheme is not Scheme.AUTO:
        return "the loops are not to be isl's"
    if problem.cpu.threads == 1 or len(problem.group.members) > 1:
        return "threads have other loops" if problem.cpu.threads > 1 else "there is one thread"
    if not is_recurrence(problem.shapes[problem.lead]):
        return "it is no long recurrence in several dimensions"
    return None if has_parallel_loop(_tree(problem)) else "isl finds no parallel loop"


def space(problem: Problem) -> Iterator[Bands]:
    """Yield the one configuration: tiles as asked for, or of wavefronts."""
    yield Bands(problem.cpu.threads, _tile(problem))


def _tile(problem: Problem) -> tuple[int, ...]:
    is_asked = problem.options.tile or problem.scheme is Scheme.ISL
    asked = tuple(problem.options.tile)
    return asked if is_asked else wavefront_tile(problem.shapes[problem.lead])


@own_analysis
def _tree(problem: Problem) -> Node:
    """Return isl's loops of what is not rewritten: recurrences are no sums."""
    known = dependences_of(problem.scop)
    members, shapes, tile = problem.group.members, problem.shapes, _tile(problem)
    return IslLoops(problem.scop, members, known, shapes, problem.cpu, tile).tree()


def schedule(problem: Problem, config: Bands) -> Schedule:
    """Return the schedule that asks for isl's bands."""
    bare = bare_schedule(problem.group.members, problem.shapes)
    bare = replace(bare, bands=config, why=(WHY,))
    if problem.scheme is Scheme.ISL:
        return bare
    return replace(bare, work=_work(problem, cpu_work_of(problem, bare)))


def _work(problem: Problem, serial: CpuWork) -> CpuWork:
    """Return the work of wavefronts: a parallel loop for each, as long as it is on average."""
    fronts, tiles = 1, prod(
        ceil(extent / size)
        for extent, size in zip(problem.shapes[problem.lead].extents, _tile(problem), strict=False)
    )  # fmt: skip
    node = _tree(problem)
    while isinstance(node, Loop) and node.kind is not LoopKind.PARALLEL:
        fronts, node = fronts * max(1, node.extent or 1), node.body
    threads = min(float(problem.cpu.threads), max(1.0, tiles / fronts))
    return CpuWork(tuple(replace(one, threads=threads) for one in serial.phases), fronts)


TEMPLATE = Template("cpu_isl_band", Bands, why_not, space, schedule)
