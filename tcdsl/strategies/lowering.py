"""Lowering of a GPU kernel's schedule from what has been chosen for it.

    tiles    shared parallel axes        blocks;  threads, repeats, the lanes of a vector
    lanes    a member's own axes         threads, repeats, the lanes of a vector
    chunk    a shared reduced axis       blocks over chunks of it
    what is left of a member             in each thread, in the order of its strides

A block's loops are outermost, then those over threads that members share, then a member's own:
serial ones first, lanes of vectors last.  The choices are those of ``threads``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import lcm, prod
from typing import NamedTuple

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.data_ranges import data_ranges_of
from tcdsl.poly.loop_tree import RANK, Coordinate, LoopKind, Y
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import Partial, why_not_laned, why_not_rfactored
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.schedule import Axis, Layout, OuterLoop, Schedule, Tile

UNROLLED_TERMS = gpu_thresholds.UNROLLED_ITERATIONS  # of a thread with several points
DEALT = 8  # runs of a chunk that is dealt: more than a class's greatest size is times its least


class Chunk(NamedTuple):
    """A reduced axis, and the *size* values of it that one block takes.

    Where *is_dealt*, as runs of some values in turn, not as one: at a size that is less than that
    of the plan all blocks have less to do, instead of few blocks as much.

        i = 0 .. 15, 4 blocks     0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3
        dealt in runs of two      0 0 1 1 2 2 3 3 0 0 1 1 2 2 3 3

    With several *threads* along y, neighbours of a chunk are these threads', turn after turn.
    """

    axis: Axis
    size: int
    is_dealt: bool = False
    run: int = 0  # 0: as many values as make DEALT runs
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Lane:
    """A member's own axis that threads share: ``repeat`` 0 means as many turns as it takes."""

    dim: int
    axis: int  # x or y
    threads: int
    vector: int = 1
    repeat: int = 0
    cluster: int = 1  # blocks whose threads take turns: a turn is ``threads * cluster`` vectors

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """The axes of the threads that share it, and how many there are along each."""
        ranks = ((RANK, self.cluster),) if self.cluster > 1 else ()
        return ((self.axis, self.threads), *ranks)


