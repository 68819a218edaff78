"""The finish of a kernel: what its last blocks do with the sums of chunks, and what is small.

    blocks of (g, c)      part[c, g] = sum of a chunk       tiles of g, threads of what is reduced
    the last of (., g)    y[g] = sum over c of part[c, g]   the same tiles, threads along c
                          z[g] = sqrt(y[g]) ...             and what else is computed of a y

The fold's order is fixed, so results do not depend on which block is the last.  Consumers of the
sums come along where they have as little to do (the ordered finish of Reddy et al., Panamera,
PACT 2022, has a kernel of its own for either).  So do small consumers of a kernel without chunks:
the last of all its blocks runs them, on its own.
"""

from collections.abc import Iterator, Mapping, Sequence

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import Group, textual
from tcdsl.schedule.nesting import Alignment
from tcdsl.strategies.operations import work_of
from tcdsl.strategies.problem import Finish
from tcdsl.strategies.templates.last_block import along

MOST_WORK = gpu_thresholds.LAST_BLOCK_CONSUMER_OPERATIONS
MOST_BLOCKS = gpu_thresholds.LAST_BLOCK_TICKETS


def last_groups(
    scop: Scop, shapes: Mapping[str, Shape], left: Finish, groups: Sequence[Group]
) -> Iterator[Group]:
    """Yield what the last blocks of a kernel may run: what it has *left*, with others first.

    :arg groups: what is to be run later, in order.
    """
    for candidates in (groups, ()) if groups else ((),):
        if (group := _joined(scop, shapes, left, candidates)) is not None:
            yield group


def fold_groups(folds: Sequence[str], shapes: Mapping[str, Shape]) -> list[Group]:
    """Return the kernels for *folds* that no last block runs: those of equal results together."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for name in folds:
        shape = shapes[name]
        n_left = shape.statement.n_left
        left = shape.statement.indices[:n_left]
        alike.setdefault((left, shape.lower[:n_left], shape.extents[:n_left]), []).append(name)
    return [_alike(names, shapes) for names in alike.values()]


def _alike(names: Sequence[str], shapes: Mapping[str, Shape]) -> Group:
    """Return the group of the folds *names*, whose left-hand indices are the same."""
    first = shapes[names[0]]
    dims = first.order if len(names) == 1 else range(first.statement.n_left)
    return Group(tuple(names), tuple(dict.fromkeys(names, dim) for dim in dims))


def _joined(
    scop: Scop, shapes: Mapping[str, Shape], left: Finish, groups: Sequence[Group]
) -> Group | None:
    """Return the group of all *folds* with those of *groups* that last blocks may run too.

    A small group may if all its members have the layout's indices in common with a member that
    they depend on, and it depends on no group that stays behind.
    """
    layout, folds = left.layout, left.folds
    if layout.count > MOST_BLOCKS and not folds:
        return None
    alignment = Alignment(dependences_of(scop))
    axes = [{**tile.axis, **along(tile, folds, shapes)} for tile in layout.tiles]
    members = list(folds)
    behind: set[str] = set()
    for group in groups:
        work = sum(work_of(shapes[name]) for name in group.members)
        found = None
        if work < MOST_WORK:
            found = _aligned(alignment, shapes, axes, [*left.sources, *members], group)
        if found is None or any(alignment.predecessors(n) & behind for n in group.members):
            behind |= set(group.members)
        else:
            axes = found
            members += group.members
    own = tuple({name: axis[name] for name in members} for axis in axes)
    return Group(textual(scop, members), own) if members else None


def _aligned(
    alignment: Alignment,
    shapes: Mapping[str, Shape],
    axes: Sequence[Mapping[str, int]],
    members: Sequence[str],
    group: Group,
) -> list[dict[str, int]] | None:
    """Return *axes* with the members of *group*, None if dependences do not align them."""
    found = [dict(axis) for axis in axes]
    all_members = list(members)
    apart: list[str] = []  # what checks a subscript depends on nothing
    for name in group.members:
        shape = shapes[name]
        befores = [m for m in all_members if m in alignment.predecessors(name)]
        if any(name in alignment.predecessors(m) for m in all_members):
            return None
        if not befores:
            apart.append(name)
            continue
        for axis in found:
            dims = [
                dim
                for dim in range(len(shape.extents))
                if shape.roles[dim] is Role.PARALLEL
                and all(m in axis and alignment.may_share(m, axis[m], name, dim) for m in befores)
            ]
            if not dims:
                return None
            axis[name] = dims[0]
        all_members.append(name)
    return _beside(found, apart, group, shapes)


def _beside(
    axes: list[dict[str, int]], apart: Sequence[str], group: Group, shapes: Mapping[str, Shape]
) -> list[dict[str, int]] | None:
    """Return *axes* with the members *apart*, along the axes that *group* gives them."""
    placed = next((name for name in group.members if name not in apart), None)
    for axis in axes:
        for name in apart:
            dim = next((a[name] for a in group.axes if placed and a[placed] == axis[placed]), None)
            if dim is None or shapes[name].roles[dim] is not Role.PARALLEL:
                return None
            axis[name] = dim
    return axes if placed is not None else None
