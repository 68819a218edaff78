"""What plans for CPUs and for GPUs have in common: the order of the stages.

1. chains of stencils in tiles, where that takes less time      strategies/stencils
2. compensated sums                                             rewrites/scop/compensation
3. layouts, statements into groups, and what they show          plan/cpu_planner, plan/gpu_planner
4. a problem a group; the estimate chooses of all templates     strategies/catalogue
5. the schedules' rewrites, then the dependences again           strategies/schedule_rewrites
6. the loops of each kernel                                     schedule/nesting
7. where the scratch arrays live                                plan/cpu_planner, plan/gpu_planner

A target has its own rewrites before, its own loops around, and its own memory: 3 and 7.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu, Machine
from tcdsl.options import Options
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.loop_tree import LoopKind, Node, statements_of
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.compensation import explained, with_compensation
from tcdsl.rewrites.scop.rfactor import with_own_accumulators
from tcdsl.schedule.fusion import affinities_of, alone
from tcdsl.schedule.nesting import Alignment, Nester
from tcdsl.schedule.plan import Kernel, Plan, Weighed
from tcdsl.schedule.trace import record
from tcdsl.strategies.asked import asked_for, require_followed
from tcdsl.strategies.catalogue import fastest
from tcdsl.strategies.generic import IslLoops
from tcdsl.strategies.operand_tiles import nested_in_steps
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.queued import Queued
from tcdsl.strategies.schedule import Schedule, nested
from tcdsl.strategies.stencils import Tilings, with_tiles

Planner = Callable[[Scop, Options], Plan]


def planned(
    scop: Scop, options: Options, scheme: Scheme, plan: Planner, tilings: Tilings | None
) -> Plan:
    """Return the plan that *plan* makes of *scop*, or of it with chains of stencils in tiles.

    :arg tilings: None where no tiles are to be sought.
    """

    def summed(scop: Scop, options: Options) -> Plan:
        if options.summation != "compensated":
            return plan(scop, options)
        return explained(plan(with_compensation(scop), options))

    is_asked = scheme is not Scheme.AUTO or options.fuse == "none" or bool(options.tile)
    if is_asked or tilings is None:
        return summed(scop, options)
    return with_tiles(scop, options, summed, tilings)


class ShapesOf(Protocol):
    def __call__(self, scop: Scop, dependences: Dependences) -> dict[str, Shape]: ...


class Loops:
    """Opens the loops of a queue's kernels: all that depends on the scop after the rewrites."""

    def __init__(self, scop: Scop, shapes_of: ShapesOf, innermost: LoopKind) -> None:
        """Open loops of *scop*; innermost ones that nothing orders are *innermost*."""
        self.scop = scop
        self.dependences = dependences_of(scop)
        self.shapes = shapes_of(scop, self.dependences)
        alignment = Alignment(self.dependences, affinities_of(scop))
        self._nester = partial(Nester, alignment, self.shapes, innermost=innermost)

    def kernels(self, queue: Sequence[Queued]) -> list[Kernel]:
        """Return the kernels of *queue*."""
        found = []
        for position, queued in enumerate(queue):
            own, tree = queued.kernel, self._tree(queued, f"k{position}")
            found.append(Kernel(
                queued.name, tree, own.why, code=own.code, template=own.template,
                library=own.library,
            ))  # fmt: skip
        record("nesting", self.scop, found)
        return found

    def _tree(self, queued: Queued, prefix: str) -> Node:
        kernel = queued.kernel
        if kernel.tree is not None:
            return kernel.tree
        if kernel.tiled is not None:
            return kernel.tiled.tree(self._nester({}, prefix=prefix))
        if kernel.bands is not None and queued.problem is not None:
            return self._by_isl(kernel, queued.problem.cpu, prefix)
        nester = self._nester(kernel.lanes, kernel.unrolled, prefix)
        if kernel.steps is None:
            tree = nested(self.scop, self._whole(kernel, nester), nester)
        else:
            tree = nested_in_steps(kernel, kernel.steps, nester)
        for loop in reversed(kernel.outer):
            tree = nester.loop(loop.pieces, loop.kind, tree, loop.limit)
        return tree

    def _by_isl(self, schedule: Schedule, cpu: Cpu, prefix: str) -> Node:
        assert schedule.bands is not None
        tile = schedule.bands.tile
        return IslLoops(
            self.scop, schedule.members, self.dependences, self.shapes, cpu, tile, prefix
        ).tree()

    @staticmethod
    def _whole(schedule: Schedule, nester: Nester) -> Schedule:
        """Return *schedule* with all dimensions of the members that it says nothing of."""
        missing = [name for name in schedule.members if name not in schedule.remaining]
        if not missing:
            return schedule
        own = {name: nester.whole(name) for name in missing}
        return replace(schedule, remaining={**schedule.remaining, **own})


def statement_by_statement(
    scop: Scop, options: Options, machine: Machine, scheme: Scheme, shapes_of: ShapesOf
) -> tuple[Scop, list[Queued]]:
    """Return the queue in which each statement is a kernel, as it was written."""
    scop = with_own_accumulators(scop)
    shapes = shapes_of(scop, dependences_of(scop))
    queue = []
    for name in shapes:
        problem = Problem(scop, alone(name, shapes), shapes, machine, options, scheme=scheme)
        queue.append(Queued(fastest(problem).schedule(problem), name, problem=problem))
    return scop, queue


def weighed_of(
    queue: Iterable[Queued],
    kernels: Sequence[Kernel],
    options: Options,
    shared: Sequence[Weighed] = (),
) -> tuple[Weighed, ...]:
    """Return what the kernels of *queue* were chosen from.

    :arg kernels: of the plan; one of them may run several of the queue.
    :arg shared: the same of launches that several kernels share.
    :raises OptionError: (TC060) what is asked for is not followed.
    """
    turned = {
        name for kernel in kernels if kernel.code.is_reversed for name in statements_of(kernel.tree)
    }
    first = set(statements_of(kernels[0].tree)) if kernels else set[str]()
    each = (queued.weighed(turned, first) for queued in queue)
    found = tuple(one for one in each if one is not None)
    require_followed(asked_for(options), (*found, *shared))
    return found
