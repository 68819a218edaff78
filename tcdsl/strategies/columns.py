"""Columns that the threads of one block, or of a cluster, keep in registers between passes.

    mean(c) +=! x(p,c)                  threads.x along c, a vector each: a sector of a row or more
    var(c)  +=! (x(p,c) - mean(c))^2    threads.y along p, each with its rows in registers,
    y(p,c)  = ... mean(c), var(c)       as are the blocks of a cluster:  p / per is the rank

They are rows in registers turned round: neighbours in memory are of different columns, so a tile
of them is what a block has.  Sums are folded over threads.y (and ranks), and what follows reads
registers: one kernel and one pass over memory where there were as many as reductions that wait for
one another, and one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tcdsl.costmodel.columns import Columns, Share, best_share
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Gpu
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.strategies.assembly import Lane
from tcdsl.strategies.group_axes import GroupAxes
from tcdsl.strategies.row_graphs import kept_arrays, own_dims, parallel_axes, waiting_for
from tcdsl.strategies.sketch import Axis, Sketch, Tile
from tcdsl.transforms.fusion import Group

MOST_BLOCK_AXES = 2  # of the grid beside a cluster's


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """How columns are shared, and what of them is kept."""

    dims: Mapping[str, int]  # member -> its dimension along a column
    share: Share
    vector: int
    arrays: tuple[str, ...]

    @property
    def why(self) -> str:
        share = self.share
        among = f" of each of {share.cluster} blocks of a cluster" if share.cluster > 1 else ""
        return (
            f"columns of {', '.join(self.arrays)} in registers of {share.x} x {share.y} threads"
            f"{among}, {share.repeat * self.vector} values a thread:"
            f" {1e6 * share.seconds:.2g} us as estimated"
        )


def kept_column_sketch(axes: GroupAxes, inner: Axis, columns: KeptColumns) -> Sketch:
    """Return the sketch of threads each with its part of the columns along *inner*."""
    share = columns.share
    others = [axis for axis in axes.parallel if axis is not inner]
    tiles = [Tile(inner, axes.extent(inner), 0, 0, share.x, 1, columns.vector)]
    tiles += [axes.tile(axis) for axis in reversed(others)]
    lanes = {
        name: Lane(dim, 1, share.y, 1, share.repeat, share.cluster)
        for name, dim in columns.dims.items()
    }
    axes.why.append(columns.why)
    sketch = axes.assembled(tiles, lanes, None)
    return replace(sketch, resident=columns.arrays, layout=None, template="kept columns")


def kept_columns(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], gpu: Gpu, inner: Axis, vector: int
) -> KeptColumns | None:
    """Return how the columns of *group* are kept, None if they should not be.

    :arg inner: the shared axis along which neighbours in memory are.
    :arg vector: how many of them a thread takes.
    """
    several = [
        axis
        for axis in parallel_axes(group, shapes)
        if any(shapes[name].extents[dim] > 1 for name, dim in axis.items())
    ]
    found = own_dims(group, shapes)
    if found is None or len(several) > MOST_BLOCK_AXES:
        return None
    own, extents = found
    if len(extents) > 1 or any(shapes[n].lower[d] for n, d in inner.items()):
        return None
    arguments, scratch = kept_arrays(scop, group, shapes, own)
    arrays = tuple(a for a in (*arguments, *scratch) if _is_tile(a, own, shapes, inner))
    if not arrays:
        return None
    dims = {name: dims[0] for name, dims in own.items()}
    name = next(iter(dims))
    batches = prod(shapes[name].extents[a[name]] for a in several if a[name] != inner[name])
    passes = _passes(group, shapes, dims, inner)
    everything = frozenset().union(*passes)
    outside = {a for a in everything if scop.arrays[a].storage is Storage.ARGUMENT}
    between = {a for a in everything if sum(a in read for read in passes) > 1}
    share = best_share(gpu, Columns(
        rows=extents[0],
        columns=max(shapes[name].extents[dim] for name, dim in inner.items()),
        batches=batches,
        vector=vector,
        kept_bytes=_live_bytes(scop, group, shapes, arrays),
        least_bytes=min(scop.arrays[name].dtype.size_bytes for name in everything),
        moved_bytes=_element_bytes(scop, outside),
        apart_bytes=sum(_element_bytes(scop, read & (outside | between)) for read in passes),
        folds=sum(shapes[name].statement.kind is Kind.UPDATE for name in dims),
        passes=len(passes),
    ))  # fmt: skip
    return None if share is None else KeptColumns(dims, share, vector, arrays)


def _passes(
    group: Group, shapes: Mapping[str, Shape], dims: Mapping[str, int], inner: Axis
) -> list[frozenset[str]]:
    """Return, for each pass over the columns, the arrays of which every element is touched.

    A member is in the pass after those of all reductions that it waits for.
    """
    number = dict.fromkeys(dims, 0)
    for name in dims:
        for later in waiting_for(name, group, shapes) & set(dims):
            number[later] = max(number[later], number[name] + 1)
    return [
        frozenset().union(*(
            _moving(shapes[name], dims[name], inner[name]) for name in dims if number[name] == n
        ))
        for n in range(max(number.values()) + 1)
    ]  # fmt: skip


def _moving(shape: Shape, along: int, inner: int) -> frozenset[str]:
    """Return the arrays of which each element of a column is another one."""
    accesses = (*shape.statement.writes, *shape.statement.reads)
    return frozenset(
        access.array
        for access, strides in zip(accesses, shape.strides, strict=True)
        if strides[along] and strides[inner]
    )


def _element_bytes(scop: Scop, arrays: Collection[str]) -> int:
    return sum(scop.arrays[name].dtype.size_bytes for name in arrays)


def _is_tile(
    array: str, own: Mapping[str, tuple[int, ...]], shapes: Mapping[str, Shape], inner: Axis
) -> bool:
    """Return whether neighbours along *inner* are neighbours in *array*."""
    for name in own:
        shape = shapes[name]
        accesses = (*shape.statement.writes, *shape.statement.reads)
        for access, strides in zip(accesses, shape.strides, strict=True):
            if access.array == array and strides[inner[name]] != 1:
                return False
    return True


def _live_bytes(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], arrays: Sequence[str]
) -> int:
    """Return the most bytes of an element of *arrays* that wait from one member to the next."""
    users = [
        {access.array for access in (*own.writes, *own.reads)}
        for own in (shapes[name].statement for name in group.members)
    ]
    return max(
        sum(
            scop.arrays[array].dtype.size_bytes
            for array in arrays
            if any(array in own for own in users[:gap]) and any(array in own for own in users[gap:])
        )
        for gap in range(1, len(users))
    )
