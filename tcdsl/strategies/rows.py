"""Pointwise programs, reductions, row-resident graphs: one kernel, threads outside, lanes inside.

outer loops   parallel axes until every thread has work; where there are too few, a reduced
              axis in chunks, one partial accumulator a chunk
inner loops   each statement's own, in the order of its strides; a reduction whose last loop is
              reduced accumulates in vector lanes

y(i) +=! x(i,j)      parallel i              { part[64] = 0; for j / 64: part += x; y = fold }
y(j) +=! x(i,j)      parallel j / 2048, or   for i: for j: y += x
                     parallel i / chunk      { for i: for j: part[c] += x }; y = sum over c
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.lang.comprehension import Call, walk
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.strategies.sketch import OuterLoop, Sketch
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.nesting import Piece
from tcdsl.transforms.rfactor import Partial, why_not_laned, why_not_rfactored

PARALLEL_WORK = cpu_thresholds.FORKED_OPERATIONS
TILES_PER_THREAD = cpu_thresholds.TILES_A_THREAD
MIN_TILE = cpu_thresholds.TILE_VALUES
MAX_PARTIAL_BYTES = cpu_thresholds.PARTIAL_BYTES
OPEN_CHUNK = cpu_thresholds.OPEN_CHUNK_VALUES
OPEN_CHUNK_OF_ROWS = cpu_thresholds.OPEN_CHUNK_ROWS


def work_of(shape: Shape) -> int:
    """Return the operations of a statement, a function call counting for sixteen.

    Where sizes are open it is enough for threads: whether it is, the call decides.
    """
    work = shape.instances * operations_of(shape.statement)
    return max(work, PARALLEL_WORK) if shape.has_open else work


def operations_of(statement: Statement) -> int:
    """Return the operations of one instance."""
    calls = 0
    if statement.value is not None:
        calls = sum(isinstance(node, Call) for node in walk(statement.value))
    return 2 + 16 * calls


@dataclass(frozen=True, slots=True)
class _Outer:
    """One loop around the kernel: an axis, in tiles of *tile* values (1: each value)."""

    axis: Mapping[str, int]
    tile: int
    is_chunk: bool = False  # reduced for some member: one partial accumulator a tile
    # If not 0, the number of accumulators: tile t goes to number t % cycle.  So their number is
    # known even if the axis is open.
    cycle: int = 0

    def shift(self, shapes: Mapping[str, Shape]) -> int:
        """Return where the first tile begins, whichever member runs there."""
        return min(shapes[name].lower[dim] for name, dim in self.axis.items())


def sketch_rows(scop: Scop, group: Group, shapes: Mapping[str, Shape], cpu: Cpu) -> Sketch:
    """Return the sketch of *group* as described above; every group has one."""
    outer, why = _choose_outer(scop, group, shapes, cpu)
    lanes = _lanes(group, outer, shapes, cpu)
    loops = tuple(_outer_loop(loop, shapes) for loop in outer)
    remaining = {name: _remaining(name, outer, shapes) for name in group.members}
    partials = {
        name: found
        for name in group.members
        if (found := _partials(scop, name, outer, lanes.get(name, 0), shapes)) is not None
    }
    return Sketch(group.members, loops, remaining, partials, lanes, why=tuple(why), template="rows")


def _lanes(
    group: Group, outer: list[_Outer], shapes: Mapping[str, Shape], cpu: Cpu
) -> dict[str, int]:
    """Return how many lanes each member accumulates in whose last loop is a reduced one.

    A vector is as long as one of the widest type: what differs in lanes shares no last loop.
    """
    sizes = {
        name: reduction.dtype.size_bytes
        for name in group.members
        if _ends_reduced(shapes[name]) and (reduction := shapes[name].statement.reduction)
    }
    width = cpu.vector_bytes // max(sizes.values(), default=1)
    found = {}
    for name in sizes:
        last = shapes[name].order[-1]
        # Few vectors cover a short row at once; a long one keeps four sums going.
        vectors = next((n for n in (1, 2, 4) if shapes[name].extents[last] <= n * width), 4)
        tiles = [loop.tile for loop in outer if loop.axis[name] == last]
        if not any(tile % (width * vectors) for tile in tiles):
            found[name] = width * vectors
    return found


def _ends_reduced(shape: Shape) -> bool:
    """Return whether the statement's last loop is a reduced one that lanes may share."""
    if why_not_laned(shape.statement) or not shape.order:
        return False
    last = shape.order[-1]
    # Of a ragged row whole vectors are few, and what is left of it is not worth a fold.
    is_long = shape.extents[last] >= 8 and not shape.is_ragged(last)
    return shape.roles[last] is Role.REDUCED and is_long


