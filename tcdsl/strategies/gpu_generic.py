"""Kernels by isl's scheduler on a GPU: scheduled, mapped, and verified before they are taken.

Parts of the program that isl puts one after another are kernels one after another; what a kernel's
bands become is in ``gpu_bands``.  Every kernel is verified here, as the driver will do it: what is
not legal, or runs on one thread where another strategy would not, is left to that one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tcdsl.costmodel.locality import Shape, shape_of
from tcdsl.costmodel.machine import Gpu
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.loop_tree import Node, sequence, statements_of
from tcdsl.poly.parallelism import Role, roles_of
from tcdsl.poly.scheduler import Parts, schedule_by_isl
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import why_not_legal
from tcdsl.strategies.generic import bare_sketch
from tcdsl.strategies.gpu_bands import ENOUGH_THREADS, BandMapper, IslKernel, threads_of
from tcdsl.strategies.sketch import apply
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.mapping import Mapped, why_not_mapped
from tcdsl.transforms.promotion import promote
from tcdsl.transforms.rfactor import why_not_rfactored
from tcdsl.transforms.synchronisation import synchronise, why_not_synchronised

# Instances of a recurrence below which one thread is as fast as many with barriers.
MIN_RECURRENCE = 1 << 10


@dataclass(frozen=True, eq=False)
class IslKernels:
    """The kernels of a group, their loops open; *before*: initialisations to run first."""

    scop: Scop
    before: tuple[str, ...]
    kernels: tuple[IslKernel, ...]


def threads_without_isl(group: Group, shapes: Mapping[str, Shape]) -> int:
    """Return how few threads *group* has by its own axes, if it has a recurrence; else 0.

    A recurrence in several dimensions, whose other dimensions are parallel: what is reduced has
    partial sums for threads.
    """
    for name in group.members:
        shape = shapes[name]
        long = [(r, e) for r, e in zip(shape.roles, shape.extents, strict=True) if e > 1]
        roles = [role for role, _ in long]
        if Role.REDUCED in roles or roles.count(Role.ORDERED) < 2:
            continue
        free = prod(extent for role, extent in long if role is Role.PARALLEL)
        if shape.instances >= MIN_RECURRENCE and free < ENOUGH_THREADS:
            return free
    return 0


def kernels_by_isl(
    scop: Scop,
    group: Group,
    shapes: Mapping[str, Shape],
    gpu: Gpu,
    tile: Sequence[int] = (),
    prefix: str = "isl",
    least_threads: int = 2,
) -> IslKernels | None:
    """Return the kernels of *group* in isl's schedule, None if another strategy does better.

    :arg tile: iterations of the members of a kernel's outermost band that a block takes.
    :arg least_threads: of some kernel, below which isl's schedule is not worth it.
    """
    done = apply(scop, bare_sketch(scop, group.members, shapes))
    names = done.sketch.members
    if any(done.scop.by_name[name].domain.is_empty() for name in names):
        return None
    dependences = dependences_of(done.scop)
    inside = _inside(done.scop, dependences, names)
    own = {n: _shape(done.scop, n, dependences) for n in names}
    scheduled = schedule_by_isl(done.scop, inside, names)
    parts = scheduled.children if isinstance(scheduled, Parts) else (scheduled,)
    kernels = [
        BandMapper(done.scop, inside, own, gpu, tuple(tile), f"{prefix}.{position}").kernel(part)
        for position, part in enumerate(parts)
    ]
    trees = [kernel.tree for kernel in kernels]
    if max(map(threads_of, trees), default=1) < least_threads:
        return None
    if any(_is_idle(done.scop, tree) for tree in trees):
        return None
    if _why_not(done.scop, dependences, inside, trees, gpu) is not None:
        return None
    return IslKernels(done.scop, done.before, tuple(kernels))


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


def _is_idle(scop: Scop, tree: Node) -> bool:
    """Return whether one thread would run sums that many could share."""
    if threads_of(tree) > 1:
        return False
    return any(why_not_rfactored(scop.by_name[name]) is None for name in statements_of(tree))


def _why_not(
    scop: Scop, dependences: Dependences, inside: Dependences, trees: Sequence[Node], gpu: Gpu
) -> str | None:
    """Return what the driver's verification would say of the kernels *trees* alone, or None."""
    placements = promote(scop, trees, gpu)
    scop, trees = synchronise(scop, trees, dependences, placements)
    for tree in trees:
        mapped = Mapped(scop, tree)
        reason = why_not_mapped(mapped) or why_not_synchronised(mapped, dependences, placements)
        if reason is not None:
            return reason
    whole = sequence(list(trees))
    alone = scop.with_statements(tuple(scop.by_name[name] for name in statements_of(whole)))
    return why_not_legal(alone, inside, whole)
