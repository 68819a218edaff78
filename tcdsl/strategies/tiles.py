"""Contractions on a GPU: tiles of operands in shared memory, tiles of results in registers.

    C(m,n) +=! A(m,k) * B(k,n)
    ---> blocks over m / 64, n / 64
           threads:  part = 0                               4 x 4 results a thread, in registers
           for k / 16:
             threads copy  A[64 x 16], B[16 x 64]           shared memory, each element read once
             threads:  for k % 16:  part += A * B           4 + 4 loads for 16 operations
           threads:  C = part; what else the group computes from it

Two parallel axes are tiled, each of which an operand does not mention, and one reduced axis; other
parallel axes go to blocks, other reduced ones stay inside a thread.  Operands may be windows: what
is copied is the box around what an iteration reads.  After Volkov and Demmel, SC 2008,
doi:10.1109/SC.2008.5214359, for the register tile.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape, array_strides
from tcdsl.costmodel.tiles import TileConfig, TiledWork
from tcdsl.lang.comprehension import Expr, Index, walk
from tcdsl.poly.loop_tree import AnyCoordinate, Coordinate, LoopKind, Node, sequence
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop
from tcdsl.strategies.assembly import Assembly, Chunk, point_pieces
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.sketch import VECTOR_BYTES, Axis, OuterLoop, Sketch, Tile, apply
from tcdsl.transforms.caching import Cached, cache_read, why_not_cached
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.nesting import Nester, Piece
from tcdsl.transforms.promotion import MAX_PRIVATE_BYTES
from tcdsl.transforms.rfactor import Partial, why_not_rfactored

MIN_WORK = gpu_thresholds.TILED_MULTIPLICATIONS
MIN_REUSE = gpu_thresholds.TILED_USES
K_TILES = (16, 8, 4)
LEAST_COPY_BYTES = 4  # that move past the registers
FULL = 4  # blocks for a multiprocessor, of those that share sums
UNROLLED = 4  # of a step
MIN_CHUNK = gpu_thresholds.TILED_CHUNK_VALUES
THREADS = 8, 16  # along columns and rows: a warp has 4 rows of 8, which share what they load
SIZES = (8, 16), (8, 8), (4, 8), (4, 4), (2, 4)  # results of a thread: rows, columns


@dataclass(frozen=True, eq=False)
class TiledKernel:
    """A contraction's kernel before its loops are opened."""

    scop: Scop
    name: str  # the contraction's statement
    outer: tuple[OuterLoop, ...]  # over blocks
    steps: tuple[OuterLoop, ...]  # over what is reduced, around the copies and the contraction
    copies: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    remaining: Mapping[str, tuple[Piece, ...]]
    why: tuple[str, ...]
    following: tuple[str, ...] = ()  # what is left for a kernel after this one
    staged: tuple[str, ...] = ()  # tiles that are brought by asynchronous copies, steps ahead
    template: str = "tile_simt"

    def tree(self, nester: Nester) -> Node:
        """Return the loops."""
        inner = sequence([
            nester.nest([name], {name: self.remaining[name]}) for name in (*self.copies, self.name)
        ])  # fmt: skip
        for loop in reversed(self.steps):
            inner = nester.loop(loop.pieces, loop.kind, inner, loop.limit)
        parts: list[Node] = []
        for names in (self.before, self.after):
            if names:
                pieces = {name: self.remaining[name] for name in names}
                parts.append(nester.nest(names, pieces))
            if names is self.before:
                parts.append(inner)
        tree = sequence(parts)
        for loop in reversed(self.outer):
            tree = nester.loop(loop.pieces, loop.kind, tree, loop.limit)
        return tree


def tiled_kernel(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], gpu: Chip
) -> TiledKernel | None:
    """Return the kernel of *group* if it is a contraction that tiles pay for."""
    for tiler in _tilers(scop, group, shapes, gpu):
        for k_tile in K_TILES:
            kernel = tiler.kernel(k_tile)
            if kernel is not None:
                return kernel
    return None


def is_tiled(scop: Scop, group: Group, shapes: Mapping[str, Shape], gpu: Chip) -> bool:
    """Return whether *group* looks like a contraction that tiles pay for.

    Where blocks share the reduced axis, nothing that needs the whole sum may be in the kernel.
    """
    best = next(_tilers(scop, group, shapes, gpu), None)
    return best is not None and (len(group.members) == 1 or best.chunks == 1)


