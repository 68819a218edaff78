"""Columns that the threads of one block, or of a cluster, keep in registers between passes.

    mean(c) +=! x(p,c)                  threads.x along c, a vector each: a sector of a row or more
    var(c)  +=! (x(p,c) - mean(c))^2    threads.y along p, each with its rows in registers,
    y(p,c)  = ... mean(c), var(c)       as are the blocks of a cluster:  p / per is the rank

They are rows in registers turned round: neighbours in memory are of different columns, so a tile
of them is what a block has.  Sums are folded over threads.y (and ranks), and what follows reads
registers: one kernel and one pass over memory where there were as many as reductions that wait for
one another, and one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel.columns import Columns, Share, best_share, shares
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.lowering import Lane
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_graphs import kept_arrays, own_dims, parallel_axes, waiting_for
from tcdsl.strategies.schedule import Axis, Schedule, Tile
from tcdsl.strategies.template import Template, assembled
from tcdsl.strategies.templates.column import has_few_results

MOST_BLOCK_AXES = 2  # of the grid beside a cluster's
MOST_CONFIGS = 24  # of the space: more are alike


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """How columns are shared, and what of them is kept."""

    dims: Mapping[str, int]  # member -> its dimension along a column
    columns: Columns
    share: Share
    vector: int
    arrays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnClusterConfig:
    """Threads of a block along columns' neighbours and along columns, and blocks of a cluster."""

    threads_x: int
    threads_y: int
    repeat: int  # rows of a thread
    cluster: int = 1  # blocks that share a column
    vector: int = 1  # elements of a vector, along x


def why_not(problem: Problem) -> str | None:
    """Return why columns are not kept in registers, or None."""
    if problem.options.tile:
        return "tiles are asked for"
    if legal_columns(problem) is None:
        return "no block or cluster keeps its columns"
    return None


def is_likely(problem: Problem) -> bool:
    """Return whether several passes take longer."""
    return kept_columns(problem) is not None


def space(problem: Problem) -> Iterator[ColumnClusterConfig]:
    """Yield the configurations with the least estimated times, the shortest first."""
    found = kept_columns(problem) or legal_columns(problem)
    assert found is not None, "why_not"
    others = sorted(shares(problem.gpu, found.columns), key=lambda share: share.seconds)
    for share in dict.fromkeys((found.share, *others[:MOST_CONFIGS])):
        yield ColumnClusterConfig(share.x, share.y, share.repeat, share.cluster, found.vector)


def schedule(problem: Problem, config: ColumnClusterConfig) -> Schedule:
    """Return the schedule of threads each with its part of the columns."""
    inner, columns = problem.along, legal_columns(problem)
    assert inner is not None and columns is not None, "why_not"
    others = [axis for axis in problem.parallel if axis is not inner]
    tiles = [
        Tile(inner, problem.extent(inner), 0, 0, config.threads_x, 1, config.vector),
        *(problem.tile(axis) for axis in reversed(others)),
    ]
    lanes = {
        name: Lane(dim, 1, config.threads_y, 1, config.repeat, config.cluster)
        for name, dim in columns.dims.items()
    }
    schedule = assembled(problem, tiles, lanes, why=(_why(columns, config),))
    return replace(schedule, resident=columns.arrays, layout=None)


def _why(columns: KeptColumns, config: ColumnClusterConfig) -> str:
    among = f" of each of {config.cluster} blocks of a cluster" if config.cluster > 1 else ""
    return (
        f"columns of {', '.join(columns.arrays)} in registers of {config.threads_x} x"
        f" {config.threads_y} threads{among}, {config.repeat * config.vector} values a thread"
    )


@analysis
def kept_columns(problem: Problem) -> KeptColumns | None:
    """Return how the columns of *problem* are kept, None if they should not be.

    Where each column may have a thread of its own, one kernel goes over them anyway.
    """
    found = legal_columns(problem)
    if found is None or not has_few_results(problem):
        return None
    share = best_share(problem.gpu, found.columns)
    return None if share is None else replace(found, share=share)


@analysis
def legal_columns(problem: Problem) -> KeptColumns | None:
    """Return how the columns of *problem* may be kept, None if they cannot be."""
    inner = problem.along
    if problem.options.tile or inner is None or problem.is_ragged:
        return None
    scop, group, shapes, gpu = problem.scop, problem.group, problem.shapes, problem.gpu
    vector = problem.vector_width(inner)
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
    asked = Columns(
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
    )
    share = next(shares(gpu, asked), None)
    return None if share is None else KeptColumns(dims, asked, share, vector, arrays)


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


TEMPLATE = Template("column_cluster", ColumnClusterConfig, why_not, space, schedule, is_likely)
