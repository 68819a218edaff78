"""Contractions on a CPU: a register tile of accumulators, and the loops around it.

C(m,n) +=! A(m,k) * B(k,n)        threads over m / 64
                                    n / 32, m / 8
                                      acc[8][32] = 0
                                      for k: acc[m % 8][n % 32] += A[m,k] * B[k,n]
                                      C[m,n] = acc, and what else the kernel does to C
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.register_tiles import registers_of, steps_of_box
from tcdsl.poly.isl_utils import Extent, minus
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.contraction import (
    Tile,
    choose_tile,
    find_contraction,
    sums_gathered_rows,
)
from tcdsl.strategies.problem import Problem, own_analysis
from tcdsl.strategies.result_shares import Shares, choose_shares
from tcdsl.strategies.schedule import OuterLoop, Schedule
from tcdsl.strategies.template import Template
from tcdsl.strategies.tile_traffic import Surroundings

ROWS_A_BLOCK = cpu_thresholds.ROWS_A_BLOCK


@dataclass(frozen=True, slots=True)
class CpuTileConfig:
    """The register tile of a contraction, and the rows of a block that a thread takes."""

    vector: str  # the index whose values are the lanes
    lanes: int
    rows: tuple[tuple[str, int], ...]  # other indices, and the values of each in a tile
    block_rows: int  # of the tile's operand, that stay in the second-level cache
    chunks: tuple[tuple[str, int], ...] = ()  # reduced indices, and the terms of each in a chunk


def why_not(problem: Problem) -> str | None:
    """Return why there is no contraction with a register tile, or None."""
    name = find_contraction(problem.group, problem.shapes)
    if name is None:
        return (
            "no one member is a product that reuses its operands along neighbours in memory, or a"
            " long sum of rows that data choose"
        )
    tile = choose_tile(problem.shapes[name], problem.cpu)
    assert tile is not None, "find_contraction"
    is_dot = problem.shapes[name].roles[tile.vector] is Role.REDUCED
    return "it would accumulate in lanes" if is_dot and not problem.options.vectorise else None


def space(problem: Problem) -> Iterator[CpuTileConfig]:
    """Yield the configurations, first the likeliest."""
    shape = problem.shapes[_lead(problem)]
    names = shape.statement.indices
    tile = choose_tile(shape, problem.cpu)
    assert tile is not None, "why_not"
    rows = tuple((names[dim], size) for dim, size in tile.rows.items())
    whole = CpuTileConfig(names[tile.vector], tile.lanes, rows, ROWS_A_BLOCK)
    likeliest = replace(whole, chunks=_chunks(problem, tile))
    yield likeliest
    if likeliest != whole:
        yield whole
    yield from sorted(_others(problem, tile, likeliest), key=partial(_steps, problem))


def _others(problem: Problem, tile: Tile, likeliest: CpuTileConfig) -> Iterator[CpuTileConfig]:
    """Yield tiles of other rows and lanes."""
    shape = problem.shapes[_lead(problem)]
    width, rows = _width(problem), likeliest.rows
    is_dot = shape.roles[tile.vector] is Role.REDUCED
    for lanes in dict.fromkeys((tile.lanes, width, 2 * width, 4 * width)):
        if lanes != tile.lanes and (is_dot or lanes > shape.extents[tile.vector]):
            continue
        for size in (1, 2, 4, 6, 8, 10, 14):
            first = ((rows[0][0], size), *rows[1:]) if rows else ()
            config = replace(likeliest, lanes=lanes, rows=first)
            fits = not rows or size <= shape.extents[next(iter(tile.rows))]
            if fits and config != likeliest:
                yield config
            if not rows:
                break


def _width(problem: Problem) -> int:
    """Return how many sums are in a vector."""
    reduction = problem.shapes[_lead(problem)].statement.reduction
    assert reduction is not None, "find_contraction"
    return problem.cpu.vector_bytes // reduction.dtype.size_bytes


def _steps(problem: Problem, config: CpuTileConfig) -> float:
    """Return how long a term of all results takes, in multiplications of a vector."""
    shape = problem.shapes[_lead(problem)]
    names = shape.statement.indices
    rows = prod(shape.extents[names.index(name)] for name, _ in config.rows)
    vector = names.index(config.vector)
    is_dot = shape.roles[vector] is Role.REDUCED
    lanes = config.lanes if is_dot else shape.extents[vector]
    tile = prod(size for _, size in config.rows), config.lanes
    return steps_of_box(rows, lanes, tile, _width(problem), registers_of(problem.cpu))


def schedule(problem: Problem, config: CpuTileConfig) -> Schedule:
    """Return the schedule around the contraction's register tile."""
    return _Scheduler(problem, _lead(problem), config).schedule()