def _choose_outer(
    scop: Scop, group: Group, shapes: Mapping[str, Shape], cpu: Cpu
) -> tuple[list[_Outer], list[str]]:
    work = sum(work_of(shapes[name]) for name in group.members)
    lead = group.lead(shapes)
    position = {dim: i for i, dim in enumerate(shapes[lead].order)}
    axes = sorted(group.axes, key=lambda axis: position[axis[lead]])
    parallel = [axis for axis in axes if group.has_parallel(axis, shapes)]
    if work < PARALLEL_WORK or cpu.threads == 1:
        return _serial(parallel, lead, shapes), [f"serial: {work} operations"]
    chunkable = [axis for axis in axes if is_chunkable(axis, shapes) and axis not in parallel]
    enough = TILES_PER_THREAD * cpu.threads
    extent = prod(_extent(axis, shapes) for axis in parallel)
    chunk = max(chunkable, key=lambda axis: _extent(axis, shapes), default=None)
    if chunk is not None and _prefers_chunks(chunk, parallel, lead, shapes, cpu, extent):
        name = shapes[lead].statement.indices[chunk[lead]]
        if _is_open(chunk, shapes):
            size = OPEN_CHUNK if chunk[lead] == shapes[lead].order[-1] else OPEN_CHUNK_OF_ROWS
            return [_Outer(chunk, size, True, cpu.threads)], [
                f"threads over chunks of {size} of the reduced {name} in turn, partials folded in"
                " order"
            ]
        size = _chunk_size(_extent(chunk, shapes), cpu)
        return [_Outer(chunk, size, True)], [
            f"threads over chunks of {size} of the reduced {name}, partials folded in order"
        ]
    return _leading(parallel, lead, shapes, cpu, enough)


def _serial(
    parallel: list[Mapping[str, int]], lead: str, shapes: Mapping[str, Shape]
) -> list[_Outer]:
    """Open the first of the parallel axes if it is open: what lives in an iteration is small."""
    first = next(iter(parallel), None)
    if first is None or not _is_open(first, shapes) or first[lead] == shapes[lead].order[-1]:
        return []
    return [_Outer(first, 1)]


def _is_open(axis: Mapping[str, int], shapes: Mapping[str, Shape]) -> bool:
    return any(shapes[name].is_open(dim) for name, dim in axis.items())


