"""Contractions on a GPU: tiles of operands in shared memory, tiles of results in registers.

    C(m,n) +=! A(m,k) * B(k,n)
    ---> blocks over m / 64, n / 64
           threads:  part = 0                               4 x 4 results a thread, in registers
           for k / 16:
             threads copy  A[64 x 16], B[16 x 64]           some steps ahead, each element once
             threads:  for k % 16:  part += A * B           4 + 4 loads for 16 operations
           threads:  C = part; what else the group computes from it

Two parallel axes are tiled, each of which an operand does not mention, and one reduced axis; other
parallel axes go to blocks, other reduced ones stay inside a thread.  After Volkov and Demmel,
SC 2008, doi:10.1145/1413370.1413402, for the register tile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import LINE_BYTES
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.locality import array_strides
from tcdsl.costmodel.tiles import Copied, Product, TileConfig, work_of_tiles
from tcdsl.lang.comprehension import Select, walk
from tcdsl.poly.isl_utils import Extent, minus, whole_tiles
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.nesting import Piece
from tcdsl.schedule.promotion import MAX_PRIVATE_BYTES
from tcdsl.strategies.contracted import (
    LEAST_COPY_BYTES,
    axes_of,
    copied_along,
    operands_of,
    run_of,
    step_dim,
    tiles_of,
    why_not_contracted,
)
from tcdsl.strategies.lowering import Chunk, Lowering, point_pieces
from tcdsl.strategies.problem import Problem, analysis, nameless_analysis
from tcdsl.strategies.schedule import Operand, OuterLoop, Schedule, Steps, Tile
from tcdsl.strategies.template import Template
from tcdsl.strategies.traffic import traffic_of

CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
EQUAL = 1.02  # estimates that differ by less say nothing
VARIED = 6  # of the best tiles, that other steps and stages are listed for
FULL = 4  # blocks for a multiprocessor, of those that share sums
UNROLLED = (32, 16, 8, 4, 2, 1)  # of a step: all of it, or a part
MIN_CHUNK = gpu_thresholds.TILED_CHUNK_VALUES
# Results of a thread, rows and columns; threads along columns and rows.  A warp has 4 rows of 8
# threads, which share what they load.
SHAPES = (
    (8, 8, 16, 16), (8, 16, 16, 16), (16, 8, 16, 16), (8, 16, 8, 16), (8, 8, 8, 16), (4, 8, 16, 16),
    (4, 8, 8, 16), (8, 8, 8, 8), (4, 4, 16, 16), (4, 4, 8, 16), (2, 4, 8, 16),
)  # fmt: skip
STEPS = (16, 32, 8, 4)
STAGES = (3, 2, 4, 1)


def why_not(problem: Problem) -> str | None:
    """Return why the problem gets no tiles, or None."""
    if reason := why_not_contracted(problem):
        return reason
    return None if _fitting(problem) else "no two axes are each missing in an operand, or no room"


def space(problem: Problem) -> Iterator[TileConfig]:
    """Yield the configurations, first those that are estimated to take the least time."""
    best = [config for _, config in _ranked(problem)]
    may_share = len(problem.group.members) == 1
    best = [config for config in best if may_share or config.chunks == 1]
    yield from best
    firsts: dict[object, TileConfig] = {}
    for config in best:
        firsts.setdefault((config.block, config.threads, config.is_held), config)
    for config in list(firsts.values())[:VARIED]:
        yield from _others(problem, config)


def _may_hold(problem: Problem, config: TileConfig) -> bool:
    """Return whether threads may hold what the next value of a step needs: nothing else is reduced.

    The first value of the next step must have arrived a step earlier.
    """
    shape = problem.shapes[problem.lead]
    reduced = [e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.REDUCED]
    is_whole = config.unrolled == config.step and config.step % 2 == 0
    return config.stages > 2 and is_whole and sum(extent > 1 for extent in reduced) == 1


def is_tiled(problem: Problem) -> bool:
    """Return whether *problem* is a contraction that tiles pay for.

    Where blocks share the reduced axis, nothing that needs the whole sum may be in the kernel.
    """
    if why_not(problem) is not None:
        return False
    return len(problem.group.members) == 1 or _ranked(problem)[0][1].chunks == 1


def _ranked(problem: Problem) -> list[tuple[float, TileConfig]]:
    """Return the fitting configurations, the fastest first; of equal ones the first in SHAPES."""
    found = sorted(_fitting(problem), key=lambda pair: pair[0])
    first = next(pair for pair in _fitting(problem) if pair[0] <= EQUAL * found[0][0])
    return [first, *(pair for pair in found if pair is not first)]


@nameless_analysis
def _fitting(problem: Problem) -> list[tuple[float, TileConfig]]:
    """Return the configurations with the likeliest steps and stages, and what they take."""
    found = []
    for shape in SHAPES:
        step = next((step for step in STEPS if _legal(problem, shape, step, 1)), 0)
        plain = (one for stages in STAGES if (one := _legal(problem, shape, step, stages)))
        one = next(plain, None) if step else None
        if one is None:
            continue
        product = _product(problem, one)
        most = _most_chunks(problem, one, product.tiles)
        deeper = (_legal(problem, shape, step, one.stages + more, is_held=True) for more in (1, 0))
        held = next((config for config in deeper if config), None)
        for base in (held, one):
            several = [n for n in CHUNKS if n <= most and (n == 1 or base is one)]
            for config in (replace(base, chunks=n) for n in several) if base else ():
                work = work_of_tiles(product, config, problem.gpu)
                found.append((estimate(work, problem.gpu).seconds, config))
    return found


def _others(problem: Problem, config: TileConfig) -> Iterator[TileConfig]:
    """Yield *config* with other steps and stages."""
    shape = config.rows, config.columns, config.threads_x, config.threads_y
    for step in STEPS:
        for stages in STAGES:
            other = _legal(problem, shape, step, stages, is_held=config.is_held)
            if other is not None and (step, stages) != (config.step, config.stages):
                yield replace(other, chunks=config.chunks)


def _legal(
    problem: Problem,
    shape: tuple[int, int, int, int],
    step: int,
    stages: int,
    *,
    is_held: bool = False,
) -> TileConfig | None:
    """Return the configuration without chunks, None if it does not fit."""
    cut = _cut(problem, shape, step)
    extent = problem.shapes[problem.lead].extents[step_dim(problem)]
    # No copy is ahead of more steps than there are.
    if cut is None or (stages > 1 and (extent <= step or stages - 1 > -(-extent // step))):
        return None
    chip = problem.gpu
    room = chip.static_shared_bytes_per_block
    if stages > 1:
        room = chip.shared_bytes_per_block - room
        if any(o.width * o.element_bytes < LEAST_COPY_BYTES for o in cut.operands):
            return None
    if not 0 < stages * sum(operand.tile_bytes for operand in cut.operands) <= room:
        return None
    config = replace(cut.config, stages=stages, is_held=is_held)
    return config if not is_held or _may_hold(problem, config) else None


class _Cut(NamedTuple):
    """Tiles whatever their stages are: a configuration, and what a step reads."""

    config: TileConfig
    operands: tuple[Operand, ...]


@analysis
def _cut(problem: Problem, shape: tuple[int, int, int, int], step: int) -> _Cut | None:
    """Return the tiles of *shape* in steps of *step*, None if the problem has none."""
    lead = problem.shapes[problem.lead]
    reduction = lead.statement.reduction
    assert reduction is not None, "why_not_contracted"
    rows, columns, x, y = shape
    if lead.extents[step_dim(problem)] < step:
        return None
    if rows * columns * reduction.dtype.size_bytes > MAX_PRIVATE_BYTES:
        return None
    config = TileConfig(rows, columns, x, y, step)
    found = axes_of(problem, config.block)
    if found is None:
        return None
    row, column = (run_of(problem, axis) for axis in found)
    config = replace(config, row_run=min(rows, row), column_run=min(columns, column))
    tiles = tiles_of(problem, config)
    if sum(tile.blocks > 1 for tile in tiles) > len(problem.gpu.grid):
        return None
    operands = operands_of(problem, tiles, step)
    unrolled = next(number for number in UNROLLED if step % number == 0)
    widths = tuple(operand.width for operand in operands)
    return _Cut(replace(config, widths=widths, unrolled=unrolled), operands)


def _product(problem: Problem, config: TileConfig) -> Product:
    shape = problem.shapes[problem.lead]
    assert shape.statement.reduction is not None, "why_not_contracted"
    reduced = [e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.REDUCED]
    terms = prod(reduced)
    reads = (problem.scop.arrays[read.array].dtype.size_bytes for read in shape.statement.reads)
    is_double, value = shape.statement.reduction.dtype.size_bytes > 4, shape.statement.value
    is_guarded = value is not None and any(isinstance(node, Select) for node in walk(value))
    tiles, traffic = tiles_of(problem, config), traffic_of(problem)
    return Product(
        prod(tile.blocks for tile in tiles), terms, max(reads),
        shape.instances // max(1, terms), is_double, is_guarded and not is_double,
        sum(t.footprint_bytes for t in traffic if t.is_read),
        sum(t.footprint_bytes for t in traffic if t.is_written),
        tuple(_copied(problem, one) for one in operands_of(problem, tiles, config.step)),
        max(1, terms // max(1, shape.extents[step_dim(problem)])),
    )  # fmt: skip


def _copied(problem: Problem, operand: Operand) -> Copied:
    """Return what a step copies of *operand*: neighbouring threads along its last dimension."""
    elements, along = prod(operand.sizes), copied_along(operand.sizes)
    run = operand.sizes[along]
    are_neighbours = array_strides(problem.scop.arrays[operand.access.array])[along] == 1
    of_run = max(1.0, run * operand.element_bytes / LINE_BYTES) if are_neighbours else run
    return Copied(elements, operand.width, elements / run * of_run, operand.tile_bytes)


def _most_chunks(problem: Problem, config: TileConfig, tiles: int) -> int:
    """Return how many blocks may share the reduced axis: one if the grid's axes are taken.

    No more than fill the chip some times over.
    """
    if sum(tile.blocks > 1 for tile in tiles_of(problem, config)) >= len(problem.gpu.grid):
        return 1
    enough = FULL * problem.gpu.multiprocessors // tiles
    extent = problem.shapes[problem.lead].extents[step_dim(problem)]
    return max(1, min(enough, extent // MIN_CHUNK))


# --- the schedule ------------------------------------------------------------------------------


def schedule(problem: Problem, config: TileConfig) -> Schedule:
    """Return the schedule of tiles as *config* says."""
    shape, k = problem.shapes[problem.lead], step_dim(problem)
    tiles = tiles_of(problem, config)
    low, step, is_open = shape.lower[k], config.step, problem.is_open({problem.lead: k})
    chunk: Chunk | None = None
    partials: tuple[Partial, ...] = ()
    why: list[str] = []
    steps, terms = Coordinate(k, low, step), shape.extents[k]
    if config.chunks > 1:
        size = -(-terms // config.chunks // step) * step
        count = -(-terms // size)
        chunk = Chunk({problem.lead: k}, size, is_open, step if is_open else 0)
        run, mod = (step, count) if is_open else (size, 0)
        partials = (Partial(shape.statement.indices[k], low, run, mod, count, False),)
        # Steps of an open range are dealt to blocks in turn.
        steps = replace(steps, div=step * count) if is_open else replace(steps, mod=size // step)
        terms = size
        why.append(f"{count} blocks over chunks of {size} of {problem.name_of(chunk.axis)}")
    loop = Piece(steps, -(-terms // step), Role.REDUCED, LoopKind.SERIAL)
    limit: Extent = shape.extents[k] if shape.extents[k] % step else 0
    if is_open:
        limit = minus(problem.end(problem.lead, k), low)
    why += _why(config, shape.statement.indices[k])
    product = _product(problem, config)
    lowering = Lowering(problem.group, problem.shapes, problem.gpu, tiles, chunk=chunk)
    return Schedule(
        problem.group.members,
        tuple(lowering.block_loops()),
        {name: _inside(problem, name, tiles, config) for name in problem.group.members},
        {problem.lead: partials},
        why=tuple(why),
        in_registers=True,
        steps=Steps(
            problem.lead, OuterLoop({problem.lead: loop}, LoopKind.SERIAL, limit),
            operands_of(problem, tiles, config.step), config.widths, config.stages,
            (config.threads_x, config.threads_y), _spans(problem, tiles), _terms(problem, config),
            is_held=config.is_held,
        ),
        work=work_of_tiles(product, config, problem.gpu),
    )  # fmt: skip


def _spans(problem: Problem, tiles: Sequence[Tile]) -> dict[str, tuple[int, Extent]]:
    """Return the first value, and the one after the last tile, of each index that tiles cut."""
    return {
        problem.name_of(tile.axis): (tile.lower, _whole(problem, tile))
        for tile in tiles
        if tile.extent % tile.block or (tile.block > 1 and problem.is_open(tile.axis))
    }


def _terms(problem: Problem, config: TileConfig) -> dict[str, tuple[int, Extent]]:
    """Return the same of an open number of terms that one block adds up: its last step is whole."""
    k = step_dim(problem)
    if config.chunks > 1 or not problem.is_open({problem.lead: k}):
        return {}
    low = problem.shapes[problem.lead].lower[k]
    end = whole_tiles(problem.end(problem.lead, k), config.step, low)
    return {problem.shapes[problem.lead].statement.indices[k]: (low, end)}


def _whole(problem: Problem, tile: Tile) -> Extent:
    """Return the value after the last *tile*: of an open size, a function of it."""
    if not problem.is_open(tile.axis):
        return tile.lower + tile.blocks * tile.block
    return whole_tiles(problem.end(problem.lead, tile.axis[problem.lead]), tile.block, tile.lower)


def _why(config: TileConfig, along: str) -> Iterator[str]:
    rows, columns = config.block
    yield f"{rows} x {columns} results a block, {config.rows} x {config.columns} a thread"
    yield f"steps of {config.step} along {along}, operands in shared memory"
    if config.stages == 2:
        yield "the next step's operands arrive meanwhile"
    if config.stages > 2:
        yield f"the operands of the next {config.stages - 1} steps arrive meanwhile"


def _inside(
    problem: Problem, name: str, tiles: Sequence[Tile], config: TileConfig
) -> tuple[Piece, ...]:
    """Return the loops of a member inside a block: threads, what is reduced, registers."""
    shape = problem.shapes[name]
    own = [tile for tile in reversed(tiles) if tile.thread_axis >= 0]
    threads = [
        Piece(
            Coordinate(tile.axis[name], tile.lower, tile.vector, tile.threads), tile.threads,
            Role.PARALLEL, LoopKind.THREAD, tile.thread_axis, tile.threads,
        )
        for tile in own
    ]  # fmt: skip
    serial: list[Piece] = []
    for dim in shape.order if name == problem.lead else ():
        if shape.roles[dim] is not Role.REDUCED:
            continue
        if dim == step_dim(problem):
            serial += _points(dim, shape.lower[dim], config)
        else:
            whole = shape.extents[dim], Role.REDUCED, LoopKind.SERIAL
            serial.append(Piece(Coordinate(dim), *whole))
    registers = [piece for tile in own for piece in _results(tile, tile.axis[name])]
    return (*threads, *serial, *registers)


def _results(tile: Tile, dim: int) -> list[Piece]:
    """Return the loops over a thread's results along *tile*; vectors are along columns."""
    pieces = point_pieces(tile, dim)
    return pieces if tile.thread_axis == 0 else [
        replace(piece, kind=LoopKind.UNROLL) for piece in pieces
    ]  # fmt: skip


def _points(dim: int, low: int, config: TileConfig) -> list[Piece]:
    """Return the loops over a step along a reduced axis: what is loaded comes before it is used."""
    run = config.unrolled
    runs = Coordinate(dim, low, run, config.step // run)
    pieces = [Piece(runs, config.step // run, Role.REDUCED, LoopKind.SERIAL)]
    if run > 1:
        points = Coordinate(dim, low, 1, run)
        pieces.append(Piece(points, run, Role.REDUCED, LoopKind.UNROLL))
    return pieces


TEMPLATE = Template("tile_simt", TileConfig, why_not, space, schedule)
