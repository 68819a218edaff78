"""The finish of a kernel: what its last blocks do with the sums of chunks, and what is small.

    blocks of (g, c)      part[c, g] = sum of a chunk       tiles of g, threads of what is reduced
    the last of (., g)    y[g] = sum over c of part[c, g]   the same tiles, threads along c
                          z[g] = sqrt(y[g]) ...             and what else is computed of a y

The fold's order is fixed, so results do not depend on which block is the last.  Consumers of the
sums come along where they have as little to do (the ordered finish of Reddy et al., Panamera,
PACT 2022, has a kernel of its own for either).  So do small consumers of a kernel without chunks:
the last of all its blocks runs them, on its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop
from tcdsl.schedule.fusion import Group, textual
from tcdsl.schedule.nesting import Alignment
from tcdsl.strategies.assembly import Assembly, Lane
from tcdsl.strategies.operations import work_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.sketch import Layout, Rewritten, Sketch, Tile, apply

MOST_WORK = gpu_thresholds.LAST_BLOCK_CONSUMER_OPERATIONS
MOST_BLOCKS = gpu_thresholds.LAST_BLOCK_TICKETS
MOST_LOADS = gpu_thresholds.LAST_BLOCK_LOADS


def _sketch_of_last(problem: Problem, layout: Layout, folds: Sequence[str]) -> Sketch | None:
    """Return what the last blocks of a kernel run, None if the group does not fit the layout.

    :arg layout: of the kernel, on whose blocks and threads it runs.
    :arg folds: members that add the sums of chunks.
    """
    tiles = _tiles(problem, layout, folds)
    if tiles is None:
        return None
    axis, threads = layout.lane
    lanes = {}
    for name in problem.group.members:
        dim = problem.longest_rest(name, 2)  # any dimension is worth it
        if dim is not None and threads > 1:
            lanes[name] = Lane(dim, axis, threads)
        if _rest(problem, name, tiles) > MOST_LOADS * (threads if name in lanes else 1):
            return None
    why = (f"by the last of {layout.count} blocks",) if layout.count > 1 else ()
    assembly = Assembly(
        problem.group, problem.shapes, problem.gpu, tiles, lanes, grid=layout.numbers
    )
    return replace(assembly.sketch(why), template="last_block")


def _tiles(problem: Problem, layout: Layout, folds: Sequence[str]) -> list[Tile] | None:
    """Return the layout's tiles along the group's axes."""
    tiles = []
    for tile in layout.tiles:
        dims = _along(tile, folds, problem.shapes)
        axis = next((a for a in problem.parallel if dims.items() <= a.items()), None)
        if axis is None or problem.lower(axis) != tile.lower:
            return None
        if problem.extent(axis) != tile.extent:
            return None
        tiles.append(replace(tile, axis=axis))
    return tiles if len(tiles) == len(problem.parallel) else None


def _rest(problem: Problem, name: str, tiles: Sequence[Tile]) -> int:
    """Return how many instances of *name* a thread has for each of its tiles' positions."""
    taken = {tile.axis[name] for tile in tiles}
    extents = problem.shapes[name].extents
    own = prod(extent for dim, extent in enumerate(extents) if dim not in taken)
    return own * prod(tile.repeat for tile in tiles)


def finished(
    scop: Scop,
    shapes: Mapping[str, Shape],
    gpu: Chip,
    layout: Layout,
    folds: Sequence[str],
    sources: Sequence[str],
    groups: Sequence[Group],
) -> tuple[Group, Rewritten] | None:
    """Return what the last blocks of a kernel run, before and after rewriting, None if nothing.

    :arg folds: what adds the sums of the kernel's chunks.
    :arg sources: what the kernel runs.
    :arg groups: what is to be run later, in order.
    """
    for candidates in (groups, ()) if groups else ((),):
        last = _joined(scop, shapes, folds, layout, candidates, sources)
        problem = Problem(scop, last, shapes, gpu) if last else None
        sketch = _sketch_of_last(problem, layout, folds) if problem else None
        done = apply(scop, sketch) if sketch is not None else None
        # An initialisation of other elements than are updated has a kernel of its own, before.
        if last is not None and done is not None and not done.before and not done.after:
            return last, done
    return None


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
    scop: Scop,
    shapes: Mapping[str, Shape],
    folds: Sequence[str],
    layout: Layout,
    groups: Sequence[Group],
    sources: Sequence[str] = (),
) -> Group | None:
    """Return the group of all *folds* with those of *groups* that last blocks may run too.

    A small group may if all its members have the layout's indices in common with a member that
    they depend on, and it depends on no group that stays behind.

    :arg sources: what the kernel runs before.
    """
    if layout.count > MOST_BLOCKS and not folds:
        return None
    alignment = Alignment(dependences_of(scop))
    axes = [{**tile.axis, **_along(tile, folds, shapes)} for tile in layout.tiles]
    members = list(folds)
    behind: set[str] = set()
    for group in groups:
        work = sum(work_of(shapes[name]) for name in group.members)
        found = None
        if work < MOST_WORK:
            found = _aligned(alignment, shapes, axes, [*sources, *members], group)
        if found is None or any(alignment.predecessors(n) & behind for n in group.members):
            behind |= set(group.members)
        else:
            axes = found
            members += group.members
    own = tuple({name: axis[name] for name in members} for axis in axes)
    return Group(textual(scop, members), own) if members else None


def _along(tile: Tile, folds: Sequence[str], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return the dimension of each of *folds* that is along *tile*.

    A fold has the left-hand indices of the updates whose chunks it adds, and these are a member of
    the kernel; another member may have other names for them, or the same names for others.
    """
    found = {}
    for fold in folds:
        own = shapes[fold].statement
        updates = next(
            shapes[name].statement
            for name in tile.axis
            if name in shapes
            and shapes[name].statement.kind is Kind.UPDATE
            and shapes[name].statement.source_name == own.source_name
        )
        found[fold] = own.indices.index(updates.indices[tile.axis[updates.name]])
    return found


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
