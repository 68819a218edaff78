"""Kernels by isl's scheduler on a GPU: scheduled, mapped, and verified before they are taken.

    [ band[i, j]: S0 ]               kernel 1: S0 over blocks and threads
    [ S1_init        ]     --->      kernel 2: S1_init, then S1, on one block
    [ band[t]: S1    ]

Parts of the program that isl puts one after another are kernels one after another; neighbours
without a loop for blocks share one.  What a kernel's bands become is in ``gpu_bands``.  Every
kernel is verified here, as the driver will do it: what is not legal, or leaves to one thread what
another strategy would not, is left to that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape, shape_of
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.loop_tree import Node, loops_around, sequence, statements_of
from tcdsl.poly.parallelism import Role, roles_of
from tcdsl.poly.scheduler import Band, Parts, Scheduled, schedule_by_isl
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import why_not_legal
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.schedule.mapping import Mapped, why_not_mapped
from tcdsl.schedule.promotion import promote
from tcdsl.schedule.synchronisation import synchronise, why_not_synchronised
from tcdsl.strategies.generic import bare_schedule
from tcdsl.strategies.gpu_bands import ENOUGH_THREADS, BandMapper, Opened, threads_of
from tcdsl.strategies.problem import Problem, own_analysis
from tcdsl.strategies.schedule import Bands
from tcdsl.strategies.schedule_rewrites import Rewritten, apply

MIN_RECURRENCE = gpu_thresholds.RECURRENCE_INSTANCES


@dataclass(frozen=True, eq=False)
class IslKernels:
    """The kernels of a group, their loops open; *before*: initialisations to run first."""

    scop: Scop
    before: tuple[str, ...]
    opened: tuple[Opened, ...]


def why_not_by_isl(problem: Problem, bands: Bands) -> str | None:
    """Return why *problem* is no recurrence that gets more threads by isl, or None."""
    shapes = problem.shapes
    name = next((name for name in problem.group.members if _is_starved(shapes[name])), None)
    if name is None:
        return "no recurrence in several dimensions is short of threads"
    if isinstance(found := kernels_by_isl(problem, bands), str):
        return found
    (tree,) = (o.tree for o in found.opened if name in statements_of(o.tree))
    if threads_of(tree) <= _free_instances(shapes[name]):
        return "isl finds no more threads than there are independent instances"
    return None


def _is_starved(shape: Shape) -> bool:
    """Return whether *shape* is a recurrence in several dimensions, with few others.

    These must be parallel: what is reduced has partial sums for threads.
    """
    roles = [r for r, extent in zip(shape.roles, shape.extents, strict=True) if extent > 1]
    is_recurrence = Role.REDUCED not in roles and roles.count(Role.ORDERED) > 1
    is_long = shape.instances >= MIN_RECURRENCE
    return is_recurrence and is_long and _free_instances(shape) < ENOUGH_THREADS


def _free_instances(shape: Shape) -> int:
    """Return how many instances are independent, whatever isl finds."""
    free = zip(shape.roles, shape.extents, strict=True)
    return prod(extent for role, extent in free if role is Role.PARALLEL)


@own_analysis
def kernels_by_isl(problem: Problem, bands: Bands) -> IslKernels | str:
    """Return the kernels of *problem* in isl's schedule; or why another strategy does better."""
    found = trees_by_isl(problem, bands)
    return found if isinstance(found, str) else _why_not(problem, found) or found


def trees_by_isl(problem: Problem, bands: Bands) -> IslKernels | str:
    """Return the same kernels, not verified: *bands* change no order that a dependence asks for."""
    scheduled = _scheduled(problem)
    if isinstance(scheduled, str):
        return scheduled
    prefix = f"isl.{problem.group.members[0]}"
    opened: list[Opened] = []
    for part in _parts(scheduled.schedule):
        mapper = BandMapper(
            scheduled.done.scop, scheduled.inside, scheduled.shapes, problem.gpu, bands,
            f"{prefix}.{len(opened)}",
        )  # fmt: skip
        opened.append(mapper.opened(part))
    return IslKernels(scheduled.done.scop, scheduled.done.before, tuple(opened))