def _tilers(scop: Scop, group: Group, shapes: Mapping[str, Shape], gpu: Chip) -> "Iterator[_Tiler]":
    """Yield what tiles may be taken, those first that are estimated to take the least time."""
    found = []
    for rows, columns in SIZES:
        one = _Tiler(scop, group, shapes, gpu, TileConfig(rows, columns))
        if one.why_not() is not None:
            continue
        work = one.work()
        for chunks in range(1, one.most_chunks(work.tiles) + 1):
            config = TileConfig(rows, columns, chunks)
            found.append((work.seconds(config, gpu), config))
    for _, config in sorted(found, key=lambda pair: pair[0]):
        yield _Tiler(scop, group, shapes, gpu, config)


class _Tiler:
    """Tiles one group as *config* says."""

    def __init__(
        self,
        scop: Scop,
        group: Group,
        shapes: Mapping[str, Shape],
        gpu: Chip,
        config: TileConfig,
    ) -> None:
        self.problem = Problem(scop, group, shapes, gpu)
        self.scop, self.group, self.shapes, self.gpu = scop, group, shapes, gpu
        self.lead = self.problem.lead
        self.why: list[str] = []
        self.rows, self.columns, self.chunks = config.rows, config.columns, config.chunks
        self.shape = shapes[self.lead]
        self.statement = self.shape.statement

    def why_not(self) -> str | None:
        """Return why the group gets no tiles, or None."""
        statement, shape = self.statement, self.shape
        if reason := why_not_rfactored(statement):
            return reason
        if statement.conditions or shape.instances < MIN_WORK or shape.has_open:
            return "it is small, or has conditions"
        if any(role is Role.ORDERED for role in shape.roles):
            return "it is a recurrence"
        if Role.REDUCED not in shape.roles:
            return "nothing is reduced"
        if len(self.problem.parallel) < len([r for r in shape.roles if r is Role.PARALLEL]):
            return "a member does not share all of its parallel axes"
        for name in self.group.members:
            if name != self.lead and self.problem.rest_of(name) > 1:
                return f"{name} has axes of its own"
            is_before = self.scop.position(name) < self.scop.position(self.lead)
            if is_before or self.shapes[name].statement.kind is Kind.CHECK:
                return f"{name} comes before it"
        assert statement.reduction is not None
        if self.rows * self.columns * statement.reduction.dtype.size_bytes > MAX_PRIVATE_BYTES:
            return "its results do not fit into registers"
        if self._axes() is None:
            return "no two axes are each missing in an operand"
        return None

    def work(self) -> TiledWork:
        """Return what the kernel costs, whoever shares the reduced axis."""
        shape, reduction = self.shape, self.statement.reduction
        assert reduction is not None
        reduced = [e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.REDUCED]
        size_bytes = max(
            self.scop.arrays[read.array].dtype.size_bytes for read in self.statement.reads
        )
        return TiledWork(
            prod(tile.blocks for tile in self._tiles()), prod(THREADS), prod(reduced), K_TILES[0],
            size_bytes, shape.instances // max(1, prod(reduced)), reduction.dtype.size_bytes > 4,
        )  # fmt: skip

    def _reduced_extent(self) -> int:
        return self.shape.extents[self._longest_reduced()]

    def _longest_reduced(self) -> int:
        reduced = [d for d, role in enumerate(self.shape.roles) if role is Role.REDUCED]
        return max(reduced, key=lambda d: (self.shape.extents[d], -d))

    def most_chunks(self, tiles: int) -> int:
        """Return how many blocks may share the reduced axis: one if the grid's axes are taken.

        No more than fill the chip some times over.
        """
        if sum(tile.blocks > 1 for tile in self._tiles()) >= len(self.gpu.grid):
            return 1
        enough = FULL * self.gpu.multiprocessors // tiles
        return max(1, min(enough, self._reduced_extent() // MIN_CHUNK))

    def _axes(self) -> tuple[Axis, Axis] | None:
        """Return the tiled axes (rows, columns): columns are neighbours in what is written."""
        reads = self.shape.strides[len(self.statement.writes) :]
        movable = [
            axis
            for axis in self.problem.parallel
            if any(row[axis[self.lead]] == 0 for row in reads)
        ]
        rows, columns = self._block()
        for column in sorted(movable, key=lambda a: self.shape.strides[0][a[self.lead]]):
            for row in sorted(movable, key=lambda a: -self.problem.extent(a)):
                is_filled = self.problem.extent(row) >= rows // 2
                is_filled = is_filled and self.problem.extent(column) >= columns // 2
                if row is not column and is_filled and self._are_crossed(row, column, reads):
                    return row, column
        return None

    def _block(self) -> tuple[int, int]:
        """Return how many rows and columns of results a block has."""
        return self.rows * THREADS[1], self.columns * THREADS[0]

    def _are_crossed(self, row: Axis, column: Axis, reads: Sequence[tuple[int, ...]]) -> bool:
        """Return whether one operand has *row* without *column*, another the reverse."""
        r, c = row[self.lead], column[self.lead]
        return any(x[r] and not x[c] for x in reads) and any(x[c] and not x[r] for x in reads)

    def _tiles(self) -> list[Tile]:
        found = self._axes()
        assert found is not None
        row, column = found
        tiles = [
            self._tile(axis, number, size)
            for number, (axis, size) in enumerate(((column, self.columns), (row, self.rows)))
        ]
        rest = [a for a in self.problem.parallel if a not in (row, column)]
        return tiles + [self.problem.tile(axis) for axis in reversed(rest)]

    def _tile(self, axis: Axis, number: int, size: int) -> Tile:
        """Return the tile along *axis*: *size* results a thread, in runs of neighbours."""
        run = min(size, self._run(axis))
        extent, low = self.problem.extent(axis), self.problem.lower(axis)
        return Tile(axis, extent, low, number, THREADS[number], size // run, run)

    def _run(self, axis: Axis) -> int:
        """Return how many results along *axis* are neighbours: as many as an access moves.

        Windows begin anywhere: threads that are neighbours read neighbours there.
        """
        index = self.statement.indices[axis[self.lead]]
        accesses = *self.statement.writes, *self.statement.reads
        for subscript in (s for access in accesses for s in access.subscripts):
            if subscript != Index(index) and _mentions(subscript, {index}):
                return 1
        arrays = (self.scop.arrays[access.array] for access in accesses)
        return max(1, VECTOR_BYTES // max(4, *(array.dtype.size_bytes for array in arrays)))

    def kernel(self, k_tile: int) -> TiledKernel | None:
        """Return the kernel with steps of *k_tile* along the longest reduced axis, or None."""
        shape, k = self.shape, self._longest_reduced()
        if shape.extents[k] < k_tile:
            return None
        tiles = self._tiles()
        chunk: Chunk | None = None
        partials: tuple[Partial, ...] = ()
        size, low = 0, shape.lower[k]
        if self.chunks > 1 and len(self.group.members) == 1:
            size = -(-shape.extents[k] // self.chunks // k_tile) * k_tile
            count = -(-shape.extents[k] // size)
            chunk = {self.lead: k}, size
            partials = (Partial(self.statement.indices[k], low, size, 0, count, False),)
            self.why.append(
                f"{count} blocks over chunks of {size} of {self.problem.name_of(chunk[0])}"
            )
        outer = tuple(Assembly(self.group, self.shapes, self.gpu, tiles, chunk=chunk).block_loops())
        if any(loop.kind is not LoopKind.BLOCK for loop in outer):
            return None
        remaining = {
            name: self._inside(name, tiles, (k, k_tile) if name == self.lead else None)
            for name in self.group.members
        }
        # The accumulators of a chunk are registers too: they are stored once.
        scop = self.scop
        sketch = Sketch(
            self.group.members, outer, remaining, {self.lead: partials}, in_registers=True
        )
        done = apply(scop, sketch)
        if done.before or (done.after and not chunk):
            return None
        steps = Piece(
            Coordinate(k, low, k_tile, size // k_tile), -(-(size or shape.extents[k]) // k_tile),
            Role.REDUCED, LoopKind.SERIAL,
        )  # fmt: skip
        kernel = self._cached(done.scop, done.sketch, steps)
        return None if kernel is None else replace(kernel, following=done.after)

    def _inside(
        self, name: str, tiles: Sequence[Tile], step: tuple[int, int] | None
    ) -> tuple[Piece, ...]:
        """Return the loops of a member inside a block: threads, what is reduced, registers."""
        shape = self.shapes[name]
        threads = [
            Piece(
                Coordinate(tile.axis[name], tile.lower, tile.vector, tile.threads), tile.threads,
                Role.PARALLEL, LoopKind.THREAD, tile.thread_axis, tile.threads,
            )
            for tile in reversed(tiles)
            if tile.thread_axis >= 0
        ]  # fmt: skip
        serial = []
        for dim in shape.order:
            if shape.roles[dim] is Role.REDUCED and name == self.lead:
                if step is not None and step[0] == dim:
                    serial += _points(dim, shape.lower[dim], step[1])
                    continue
                serial.append(Piece(
                    Coordinate(dim), shape.extents[dim], Role.REDUCED, LoopKind.SERIAL
                ))  # fmt: skip
        registers = [
            piece
            for tile in reversed(tiles)
            if tile.thread_axis >= 0
            for piece in self._results(tile, tile.axis[name])
        ]
        return (*threads, *serial, *registers)

    def _results(self, tile: Tile, dim: int) -> list[Piece]:
        """Return the loops over a thread's results along *tile*; vectors are along columns."""
        pieces = point_pieces(tile, dim)
        return pieces if tile.thread_axis == 0 else [
            replace(piece, kind=LoopKind.UNROLL) for piece in pieces
        ]  # fmt: skip

    def _order(self, array: str) -> tuple[int, ...]:
        """Return the order of an operand's dimensions in its tile: results are neighbours there."""
        tiled = {self.statement.indices[tile.axis[self.lead]] for tile in self._tiles()[:2]}
        reads = [read for read in self.statement.reads if read.array == array]
        rank = len(reads[0].subscripts)
        mentions = {
            dim for dim in range(rank) for read in reads if _mentions(read.subscripts[dim], tiled)
        }
        if rank - 1 in mentions or not mentions or self.scop.arrays[array].dtype.size_bytes < 4:
            return tuple(range(rank))
        last = max(mentions)
        return (*(dim for dim in range(rank) if dim != last), last)

    def _is_worth_staging(self, scop: Scop, copies: Sequence[Cached], step: Piece) -> bool:
        """Return whether copies past the registers move all that a step needs, a step ahead."""
        moved = []
        for cached in copies:
            (read,) = scop.by_name[cached.copy].reads
            pieces = _copy_pieces(cached, scop, self._is_moved(cached, read.array))
            lanes = prod(p.extent for p in pieces if p.kind is LoopKind.LANES)
            moved.append(lanes * scop.arrays[read.array].dtype.size_bytes)
        return step.extent > 1 and min(moved) >= LEAST_COPY_BYTES

    def _is_moved(self, cached: Cached, array: str) -> bool:
        """Return whether a tile has its dimensions in another order than the array."""
        return self._order(array) != tuple(range(len(cached.sizes)))

    def _copies(self, scop: Scop, loops: tuple[AnyCoordinate, ...]) -> tuple[Scop, list[Cached]]:
        """Return *scop* with copies of the operands' pieces that an iteration of *loops* reads."""
        coordinates = {self.lead: loops}
        copies = []
        for number, array in enumerate(dict.fromkeys(r.array for r in self.statement.reads)):
            if why_not_cached(scop, [self.lead], array, coordinates) is not None:
                continue
            name = f"{array}.tile{number}{self.lead}"
            order = self._order(array)
            cached = cache_read(scop, array, [self.lead], coordinates, name, order=order)
            if prod(cached.box.sizes) > 1:
                scop = cached.scop
                copies.append(cached)
        return scop, copies

    def _cached(self, scop: Scop, sketch: Sketch, step: Piece) -> TiledKernel | None:
        """Return the kernel with its operands in shared memory, None if they do not fit."""
        loops = (*(loop.pieces[self.lead].coordinate for loop in sketch.outer), step.coordinate)
        scop, copies = self._copies(scop, loops)
        # The widest row of each is padded by a word, so that columns are in different banks.
        size_bytes = sum(
            prod(c.box.sizes) * scop.arrays[c.array].dtype.size_bytes + 4 * max(c.box.sizes)
            for c in copies
        )
        if size_bytes > self.gpu.static_shared_bytes_per_block or not copies:
            return None
        outer = tuple(
            replace(loop, pieces={
                **loop.pieces,
                **{c.copy: _along(loop.pieces[self.lead], c.outer[n]) for c in copies},
            })
            for n, loop in enumerate(sketch.outer)
        )  # fmt: skip
        last = len(sketch.outer)
        # A step ahead needs a second buffer of every operand; a launch may ask for more memory.
        has_room = 2 * size_bytes <= self.gpu.shared_bytes_per_block
        ahead = 1 if has_room and self._is_worth_staging(scop, copies, step) else 0
        steps = OuterLoop(
            {self.lead: step, **{c.copy: _ahead(step, c.outer[last], ahead) for c in copies}},
            LoopKind.SERIAL,
            _limit(self.shape.extents[step.coordinate.position], step.coordinate.div),
        )
        remaining = dict(sketch.remaining)
        for cached in copies:
            (read,) = scop.by_name[cached.copy].reads
            is_moved = self._is_moved(cached, read.array)
            remaining[cached.copy] = _copy_pieces(cached, scop, is_moved)
        members = sketch.members
        position = members.index(self.lead)
        rows, columns = self._block()
        return TiledKernel(
            scop, self.lead, outer, (steps,), tuple(c.copy for c in copies), members[:position],
            members[position + 1 :], remaining,
            (
                *self.why,
                f"{rows} x {columns} results a block, {self.rows} x {self.columns} a thread",
                f"steps of {step.coordinate.div} along"
                f" {self.statement.indices[step.coordinate.position]}, operands in shared memory",
                *(["the next step's operands arrive meanwhile"] if ahead else []),
            ),
            staged=tuple(c.array for c in copies) if ahead else (),
        )  # fmt: skip


def _mentions(subscript: Expr, indices: Collection[str]) -> bool:
    return any(isinstance(node, Index) and node.name in indices for node in walk(subscript))


def _points(dim: int, low: int, k_tile: int) -> list[Piece]:
    """Return the loops over a step along a reduced axis: what is loaded comes before it is used."""
    run = UNROLLED if k_tile % UNROLLED == 0 else 1
    runs = Coordinate(dim, low, run, k_tile // run)
    pieces = [Piece(runs, k_tile // run, Role.REDUCED, LoopKind.SERIAL)]
    if run > 1:
        points = Coordinate(dim, low, 1, run)
        pieces.append(Piece(points, run, Role.REDUCED, LoopKind.UNROLL))
    return pieces


def _limit(extent: int, size: int) -> int:
    """Return where the whole tiles of *size* end, 0 if all are whole."""
    return extent if extent % size else 0


def _ahead(piece: Piece, position: int, steps: int) -> Piece:
    """Return the loop *piece* for a copy that runs some *steps* before what uses it."""
    extent = piece.extent + steps
    return replace(piece, coordinate=Coordinate(position, steps), role=Role.PARALLEL, extent=extent)


def _along(piece: Piece, position: int) -> Piece:
    """Return the loop *piece* for a copy, whose dimension *position* is the loop's iteration."""
    return replace(piece, coordinate=Coordinate(position), role=Role.PARALLEL)


def _copy_pieces(cached: Cached, scop: Scop, is_moved: bool) -> tuple[Piece, ...]:
    """Return the loops of a copy: threads along its last axis, and along the longest other.

    :arg is_moved: the tile has its dimensions in another order, and takes element by element.
    """
    sizes = cached.box.sizes
    long = [d for d, size in enumerate(sizes) if size > 1]
    x = long[-1] if long else len(sizes) - 1
    y = max((d for d in long if d != x), key=lambda d: sizes[d], default=-1)
    width = 1 if is_moved else _copy_width(cached, scop, x)
    serial, threads, turns = [], [], []
    for dim, size in enumerate(sizes):
        position = cached.elements[dim]
        if dim not in (x, y):
            serial.append(Piece(Coordinate(position), size, Role.PARALLEL, LoopKind.SERIAL))
            continue
        axis, vector = (0, width) if dim == x else (1, 1)
        count, wide = -(-size // vector), THREADS[axis]
        threads.append(Piece(
            Coordinate(position, 0, vector, wide), min(count, wide), Role.PARALLEL,
            LoopKind.THREAD, axis, wide,
        ))  # fmt: skip
        if count > wide:
            turns.append(Piece(
                Coordinate(position, 0, vector * wide), -(-count // wide), Role.PARALLEL,
                LoopKind.UNROLL,
            ))  # fmt: skip
    if width > 1:
        lanes = Coordinate(cached.elements[x], 0, 1, width)
        turns.append(Piece(lanes, width, Role.PARALLEL, LoopKind.LANES))
    return (*serial, *threads, *turns)


def _copy_width(cached: Cached, scop: Scop, x: int) -> int:
    """Return how many neighbours along dimension *x* of the box a thread copies at once."""
    (read,) = scop.by_name[cached.copy].reads
    strides = array_strides(scop.arrays[read.array])
    width = VECTOR_BYTES // scop.arrays[read.array].dtype.size_bytes
    while width > 1 and (
        cached.box.sizes[x] % width
        or any(stride % width for dim, stride in enumerate(strides) if dim != x)
    ):
        width //= 2
    return width if strides[x] == 1 else 1
