"""Pointwise programs, reductions, row-resident graphs: one kernel, threads outside, lanes inside.

outer loops   parallel axes until every thread has work; where there are too few, a reduced
              axis in chunks, one partial accumulator a chunk
inner loops   each statement's own, in the order of its strides; a reduction whose last loop is
              reduced accumulates in vector lanes

y(i) +=! x(i,j)      parallel i              { part[64] = 0; for j / 64: part += x; y = fold }
y(j) +=! x(i,j)      parallel j / 2048, or   for i: for j: y += x
                     parallel i / chunk      { for i: for j: part[c] += x }; y = sum over c
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import Partial, why_not_laned, why_not_rfactored
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.operations import PARALLEL_WORK, is_chunkable, work_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.row_functions import ALL_ROWS, APART, block_of, functions_of, row_axis
from tcdsl.strategies.schedule import Axis, OuterLoop, Schedule
from tcdsl.strategies.template import Template
from tcdsl.strategies.tiling import FAR_TILE, crossing_tiles, find_crossing, requested_tiles

TILES_PER_THREAD = cpu_thresholds.TILES_A_THREAD
MIN_TILE = cpu_thresholds.TILE_VALUES
MAX_PARTIAL_BYTES = cpu_thresholds.PARTIAL_BYTES
OPEN_CHUNK = cpu_thresholds.OPEN_CHUNK_VALUES
OPEN_CHUNK_OF_ROWS = cpu_thresholds.OPEN_CHUNK_ROWS
VECTORS = (1, 2, 4)  # of partial sums, of one accumulator


@dataclass(frozen=True, slots=True)
class CpuRowConfig:
    """Which loops threads share, and the partial sums of a thread."""

    parallel: tuple[str, ...] = ()  # indices of the lead along which threads are, outermost first
    tile: int = 1  # values of the last of them that a thread takes at once
    chunked: str = ""  # the reduced index that threads share, if any, ...
    chunk: int = 0  # ... the values of it that a thread takes at once, ...
    cycle: int = 0  # ... and, where it is open, the number of partial sums
    vectors: int = VECTORS[-1]  # of partial sums, at most; 0: sums are scalars
    far: int = 0  # tiles where arrays are walked along crossing axes, 0: none
    functions: bool = False  # functions of rows' results have loops of their own (row_functions)


def why_not(problem: Problem) -> str | None:
    """Return None: every problem has rows, if only of one value."""
    return None


def space(problem: Problem) -> Iterator[CpuRowConfig]:
    """Yield the configurations, first the likeliest."""
    likeliest = _likeliest(problem)
    yield likeliest
    others = [replace(likeliest, vectors=vectors) for vectors in _other_vectors(problem, likeliest)]
    if likeliest.far:
        others += [replace(likeliest, far=far) for far in (0, 32, 64, 256)]
    if likeliest.parallel and likeliest.tile > 1:
        extent = _extent(_by_name(problem)[likeliest.parallel[-1]], problem.shapes)
        others += [replace(likeliest, tile=t) for t in (256, 1024, 4096, 16384) if t < extent]
    if likeliest.functions:
        others.append(_rows(problem, likeliest.vectors))
    if likeliest.chunk and not likeliest.cycle:
        others.append(replace(_over_parallel(problem, likeliest.vectors), far=likeliest.far))
    yield from (config for config in dict.fromkeys(others) if config != likeliest)


def _other_vectors(problem: Problem, likeliest: CpuRowConfig) -> list[int]:
    """Return other numbers of vectors that make other partial sums, fewer and fewer."""
    shapes = problem.shapes
    if not (likeliest.vectors and any(_ends_reduced(shapes[n]) for n in problem.group.members)):
        return []
    outer = _outer_of(problem, likeliest)
    seen, found = [_lanes(problem, outer, likeliest.vectors)], list[int]()
    for vectors in (*reversed(VECTORS), 0):
        lanes = _lanes(problem, outer, vectors)
        if lanes not in seen:
            seen.append(lanes)
            found.append(vectors)
    return found


def schedule(problem: Problem, config: CpuRowConfig) -> Schedule:
    """Return the schedule of threads outside and lanes inside."""
    scop, group, shapes = problem.scop, problem.group, problem.shapes
    outer = _outer_of(problem, config)
    lanes = _lanes(problem, outer, config.vectors)
    loops = tuple(_outer_loop(loop, shapes) for loop in outer)
    remaining = {name: _remaining(name, outer, shapes) for name in group.members}
    for name in functions_of(problem) if config.functions else ():
        remaining[name] = tuple(replace(piece, apart=APART) for piece in remaining[name])
    partials = {
        name: found
        for name in group.members
        if (found := _partials(name, outer, lanes.get(name, 0), shapes)) is not None
    }
    schedule = Schedule(
        group.members, loops, remaining, partials, lanes, why=(_why(problem, config, outer),)
    )
    if problem.options.tile:
        return requested_tiles(schedule, group, shapes, problem.options.tile)
    return crossing_tiles(schedule, scop, group, shapes, config.far) if config.far else schedule


# --- the likeliest -----------------------------------------------------------------------------


def _likeliest(problem: Problem) -> CpuRowConfig:
    vectors = VECTORS[-1] if problem.options.vectorise else 0
    found = _with_functions(problem, _rows(problem, vectors))
    if problem.options.tile or find_crossing(problem.scop, problem.group, problem.shapes) is None:
        return found
    return replace(found, far=FAR_TILE)


def _rows(problem: Problem, vectors: int) -> CpuRowConfig:
    return _chunked(problem, vectors) or _over_parallel(problem, vectors)


def _with_functions(problem: Problem, config: CpuRowConfig) -> CpuRowConfig:
    """Return *config* with loops for functions of rows' results, if these are worth while."""
    axis = row_axis(problem)
    if axis is None or not config.vectors or config.chunk or not functions_of(problem):
        return config
    rows = block_of(problem, axis)
    if rows == ALL_ROWS and not config.parallel:
        return replace(config, functions=True)
    name = problem.name_of(axis)
    is_over_rows = config.parallel in ((), (name,)) and config.tile == 1
    if rows <= 0 or not is_over_rows or axis not in problem.parallel or problem.options.tile:
        return config
    blocks = _extent(axis, problem.shapes) // rows
    if not _is_serial(problem) and blocks < TILES_PER_THREAD * problem.cpu.threads:
        return config
    return replace(config, parallel=(name,), tile=rows, functions=True)