def _leading(
    parallel: list[Mapping[str, int]],
    lead: str,
    shapes: Mapping[str, Shape],
    cpu: Cpu,
    enough: int,
) -> tuple[list[_Outer], list[str]]:
    """Open parallel axes from the outside until there are *enough* iterations."""
    outer: list[_Outer] = []
    iterations = 1
    for axis in parallel:
        if iterations >= enough:
            break
        extent = max(1, _extent(axis, shapes))
        is_last = axis[lead] == shapes[lead].order[-1]
        tile = 1
        if is_last:
            wanted = max(1, -(-enough // iterations))
            tile = max(MIN_TILE, -(-extent // wanted)) if extent > MIN_TILE else extent
            tile = min(-(-tile // 64) * 64, 16 * MIN_TILE)
        if _is_open(axis, shapes):
            tile = 4 * MIN_TILE if is_last else 1
        elif tile >= extent and outer:
            break
        outer.append(_Outer(axis, tile))
        iterations *= -(-extent // tile)
    names = [shapes[lead].statement.indices[loop.axis[lead]] for loop in outer]
    if not outer:
        return [], ["serial: no loop is parallel"]
    return outer, [f"threads over {', '.join(names)} ({iterations} iterations)"]


def _extent(axis: Mapping[str, int], shapes: Mapping[str, Shape]) -> int:
    return max(shapes[name].extents[dim] for name, dim in axis.items())


def is_chunkable(axis: Mapping[str, int], shapes: Mapping[str, Shape]) -> bool:
    """Return whether every member runs in parallel along *axis*, or has partials along it."""
    for name, dim in axis.items():
        shape = shapes[name]
        if shape.roles[dim] is Role.PARALLEL:
            continue
        if shape.roles[dim] is not Role.REDUCED or why_not_rfactored(shape.statement):
            return False
    return True


def _prefers_chunks(
    chunk: Mapping[str, int],
    parallel: list[Mapping[str, int]],
    lead: str,
    shapes: Mapping[str, Shape],
    cpu: Cpu,
    parallel_extent: int,
) -> bool:
    """Return whether threads should share a reduced axis rather than the parallel ones."""
    if _extent(chunk, shapes) < 2 * cpu.threads:
        return False
    partial_bytes = sum(
        8 * cpu.threads * prod(
            extent
            for extent, role in zip(shapes[name].extents, shapes[name].roles, strict=True)
            if role is Role.PARALLEL
        )
        for name, dim in chunk.items()
        if shapes[name].roles[dim] is Role.REDUCED
    )  # fmt: skip
    if partial_bytes > MAX_PARTIAL_BYTES:
        return False
    if parallel_extent < 2 * cpu.threads:
        return True
    # A column: the reduced axis is outermost, and each thread would read short pieces of rows.
    order = shapes[lead].order
    first_parallel = min(order.index(axis[lead]) for axis in parallel)
    is_column = order.index(chunk[lead]) < first_parallel
    return is_column and parallel_extent < MIN_TILE * TILES_PER_THREAD * cpu.threads


def _chunk_size(extent: int, cpu: Cpu) -> int:
    """Return a chunk that gives each thread one, a multiple of every vector length if large."""
    size = -(-extent // cpu.threads)
    return -(-size // 512) * 512 if size >= 4096 else -(-size // 64) * 64


def _outer_loop(loop: _Outer, shapes: Mapping[str, Shape]) -> OuterLoop:
    shift = loop.shift(shapes)
    pieces = {}
    for name, dim in loop.axis.items():
        shape = shapes[name]
        count = -(-(shape.lower[dim] - shift + shape.extents[dim]) // loop.tile)
        coordinate = Coordinate(dim, shift if loop.tile > 1 else 0, loop.tile, loop.cycle)
        pieces[name] = Piece(coordinate, loop.cycle or count, Role.PARALLEL)
    return OuterLoop(pieces, LoopKind.PARALLEL)


def _remaining(name: str, outer: list[_Outer], shapes: Mapping[str, Shape]) -> tuple[Piece, ...]:
    """Return what is left of the statement's dimensions, in its preferred order."""
    shape = shapes[name]
    tiles = {loop.axis[name]: loop for loop in outer}
    pieces = []
    for dim in shape.order:
        loop = tiles.get(dim)
        if loop is None:
            pieces.append(Piece(Coordinate(dim), shape.extents[dim], shape.roles[dim]))
        elif loop.tile > 1:
            shift = loop.shift(shapes)
            if loop.cycle:
                turn = Coordinate(dim, shift, loop.tile * loop.cycle)
                turns = -(-(shape.lower[dim] - shift + shape.extents[dim]) // turn.div)
                pieces.append(Piece(turn, turns, shape.roles[dim]))
            coordinate = Coordinate(dim, shift, 1, loop.tile)
            pieces.append(Piece(coordinate, loop.tile, shape.roles[dim]))
    return tuple(pieces)


def _partials(
    scop: Scop, name: str, outer: list[_Outer], lanes: int, shapes: Mapping[str, Shape]
) -> tuple[Partial, ...] | None:
    """Return the partial accumulators of a reduction, None if it accumulates in its target."""
    shape = shapes[name]
    statement = shape.statement
    is_splittable = lanes or not why_not_rfactored(statement)
    if statement.kind is not Kind.UPDATE or not is_splittable:
        return None
    partials = []
    starts = dict(enumerate(shape.lower))
    for loop in outer:
        dim = loop.axis[name]
        if loop.tile > 1:
            starts[dim] = loop.shift(shapes)
        if loop.is_chunk and shape.roles[dim] is Role.REDUCED:
            # Chunks are those of all members; a sum over the last few begins with one of these.
            before = 0 if loop.cycle else (shape.lower[dim] - starts[dim]) // loop.tile
            first = starts[dim] + before * loop.tile
            chunks = loop.cycle or -(-(shape.lower[dim] + shape.extents[dim] - first) // loop.tile)
            index = statement.indices[dim]
            partials.append(Partial(index, first, loop.tile, loop.cycle, chunks, False))
    if lanes:
        dim = shape.order[-1]
        partials.append(Partial(statement.indices[dim], starts[dim], 1, lanes, lanes, True))
    assert statement.reduction is not None
    needs_own_type = scop.arrays[statement.write.array].dtype != statement.reduction.dtype
    if shape.order and shape.is_ragged(shape.order[-1]) and not why_not_rfactored(statement):
        needs_own_type = True  # sums in a register: the C compiler does not know what it may keep
    return tuple(partials) if partials or needs_own_type else None