@dataclass(frozen=True, eq=False)
class _Scheduled:
    """What isl made of a group: *inside* are its dependences, *shapes* its statements' boxes."""

    done: Rewritten
    schedule: Scheduled
    inside: Dependences
    shapes: Mapping[str, Shape]


@own_analysis
def _scheduled(problem: Problem) -> _Scheduled | str:
    """Return isl's schedule of *problem*; or why there is none."""
    done = apply(problem.scop, bare_schedule(problem.group.members, problem.shapes))
    names = done.schedule.members
    if any(done.scop.by_name[name].domain.is_empty() for name in names):
        return "a statement never runs"
    dependences = dependences_of(done.scop)
    inside = _inside(done.scop, dependences, names)
    own = {n: _shape(done.scop, n, dependences) for n in names}
    return _Scheduled(done, schedule_by_isl(done.scop, inside, names), inside, own)


def _shape(scop: Scop, name: str, dependences: Dependences) -> Shape:
    statement = scop.by_name[name]
    return shape_of(scop, statement, roles_of(statement, dependences))


def _inside(scop: Scop, dependences: Dependences, names: Sequence[str]) -> Dependences:
    """Return the dependences between *names*; atomic updates have none on one another."""
    return Dependences(tuple(
        e
        for e in dependences.edges
        if e.source in names and e.sink in names
        and not (e.is_relaxed and scop.by_name[e.source].is_atomic)
    ))  # fmt: skip


def _parts(scheduled: Scheduled) -> Iterator[Scheduled]:
    """Yield the parts that are kernels; neighbours that have no loop for blocks are one."""
    together: list[Scheduled] = []
    for part in _flattened(scheduled):
        if isinstance(part, Band) and any(member.is_coincident for member in part.members):
            if together:
                yield Parts(tuple(together))
            together = []
            yield part
        else:
            together.append(part)
    if together:
        yield Parts(tuple(together))


def _flattened(scheduled: Scheduled) -> Iterator[Scheduled]:
    match scheduled:
        case Parts(children=children):
            for child in children:
                yield from _flattened(child)
        case _:
            yield scheduled


def _is_idle(scop: Scop, tree: Node) -> bool:
    """Return whether one thread would run sums that many could share."""
    return any(
        why_not_rfactored(scop.by_name[name]) is None
        and not any(loop.width > 1 for loop in loops_around(tree, name))
        for name in statements_of(tree)
    )


def _why_not(problem: Problem, found: IslKernels) -> str | None:
    """Return why *found* are worse than another strategy's kernels, or not legal, or None."""
    trees = [opened.tree for opened in found.opened]
    if max(map(threads_of, trees), default=1) == 1:
        return "isl finds no loop for several threads"
    if any(_is_idle(found.scop, tree) for tree in trees):
        return "one thread would run sums that many could share"
    scheduled = _scheduled(problem)
    assert not isinstance(scheduled, str), "there are kernels"
    return _why_not_verified(found.scop, scheduled.inside, trees, problem.gpu)


def _why_not_verified(
    scop: Scop, inside: Dependences, trees: Sequence[Node], gpu: Chip
) -> str | None:
    """Return what the driver's verification would say of the kernels *trees* alone, or None."""
    dependences = dependences_of(scop)
    placements = promote(scop, trees, gpu)
    scop, trees = synchronise(scop, trees, dependences, placements)
    for tree in trees:
        mapped = Mapped(scop, tree)
        reason = why_not_mapped(mapped) or why_not_synchronised(mapped, dependences, placements)
        if reason is not None:
            return reason
    whole = sequence(list(trees))
    # Sums in chunks and tiles are those of other kernels too: the driver checks them.
    own = tuple(scop.by_name[name] for name in statements_of(whole))
    alone = replace(scop, statements=own, rescaled=(), overlapped=())
    return why_not_legal(alone, inside, whole)