def _is_serial(problem: Problem) -> bool:
    work = sum(work_of(problem.shapes[name]) for name in problem.group.members)
    return work < PARALLEL_WORK or problem.cpu.threads == 1


def _chunked(problem: Problem, vectors: int) -> CpuRowConfig | None:
    """Return the configuration of threads over chunks of a reduced axis, None if not worth it."""
    shapes, cpu, lead = problem.shapes, problem.cpu, problem.lead
    chunkable = [
        axis
        for axis in _axes(problem)
        if is_chunkable(axis, shapes) and axis not in problem.parallel
    ]
    axis = max(chunkable, key=lambda axis: _extent(axis, shapes), default=None)
    if axis is None or _is_serial(problem) or not _prefers_chunks(problem, axis):
        return None
    name = problem.name_of(axis)
    if _is_open(axis, shapes):
        size = OPEN_CHUNK if axis[lead] == shapes[lead].order[-1] else OPEN_CHUNK_OF_ROWS
        return CpuRowConfig(chunked=name, chunk=size, cycle=cpu.threads, vectors=vectors)
    size = _chunk_size(_extent(axis, shapes), cpu.threads)
    return CpuRowConfig(chunked=name, chunk=size, vectors=vectors)


def _over_parallel(problem: Problem, vectors: int) -> CpuRowConfig:
    """Return the configuration of parallel axes from the outside until threads have work."""
    shapes, lead = problem.shapes, problem.lead
    if _is_serial(problem):
        # The first axis, if it is open: what lives in an iteration is small.
        first = next(iter(problem.parallel), None)
        if first is None or not _is_open(first, shapes) or first[lead] == shapes[lead].order[-1]:
            return CpuRowConfig(vectors=vectors)
        return CpuRowConfig((problem.name_of(first),), vectors=vectors)
    enough = TILES_PER_THREAD * problem.cpu.threads
    names: list[str] = []
    iterations, tile = 1, 1
    for axis in problem.parallel:
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
        elif tile >= extent and names:
            tile = 1
            break
        names.append(problem.name_of(axis))
        iterations *= -(-extent // tile)
    return CpuRowConfig(tuple(names), tile, vectors=vectors)


def _axes(problem: Problem) -> list[Axis]:
    """Return the shared axes in the order of the lead's."""
    order = problem.shapes[problem.lead].order
    return sorted(problem.group.axes, key=lambda axis: order.index(axis[problem.lead]))


def _prefers_chunks(problem: Problem, chunk: Axis) -> bool:
    """Return whether threads should share a reduced axis rather than the parallel ones."""
    shapes, threads, lead = problem.shapes, problem.cpu.threads, problem.lead
    parallel_extent = prod(_extent(axis, shapes) for axis in problem.parallel)
    if _extent(chunk, shapes) < 2 * threads:
        return False
    partial_bytes = sum(
        8 * threads * prod(
            extent
            for extent, role in zip(shapes[name].extents, shapes[name].roles, strict=True)
            if role is Role.PARALLEL
        )
        for name, dim in chunk.items()
        if shapes[name].roles[dim] is Role.REDUCED
    )  # fmt: skip
    if partial_bytes > MAX_PARTIAL_BYTES:
        return False
    if parallel_extent < 2 * threads:
        return True
    # A column: the reduced axis is outermost, and each thread would read short pieces of rows.
    order = shapes[lead].order
    first_parallel = min(order.index(axis[lead]) for axis in problem.parallel)
    is_column = order.index(chunk[lead]) < first_parallel
    return is_column and parallel_extent < MIN_TILE * TILES_PER_THREAD * threads


def _chunk_size(extent: int, threads: int) -> int:
    """Return a chunk that gives each thread one, a multiple of every vector length if large."""
    size = -(-extent // threads)
    return -(-size // 512) * 512 if size >= 4096 else -(-size // 64) * 64


def _is_open(axis: Axis, shapes: Mapping[str, Shape]) -> bool:
    return any(shapes[name].is_open(dim) for name, dim in axis.items())


def _extent(axis: Axis, shapes: Mapping[str, Shape]) -> int:
    return max(shapes[name].extents[dim] for name, dim in axis.items())


# --- the schedule ------------------------------------------------------------------------------


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


def _by_name(problem: Problem) -> dict[str, Axis]:
    """Return the shared axes by the names of the lead's indices."""
    return {problem.name_of(axis): axis for axis in _axes(problem)}


def _outer_of(problem: Problem, config: CpuRowConfig) -> list[_Outer]:
    """Return the loops around the kernel."""
    by_name = _by_name(problem)
    if config.chunk:
        return [_Outer(by_name[config.chunked], config.chunk, True, config.cycle)]
    tiles = [1] * (len(config.parallel) - 1) + [config.tile]
    return [_Outer(by_name[n], tile) for n, tile in zip(config.parallel, tiles, strict=False)]


def _why(problem: Problem, config: CpuRowConfig, outer: Sequence[_Outer]) -> str:
    if config.chunk:
        turn = " in turn" if config.cycle else ""
        name = config.chunked
        return (
            f"threads over chunks of {config.chunk} of the reduced {name}{turn}, partials folded"
            " in order"
        )
    if _is_serial(problem):
        if problem.cpu.threads == 1:
            return "serial: there is one thread"
        work = sum(work_of(problem.shapes[name]) for name in problem.group.members)
        return f"serial: {work} operations"
    if not outer:
        return "serial: no loop is parallel"
    counts = (-(-max(1, _extent(loop.axis, problem.shapes)) // loop.tile) for loop in outer)
    return f"threads over {', '.join(config.parallel)} ({prod(counts)} iterations)"


def _lanes(problem: Problem, outer: Sequence[_Outer], most: int) -> dict[str, int]:
    """Return how many lanes each member accumulates in whose last loop is a reduced one.

    A vector is as long as one of the widest type: what differs in lanes shares no last loop.
    """
    shapes = problem.shapes
    sizes = {
        name: reduction.dtype.size_bytes
        for name in problem.group.members
        if most and _ends_reduced(shapes[name]) and (reduction := shapes[name].statement.reduction)
    }
    width = problem.cpu.vector_bytes // max(sizes.values(), default=1)
    found = {}
    for name in sizes:
        last = shapes[name].order[-1]
        # Few vectors cover a short row at once; a long one keeps four sums going.
        covering = (n for n in VECTORS if shapes[name].extents[last] <= n * width)
        vectors = min(next(covering, VECTORS[-1]), most)
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
    name: str, outer: list[_Outer], lanes: int, shapes: Mapping[str, Shape]
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
    if shape.order and shape.is_ragged(shape.order[-1]) and not why_not_rfactored(statement):
        return tuple(partials)  # in a register: the C compiler does not know what it may keep
    return tuple(partials) or None


TEMPLATE = Template("cpu_row", CpuRowConfig, why_not, space, schedule)
