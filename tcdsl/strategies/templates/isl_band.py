"""The loops that isl's scheduler finds, over blocks and threads (gpu_generic.py, gpu_bands.py).

    y(t,i) = f(y(t-1,i), y(t,i-1))    one block: wavefronts t + i in order, threads.x along one

Where a recurrence in several dimensions leaves few independent instances, or where isl is asked
for.  Parts of the group that isl puts one after another are kernels of their own.
"""

from collections.abc import Iterator
from math import prod

from tcdsl.costmodel.work import Chain, Work
from tcdsl.poly.loop_tree import Leaf, Loop, LoopKind, Node
from tcdsl.schedule.mapping import Mapped
from tcdsl.strategies import gpu_bands
from tcdsl.strategies.arithmetic import operations_of
from tcdsl.strategies.gpu_generic import IslKernels, kernels_by_isl, trees_by_isl, why_not_by_isl
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.schedule import Bands, Schedule
from tcdsl.strategies.template import Template
from tcdsl.strategies.traffic import traffic_of

THREADS = (64, 128, 512)  # of a block, beside the likeliest


def why_not(problem: Problem) -> str | None:
    """Return why isl's schedule makes no better kernels, or None."""
    if problem.scheme is Scheme.ISL:
        found = kernels_by_isl(problem, _likeliest(problem))
        return found if isinstance(found, str) else None
    if problem.scheme is Scheme.AUTO:
        return why_not_by_isl(problem, _likeliest(problem))
    return "the loops are to be as they were written"


def space(problem: Problem) -> Iterator[Bands]:
    """Yield the configurations that make different kernels, the likeliest first."""
    likeliest = _likeliest(problem)
    seen: list[list[Node]] = []
    for bands in (likeliest, *(Bands(n, likeliest.tile) for n in THREADS)):
        found = trees_by_isl(problem, bands)
        assert not isinstance(found, str), "why_not"
        trees = [opened.tree for opened in found.opened]
        if trees not in seen:
            seen.append(trees)
            yield bands


def schedule(problem: Problem, config: Bands) -> Schedule:
    """Return the schedule that asks for isl's bands."""
    found = trees_by_isl(problem, config)
    assert not isinstance(found, str), "why_not"
    members = problem.group.members
    return Schedule(
        members, (), dict.fromkeys(members, ()), bands=config, work=_work(problem, found)
    )  # fmt: skip


def _likeliest(problem: Problem) -> Bands:
    return Bands(gpu_bands.BLOCK_THREADS, tuple(problem.options.tile))


def _work(problem: Problem, found: IslKernels) -> Work:
    """Return what the kernels cost: in each iteration that is in order, a load and a barrier."""
    mapped = [Mapped(found.scop, opened.tree) for opened in found.opened]
    steps = sum(_steps(opened.tree) for opened in found.opened)
    traffic = traffic_of(problem)
    return Work(
        blocks=max(prod(one.grid) for one in mapped),
        threads=max(prod(one.threads) for one in mapped),
        read_bytes=sum(t.footprint_bytes for t in traffic if t.is_read),
        written_bytes=sum(t.footprint_bytes for t in traffic if t.is_written),
        operations=tuple(operations_of(problem, ())),
        chain=Chain(l2_loads=steps, block_barriers=steps),
        launches=len(mapped),
        is_programmatic=problem.gpu.overlaps_kernels,
    )


def _steps(tree: Node) -> int:
    """Return how many iterations threads run one after another, on the longest path of *tree*."""
    match tree:
        case Loop(kind=LoopKind.BLOCK, body=body):
            return _steps(body)
        case Loop(extent=extent, width=width, body=body):
            return -(-max(1, extent or 1) // max(1, width)) * _steps(body)
        case Leaf():
            return 1
        case _:
            return sum(map(_steps, tree.children))


TEMPLATE = Template("isl_band", Bands, why_not, space, schedule)
