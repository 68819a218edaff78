"""Chains of stencils in overlapped tiles: a block a tile, each stage of a tile after another.

    blocks t      h' is a plane in shared memory, or registers where no stage reads it at a distance
      { for u on threads: h'(u) = ...; barrier; for u on threads: y(T t + u) = ... }

Threads are along the last two axes of a tile, x along neighbours in memory; one takes several rows,
which share what it loads, and as many turns along x as the halo asks for.  Where stages read one
another along rows alone (a blur of columns, of what was blurred along rows), one thread may take
all rows of a tile: what lies between is its registers then, and there is no barrier.

      for u < T + d: h'(u) = x(T t+u,j-1) + x(T t+u,j+1)        unrolled, h' in T + d registers
      for u < T:     y(T t+u,j) = h'(u) + h'(u+d)               of thread j

The sizes of tiles are the scop's by then (strategies/gpu_stencils.py has chosen them).
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.loop_tree import Coordinate, LoopKind, X, Y
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Overlapped
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.lesser_sizes import at_lesser_sizes, excesses
from tcdsl.strategies.lowering import grid_axes
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Axis, OuterLoop, Schedule
from tcdsl.strategies.stencil_work import (
    WHOLE,
    StencilConfig,
    Tiles,
    configs,
    rated,
    stencil_work,
)
from tcdsl.strategies.template import Template
from tcdsl.strategies.tiled_chains import count, overlapped_of, tiled_chain

MOST_CHANNELS = 4


def why_not(problem: Problem) -> str | None:
    """Return why the members are no chain in tiles, or None."""
    return None if tiled_chain(problem) is not None else "it is no chain of stencils in tiles"


def space(problem: Problem) -> Iterator[StencilConfig]:
    """Yield the configurations, first the one of the least predicted time, or excess."""
    problems = [one for one in (problem, at_lesser_sizes(problem)) if one is not None]
    tiles, chip = [_tiles(one) for one in problems], problem.gpu
    found = list(configs(tiles[0], chip))
    excess = excesses([[rated(one, config, chip) for one in tiles] for config in found])
    yield from (config for _, config in sorted(zip(excess, found, strict=True), key=itemgetter(0)))


def schedule(problem: Problem, config: StencilConfig) -> Schedule:
    """Return the schedule of a block a tile."""
    chain = tiled_chain(problem)
    assert chain is not None, "why_not"
    members = problem.group.members
    around = (*chain.outside, *chain.tiles)
    tiles = _tiles(problem).run_by(config)
    outer = _blocks(problem, tiles, around)
    taken = {name: {axis[name] for axis in around} for name in members}
    levels = tiles.levels
    last = str(max(levels.values()) + 1)  # the stores of what others read
    remaining = {
        name: tuple(
            # A barrier stands between the threads' loops, never in one.
            replace(piece, apart=str(levels.get(name, last)))
            for piece in _inside(problem, config, name, taken[name])
        )
        for name in members
    }
    sizes = " x ".join(map(str, tiles.sizes))
    rows = f", {config.rows or tiles.sizes[-2]} rows each" if config.rows != 1 else ""
    why = f"a block a tile of {sizes}, {config.threads_x} x {config.threads_y} threads{rows}"
    work = stencil_work(tiles, config, problem.gpu)
    return replace(Schedule(members, outer, remaining, why=(why,)), work=work)


def _tiles(problem: Problem) -> Tiles:
    overlapped = overlapped_of(problem)
    assert overlapped is not None, "why_not"
    return tiles_of(problem, overlapped)


def tiles_of(problem: Problem, overlapped: Overlapped) -> Tiles:
    """Return the chain of *problem* as it is counted."""
    chain, arrays = tiled_chain(problem), problem.scop.arrays
    assert chain is not None, "why_not"
    own = {name: arrays[tiled] for name, tiled in overlapped.tiled.items() if tiled in arrays}
    stages = overlapped.stages
    if any(map(problem.is_open, chain.outside)):  # so many as the problem has
        outside = count(problem, chain.outside)
        stages = {name: replace(stage, outside=outside) for name, stage in stages.items()}
    return Tiles(
        stages, {**arrays, **own}, overlapped.reach, frozenset(overlapped.stored),
        overlapped.sizes, tuple(map(problem.extent, chain.tiles)),
    )  # fmt: skip


def _blocks(problem: Problem, tiles: Tiles, around: tuple[Axis, ...]) -> tuple[OuterLoop, ...]:
    """Return the loops over blocks: three of them have axes of the grid, the others turns.

    Whole tiles along the rows of a thread have code of their own: without guards between its rows,
    the compiler finds that they share loads.
    """
    counts = [problem.extent(axis) for axis in reversed(around)]
    found = []
    for number, tiles_along, axis in zip(
        reversed(grid_axes(counts)), reversed(counts), around, strict=True
    ):
        is_block = number >= 0
        width = min(tiles_along, problem.gpu.grid[number]) if is_block else 0
        kind = LoopKind.BLOCK if is_block else LoopKind.SERIAL
        pieces = {
            name: Piece(
                Coordinate(dim, problem.lower(axis)),
                tiles_along,
                Role.PARALLEL,
                kind,
                max(number, 0),
                width,
            )
            for name, dim in axis.items()
        }
        of_rows = len(around) > 1 and axis is around[-2] and len(tiles.sizes) > 1
        whole = tiles.whole(-2) if of_rows else 0
        most = greatest(whole) or 0
        is_split = 0 < most < tiles_along or (most > 0 and problem.is_open(axis))
        found.append(OuterLoop(pieces, kind, whole if is_split else 0))
    return tuple(sorted(found, key=lambda loop: loop.kind is not LoopKind.BLOCK))


def _inside(
    problem: Problem, config: StencilConfig, name: str, taken: set[int]
) -> tuple[Piece, ...]:
    """Return the loops of the stage *name* in a block."""
    chain = tiled_chain(problem)
    assert chain is not None, "why_not"
    shape = problem.shapes[name]
    *others, x = (axis[name] for axis in chain.inner)
    y = others[-1] if others else -1
    inner = shape.order[shape.order.index(x) :]
    own = [dim for dim in shape.order if dim not in taken and dim not in (x, y)]
    # Channels of a pixel are a thread's: they are neighbours in memory.
    channels = [d for d in own if d in inner and shape.extents[d] <= MOST_CHANNELS]
    serial = [
        Piece(Coordinate(dim), shape.extents[dim], shape.roles[dim], LoopKind.SERIAL)
        for dim in own
        if dim not in channels
    ]
    threads, rows = [], []
    if y >= 0 and config.rows == WHOLE:
        whole = Coordinate(y, shape.lower[y])
        rows.append(Piece(whole, shape.extents[y], Role.PARALLEL, LoopKind.UNROLL))
    elif y >= 0:
        low, groups = shape.lower[y], -(-shape.extents[y] // config.rows)
        along_y = Coordinate(y, low, config.rows)
        if config.threads_y > 1:
            thread = LoopKind.THREAD, Y, config.threads_y
            threads.append(Piece(along_y, groups, Role.PARALLEL, *thread))
        else:
            serial.append(Piece(along_y, groups, Role.PARALLEL, LoopKind.SERIAL))
        if config.rows > 1:
            of_thread = Coordinate(y, low, 1, config.rows)
            rows.append(Piece(of_thread, config.rows, Role.PARALLEL, LoopKind.UNROLL))
    along_x = Coordinate(x, shape.lower[x], config.vector)
    thread = LoopKind.THREAD, X, config.threads_x
    threads.append(Piece(along_x, -(-shape.extents[x] // config.vector), Role.PARALLEL, *thread))
    if config.vector > 1:
        lanes = Coordinate(x, shape.lower[x], 1, config.vector)
        rows.append(Piece(lanes, config.vector, Role.PARALLEL, LoopKind.LANES))
    written_out = [
        Piece(Coordinate(d, shape.lower[d]), shape.extents[d], shape.roles[d], LoopKind.UNROLL)
        for d in channels
    ]
    return (*serial, *threads, *rows, *written_out)


TEMPLATE = Template("stencil", StencilConfig, why_not, space, schedule)