def _chunks(problem: Problem, tile: Tile) -> tuple[tuple[str, int], ...]:
    """Return the chunks of terms whose operands stay in the second-level cache, if all do not.

    Gradients of weights have few results, and sums over all images.  Each of several threads has
    a share of the results, and goes through all chunks.
    """
    lead = _lead(problem)
    shape, scop = problem.shapes[lead], problem.scop
    reduction = shape.statement.reduction
    assert reduction is not None, "find_contraction"
    is_alone = problem.group.members == (lead,)
    is_wider = scop.arrays[shape.statement.write.array].dtype != reduction.dtype
    if not is_alone or is_wider or shape.roles[tile.vector] is Role.REDUCED or shape.has_open:
        return ()
    if _is_in_threads(problem) and sums_gathered_rows(shape):
        return ()  # threads share the results of rows that data choose by their lengths
    around = _surroundings(problem, tile, ROWS_A_BLOCK)
    others = [
        d
        for d in shape.order
        if shape.roles[d] is Role.PARALLEL and d not in tile.rows and d != tile.vector
    ]
    values = _shares(problem, tile) if _is_in_threads(problem) else {}
    return around.chunks(others, _cache_bytes(problem), values)


def _is_in_threads(problem: Problem) -> bool:
    """Return whether the contraction is worth several threads."""
    return problem.cpu.threads > 1 and problem.shapes[_lead(problem)].instances >= 1 << 16


