"""Rows that one block cannot hold: the blocks of a cluster share them.

    mean(c) +=! x(n,c,p)            rank r of the cluster of row c has a part of what is not shared,
    var(c)  +=! (x(n,c,p) - mean)^2   n / per == r  or  (where that is one axis)  j / per == r,
    y(n,c,p) = ... mean, var        in shared memory: one pass over x instead of three

Each block copies its part of the arrays that are read several times to shared memory, by
asynchronous copies: many bytes are on their way, and no register waits for them.  Sums are folded
over the threads of all blocks.  That pays where a row is more than a block keeps in registers while
others run beside it, and is written as well as read: who only reads may wait for loads in all its
registers.  Rows with two axes are never in registers, and a block alone may stage a short one.

Measured on an H200: 50 to 64 KB a block and some 1500 threads on a multiprocessor were best.  In
float32 batchnorm of 256 channels takes 71 us (with rows in registers of a cluster at best 78, with
three passes 106), rmsnorm of (4096, 65536) 571 (registers of one block: 800); cross-entropy of
(4096, 50304) takes 333 us so and 202 in the registers of one block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Gpu
from tcdsl.lang.comprehension import Index
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.strategies.sketch import Axis
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.mapping import RANK
from tcdsl.transforms.nesting import Piece
from tcdsl.transforms.rfactor import Partial, why_not_laned, why_not_rfactored

WARP = 32
BLOCK_BYTES = 64 << 10  # of a row in one block's shared memory
LEAST_BYTES = 16 << 10  # of a row in a block, where more blocks are to fill the chip
HELD_BYTES = 160 << 10  # of rows that one block holds well in its registers
HELD_VALUES = 64 << 10  # what a block can hold at all
THREADS = 1536  # on a multiprocessor
MOST_THREADS = 1024
LEAST_GROUPS = 32  # along the inner axis, so that threads have work
MOST_REGISTERS = 32  # values that a thread keeps from one statement to the next, ...
MOST_KEEPING = 256  # ... in blocks of so many threads, else their registers are too many
MOST_UNROLLED = 32  # vectors of a thread


@dataclass(frozen=True, slots=True)
class ClusterRows:
    """How the blocks of a cluster share rows.

    The *outer* axis of a row is cut into *per* values a rank; where a row has one axis, it is cut
    itself, and outer and inner are the same dimension.
    """

    inner: Mapping[str, int]  # member -> the dimension along which threads are
    outer: Mapping[str, int]  # member -> the dimension along which ranks are
    extents: tuple[int, ...]  # of a row's axes
    cluster: int  # 1: one block has all of the row
    per: int
    threads: int
    vector: int
    repeat: int  # vectors of a thread along the inner axis
    staged: tuple[str, ...]  # arrays that are copied to shared memory
    resident: tuple[str, ...]  # scratch arrays of which a thread keeps its part
    is_written: bool  # whether rows are results, too

    @property
    def keeps_well(self) -> bool:
        """Whether the scratch arrays' part leaves registers for other blocks."""
        return not self.resident or self.threads <= MOST_KEEPING

    @property
    def is_split(self) -> bool:
        """Whether ranks and threads are along the same axis."""
        return len(self.extents) == 1

    @property
    def why(self) -> str:
        names = ", ".join(self.staged)
        if self.cluster == 1:
            return f"{self.threads} threads a row; rows of {names} in shared memory"
        return (
            f"clusters of {self.cluster} blocks share a row, {self.threads} threads each;"
            f" their parts of {names} are in shared memory"
        )

    def pieces(self, name: str, role: Sequence[Role]) -> tuple[Piece, ...]:
        """Return the loops of a thread over its part of a row of the member *name*."""
        outer, inner = self.outer[name], self.inner[name]
        rank = Piece(
            Coordinate(outer, 0, self.per), -(-self.extents[0] // self.per), role[outer],
            LoopKind.THREAD, RANK, self.cluster,
        )  # fmt: skip
        groups = -(-self.extents[-1] // self.vector)
        thread = Piece(
            Coordinate(inner, 0, self.vector, self.threads), min(groups, self.threads),
            role[inner], LoopKind.THREAD, 0, self.threads,
        )  # fmt: skip
        kind = LoopKind.UNROLL if self._vectors <= MOST_UNROLLED else LoopKind.SERIAL
        turn = Coordinate(inner, 0, self.vector * self.threads, self.repeat if self.is_split else 0)
        pieces = [thread, Piece(turn, self.repeat, role[inner], kind)]
        if not self.is_split:
            own = Coordinate(outer, 0, 1, self.per if self.cluster > 1 else 0)
            pieces.insert(1, Piece(own, self.per, role[outer], kind))
        if self.cluster > 1:
            pieces.insert(0, rank)
        if self.vector > 1:
            lanes = Coordinate(inner, 0, 1, self.vector)
            pieces.append(Piece(lanes, self.vector, role[inner], LoopKind.LANES))
        return tuple(pieces)

    def partials(self, shape: Shape) -> tuple[Partial, ...]:
        """Return the partial accumulators of a reduction over rows: one a thread and a rank."""
        names = shape.statement.indices
        inner, outer = (names[dims[shape.statement.name]] for dims in (self.inner, self.outer))
        lanes = [Partial(inner, 0, self.vector, self.threads, self.threads, True)]
        if self.cluster > 1:
            lanes.append(Partial(outer, 0, self.per, 0, self.cluster, True))
        return tuple(lanes)

    @property
    def lanes(self) -> tuple[tuple[int, int], ...]:
        """The axes of threads along which the partial accumulators are, and their widths."""
        return ((0, self.threads), (RANK, self.cluster))[: 2 if self.cluster > 1 else 1]

    @property
    def _vectors(self) -> int:
        return self.repeat * (1 if self.is_split else self.per)


VectorOf = Callable[[str, int, Sequence[str]], int]  # of a member's dimension, arrays in registers


def cluster_rows(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], gpu: Gpu, vector_of: VectorOf
) -> ClusterRows | None:
    """Return how clusters share the rows of *group*, None if they should not."""
    found = row_dims(group, shapes, gpu)
    if found is None:
        return None
    dims, extents = found
    name = next(iter(dims))
    rows = prod(shapes[name].extents[a[name]] for a in _parallel(group, shapes))
    staged, resident = _kept(scop, group, shapes, dims)
    if not staged:
        return None
    is_split, length = len(extents) == 1, prod(extents)
    row_bytes = length * sum(scop.arrays[name].dtype.size_bytes for name in staged)
    is_written = any(
        scop.arrays[shapes[member].statement.write.array].storage is Storage.ARGUMENT
        for member in dims
        if shapes[member].statement.kind is not Kind.UPDATE
    )
    beside_bytes = length * sum(scop.arrays[name].dtype.size_bytes for name in resident)
    is_held = max(row_bytes, beside_bytes) <= HELD_BYTES
    if is_split and (is_held or (not is_written and length <= HELD_VALUES)):
        return None
    cluster = _blocks(row_bytes, rows, BLOCK_BYTES // 2 if resident else BLOCK_BYTES, gpu)
    if cluster == 0 or extents[0] < cluster:
        return None
    inner = {name: own[-1] for name, own in dims.items()}
    outer = {name: own[0] for name, own in dims.items()}
    vector = min(vector_of(name, dim, resident) for name, dim in inner.items())
    per = -(-extents[0] // cluster)
    groups = -(-(per if is_split else extents[1]) // vector)
    if groups < LEAST_GROUPS:
        return None
    values = groups * vector * (1 if is_split else per) * len(resident)
    beside = max(1, gpu.staged_bytes // max(1, row_bytes // cluster))
    threads = _threads(groups, THREADS // beside, -(-values // MOST_REGISTERS))
    repeat = -(-groups // threads)
    if is_split:
        per = threads * repeat * vector
    return ClusterRows(
        inner, outer, extents, cluster, per, threads, vector, repeat, staged, resident, is_written
    )


def row_dims(
    group: Group, shapes: Mapping[str, Shape], gpu: Gpu
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]] | None:
    """Return the dimensions of a row of every member that has any, and their extents.

    None unless rows have one or two axes, the same for all, that the threads of clusters may share.
    """
    parallel = _parallel(group, shapes)
    lead = group.members[0]
    several = [axis for axis in parallel if shapes[lead].extents[axis[lead]] > 1]
    if gpu.cluster == 1 or len(several) > 2:  # clusters lie along the grid's third axis
        return None
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
    if len(extents) != 1:
        return None
    (found,) = extents
    return (dims, found) if len(found) <= 2 else None


def _may_share(shape: Shape, dim: int) -> bool:
    """Return whether threads may share dimension *dim*, each with a partial accumulator."""
    if shape.roles[dim] is Role.PARALLEL:
        return shape.statement.kind is not Kind.UPDATE
    return (
        shape.roles[dim] is Role.REDUCED
        and why_not_laned(shape.statement) is None
        and why_not_rfactored(shape.statement) is None
    )


def _parallel(group: Group, shapes: Mapping[str, Shape]) -> list[Axis]:
    return [axis for axis in group.axes if group.has_parallel(axis, shapes)]


def _kept(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], dims: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what members use of a row before and after a reduction: arguments, scratch arrays."""
    users: dict[str, set[str]] = {}
    later = [_after(name, group, shapes) for name in dims]
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


def _after(name: str, group: Group, shapes: Mapping[str, Shape]) -> set[str]:
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


def _blocks(row_bytes: int, rows: int, block_bytes: int, gpu: Gpu) -> int:
    """Return how many blocks are to share a row, 0 if it fits none.

    :arg block_bytes: of a row that one block should have at most.
    """
    cluster = 1
    while cluster < gpu.cluster and row_bytes > block_bytes * cluster:
        cluster *= 2
    while (
        cluster < gpu.cluster
        and rows * cluster < gpu.multiprocessors
        and row_bytes >= 2 * LEAST_BYTES * cluster
    ):
        cluster *= 2
    fits = row_bytes <= cluster * (gpu.staged_bytes - gpu.shared_bytes)
    return cluster if fits else 0


def _threads(groups: int, wanted: int, least: int) -> int:
    """Return how many threads share *groups* vectors: few of them idle in the last turn.

    :arg least: so many, that what each keeps fits its registers.
    """
    choices = range(4 * WARP, MOST_THREADS + 1, WARP)
    wanted = max(wanted, least, choices[0])

    def busy(threads: int) -> float:
        return groups / (threads * -(-groups // threads))

    usable = [t for t in choices if t >= min(least, MOST_THREADS) and t <= 2 * wanted]
    best = max(map(busy, usable))
    good = [t for t in usable if busy(t) >= 0.95 * best]
    return min(good, key=lambda t: max(t / wanted, wanted / t))
