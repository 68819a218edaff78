"""GPU kernels: which axes go to blocks, which to threads, and what each thread keeps.

Shared axes (all dependences between members have distance zero along them) go to blocks, and to
threads where neighbours in memory lie along them::

    flat    z(i,j) = x(i,j) + y(j)     blocks over i and tiles of j, threads along j, 16 bytes each
            C(m,n) +=! A(m,k)*B(k,n)   the same, with k in each thread
    lanes   y(i) +=! x(i,j)            blocks (or warps) over i, threads along j: partial sums that
            z(i,j) = x(i,j) / y(i)     the block folds; every member's last axis is along threads
            y(j) +=! x(i,j)            few j: threads.x along j, threads.y along i
            z(i,j) = x(i,j) / y(j)     and so for what follows, if x is kept (columns.py)

Where that leaves multiprocessors without work, a reduced axis is cut into chunks, one a block: how
many is estimated (costmodel/reductions).  The last block folds their partial sums in order
(finish.py), or each adds its own by atomics (after Reddy et al., Panamera, PACT 2022).
Accumulators are registers of the reduction's own type.  What follows from the choices, loop by
loop, is in ``assembly``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

from tcdsl.costmodel import kept_rows
from tcdsl.costmodel.clusters import busy_threads
from tcdsl.costmodel.locality import Shape, coefficient_of, runs_of
from tcdsl.costmodel.machine import Gpu
from tcdsl.costmodel.reductions import Reduction, best_split, is_brief
from tcdsl.costmodel.shared_memory import FOLDS_BYTES, fold_bytes
from tcdsl.lang.comprehension import Call, Expr, Index, walk
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.strategies.assembly import Assembly, Chunk, Lane, extent_of, lower_of
from tcdsl.strategies.clusters import ClusterRows, cluster_rows
from tcdsl.strategies.columns import KeptColumns, kept_columns
from tcdsl.strategies.rows import is_chunkable
from tcdsl.strategies.sketch import Axis, Sketch, Tile
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.rfactor import why_not_laned

WARP = 32
BLOCK_THREADS = 256
VECTOR_BYTES = 16
LEAST_SIDE = 4  # vectors of neighbours that threads load together, where rows are far apart
MIN_LANES = 8  # iterations that are worth threads of their own
MAX_RESIDENT = 40  # values of a row that a thread keeps, of all arrays together, ...
MOST_RESIDENT = 64  # ... and of a single one: with 1024 threads all registers but a few
MOST_IDLE = 0.05  # of a row's threads, where there are few rows: ...
FEW_ROWS = 16  # a multiprocessor
LONE_ROWS = 1  # a multiprocessor: nothing hides the latency of a thread's second vector
MANY_IDLE = 0.3  # of them, in any case: rows of one vector more than a power of two
VECTORS_IN_FLIGHT = 2  # of a thread, where a row has so many
SKEWED_VECTORS = 8  # the first and the last are in pieces, which takes instructions
MANY_VECTORS = 4  # where nothing is stored, or instructions are to hide what loads take
ROW_LOADS = 2  # of a thread, of all its rows (bfloat16, 64 columns: 38 us; with four 39.6)
SHORT_BYTES = 8 * WARP * VECTOR_BYTES  # of rows that a warp adds up
ALONE = 16  # values of a row that one thread adds up (bfloat16: 39.6 us; of two threads 40.5)
MAX_ROW_THREADS = 1024
MIN_VECTORED = 1 << 12  # values for which fewer threads may do


class GpuSketcher:
    """Sketches one group."""

    def __init__(self, scop: Scop, group: Group, shapes: Mapping[str, Shape], gpu: Gpu) -> None:
        self.scop = scop
        self.group = group
        self.shapes = shapes
        self.gpu = gpu
        self.lead = group.lead(shapes)
        order = shapes[self.lead].order
        axes = sorted(group.axes, key=lambda axis: order.index(axis[self.lead]))
        self.parallel = [axis for axis in axes if group.has_parallel(axis, shapes)]
        self.why: list[str] = []

    @cached_property
    def flat(self) -> Axis | None:
        """The shared axis along which the lead's neighbours in memory are, None if they are not."""
        inner = self._innermost(self.lead)
        return next((a for a in self.parallel if a[self.lead] == inner), None)

    @cached_property
    def clusters(self) -> ClusterRows | None:
        """How clusters share the rows of the group, None if they do not: columns are no rows."""
        if self.flat is not None:
            return None
        return cluster_rows(self.scop, self.group, self.shapes, self.gpu, self._lane_vector)

    @cached_property
    def columns(self) -> KeptColumns | None:
        """How the columns of the group are kept in registers, None if they are not.

        Where each column may have a thread of its own, one kernel goes over them anyway.
        """
        if self.flat is None:
            return None
        vector = self._vector_width(self.flat)
        if not self._wants_lanes(self._results // vector, self._most_rest):
            return None
        return kept_columns(self.scop, self.group, self.shapes, self.gpu, self.flat, vector)

    @property
    def reads_once(self) -> bool:
        """Whether rows or columns are read once for all members, few of them only if briefly."""
        if self.clusters is not None or self.columns is not None:
            return True
        kept = [self.scop.arrays[name] for name in self.sketch(may_chunk=False).resident]
        return bool(kept) and is_brief(
            self._most_rest * sum(array.dtype.size_bytes for array in kept)
        )

    # --- choices ---------------------------------------------------------------------------

    def sketch(self, may_chunk: bool = True) -> Sketch:
        """Return the sketch of the group; every group has one."""
        if self.flat is not None and self.columns is not None:
            return self._kept_columns(self.flat, self.columns)
        if self.flat is not None:
            return self._flat(self.flat, may_chunk)
        if self.clusters is not None:
            return self._clustered(self.clusters)
        return self._rows(may_chunk)

    def _clustered(self, rows: ClusterRows) -> Sketch:
        """Blocks of a cluster over every row, its parts in shared memory."""
        tiles = [Tile(a, self.extent(a), self.lower(a)) for a in reversed(self.parallel)]
        self.why.append(rows.why)
        assembly = Assembly(self.group, self.shapes, self.gpu, tiles)
        remaining, partials, threads = {}, {}, {}
        for name in self.group.members:
            shape = self.shapes[name]
            if name not in rows.inner:
                remaining[name] = assembly.remaining(name)
                found = assembly.partials(name)
                if found is not None:
                    partials[name] = found
                continue
            remaining[name] = rows.pieces(name, shape.roles)
            if shape.statement.kind is Kind.UPDATE:
                partials[name], threads[name] = rows.partials(shape), rows.lanes
        return Sketch(
            self.group.members, tuple(assembly.block_loops()), remaining, partials,
            why=tuple(self.why), threads=threads, in_registers=True,
            resident=(*rows.staged, *rows.resident), is_staged=True,
        )  # fmt: skip

    def _innermost(self, name: str) -> int:
        """Return the dimension of *name* along which its threads' accesses are neighbours.

        The last one, unless they would leave gaps there in an array that is as large as any, and
        would leave none along another.  -1 if no dimension has two values.
        """
        shape = self.shapes[name]
        several = [d for d in reversed(shape.order) if shape.extents[d] > 1]
        sizes = [
            prod(e for e, stride in zip(shape.extents, row, strict=True) if stride)
            for row in shape.strides
        ]

        def has_gaps(dim: int) -> bool:
            return any(
                row[dim] > 1 and 2 * size >= max(sizes)
                for row, size in zip(shape.strides, sizes, strict=True)
            )

        return min(several, key=has_gaps, default=-1)

    def extent(self, axis: Axis) -> int:
        return extent_of(axis, self.shapes)

    def lower(self, axis: Axis) -> int:
        return lower_of(axis, self.shapes)

    def _assembled(
        self, tiles: Sequence[Tile], lanes: Mapping[str, Lane], chunk: Chunk | None
    ) -> Sketch:
        """Return the sketch.

        :arg tiles: of the shared parallel axes, innermost first.
        :arg lanes: member -> its own axis along threads.
        """
        return Assembly(self.group, self.shapes, self.gpu, tiles, lanes, chunk).sketch(self.why)

    def _flat(self, inner: Axis, may_chunk: bool) -> Sketch:
        """Threads along the innermost shared axis; what is left of each member in a thread."""
        others = [axis for axis in self.parallel if axis is not inner]
        total, rest = self._results, self._most_rest
        vector = self._vector_width(inner)
        if self._wants_lanes(total // vector, rest):
            return self._columns(inner, others, vector, may_chunk)
        if total < MIN_VECTORED or (rest > 1 and total // vector < self.gpu.threads // 2):
            vector = 1
        groups = -(-self.extent(inner) // vector)
        most = self._threads_of_block(total // vector)
        x = min(most, power_of_two(groups))
        y = 1
        if x < most and others:
            y = min(most // x, power_of_two(self.extent(others[-1])))
        repeat = self._repeat(total, vector, groups, x) if rest == 1 else 1
        tiles = [Tile(inner, self.extent(inner), self.lower(inner), 0, x, repeat, vector)]
        if y > 1:
            axis = others.pop()
            tiles.append(Tile(axis, self.extent(axis), self.lower(axis), 1, y))
        tiles += [Tile(a, self.extent(a), self.lower(a)) for a in reversed(others)]
        self.why.append(f"threads along {self._name(inner)}, neighbours in memory")
        return self._assembled(tiles, {}, None)

    def _threads_of_block(self, threads: int) -> int:
        """Return how many threads a block has: fewer where there would be too few blocks."""
        share = threads // (2 * self.gpu.multiprocessors)
        return max(min(WARP, BLOCK_THREADS), min(BLOCK_THREADS, power_of_two(share)))

    def _repeat(self, total: int, vector: int, groups: int, threads: int) -> int:
        """Return how many vectors a thread takes: several only if the chip stays full.

        Functions take registers, which with one vector let more threads hide what they take.
        """
        values = [self.shapes[name].statement.value for name in self.group.members]
        if any(isinstance(node, Call) for value in values if value for node in walk(value)):
            return 1
        if groups >= 2 * threads and total // vector >= 4 * self.gpu.threads:
            return 2
        return 1

    @property
    def _results(self) -> int:
        """How many values all parallel axes have."""
        return prod(self.extent(axis) for axis in self.parallel)

    @property
    def _most_rest(self) -> int:
        """How many instances one of these values has, at most."""
        return max((self._rest_of(name) for name in self.group.members), default=1)

    def _rest_of(self, name: str) -> int:
        """Return how many instances of *name* one value of all parallel axes has."""
        taken = {axis[name] for axis in self.parallel}
        extents = self.shapes[name].extents
        return prod(extent for dim, extent in enumerate(extents) if dim not in taken)

    def _wants_lanes(self, threads: int, rest: int) -> bool:
        """Return whether threads along the parallel axes alone would leave the chip idle."""
        return rest >= 2 * WARP and threads < self.gpu.threads // 4

    def _columns(self, inner: Axis, others: list[Axis], vector: int, may_chunk: bool) -> Sketch:
        """Threads.x along the innermost shared axis, threads.y along what members have left."""
        vector = min(vector, self._accumulators_of_vector())
        groups = -(-self.extent(inner) // vector)
        x = min(WARP, groups)
        while not may_chunk and x > LEAST_SIDE and groups < x * self.gpu.multiprocessors:
            x //= 2  # more blocks, where none share what is reduced
        tiles = [Tile(inner, self.extent(inner), self.lower(inner), 0, x, 1, vector)]
        tiles += [Tile(a, self.extent(a), self.lower(a)) for a in reversed(others)]
        lanes = {
            name: dim
            for name in self.group.members
            if (dim := self._outermost_rest(name)) is not None
        }
        lead_dim = lanes.get(self.lead)
        most = BLOCK_THREADS // x
        if lead_dim is not None:
            most = min(most, self.shapes[self.lead].extents[lead_dim])
        members = (self.shapes[name].statement for name in lanes)
        each = fold_bytes(s.reduction for s in members if s.reduction)
        limit = min(MAX_ROW_THREADS, FOLDS_BYTES // max(each, 1))
        choices = [y for y in (most, most // 2, most // 4, 2 * most, 4 * most)
                   if y and x * y <= limit] or [1]  # fmt: skip
        y, chunk = self._shared(tiles, lanes, x, vector, choices, may_chunk=may_chunk)
        self.why.append(
            f"threads.x along {self._name(inner)}, threads.y along what is reduced: {x} x {y}"
        )
        return self._assembled(tiles, {n: Lane(d, 1, y) for n, d in lanes.items()}, chunk)

    def _accumulators_of_vector(self) -> int:
        """Return how many accumulators of the lead are a vector: so are its partial sums then."""
        reduction = self.shapes[self.lead].statement.reduction
        return VECTOR_BYTES // reduction.dtype.size_bytes if reduction else VECTOR_BYTES

    def _kept_columns(self, inner: Axis, columns: KeptColumns) -> Sketch:
        """As columns are, each thread with its part of them in registers."""
        share = columns.share
        others = [axis for axis in self.parallel if axis is not inner]
        tiles = [Tile(inner, self.extent(inner), 0, 0, share.x, 1, columns.vector)]
        tiles += [Tile(a, self.extent(a), self.lower(a)) for a in reversed(others)]
        lanes = {
            name: Lane(dim, 1, share.y, 1, share.repeat, share.cluster)
            for name, dim in columns.dims.items()
        }
        self.why.append(columns.why)
        sketch = self._assembled(tiles, lanes, None)
        return replace(sketch, resident=columns.arrays, layout=None)

    def _rows(self, may_chunk: bool) -> Sketch:
        """Every member's innermost axis along threads.x; shared axes over blocks, or packed."""
        lanes = {name: dim for name in self.group.members if (dim := self._lane(name)) is not None}
        length = max((self.shapes[n].extents[d] for n, d in lanes.items()), default=1)
        tiles = [Tile(a, self.extent(a), self.lower(a)) for a in reversed(self.parallel)]
        rows = prod(tile.extent for tile in tiles)
        long = {n: d for n, d in lanes.items() if self.shapes[n].extents[d] == length}
        resident = self._resident(lanes, length)
        live = max(self._live(resident), 1)  # 0: one member reads it, several times
        most = MAX_RESIDENT if live > 1 else MOST_RESIDENT
        # What is kept in registers is no vector in memory.
        kept = {a for a in resident if self.scop.arrays[a].storage is Storage.SCRATCH}
        vector = min((self._lane_vector(n, d, kept) for n, d in long.items()), default=1)
        is_kept = bool(resident) and -(-length // vector) * vector * live <= most * MAX_ROW_THREADS
        if not is_kept:
            vector = min((self._lane_vector(n, d) for n, d in long.items()), default=1)
        groups = -(-length // vector)
        is_short = groups * vector * self._value_bytes() <= SHORT_BYTES + VECTOR_BYTES
        repeat, chunk, beside = 0, None, 0
        if is_kept:
            share = self._share_of_row(lanes, resident, groups, live, vector)
            x, repeat, beside = share.threads, share.turns, share.beside
            if beside:
                self.why.append(f"registers for {beside} blocks on a multiprocessor")
        elif is_short and rows >= 4 * self.gpu.multiprocessors:
            x = 1 if length <= ALONE else min(WARP, power_of_two(groups))
        else:
            most = min(MAX_ROW_THREADS, power_of_two(groups))
            # Several passes over long rows: few at once, so that the cache has them still.
            least = most if resident else min(WARP, most)
            choices = [most >> n for n in range(6) if most >> n >= least]
            choices += [t for t in _fitting(groups) if least <= t <= most]
            x, chunk = self._shared(tiles, lanes, 1, vector, choices, may_chunk=may_chunk)
        y = 1
        if x <= WARP and rows >= 4 * self.gpu.multiprocessors and tiles:
            y = min(BLOCK_THREADS // x, power_of_two(tiles[0].extent))
            is_alone = x == 1 < groups
            loads = -(-groups // x)
            turns = 1 if repeat or is_alone else self._rows_of_thread(rows, loads, y)
            tiles[0] = replace(tiles[0], thread_axis=1 if y > 1 else -1, threads=y, repeat=turns)
        self.why.append(
            f"{x} threads a row" + (f", {tiles[0].block} rows a block" if y > 1 else "")
        )
        if not lanes:
            x = 1
        if chunk is not None or not repeat:
            resident, repeat = (), 0
        else:
            names = ", ".join(resident)
            self.why.append(f"rows of {names} in registers: {repeat * vector} values a thread")
        width = {
            n: Lane(d, 0, x, vector, repeat) if self.shapes[n].extents[d] == length
            else Lane(d, 0, x)
            for n, d in lanes.items()
        }  # fmt: skip
        return replace(self._assembled(tiles, width, chunk), resident=resident, beside=beside)

    def _share_of_row(
        self, lanes: Mapping[str, int], resident: Sequence[str], groups: int, live: int, vector: int
    ) -> kept_rows.Share:
        """Return how threads share a row that is kept in their registers."""
        rows = prod(extent_of(axis, self.shapes) for axis in self.parallel)
        found = None
        if groups * vector >= kept_rows.LONG and rows > FEW_ROWS * self.gpu.multiprocessors:
            found = kept_rows.share_of(self._kept_row(lanes, resident, groups, live, vector))
        if found is None:
            found = kept_rows.Share(*self._threads_of_row(groups, live, vector), beside=0)
        return found

    def _kept_row(
        self, lanes: Mapping[str, int], resident: Sequence[str], groups: int, live: int, vector: int
    ) -> kept_rows.KeptRow:
        """Return what the cost model asks of a long row of which the chip has many."""
        beside = {
            read.array
            for name, dim in lanes.items()
            for read in self.shapes[name].statement.reads
            if read.array not in resident
            and read.subscripts
            and coefficient_of(read.subscripts[-1], self.shapes[name].statement.indices[dim])
        }
        is_argument = [self.scop.arrays[a].storage is Storage.ARGUMENT for a in resident]
        return kept_rows.KeptRow(
            groups, vector, live, vector > VECTOR_BYTES // 4,
            all(self.scop.arrays[array].dtype.is_half for array in resident), self._writes_rows(),
            max(0, len(beside) - (not any(is_argument))),
        )  # fmt: skip

    def _value_bytes(self) -> int:
        """Return the bytes of the widest element that the lead loads."""
        reads = self.shapes[self.lead].statement.reads
        return max((self.scop.arrays[r.array].dtype.size_bytes for r in reads), default=1)

    def _rows_of_thread(self, rows: int, loads: int, threads: int) -> int:
        """Return how many rows a thread takes: several where one has few loads to start at once."""
        turns = max(1, ROW_LOADS // loads)
        while turns > 1 and rows < 8 * self.gpu.multiprocessors * threads * turns:
            turns //= 2
        return turns

    def _threads_of_row(self, groups: int, live: int, vector: int) -> tuple[int, int]:
        """Return the threads of a row that is kept in registers, and the vectors of each.

        Some four vectors keep loads in flight; a row in one warp needs no barrier.  Values of half
        types cost instructions rather than bytes: the more a thread has, the fewer for folding.
        Where rows are so few that their latency counts, threads do not idle in the last turn, and
        few of them fold: float32 batchnorm of (32, 1024, 7, 7) takes 8.4 us with 256 threads, 13
        with 1024.
        """
        most = max(1, MAX_RESIDENT // (live * vector))
        rows = prod(extent_of(axis, self.shapes) for axis in self.parallel)
        if rows <= LONE_ROWS * self.gpu.multiprocessors and groups <= MAX_ROW_THREADS:
            threads = power_of_two(groups)
            return threads, 1
        wanted = -(-groups // self._vectors_of_row(groups, vector, most))
        if wanted <= WARP and rows >= 4 * self.gpu.multiprocessors:
            least = 2 if vector > VECTOR_BYTES // 4 else 1
            threads = min(WARP, power_of_two(-(-groups // least)))
            return threads, -(-groups // threads)
        threads = min(power_of_two(wanted), MAX_ROW_THREADS)
        idle = 1 - groups / (threads * -(-groups // threads))
        if idle > MOST_IDLE and rows <= FEW_ROWS * self.gpu.multiprocessors:
            threads = busy_threads(groups, BLOCK_THREADS, -(-groups // most))
        elif idle > MANY_IDLE:
            threads = busy_threads(groups, wanted, -(-groups // most))
        return threads, -(-groups // threads)

    def _vectors_of_row(self, groups: int, vector: int, most: int) -> int:
        """Return how many vectors of a long row a thread is to keep.

        More where nothing is stored beside the loads; and where functions of half types cost as
        much as the memory, as many as keep blocks so small that several take turns (on an H200,
        bfloat16 softmax of 16384 columns takes 135 us with 256 threads, 160 with 512 or 1024).
        """
        if any(self.scop.arrays[name].skew is not None for name in self._arrays()):
            return min(SKEWED_VECTORS, MOST_RESIDENT // vector)
        if not self._writes_rows():
            return min(MANY_VECTORS, most)
        if vector > VECTOR_BYTES // 4 and self._calls_functions():
            return min(max(MANY_VECTORS, groups // BLOCK_THREADS), 2 * MANY_VECTORS)
        return min(VECTORS_IN_FLIGHT, most)

    def _arrays(self) -> set[str]:
        """Return the arrays that the group touches."""
        statements = [self.shapes[name].statement for name in self.group.members]
        return {a.array for s in statements for a in (*s.writes, *s.reads)}

    def _writes_rows(self) -> bool:
        """Return whether some member stores a value for every one that it reads."""
        return any(
            self.shapes[name].statement.kind is not Kind.UPDATE
            and self.scop.arrays[self.shapes[name].statement.write.array].storage
            is Storage.ARGUMENT
            and self.shapes[name].instances == self.shapes[self.lead].instances
            for name in self.group.members
        )

    def _calls_functions(self) -> bool:
        """Return whether a function is called for every value of a row."""
        for name in self.group.members:
            lane, statement = self._lane(name), self.shapes[name].statement
            if lane is None or statement.value is None:
                continue
            calls = [node for node in walk(statement.value) if isinstance(node, Call)]
            index = Index(statement.indices[lane])
            if any(index in walk(call) for call in calls):
                return True
        return False

    def _live(self, arrays: Sequence[str]) -> int:
        """Return of how many of *arrays* a thread keeps an element from one member to the next."""
        users = [
            {a.array for a in (*s.writes, *s.reads)}
            for s in (self.shapes[name].statement for name in self.group.members)
        ]
        return max(
            (
                sum(any(a in u for u in users[:gap]) and any(a in u for u in users[gap:])
                    for a in arrays)
                for gap in range(1, len(users))
            ),
            default=0,
        )  # fmt: skip

    def _resident(self, lanes: Mapping[str, int], length: int) -> tuple[str, ...]:
        """Return the arrays whose rows several members use, temporaries among them."""
        users: dict[str, int] = {}
        for name, dim in lanes.items():
            shape = self.shapes[name]
            if shape.extents[dim] != length or shape.lower[dim]:
                continue
            index = shape.statement.indices[dim]
            for access in (*shape.statement.writes, *shape.statement.reads):
                if not access.is_exact or len(access.subscripts) < 2:
                    continue
                if self._is_row(access.subscripts[-1], index):
                    users[access.array] = users.get(access.array, 0) + 1
        written = {w.array for n in self.group.members for w in self.shapes[n].statement.writes}
        return tuple(
            array
            for array, count in users.items()
            if count > 1
            and (self.scop.arrays[array].storage is Storage.SCRATCH or array not in written)
        )

    def _is_row(self, last: Expr, index: str) -> bool:
        """Return whether elements with the subscript *last* are a row along *index*."""
        return isinstance(last, Index) and last.name == index

    def _lane(self, name: str) -> int | None:
        """Return the dimension of *name* that threads share: its innermost free one."""
        shape = self.shapes[name]
        taken = {axis[name] for axis in self.parallel}
        for dim in reversed(shape.order):
            if dim not in taken and shape.extents[dim] >= MIN_LANES:
                return dim if self._may_split(name, dim) else None
        return None

    def _outermost_rest(self, name: str) -> int | None:
        shape = self.shapes[name]
        taken = {axis[name] for axis in self.parallel}
        free = [d for d in shape.order if d not in taken and shape.extents[d] >= MIN_LANES]
        dim = max(free, key=lambda d: shape.extents[d], default=None)
        return dim if dim is not None and self._may_split(name, dim) else None

    def _may_split(self, name: str, dim: int) -> bool:
        """Return whether threads may share dimension *dim* of *name*."""
        shape = self.shapes[name]
        if shape.roles[dim] is Role.PARALLEL:
            return True
        return shape.roles[dim] is Role.REDUCED and why_not_laned(shape.statement) is None

    def _shared(
        self,
        tiles: Sequence[Tile],
        lanes: Mapping[str, int],
        width: int,
        vector: int,
        choices: Sequence[int],
        *,
        may_chunk: bool,
    ) -> tuple[int, Chunk | None]:
        """Return how many threads share the lead's lane, and how blocks share the reduction.

        That is a reduced axis and the values of it that one block takes, None if it takes all.

        :arg width: of a tile's threads that share nothing, each with *vector* results if several.
        :arg choices: the numbers of threads along the lane.
        """
        lane = lanes.get(self.lead)
        if lane is None:
            return choices[0], None
        shape = self.shapes[self.lead]
        along = vector if width == 1 else 1  # values of the lane's axis in a load
        steps = -(-shape.extents[lane] // along)
        taken = {tile.axis[self.lead] for tile in tiles} | {lane}
        times = prod(e for d, e in enumerate(shape.extents) if d not in taken)
        axis = self._chunked_axis(lanes) if may_chunk else None
        is_lane = axis is not None and all(axis.get(n) == d for n, d in lanes.items() if n in axis)
        pieces = self.extent(axis) if axis is not None and not is_lane else 0
        reduction = Reduction(
            prod(tile.blocks for tile in tiles), width, steps, times, self._step_bytes(vector),
            pieces,
        )  # fmt: skip
        split = best_split(self.gpu, reduction, choices, may_chunk=axis is not None)
        if axis is None or split.chunks == 1:
            return split.lanes, None
        size = split.per_chunk * (along if is_lane else 1)
        if any(axis.get(n) == d for n, d in lanes.items()):  # a thread's vectors are in one chunk
            size = -(-size // vector) * vector
        count = -(-self.extent(axis) // size)
        self.why.append(
            f"{count} blocks over chunks of {size} of the reduced {self._name(axis)}:"
            f" {1e6 * split.seconds:.2g} us as estimated"
        )
        return split.lanes, (axis, size)

    def _chunked_axis(self, lanes: Mapping[str, int]) -> Axis | None:
        """Return the reduced axis that blocks may share, the longest one."""
        free = [
            axis
            for axis in self.group.axes
            if axis not in self.parallel and is_chunkable(axis, self.shapes)
        ]
        return max(free, key=self.extent, default=None)

    def _step_bytes(self, vector: int) -> int:
        """Return the bytes that a step of the lead loads, of all its arrays that move along."""
        statement = self.shapes[self.lead].statement
        rows = self.shapes[self.lead].strides[len(statement.writes) :]
        arrays = {read.array for read, row in zip(statement.reads, rows, strict=True) if any(row)}
        return vector * sum(self.scop.arrays[name].dtype.size_bytes for name in arrays) or vector

    def _name(self, axis: Axis) -> str:
        return self.shapes[self.lead].statement.indices[axis[self.lead]]

    # --- vectors ---------------------------------------------------------------------------

    def _vector_width(self, inner: Axis) -> int:
        """Return how many neighbours along *inner* a thread takes at once."""
        widths = [
            self._lane_vector(n, d, is_own=False)
            for n, d in inner.items()
            if self._is_wide(n, inner)
        ]
        return min(widths, default=1)

    def _is_wide(self, name: str, inner: Axis) -> bool:
        """Return whether *name* is among the members that touch the most."""
        return 2 * self.shapes[name].instances >= self.shapes[self.lead].instances

    def _lane_vector(
        self, name: str, dim: int, kept: Collection[str] = (), *, is_own: bool = True
    ) -> int:
        """Return the widest vector along *dim* whose accesses are aligned, 1 if there is none.

        :arg kept: arrays that will be registers.
        :arg is_own: whether no other member's threads are along it, so that the last vector may
            end early: no sum is folded lane by lane.
        """
        shape = self.shapes[name]
        statement = shape.statement
        accesses = (*statement.writes, *statement.reads)
        sizes, steps = [], []
        for access, row in zip(accesses, shape.strides, strict=True):
            if access.array in kept:
                continue
            if row[dim] == 1:
                array = self.scop.arrays[access.array]
                sizes.append(array.dtype.size_bytes)
                if array.skew is None:
                    steps += [s for d, s in enumerate(row) if d != dim and shape.extents[d] > 1]
                runs = runs_of(array, access, statement.indices[dim])
                steps += [number for run in runs for number in (run.run, run.outer)]
            elif row[dim] > 1:
                return 1
        if not sizes and kept and not statement.conditions:
            return VECTOR_BYTES  # it has no say
        if not sizes or statement.conditions:
            return 1
        width = VECTOR_BYTES // max(sizes)
        may_end = is_own or not any(steps)
        while width > 1 and (
            any(step % width for step in steps)
            or shape.lower[dim] % width
            or (shape.extents[dim] % width and not may_end)
            or shape.extents[dim] < width
        ):
            width //= 2
        return width


def _fitting(groups: int) -> list[int]:
    """Return numbers of threads, whole warps, of which few idle in the last turn of *groups*."""
    return [-(-groups // (turns * WARP)) * WARP for turns in range(1, 5)]


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least *number*."""
    return 1 << max(0, number - 1).bit_length()