def _shares(problem: Problem, tile: Tile) -> dict[int, int]:
    """Return how many values of the dimensions that threads share each of them has."""
    shape = problem.shapes[_lead(problem)]
    sizes = {tile.vector: tile.lanes, **tile.rows}
    counts = {
        d: -(-extent // sizes.get(d, 1))
        for d, extent in enumerate(shape.extents)
        if shape.roles[d] is Role.PARALLEL
    }
    around = _surroundings(problem, tile, ROWS_A_BLOCK)

    def values_of(shares: Shares) -> dict[int, int]:
        return {d: n * sizes.get(d, 1) for d, n in shares.items()}

    return values_of(
        choose_shares(counts, problem.cpu.threads, lambda one: around.bytes_of(values_of(one)))
    )


def _surroundings(problem: Problem, tile: Tile, block_rows: int) -> Surroundings:
    shape = problem.shapes[_lead(problem)]
    sizes = [problem.scop.arrays[a.array].dtype.size_bytes for a in shape.statement.reads]
    return Surroundings(shape, sizes, tile, block_rows)


def _cache_bytes(problem: Problem) -> int:
    return int(cpu_thresholds.PANEL_CACHE * problem.cpu.l2_bytes)


@own_analysis
def _lead(problem: Problem) -> str:
    name = find_contraction(problem.group, problem.shapes)
    assert name is not None, "why_not"
    return name


class _Scheduler:
    """Opens the loops around one register tile."""

    def __init__(self, problem: Problem, lead: str, config: CpuTileConfig) -> None:
        names = problem.shapes[lead].statement.indices
        rows = {names.index(name): size for name, size in config.rows}
        self.problem = problem
        self.group = problem.group
        self.lead = lead
        self.shapes = problem.shapes
        self.shape = problem.shapes[lead]
        self.cpu = problem.cpu
        self.tile = Tile(names.index(config.vector), config.lanes, rows)
        self.block_rows = config.block_rows
        self.chunks = {names.index(name): size for name, size in config.chunks}
        self.axes = {axis[lead]: axis for axis in problem.parallel}
        self.in_threads = _is_in_threads(problem)

    def schedule(self) -> Schedule:
        tile = self.tile
        is_dot = self.shape.roles[tile.vector] is Role.REDUCED
        tiles = dict(tile.rows) | ({} if is_dot else {tile.vector: tile.lanes})
        outer = self._outer(tiles)
        if self.chunks:
            outer = self._shared(tiles) if self.in_threads else [*self._around_chunks(), *outer]
        remaining = {name: self._remaining(name, tiles) for name in self.group.members}
        remaining[self.lead] = self._lead_remaining(is_dot)
        statement = self.shape.statement
        lane = Partial(
            statement.indices[tile.vector], self.shape.lower[tile.vector], 1, tile.lanes,
            tile.lanes, True,
        )  # fmt: skip
        partials = {self.lead: (lane,) if is_dot else self._partials()}
        unrolled = frozenset((self.lead, d) for d in tile.rows)
        names = statement.indices
        text = " x ".join(f"{names[d]} % {n}" for d, n in [*tile.rows.items()])
        why = (
            f"contraction: register tile {text or '1'} x {names[tile.vector]} % {tile.lanes}"
            f" ({'partial sums' if is_dot else 'results'} in the lanes)",
            *(f"chunks of {n} values of {names[d]}" for d, n in self.chunks.items()),
        )
        return Schedule(
            self.group.members,
            tuple(outer),
            remaining,
            partials,
            {},
            unrolled,
            {} if is_dot else {self.lead: names[tile.vector]},
            why,
            in_turn=frozenset([self.lead] if self.chunks else []),
        )

    def _partials(self) -> tuple[Partial, ...]:
        """Return the coordinates of the sums of a chunk."""
        names, low = self.shape.statement.indices, self.shape.lower
        return tuple(
            Partial(names[d], low[d], size, 0, -(-self.shape.extents[d] // size), False)
            for d, size in self.chunks.items()
        )

    def _around_chunks(self) -> list[OuterLoop]:
        """Return the loops over chunks."""
        loops = []
        for d, size in self.chunks.items():
            extent = self.shape.extents[d]
            piece = Piece(
                Coordinate(d, self.shape.lower[d], size), -(-extent // size), Role.REDUCED
            )
            limit = extent if extent % size else 0
            loops.append(OuterLoop({self.lead: piece}, LoopKind.SERIAL, limit))
        return loops

    def _shared(self, tiles: Mapping[int, int]) -> list[OuterLoop]:
        """Return the loops around the tile: threads' shares of results, chunks, a share's tiles."""
        dims = [d for d in self.shape.order if d in self.axes]
        dims.sort(key=lambda d: (d in self.tile.rows, d in tiles))  # rows innermost
        values = _shares(self.problem, self.tile)
        threads = [self._loop(d, n, 0, LoopKind.PARALLEL) for d, n in values.items()]
        inside = [
            self._loop(d, tiles.get(d, 1), values.get(d, 0), LoopKind.SERIAL)
            for d in dims
            if values.get(d, self.shape.extents[d]) > tiles.get(d, 1)
        ]
        return [*threads, *self._around_chunks(), *inside]

    def _outer(self, tiles: Mapping[int, int]) -> list[OuterLoop]:
        """Return the loops around the tile: other dimensions, blocks of rows, then the tiles."""
        others = [
            d for d in self.shape.order
            if self.shape.roles[d] is Role.PARALLEL and d not in tiles and d in self.axes
        ]  # fmt: skip
        if self.tile.vector in tiles and (inside := self._others_inside(others)):
            at = len(others) - inside
            order = [*others[:at], self.tile.vector, *others[at:]]
            loops = [self._loop(d, tiles.get(d, 1), 0, LoopKind.PARALLEL) for d in order]
            rows = [d for d in self.tile.rows if tiles[d] < self.shape.extents[d]]
            loops += [self._loop(d, tiles[d], 0, LoopKind.SERIAL) for d in rows]
            return self._in_threads(loops)
        loops = [self._loop(d, 1, 0, LoopKind.PARALLEL) for d in others]
        enough = 2 * self.cpu.threads
        iterations = prod(self.shape.extents[d] for d in others)
        rows = list(self.tile.rows)
        blocks: dict[int, int] = {}
        if rows and self.shape.extents[rows[0]] > tiles[rows[0]]:
            row, size = rows[0], tiles[rows[0]]
            blocks[row] = max(size, self.block_rows // size * size)
            while iterations * -(-self.shape.extents[row] // blocks[row]) < enough:
                if blocks[row] <= size:
                    break
                blocks[row] = max(size, blocks[row] // 2 // size * size)
            if blocks[row] > size:
                loops.append(self._loop(row, blocks[row], 0, LoopKind.PARALLEL))
                iterations *= -(-self.shape.extents[row] // blocks[row])
        # The blocked rows innermost: a block of their operand stays in the cache meanwhile.
        order = sorted(tiles, key=lambda d: (d in blocks, d in rows))
        for d in order:
            if tiles[d] >= self.shape.extents[d]:
                continue
            free = iterations < enough and blocks.get(d, 0) <= tiles[d]
            kind = LoopKind.PARALLEL if free else LoopKind.SERIAL
            loops.append(self._loop(d, tiles[d], blocks.get(d, 0), kind))
            if free:
                iterations *= -(-self.shape.extents[d] // tiles[d])
        return self._in_threads(loops)

    def _in_threads(self, loops: list[OuterLoop]) -> list[OuterLoop]:
        """Return *loops*, serial where threads bring nothing."""
        if self.in_threads:
            return loops
        return [OuterLoop(loop.pieces, LoopKind.SERIAL, loop.limit) for loop in loops]

    def _others_inside(self, others: list[int]) -> int:
        """Return how many of *others* run in the loop over tiles of the vector, as a rule none."""
        if self.chunks or self.tile.lanes >= self.shape.extents[self.tile.vector]:
            return 0
        around = _surroundings(self.problem, self.tile, self.block_rows)
        return around.others_inside(others, _cache_bytes(self.problem))

    def _loop(self, dim: int, tile: int, inside: int, kind: LoopKind) -> OuterLoop:
        """Return the loop over the tiles of *dim*, within blocks of *inside* if that is not 0."""
        is_tiled = tile > 1 or inside > 1
        shift = min(self.shapes[n].lower[d] for n, d in self.axes[dim].items()) if is_tiled else 0
        pieces = {}
        for name, d in self.axes[dim].items():
            extent = self.shapes[name].lower[d] - shift + self.shapes[name].extents[d]
            mod = inside // tile if inside > tile else 0
            count = mod or -(-extent // tile)
            pieces[name] = Piece(Coordinate(d, shift, tile, mod), count, Role.PARALLEL)
        extent = self.shape.extents[dim]
        limit: Extent = extent if tile > 1 and extent % tile else 0
        if tile > 1 and self.shape.is_open(dim):
            # Of blocks of tiles the whole ones are not set apart: that would double the code once
            # more, for nothing but constant bounds of the loop over the tiles.
            is_block = tile > self.tile.rows.get(dim, tile)
            limit = 0 if is_block else minus(self.shape.end(dim), shift)
        return OuterLoop(pieces, kind, limit)

    def _remaining(self, name: str, tiles: Mapping[int, int]) -> tuple[Piece, ...]:
        """Return what is left of a member's dimensions: the tile's last, vector innermost."""
        shape = self.shapes[name]
        mine = {self.axes[d][name]: d for d in self.axes}
        before: list[Piece] = []
        rows: list[Piece] = []
        vector: list[Piece] = []
        for dim in shape.order:
            lead_dim = mine.get(dim)
            if lead_dim is None:
                before.append(Piece(Coordinate(dim), shape.extents[dim], shape.roles[dim]))
            elif lead_dim in tiles:
                piece = self._point(dim, lead_dim, tiles[lead_dim])
                (vector if lead_dim == self.tile.vector else rows).append(piece)
        return (*before, *rows, *vector)

    def _point(self, dim: int, lead_dim: int, tile: int) -> Piece:
        shift = min(self.shapes[n].lower[d] for n, d in self.axes[lead_dim].items())
        if tile >= self.shape.extents[lead_dim]:
            return Piece(Coordinate(dim), tile, Role.PARALLEL)
        return Piece(Coordinate(dim, shift, 1, tile), tile, Role.PARALLEL)

    def _lead_remaining(self, is_dot: bool) -> tuple[Piece, ...]:
        shape, tile = self.shape, self.tile
        loops = [
            self._terms(d)
            for d in shape.order
            if shape.roles[d] is not Role.PARALLEL and d != tile.vector and self.chunks.get(d) != 1
        ]
        left = [
            Piece(Coordinate(d), shape.extents[d], shape.roles[d])
            for d in shape.order
            if shape.roles[d] is Role.PARALLEL and d not in self.axes
        ]
        rows = [self._point(d, d, n) for d, n in tile.rows.items()]
        low = shape.lower[tile.vector]
        if is_dot:
            vectors = -(-shape.extents[tile.vector] // tile.lanes)
            across = Piece(Coordinate(tile.vector, low, tile.lanes), vectors, Role.REDUCED)
            lane = Piece(Coordinate(tile.vector, low, 1, tile.lanes), tile.lanes, Role.PARALLEL)
            return (*left, *loops, across, *rows, lane)
        point = self._point(tile.vector, tile.vector, tile.lanes)
        return (*left, *loops, *rows, point)

    def _terms(self, dim: int) -> Piece:
        """Return the loop over the terms of *dim* in a tile: all, or those of a chunk."""
        size, role = self.chunks.get(dim, 0), self.shape.roles[dim]
        if not size:
            return Piece(Coordinate(dim), self.shape.extents[dim], role)
        return Piece(Coordinate(dim, self.shape.lower[dim], 1, size), size, role)


TEMPLATE = Template("cpu_tile", CpuTileConfig, why_not, space, schedule)
