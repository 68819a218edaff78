"""Rows that one block cannot hold: the blocks of a cluster share them.

    mean(c) +=! x(n,c,p)            rank r of the cluster of row c has a part of what is not shared,
    var(c)  +=! (x(n,c,p) - mean)^2   n / per == r  or  (where that is one axis)  j / per == r,
    y(n,c,p) = ... mean, var        in shared memory: one pass over x instead of three

Each block copies its part of the arrays that are read several times to shared memory, by
asynchronous copies: many bytes are on their way, and no register waits for them.  Sums are folded
over the threads of all blocks.  Where that pays, and how many blocks and threads there are, is
decided in ``costmodel/clusters``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.clusters import LongRows, Share, best_share, shares
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.mapping import RANK
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.assembly import Assembly
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_graphs import kept_arrays, own_dims, parallel_axes
from tcdsl.strategies.sketch import Sketch
from tcdsl.strategies.template import Template

MOST_UNROLLED = gpu_thresholds.CLUSTER_VECTORS


@dataclass(frozen=True, slots=True)
class ClusterRows:
    """How the blocks of a cluster share rows.

    Each rank has a part of a row's *outer* axis; where a row has one axis, outer and inner are the
    same dimension.
    """

    inner: Mapping[str, int]  # member -> the dimension along which threads are
    outer: Mapping[str, int]  # member -> the dimension along which ranks are
    rows: LongRows
    share: Share
    staged: tuple[str, ...]  # arrays that are copied to shared memory
    resident: tuple[str, ...]  # scratch arrays of which a thread keeps its part

    @property
    def keeps_well(self) -> bool:
        """Whether the scratch arrays' part leaves registers for other blocks."""
        return not self.resident or (self.share.keeps_well and not self.rows.keeps_wider)

    @property
    def why(self) -> str:
        names, share = ", ".join(self.staged), self.share
        if share.cluster == 1:
            return f"{share.threads} threads a row; rows of {names} in shared memory"
        return (
            f"clusters of {share.cluster} blocks share a row, {share.threads} threads each;"
            f" their parts of {names} are in shared memory"
        )

    def pieces(self, name: str, roles: Sequence[Role]) -> tuple[Piece, ...]:
        """Return the loops of a thread over its part of a row of the member *name*."""
        inner, vector, share = self.inner[name], self.rows.vector, self.share
        groups = -(-self.rows.extents[-1] // vector)
        thread = Piece(
            Coordinate(inner, 0, vector, share.threads), min(groups, share.threads), roles[inner],
            LoopKind.THREAD, 0, share.threads,
        )  # fmt: skip
        turns = share.repeat if self.rows.is_split else 0
        turn = Coordinate(inner, 0, vector * share.threads, turns)
        lanes = [Piece(Coordinate(inner, 0, 1, vector), vector, roles[inner], LoopKind.LANES)]
        return (
            *self._ranks(name, roles),
            thread,
            *self._values(name, roles),
            Piece(turn, share.repeat, roles[inner], self._turns),
            *(lanes if vector > 1 else ()),
        )

    def _ranks(self, name: str, roles: Sequence[Role]) -> Iterator[Piece]:
        """Yield the loop over the blocks of the cluster, if there are several."""
        outer, per, cluster = self.outer[name], self.share.per, self.share.cluster
        if cluster > 1:
            ranks = -(-self.rows.extents[0] // per)
            own = Coordinate(outer, 0, per)
            yield Piece(own, ranks, roles[outer], LoopKind.THREAD, RANK, cluster)

    def _values(self, name: str, roles: Sequence[Role]) -> Iterator[Piece]:
        """Yield the loop over a rank's values of the outer axis, if that is not the inner one."""
        outer, per = self.outer[name], self.share.per
        if not self.rows.is_split:
            own = Coordinate(outer, 0, 1, per if self.share.cluster > 1 else 0)
            yield Piece(own, per, roles[outer], self._turns)

    @property
    def _turns(self) -> LoopKind:
        """How a thread takes its turns: written out if they are few."""
        vectors = self.share.repeat * (1 if self.rows.is_split else self.share.per)
        return LoopKind.UNROLL if vectors <= MOST_UNROLLED else LoopKind.SERIAL

    def partials(self, shape: Shape) -> tuple[Partial, ...]:
        """Return the partial accumulators of a reduction over rows: one a thread and a rank."""
        names, share = shape.statement.indices, self.share
        inner, outer = (names[dims[shape.statement.name]] for dims in (self.inner, self.outer))
        lanes = [Partial(inner, 0, self.rows.vector, share.threads, share.threads, True)]
        if share.cluster > 1:
            lanes.append(Partial(outer, 0, share.per, 0, share.cluster, True))
        return tuple(lanes)

    @property
    def lanes(self) -> tuple[tuple[int, int], ...]:
        """The axes of threads along which the partial accumulators are, and their widths."""
        ranks = ((RANK, self.share.cluster),) if self.share.cluster > 1 else ()
        return ((0, self.share.threads), *ranks)


@dataclass(frozen=True, slots=True)
class RowClusterConfig:
    """How the blocks of a cluster and their threads share a row."""

    cluster: int  # blocks; 1: one has all of the row
    per_block: int  # values of the outer axis
    threads: int  # of a block
    repeat: int  # vectors of a thread along the inner axis
    vector: int = 1  # elements of a vector


def why_not(problem: Problem) -> str | None:
    """Return why clusters do not share the rows, or None."""
    if problem.options.tile:
        return "tiles are asked for"
    if problem.along is not None or problem.is_ragged:
        return "it has no rows, or data say how long they are"
    if legal_rows(problem) is None:
        return "no cluster holds a row that several statements use"
    return None


def is_likely(problem: Problem) -> bool:
    """Return whether clusters do better than blocks alone."""
    return cluster_rows(problem) is not None


def space(problem: Problem) -> Iterator[RowClusterConfig]:
    """Yield the configurations, first the one that measurements favour."""
    rows = cluster_rows(problem) or legal_rows(problem)
    assert rows is not None, "why_not"
    for share in dict.fromkeys((rows.share, *shares(problem.gpu, rows.rows))):
        yield RowClusterConfig(
            share.cluster, share.per, share.threads, share.repeat, rows.rows.vector
        )


def schedule(problem: Problem, config: RowClusterConfig) -> Sketch:
    """Return the schedule of blocks of a cluster over every row, its parts in shared memory."""
    found = legal_rows(problem)
    assert found is not None, "why_not"
    share = Share(config.cluster, config.per_block, config.threads, config.repeat)
    rows = replace(found, share=share, rows=replace(found.rows, vector=config.vector))
    assembly = Assembly(problem.group, problem.shapes, problem.gpu, problem.unit_tiles)
    remaining, partials, threads = {}, {}, {}
    for name in problem.group.members:
        shape = problem.shapes[name]
        if name not in rows.inner:
            remaining[name] = assembly.remaining(name)
            own = assembly.partials(name)
            if own is not None:
                partials[name] = own
            continue
        remaining[name] = rows.pieces(name, shape.roles)
        if shape.statement.kind is Kind.UPDATE:
            partials[name], threads[name] = rows.partials(shape), rows.lanes
    return Sketch(
        problem.group.members, tuple(assembly.block_loops()), remaining, partials,
        why=(rows.why,), threads=threads, in_registers=True,
        resident=(*rows.staged, *rows.resident), is_staged=True,
    )  # fmt: skip


@analysis
def cluster_rows(problem: Problem) -> ClusterRows | None:
    """Return how clusters share the rows of *problem*, None if they should not."""
    found = legal_rows(problem)
    share = best_share(problem.gpu, found.rows) if found is not None else None
    return None if found is None or share is None else replace(found, share=share)


@analysis
def legal_rows(problem: Problem) -> ClusterRows | None:
    """Return how clusters may share the rows of *problem*, None if they cannot."""
    if problem.options.tile or problem.along is not None or problem.is_ragged:
        return None
    scop, group, shapes, gpu = problem.scop, problem.group, problem.shapes, problem.gpu
    found = row_dims(group, shapes, gpu)
    if found is None:
        return None
    dims, extents = found
    name = next(iter(dims))
    rows = prod(shapes[name].extents[a[name]] for a in parallel_axes(group, shapes))
    staged, resident = kept_arrays(scop, group, shapes, dims)
    if not staged:
        return None
    inner = {name: own[-1] for name, own in dims.items()}
    outer = {name: own[0] for name, own in dims.items()}
    is_written = any(
        scop.arrays[shapes[member].statement.write.array].storage is Storage.ARGUMENT
        for member in dims
        if shapes[member].statement.kind is not Kind.UPDATE
    )
    long_rows = LongRows(
        rows, extents, _value_bytes(scop, staged), len(staged), len(resident),
        min(problem.lane_vector(name, dim, resident) for name, dim in inner.items()), is_written,
    )  # fmt: skip
    share = next(shares(gpu, long_rows), None)
    return None if share is None else ClusterRows(inner, outer, long_rows, share, staged, resident)


def _value_bytes(scop: Scop, arrays: Sequence[str]) -> int:
    """Return the bytes of one element of each of *arrays*."""
    return sum(scop.arrays[name].dtype.size_bytes for name in arrays)


def row_dims(
    group: Group, shapes: Mapping[str, Shape], gpu: Chip
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]] | None:
    """Return the dimensions of a row of every member that has any, and their extents.

    None unless rows have one or two axes, the same for all, that the threads of clusters may share.
    """
    lead = group.members[0]
    parallel = parallel_axes(group, shapes)
    several = [axis for axis in parallel if shapes[lead].extents[axis[lead]] > 1]
    if gpu.blocks_per_cluster == 1 or len(several) > 2:  # clusters lie along the grid's third axis
        return None
    found = own_dims(group, shapes)
    return found if found is not None and len(found[1]) <= 2 else None


TEMPLATE = Template("row_cluster", RowClusterConfig, why_not, space, schedule, is_likely)
