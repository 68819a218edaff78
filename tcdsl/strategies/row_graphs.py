"""What the members of a row graph have beside their shared axes, and what they use several times.

    m(i) max=! x(i,j)                    own dimensions j, one each (of (n,c,p) beside c there are
    s(i) +=! exp(x(i,j) - m(i))          two), with the same extents
    y(i,j) = exp(x(i,j) - m(i)) / s(i)   x is used before and after m, so it is worth keeping

Rows and columns are the same here: which axis is the inner one in memory is not asked.
"""

from collections.abc import Mapping

from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Index
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.rewrites.scop.rfactor import why_not_laned, why_not_rfactored
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.sketch import Axis


def parallel_axes(group: Group, shapes: Mapping[str, Shape]) -> list[Axis]:
    """Return the shared axes along which all members are parallel."""
    return [axis for axis in group.axes if group.has_parallel(axis, shapes)]


def own_dims(
    group: Group, shapes: Mapping[str, Shape]
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]] | None:
    """Return the dimensions beside the shared axes of each member with any, and their extents.

    None unless threads may share them, and the extents are the same for all members.
    """
    parallel = parallel_axes(group, shapes)
    dims: dict[str, tuple[int, ...]] = {}
    extents: set[tuple[int, ...]] = set()
    for name in group.members:
        shape = shapes[name]
        taken = {axis[name] for axis in parallel}
        own = tuple(d for d in shape.order if d not in taken and shape.extents[d] > 1)
        if not own:
            continue
        if any(shape.lower[d] for d in own) or not all(_may_share(shape, d) for d in own):
            return None
        dims[name] = own
        extents.add(tuple(shape.extents[d] for d in own))
    return (dims, next(iter(extents))) if len(extents) == 1 else None


def _may_share(shape: Shape, dim: int) -> bool:
    """Return whether threads may share dimension *dim*, each with a partial accumulator."""
    if shape.roles[dim] is Role.PARALLEL:
        return shape.statement.kind is not Kind.UPDATE
    return (
        shape.roles[dim] is Role.REDUCED
        and why_not_laned(shape.statement) is None
        and why_not_rfactored(shape.statement) is None
    )


def kept_arrays(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], dims: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what members use of a row before and after a reduction: arguments, scratch arrays."""
    users: dict[str, set[str]] = {}
    later = [waiting_for(name, group, shapes) for name in dims]
    for name, own in dims.items():
        statement = shapes[name].statement
        indices = {statement.indices[d] for d in own}
        for access in (*statement.writes, *statement.reads):
            names = {s.name for s in access.subscripts if isinstance(s, Index)}
            if access.is_exact and indices <= names:
                users.setdefault(access.array, set()).add(name)
    written = {w.array for n in group.members for w in shapes[n].statement.writes}
    shared = [a for a, own in users.items() if any(own & after and own - after for after in later)]
    arguments = [a for a in shared if scop.arrays[a].storage is Storage.ARGUMENT]
    scratch = [a for a in shared if scop.arrays[a].storage is Storage.SCRATCH]
    return tuple(a for a in arguments if a not in written), tuple(scratch)


def waiting_for(name: str, group: Group, shapes: Mapping[str, Shape]) -> set[str]:
    """Return the members that must wait for the reduction *name*; none of them, if it is none."""
    statement = shapes[name].statement
    if statement.kind is not Kind.UPDATE:
        return set()
    waiting: set[str] = set()
    arrays = {write.array for write in statement.writes}
    for member in group.members[group.members.index(name) + 1 :]:
        own = shapes[member].statement
        if arrays & {read.array for read in own.reads}:
            waiting.add(member)
            arrays |= {write.array for write in own.writes}
    return waiting
