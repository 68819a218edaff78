"""Rows that one block cannot hold: the blocks of a cluster share them.

    mean(c) +=! x(n,c,p)            rank r of the cluster of row c has a part of what is not shared,
    var(c)  +=! (x(n,c,p) - mean)^2   n / per == r  or  (where that is one axis)  j / per == r,
    y(n,c,p) = ... mean, var        in shared memory: one pass over x instead of three

Rows of two short axes have threads along both, and those may be the rows of one block.  A member
may lack the inner axis: sums along it are results of the outer one's threads, which others add up::

    s(g) +=! x(g,d,p)               threads.x along p, threads.y along d;  folds over x and y
    part(g,d) +=! y(g,d,p)          each thread's sums of its values of d;  folds over x
    t(g) +=! w(d) * part(g,d)       threads.y along d, all threads.x alike; a fold over y

      p 0 .. 3  4 .. 7  ...         what x is to p and y to d, a rank is to runs of d
    d +-------+-------+---+
    0 | x0 y0 | x1 y0 |   |         legal iff extents along each axis are the same for all members,
    1 | x0 y1 | x1 y1 |   |         an array tells which axis a member with one of them has, and
    2 | x0 y0 | ...   |   |         every update may have partial sums along what it adds up

Where d has few values and p many, ranks are along runs of p instead, and every block has all of d.

Where the outer axis is an open size, ranks take its values in turn, n % cluster == r: of few images
each block has some, where of runs of neighbours the first ranks would have all.

Each block copies its part of the arrays that are read several times to shared memory, by
asynchronous copies: many bytes are on their way, and no register waits for them.  Few values of a
half type of rows of two axes are in registers instead (loops over both are unrolled then): loaded
from shared memory, each would be converted again.  Sums are folded over the threads of all blocks.
Where that pays, and how many blocks and threads there are, is decided in
``costmodel/clusters``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.clusters import LongRows, Share, best_share, is_held_by_threads, shares
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.loop_tree import RANK, Coordinate, LoopKind, X, Y
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.lowering import Lowering
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_graphs import kept_arrays, parallel_axes, row_axes
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Template

MOST_UNROLLED = gpu_thresholds.CLUSTER_VECTORS


@dataclass(frozen=True, slots=True)
class ClusterRows:
    """How the blocks of a cluster share rows.

    Each rank has a part of a row's *outer* axis, or, with all of that, of the inner one; where a
    row has one axis, outer and inner are the same dimension.
    """

    inner: Mapping[str, int]  # member -> the dimension along which threads are, of those with one
    outer: Mapping[str, int]  # member -> the dimension along which ranks and threads.y are
    rows: LongRows
    share: Share
    staged: tuple[str, ...]  # arrays that are copied to shared memory
    resident: tuple[str, ...]  # scratch arrays of which a thread keeps its part
    in_registers: bool = False  # and of the others, too

    @property
    def keeps_well(self) -> bool:
        """Whether the scratch arrays' part leaves registers for other blocks."""
        return not self.resident or (self.share.keeps_well and not self.rows.keeps_wider)

    @property
    def why(self) -> str:
        names, share = ", ".join(self.staged), self.share
        along_outer = f" x {share.outer_threads}" if share.outer_threads > 1 else ""
        threads = f"{share.threads}{along_outer}"
        place = "registers" if self.in_registers else "shared memory"
        if share.cluster == 1:
            return f"{threads} threads a row; rows of {names} in {place}"
        return (
            f"clusters of {share.cluster} blocks share a row, {threads} threads each;"
            f" their parts of {names} are in {place}"
        )

    def pieces(self, name: str, roles: Sequence[Role]) -> tuple[Piece, ...]:
        """Return the loops of a thread over its part of a row of the member *name*."""
        if name not in self.inner:
            return (*self._others(name, roles), *self._values(name, roles))
        inner, vector, share = self.inner[name], self.rows.vector, self.share
        groups = -(-self.rows.extents[-1] // vector)
        thread = Piece(
            Coordinate(inner, 0, vector, share.threads), min(groups, share.threads), roles[inner],
            LoopKind.THREAD, X, share.threads,
        )  # fmt: skip
        turns = share.repeat if self.rows.is_split or self._is_shared_inside else 0
        step = vector * share.threads
        if self.is_dealt and self.rows.is_split:
            step, turns = step * share.cluster, 0
        turn = Coordinate(inner, 0, step, turns)
        lanes = [Piece(Coordinate(inner, 0, 1, vector), vector, roles[inner], LoopKind.LANES)]
        return (
            *self._others(name, roles),
            thread,
            *self._values(name, roles),
            Piece(turn, share.repeat, roles[inner], self._turns),
            *(lanes if vector > 1 else ()),
        )

    @property
    def is_dealt(self) -> bool:
        """Whether ranks take values of the outer axis in turn."""
        return self.rows.is_open

    @property
    def _dealt_to(self) -> int:
        """How many blocks take values of the outer of two axes in turn; 1: each has neighbours."""
        is_dealt = self.is_dealt and not (self.rows.is_split or self._is_shared_inside)
        return self.share.cluster if is_dealt else 1

    @property
    def _is_shared_inside(self) -> bool:
        """Whether ranks are along the inner of two axes."""
        return self.rows.is_shared_inside(self.share)

    def _rank(self, name: str) -> Coordinate | None:
        """Return the coordinate that is the rank of a block in its cluster, None without any."""
        share = self.share
        if share.cluster == 1:
            return None
        if self._is_shared_inside:
            span = share.threads * share.repeat * self.rows.vector
            return Coordinate(self.inner[name], 0, span) if name in self.inner else None
        if self.is_dealt:
            turn = share.threads * self.rows.vector if self.rows.is_split else 1
            return Coordinate(self.outer[name], 0, turn, share.cluster)
        return Coordinate(self.outer[name], 0, share.per)

    def _others(self, name: str, roles: Sequence[Role]) -> Iterator[Piece]:
        """Yield the loops over the blocks of the cluster, and over threads along the outer axis."""
        outer, per, cluster = self.outer[name], self.share.per, self.share.cluster
        if (rank := self._rank(name)) is not None:
            dim = rank.position
            ranks = -(-self.rows.extents[-1 if self._is_shared_inside else 0] // rank.div)
            ranks = min(ranks, rank.mod or ranks)
            yield Piece(rank, ranks, roles[dim], LoopKind.THREAD, RANK, cluster)
        if (threads := self.share.outer_threads) > 1:
            own = Coordinate(outer, 0, self._dealt_to, threads)
            yield Piece(own, min(per, threads), roles[outer], LoopKind.THREAD, Y, threads)

    def _values(self, name: str, roles: Sequence[Role]) -> Iterator[Piece]:
        """Yield the loop over a thread's values of the outer axis, if that is not the inner one.

        Blocks of a cluster have whole turns of the threads along it.
        """
        outer, values, threads = self.outer[name], self.share.values, self.share.outer_threads
        if not self.rows.is_split:
            is_part = self.share.cluster > 1 and not self._is_shared_inside
            dealt_to = self._dealt_to
            own = Coordinate(
                outer, 0, dealt_to * threads, values if is_part and dealt_to == 1 else 0
            )
            yield Piece(own, values, roles[outer], self._turns)

    @property
    def _turns(self) -> LoopKind:
        """How a thread takes its turns: unrolled if they are few."""
        vectors = self.share.repeat * (1 if self.rows.is_split else self.share.values)
        return LoopKind.UNROLL if vectors <= MOST_UNROLLED else LoopKind.SERIAL

    def partials(self, shape: Shape) -> tuple[Partial, ...]:
        """Return the partial accumulators of a reduction over rows: one a thread and a rank."""
        return tuple(partial for partial, _ in self._lanes(shape))

    def lanes(self, shape: Shape) -> tuple[tuple[int, int], ...]:
        """Return the axes of threads along which partial accumulators are, and their widths."""
        return tuple((axis, partial.extent) for partial, axis in self._lanes(shape))

    def _lanes(self, shape: Shape) -> Iterator[tuple[Partial, int]]:
        """Yield the partial accumulators along what *shape* adds up, and their axes of threads."""
        name, share, vector = shape.statement.name, self.share, self.rows.vector
        indices, roles = shape.statement.indices, shape.roles
        inner, outer, rank = self.inner.get(name), self.outer[name], self._rank(name)
        if inner is not None and roles[inner] is Role.REDUCED:
            threads = share.threads
            yield Partial(indices[inner], 0, vector, threads, threads, True), 0
        if share.outer_threads > 1 and roles[outer] is Role.REDUCED:
            threads = share.outer_threads
            yield Partial(indices[outer], 0, self._dealt_to, threads, threads, True), 1
        if rank is not None and roles[rank.position] is Role.REDUCED:
            index = indices[rank.position]
            yield Partial(index, 0, rank.div, rank.mod, share.cluster, True), RANK


@dataclass(frozen=True, slots=True)
class RowClusterConfig:
    """How the blocks of a cluster and their threads share a row."""

    cluster: int  # blocks; 1: one has all of the row
    per_block: int  # values of the outer axis
    threads: int  # of a block, along the inner axis
    repeat: int  # vectors of a thread along it
    vector: int = 1  # elements of a vector
    outer_threads: int = 1  # of a block, along the outer axis
    in_registers: bool = False  # a thread keeps what it loads, and nothing is copied


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
            share.cluster, share.per, share.threads, share.repeat, rows.rows.vector,
            share.outer_threads, is_held_by_threads(rows.rows, share),
        )  # fmt: skip


def schedule(problem: Problem, config: RowClusterConfig) -> Schedule:
    """Return the schedule of blocks of a cluster over every row, its parts in shared memory."""
    found = legal_rows(problem)
    assert found is not None, "why_not"
    share = Share(
        config.cluster, config.per_block, config.threads, config.repeat, config.outer_threads
    )
    rows = replace(
        found, share=share, rows=replace(found.rows, vector=config.vector),
        in_registers=config.in_registers,
    )  # fmt: skip
    lowering = Lowering(problem.group, problem.shapes, problem.gpu, problem.unit_tiles)
    remaining, partials, threads = {}, {}, {}
    for name in problem.group.members:
        shape = problem.shapes[name]
        if name not in rows.outer:
            remaining[name] = lowering.remaining(name)
            own = lowering.partials(name)
            if own is not None:
                partials[name] = own
            continue
        remaining[name] = rows.pieces(name, shape.roles)
        if shape.statement.kind is Kind.UPDATE:
            partials[name], threads[name] = rows.partials(shape), rows.lanes(shape)
    return Schedule(
        problem.group.members, tuple(lowering.block_loops()), remaining, partials,
        why=(rows.why,), threads=threads, in_registers=True,
        resident=(*rows.staged, *rows.resident), is_staged=not config.in_registers,
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
    whole = {name: own for name, own in dims.items() if own[-1] >= 0}
    name = next(iter(whole))
    rows = prod(shapes[name].extents[a[name]] for a in parallel_axes(group, shapes))
    staged, resident = kept_arrays(scop, group, shapes, whole)
    if not staged:
        return None
    inner = {name: own[-1] for name, own in whole.items()}
    outer = {name: own[0] for name, own in dims.items()}
    is_written = any(
        scop.arrays[shapes[member].statement.write.array].storage is Storage.ARGUMENT
        for member in whole
        if shapes[member].statement.kind is not Kind.UPDATE
    )
    has_inner_sums = any(
        shapes[member].statement.kind is Kind.UPDATE
        and shapes[member].roles[own[0]] is Role.PARALLEL
        for member, own in whole.items()
    )
    long_rows = LongRows(
        rows, extents, _value_bytes(scop, staged), len(staged), len(resident),
        min(problem.lane_vector(name, dim, resident) for name, dim in inner.items()), is_written,
        has_inner_sums, _fold_bytes(shapes, dims), problem.is_open(outer),
    )  # fmt: skip
    share = next(shares(gpu, long_rows), None)
    return None if share is None else ClusterRows(inner, outer, long_rows, share, staged, resident)


def _fold_bytes(shapes: Mapping[str, Shape], names: Iterable[str]) -> int:
    """Return the bytes of a value of every sum, of those of a vector of lanes where it has some."""
    reductions = (shapes[name].statement.reduction for name in names)
    return sum(reduction.dtype.size_bytes for reduction in reductions if reduction is not None)


def _value_bytes(scop: Scop, arrays: Sequence[str]) -> int:
    """Return the bytes of one element of each of *arrays*."""
    return sum(scop.arrays[name].dtype.size_bytes for name in arrays)


def row_dims(
    group: Group, shapes: Mapping[str, Shape], gpu: Chip
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]] | None:
    """Return the dimensions of a row of every member that has any, and their extents.

    None unless rows have one or two axes, the same for all, that the threads of clusters may share.
    A member without the inner of two axes has -1 there.
    """
    lead = group.members[0]
    parallel = parallel_axes(group, shapes)
    several = [axis for axis in parallel if shapes[lead].extents[axis[lead]] > 1]
    if gpu.blocks_per_cluster == 1 or len(several) > 2:  # clusters lie along the grid's third axis
        return None
    return row_axes(group, shapes)


TEMPLATE = Template("row_cluster", RowClusterConfig, why_not, space, schedule, is_likely)