@dataclass(frozen=True, eq=False)
class Lowering:
    """How the axes of *group* are cut, and the loops that follow from it.

    *tiles* are of the shared parallel axes, innermost first; *lanes* has members with an axis of
    their own along threads.  *grid* are the tiles' axes of the grid where another kernel's blocks
    are used: None for as many as there are, the longest first.
    """

    group: Group
    shapes: Mapping[str, Shape]
    gpu: Chip
    tiles: Sequence[Tile]
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    chunk: Chunk | None = None
    grid: Sequence[int] | None = None

    def schedule(self, why: Sequence[str]) -> Schedule:
        """Return the schedule, explained by *why*."""
        partials, threads = {}, {}
        for name in self.group.members:
            is_update = self.shapes[name].statement.kind is Kind.UPDATE
            if is_update and (found := self.partials(name)) is not None:
                partials[name], threads[name] = found, self._widths(name)
        shared = [_thread_loop(tile) for tile in self.tiles if tile.thread_axis >= 0]
        return Schedule(
            self.group.members, (*self.block_loops(), *shared),
            self._all_remaining(), partials,
            why=tuple(why), threads=threads, in_registers=True, layout=self._layout(),
            points=prod(tile.points for tile in self.tiles),
        )  # fmt: skip

    def block_loops(self) -> list[OuterLoop]:
        """Return the loops over blocks: as the grid has axes, the others in turn.

        That over chunks is the innermost: what the last block of some has left to do has none.
        """
        found = [
            (tile.blocks, tile.axis, tile.lower, tile.block,
             tile.extent if tile.block > 1 and tile.extent % tile.block else 0)
            for tile in self.tiles
        ]  # fmt: skip
        if self.chunk is not None:
            axis = self.chunk.axis
            found.insert(0, (self._chunks(), axis, self._chunked[0], self.run, 0))
        numbers = self.grid
        if numbers is None:
            numbers = grid_axes([count for count, *_ in found])
        loops = []
        for number, (count, axis, lower, size, limit) in zip(numbers, found, strict=True):
            if count == 1:
                continue
            width = min(count, self.gpu.grid[number]) if number >= 0 else 0
            kind = LoopKind.BLOCK if number >= 0 else LoopKind.SERIAL
            mod = self._dealt_to(axis)
            by_dim = {
                dim: Piece(
                    Coordinate(dim, lower, size, mod), count, Role.PARALLEL, kind, max(number, 0),
                    width,
                )
                for dim in set(axis.values())
            }  # fmt: skip
            loops.append(OuterLoop({n: by_dim[dim] for n, dim in axis.items()}, kind, limit))
        loops.reverse()  # they were innermost first
        return sorted(loops, key=lambda loop: loop.kind is not LoopKind.BLOCK)

    def _all_remaining(self) -> dict[str, tuple[Piece, ...]]:
        """Return what a thread runs of each member: the same loops of those that are alike."""
        made: dict[object, tuple[Piece, ...]] = {}
        found = {}
        for name in self.group.members:
            cut = tuple([tile.axis[name] for tile in self.tiles])
            chunked = None if self.chunk is None else self.chunk.axis.get(name)
            key = self.shapes[name].box, cut, self.lanes.get(name), chunked
            if key not in made:
                made[key] = self.remaining(name)
            found[name] = made[key]
        return found

    def remaining(self, name: str) -> tuple[Piece, ...]:
        """Return what a thread runs of *name*: its own axes, repeats, lanes of vectors last."""
        shape, lane = self.shapes[name], self.lanes.get(name)
        by_dim = {tile.axis[name]: tile for tile in self.tiles}
        serial, threads, last = [], [], []
        for dim in shape.order:
            low, size = self._start(name, dim)
            extent = size or shape.extents[dim]
            if size and (turns := self._turns(dim, shape.roles[dim])) is not None:
                serial.append(turns)
                if size == 1:
                    continue
            if dim in by_dim:
                last += point_pieces(by_dim[dim], dim)
            elif lane is not None and lane.dim == dim:
                mine = lane_pieces(lane, low, extent, size, shape.roles[dim])
                threads += [piece for piece in mine if piece.kind is LoopKind.THREAD]
                last += [piece for piece in mine if piece.kind is not LoopKind.THREAD]
            elif size and self.chunk_threads > 1:
                serial += self._chunk_pieces(dim, shape.roles[dim])
            else:
                serial.append(Piece(
                    Coordinate(dim, low if size else 0, 1, size), extent, shape.roles[dim],
                    LoopKind.SERIAL,
                ))  # fmt: skip
        if any(tile.points > 1 for tile in self.tiles):
            serial = with_terms_unrolled(serial)
        if any(piece.extent <= piece.width for piece in threads):
            return (*threads, *serial, *last)  # idle threads leave at once: no loop has their guard
        if lane is not None and _bounds_others(shape.statement, lane.dim):
            return (*threads, *serial, *last)
        return (*serial, *threads, *last)

    def partials(self, name: str) -> tuple[Partial, ...] | None:
        """Return the partial accumulators of a reduction, None if it accumulates in its target."""
        shape, lane = self.shapes[name], self.lanes.get(name)
        statement = shape.statement
        if statement.kind is not Kind.UPDATE or why_not_laned(statement):
            return None
        partials = []
        if self.chunk is not None and shape.roles[self.chunk.axis[name]] is Role.REDUCED:
            axis = self.chunk.axis
            index = statement.indices[axis[name]]
            lower, mod, width = self._chunked[0], self._dealt_to(axis), self.chunk_threads
            partials.append(Partial(index, lower, self.run, mod, self._chunks(), False))
            if width > 1:
                partials.append(Partial(index, lower, 1, width, width, True))
        if lane is not None and self._folds(name):
            low, _ = self._start(name, lane.dim)
            width = lane.threads
            index = statement.indices[lane.dim]
            partials.append(Partial(index, low, lane.vector, width, width, True))
            if lane.cluster > 1:
                turn = lane.vector * lane.threads
                partials.append(Partial(index, low, turn, lane.cluster, lane.cluster, True))
        if not partials and why_not_rfactored(statement):
            return None
        return tuple(partials)

    def _widths(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return the axes and numbers of the threads that are lanes of *name*'s partial sums."""
        shape, lane = self.shapes[name], self.lanes.get(name)
        found: tuple[tuple[int, int], ...] = ()
        if self.chunk_threads > 1 and self.chunk is not None:
            is_reduced = shape.roles[self.chunk.axis[name]] is Role.REDUCED
            found = ((Y, self.chunk_threads),) if is_reduced else ()
        return (*found, *lane.widths) if lane is not None and self._folds(name) else found

    def _folds(self, name: str) -> bool:
        """Return whether threads share a reduced axis of *name* alone."""
        lane = self.lanes.get(name)
        return lane is not None and self.shapes[name].roles[lane.dim] is Role.REDUCED

    def _chunk_pieces(self, dim: int, role: Role) -> tuple[Piece, Piece]:
        """Return the loops over the turns of a chunk, and over threads that have neighbours."""
        low, width = self._chunked[0], self.chunk_threads
        assert self.run % width == 0, "threads with parts of two chunks"
        turns = Coordinate(dim, low, width, self.run // width)
        threads = Coordinate(dim, low, 1, width)
        return (
            Piece(turns, self.run // width, role, LoopKind.SERIAL),
            Piece(threads, width, role, LoopKind.THREAD, Y, width),
        )

    @cached_property
    def chunk_threads(self) -> int:
        """The threads along y that share a chunk."""
        return 1 if self.chunk is None else self.chunk.threads

    def _chunks(self) -> int:
        """Return how many chunks there are."""
        return 1 if self.chunk is None else -(-self._chunked[1] // self.chunk.size)

    @cached_property
    def _chunked(self) -> tuple[int, int]:
        """The least value of the axis that is cut into chunks, and how many values it has."""
        assert self.chunk is not None
        return lower_of(self.chunk.axis, self.shapes), extent_of(self.chunk.axis, self.shapes)

    @cached_property
    def run(self) -> int:
        """How many neighbours of its chunk a block takes at once: all, unless chunks are dealt.

        Threads have whole parts of them, as of a chunk (shared_sums._whole).
        """
        assert self.chunk is not None
        axis, size, is_dealt, run, unit = self.chunk
        if run or not is_dealt:
            return run or size
        for name, lane in self.lanes.items():
            if axis.get(name) == lane.dim:
                is_reduced = self.shapes[name].roles[lane.dim] is Role.REDUCED
                unit = lcm(unit, lane.vector * (lane.threads * lane.cluster if is_reduced else 1))
        return min(-(-size // (DEALT * unit)) * unit, size)

    def _dealt_to(self, axis: Axis) -> int:
        """Return how many blocks the values of *axis* are dealt to, 0 if they are not."""
        is_dealt = self.chunk is not None and axis is self.chunk.axis and self.run < self.chunk.size
        return self._chunks() if is_dealt else 0

    def _turns(self, dim: int, role: Role) -> Piece | None:
        """Return the loop over what a block takes in turn of *dim*, None if that is all at once."""
        assert self.chunk is not None
        count = self._dealt_to(self.chunk.axis)
        if not count:
            return None
        (low, extent), turn = self._chunked, self.run * count
        turns = -(-extent // turn)
        return Piece(Coordinate(dim, low, turn), turns, role, LoopKind.SERIAL)

    def _start(self, name: str, dim: int) -> tuple[int, int]:
        """Return where dimension *dim* of *name* is counted from, and the size of its chunks.

        That is 0 where it is not cut into any; where they are dealt, of what is taken at once.
        """
        if self.chunk is None or self.chunk.axis.get(name) != dim:
            return self.shapes[name].lower[dim], 0
        return self._chunked[0], self.run

    def _layout(self) -> Layout | None:
        """Return the mapping for what last blocks do: those of each tile, or the last of all."""
        threads = [1, 1]
        for axis, width in (
            *((lane.axis, lane.threads) for lane in self.lanes.values()),
            *((tile.thread_axis, tile.threads) for tile in self.tiles if tile.thread_axis >= 0),
        ):
            threads[axis] = max(threads[axis], width)
        if self.chunk is None:
            if min(threads) > 1:  # what is uniform along an axis would be on all its threads
                return None
            widest = max((0, 1), key=lambda axis: threads[axis])
            total = prod(tile.blocks for tile in self.tiles)
            return Layout((), (), (widest, threads[widest]), total)
        _, *numbers = grid_axes([self._chunks(), *(tile.blocks for tile in self.tiles)])
        taken = {tile.thread_axis for tile in self.tiles}
        free = max((a for a in (0, 1) if a not in taken), key=lambda axis: threads[axis])
        lane = (free, threads[free])
        return Layout(tuple(self.tiles), tuple(numbers), lane, self._chunks())


def _bounds_others(statement: Statement, dim: int) -> bool:
    """Return whether ranges from data of other dimensions depend on the index *dim*."""
    index = statement.indices[dim]
    return any(index in found.indices for found in data_ranges_of(statement) if found.dim != dim)


def extent_of(axis: Axis, shapes: Mapping[str, Shape]) -> int:
    """Return how many values *axis* has for all its members together, at least 1."""
    ends = [shapes[name].lower[dim] + shapes[name].extents[dim] for name, dim in axis.items()]
    return max(max(ends) - lower_of(axis, shapes), 1)


def lower_of(axis: Axis, shapes: Mapping[str, Shape]) -> int:
    """Return the least value that *axis* has for a member."""
    return min(shapes[name].lower[dim] for name, dim in axis.items())


def grid_axes(counts: Sequence[int]) -> list[int]:
    """Return the axes of the grid for *counts* of blocks: x for the most; -1 where none is."""
    order = sorted(range(len(counts)), key=lambda n: -counts[n])
    several = [n for n in order if counts[n] > 1][:3]
    return [several.index(n) if n in several else -1 for n in range(len(counts))]


def grid_in_memory_order(tiles: Sequence[Tile], gpu: Chip) -> list[int]:
    """Return the axes of the grid for *tiles*, innermost first: x for the innermost that has some.

    Blocks start in the order of x, y, z, and what runs at once lies together in memory then.  Where
    the axes have too few blocks for it, those of :func:`grid_axes`.
    """
    longest = grid_axes([tile.blocks for tile in tiles])
    found, number = list[int](), 0
    for tile, axis in zip(tiles, longest, strict=True):
        if axis >= 0 and tile.blocks > gpu.grid[number]:
            return longest
        found.append(number if axis >= 0 else -1)
        number += axis >= 0
    return found


def point_pieces(tile: Tile, dim: int) -> list[Piece]:
    """Return the loops over a shared axis inside a thread: repeats, then points, then a vector."""
    pieces = []
    for step, count in ((tile.threads * tile.run, tile.repeat), (tile.vector, tile.points)):
        if count > 1:
            cut = Coordinate(dim, tile.lower, step, count)
            pieces.append(Piece(cut, count, Role.PARALLEL, LoopKind.UNROLL))
    if tile.vector > 1:
        pieces.append(Piece(
            Coordinate(dim, tile.lower, 1, tile.vector), tile.vector, Role.PARALLEL,
            LoopKind.LANES,
        ))  # fmt: skip
    return pieces


def with_terms_unrolled(serial: Sequence[Piece]) -> list[Piece]:
    """Return the loops *serial* with the innermost unrolled, up to some iterations together.

    What neighbouring points read alike, of a window and of its filter, is then one load.
    """
    found, total = list[Piece](), 1
    for piece in reversed(serial):
        total *= piece.extent
        kind = LoopKind.UNROLL if total <= UNROLLED_TERMS else piece.kind
        found.insert(0, replace(piece, kind=kind))
    return found


def lane_pieces(lane: Lane, low: int, extent: int, size: int, role: Role) -> list[Piece]:
    """Return the loops over an axis that threads share: threads, then repeats, then a vector.

    :arg size: of a chunk of the axis, 0 if it is not cut.
    """
    assert size % lane.vector == 0, "a vector in two chunks"
    groups, thread = -(-extent // lane.vector), (LoopKind.THREAD, lane.axis, lane.threads)
    mod = size // lane.vector if size else 0
    if lane.repeat > 1 or lane.cluster > 1:
        block = lane.vector * lane.threads  # values of the threads of one block in a turn
        pieces = [
            Piece(
                Coordinate(lane.dim, low, lane.vector, lane.threads),
                min(groups, lane.threads), role, *thread,
            ),
            Piece(
                Coordinate(lane.dim, low, block * lane.cluster), lane.repeat, role, LoopKind.UNROLL
            ),
        ]  # fmt: skip
    else:
        pieces = [Piece(Coordinate(lane.dim, low, lane.vector, mod), groups, role, *thread)]
    if lane.cluster > 1:
        ranks = min(-(-extent // block), lane.cluster)
        pieces.insert(0, Piece(
            Coordinate(lane.dim, low, block, lane.cluster), ranks, role,
            LoopKind.THREAD, RANK, lane.cluster,
        ))  # fmt: skip
    if lane.vector > 1:
        lanes = Coordinate(lane.dim, low, 1, lane.vector)
        pieces.append(Piece(lanes, lane.vector, role, LoopKind.LANES))
    return pieces


def _thread_loop(tile: Tile) -> OuterLoop:
    """Return the loop over the threads along a shared axis."""
    is_whole = tile.blocks == 1 and tile.repeat == 1
    by_dim = {
        dim: Piece(
            Coordinate(dim, tile.lower, tile.run, 0 if is_whole else tile.threads),
            min(tile.threads, -(-tile.extent // tile.run)),
            Role.PARALLEL,
            LoopKind.THREAD,
            tile.thread_axis,
            tile.threads,
        )
        for dim in set(tile.axis.values())
    }
    pieces = {name: by_dim[dim] for name, dim in tile.axis.items()}
    limit = tile.extent if is_whole and tile.extent % tile.run else 0
    return OuterLoop(pieces, LoopKind.THREAD, limit)
