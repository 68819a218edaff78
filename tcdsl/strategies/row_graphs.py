"""What the members of a row graph have beside their shared axes, and what they use several times.

    m(i) max=! x(i,j)                    own dimensions j, one each (of (n,c,p) beside c there are
    s(i) +=! exp(x(i,j) - m(i))          two), with the same extents
    y(i,j) = exp(x(i,j) - m(i)) / s(i)   x is used before and after m, so it is worth keeping

Rows and columns are the same here: which axis is the inner one in memory is not asked.
"""

from collections.abc import Iterator, Mapping

from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Index
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.rewrites.scop.rfactor import why_not_laned, why_not_rfactored
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.schedule import Axis


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


def row_axes(
    group: Group, shapes: Mapping[str, Shape]
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]] | None:
    """Return the dimension of each member along each axis of a row, and the axes' extents.

    Where rows have two axes, a member may lack the inner one: what a row has for every value of the
    outer one, and sums of that.  Its dimension there is -1; that along the outer axis is known by
    an array that it shares with a member of both::

        part(g,d) +=! x(g,d,p)           d: 0, p: 1    results along the outer axis
        total(g) +=! w(d) * part(g,d)    d: 0, -1      aligned by part

    None unless threads may share all of them.
    """
    own: dict[str, tuple[int, ...]] = {}
    for name in group.members:
        shape = shapes[name]
        taken = {axis[name] for axis in parallel_axes(group, shapes)}
        if dims := tuple(d for d in shape.order if d not in taken and shape.extents[d] > 1):
            own[name] = dims
    most = max(map(len, own.values()), default=0)
    extents = {tuple(shapes[n].extents[d] for d in own[n]) for n in own if len(own[n]) == most}
    if most > 2 or len(extents) != 1:
        return None
    found = {name: dims for name, dims in own.items() if len(dims) == most}
    for name in own:
        if name not in found and (outer := _outer_dim(name, own[name], found, shapes)) is not None:
            found[name] = (outer, -1)
    (axes,) = extents
    is_shared = all(_may_share_along(shapes[name], found[name]) for name in found)
    is_whole = all(
        d < 0 or (shapes[name].extents[d] == extent and not shapes[name].lower[d])
        for name, dims in found.items()
        for d, extent in zip(dims, axes, strict=True)
    )
    return (found, axes) if len(found) == len(own) and is_shared and is_whole else None


def _outer_dim(
    name: str,
    own: tuple[int, ...],
    found: Mapping[str, tuple[int, ...]],
    shapes: Mapping[str, Shape],
) -> int | None:
    """Return the only dimension of *name* in *own*, if it is along the outer axis of *found*."""
    if len(own) > 1:
        return None
    mine = dict(_numbered(shapes[name], own[0]))
    for other, dims in found.items():
        for array, place in _numbered(shapes[other], dims[0]):
            if mine.get(array) == place:
                return own[0]
    return None


def _numbered(shape: Shape, dim: int) -> Iterator[tuple[str, int]]:
    """Yield the arrays that *shape* touches, and which of their dimensions is numbered by *dim*."""
    index = shape.statement.indices[dim]
    for access in (*shape.statement.writes, *shape.statement.reads):
        for place, subscript in enumerate(access.subscripts):
            if isinstance(subscript, Index) and subscript.name == index and access.is_exact:
                yield access.array, place


def _may_share_along(shape: Shape, dims: tuple[int, ...]) -> bool:
    """Return whether threads may share *dims*; an update adds up the innermost of them at least."""
    own = [d for d in dims if d >= 0]
    is_update = shape.statement.kind is Kind.UPDATE
    if is_update and len(own) == 2 and shape.roles[own[0]] is Role.PARALLEL:
        own = own[1:]  # each thread has results of its own along the outer axis
    return all(_may_share(shape, d) for d in own)


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
