"""The strategy that always applies: isl's schedule in tiles, or the loops as they were written.

    permutable band [i, j, k]        parallel i / 32          the first coincident loop
    i, j coincident            --->    j / 32, k / 32
                                         i % 32, k % 32
                                           vector j % 32      coincident, neighbours in memory

    permutable band [i, j]           i / 32 + j / 32          the wavefront, in order
    none coincident            --->    parallel i / 32        tiles of one front are independent
                                         i % 32, j % 32

A wavefront is legal because no member of a permutable band decreases along a dependence: between
tiles of one front all distances are zero, for they add up to it.  That holds for strict dependences
only, so that what accumulates gets none.  After PPCG (Verdoolaege et al., TACO 2013,
doi:10.1145/2400682.2400713) and Pluto (Bondhugula et al., PLDI 2008, doi:10.1145/1375581.1375595).
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.poly.dependences import Dependences
from tcdsl.poly.loop_tree import (
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    loops_of,
    sequence,
)
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scheduler import Band, Instances, Parts, Scheduled, schedule_by_isl
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.levels import Level, front_of, level_of, opened, points_of, tiles_of
from tcdsl.strategies.operations import PARALLEL_WORK, work_of
from tcdsl.strategies.schedule import OuterLoop, Schedule

DEFAULT_TILE = cpu_thresholds.BAND_TILE
CHUNKS_PER_THREAD = cpu_thresholds.CHUNKS_A_THREAD
WAVEFRONT_INSTANCES = cpu_thresholds.WAVEFRONT_INSTANCES
WAVEFRONT_TILE = cpu_thresholds.WAVEFRONT_TILE


@dataclass(eq=False)
class IslLoops:
    """Isl's schedule of the statements *names* of one kernel, tiled and mapped to threads.

    *tile*: iterations a tile of each permutable band, outermost loop first; () for 32 each.
    *prefix*: of the names of loops.
    """

    scop: Scop
    names: Sequence[str]
    dependences: Dependences
    shapes: Mapping[str, Shape]
    cpu: Cpu
    tile: Sequence[int] = ()
    prefix: str = ""
    _n_loops: int = field(default=0, init=False)

    @cached_property
    def accumulating(self) -> set[str]:
        """The statements that add to what they hold, in any order."""
        return {e.source for e in self.dependences.relaxed if e.source in self.names}

    def tree(self) -> Node:
        """Return the loops."""
        scheduled = schedule_by_isl(self.scop, self.dependences, self.names)
        return self.node(scheduled, may_fork=self.cpu.threads > 1, iterations=1)

    def node(self, scheduled: Scheduled, *, may_fork: bool, iterations: int) -> Node:
        """Return the loops of *scheduled*.

        :arg may_fork: no loop around is parallel.
        :arg iterations: of the loops around.
        """
        match scheduled:
            case Instances(statements=statements):
                return sequence([Leaf(name) for name in statements])
            case Parts(children=children):
                return sequence([
                    self.node(child, may_fork=may_fork, iterations=iterations)
                    for child in children
                ])  # fmt: skip
            case Band():
                return self._band(scheduled, may_fork, iterations)

    def _band(self, band: Band, may_fork: bool, iterations: int) -> Node:
        names = list(band.members[0].coordinates)
        work = sum(work_of(self.shapes[name]) for name in names) // max(1, iterations)
        may_fork = may_fork and work >= PARALLEL_WORK
        levels = self._levels(band, may_fork, has_leaves=_has_leaves(band.body))
        is_parallel = any(level.kind is LoopKind.PARALLEL for level in levels)
        body = self.node(
            band.body,
            may_fork=may_fork and not is_parallel,
            iterations=iterations * prod(max(1, level.extent) for level in levels),
        )
        for level in reversed(levels):
            self._n_loops += 1
            body = opened(level, body, self.shapes, self.prefix, self._n_loops)
        return body

    def _levels(self, band: Band, may_fork: bool, *, has_leaves: bool) -> list[Level]:
        """Return the loops of *band*, outermost first."""
        whole = [level_of(self.scop, member) for member in band.members]
        if not band.is_permutable:
            return _mapped_in_place(whole, may_fork, has_leaves)
        tiles, points = self._tiled(whole)
        if len(whole) == 1 and may_fork and has_leaves and whole[0].is_coincident:
            # The only loop is wanted by the threads and by the lanes: each gets a part of it.
            size = self.tile[0] if self.tile else _chunk(whole[0].extent, self.cpu.threads)
            if size < whole[0].extent:
                tiles, points = [tiles_of(whole[0], size)], [points_of(whole[0], size)]
        if may_fork:
            tiles, points = self._forked(tiles, points)
        return [*tiles, *self._inner(points, has_leaves)]

    def _tiled(self, whole: list[Level]) -> tuple[list[Level], list[Level]]:
        """Split every loop of a permutable band that is longer than a tile."""
        sizes = self.tile or (DEFAULT_TILE,) * len(whole)
        tiles, points = [], []
        for position, level in enumerate(whole):
            size = sizes[position] if position < len(sizes) and len(whole) > 1 else 0
            if 0 < size < level.extent:
                tiles.append(tiles_of(level, size))
                points.append(points_of(level, size))
            else:
                points.append(level)
        return tiles, points

    def _forked(self, tiles: list[Level], points: list[Level]) -> tuple[list[Level], list[Level]]:
        """Let one loop run in parallel, outside the others; or the tiles of a wavefront."""
        free = [level for level in (*tiles, *points) if _is_free(level, tiles)]
        enough = self.cpu.threads
        lead = next((level for level in free if level.extent >= enough), None)
        if lead is None:
            lead = max(free, key=lambda level: level.extent, default=None)
        if lead is not None:
            rest = [level for level in tiles if level is not lead]
            return (
                [replace(lead, kind=LoopKind.PARALLEL), *rest],
                [level for level in points if level is not lead],
            )
        if len(tiles) > 1 and self.accumulating.isdisjoint(tiles[0].coordinates):
            return _wavefront(tiles), points
        return tiles, points

    def _inner(self, points: list[Level], has_leaves: bool) -> list[Level]:
        """Let the innermost loop be a vector's, if one is coincident: that over neighbours."""
        free = [level for level in points if level.is_coincident and self._neighbours(level) >= 0]
        if not has_leaves or not free:
            return points
        lane = max(free, key=self._neighbours)
        rest = [level for level in points if level is not lane]
        return [*rest, replace(lane, kind=LoopKind.VECTOR)]

    def _neighbours(self, level: Level) -> int:
        """Return how many more accesses stand still or walk neighbours along *level* than jump."""
        score = 0
        for name, coordinate in level.coordinates.items():
            for row in self.shapes[name].strides:
                is_near = coordinate.position >= 0 and row[coordinate.position] <= 1
                score += 1 if is_near else -1
        return score


def _has_leaves(scheduled: Scheduled) -> bool:
    """Return whether no loop is left to open."""
    match scheduled:
        case Parts(children=children):
            return all(_has_leaves(child) for child in children)
        case Instances():
            return True
        case _:
            return False


def _is_free(level: Level, tiles: Sequence[Level]) -> bool:
    """Return whether *level* may run in parallel outside the rest of its permutable band."""
    if not level.is_coincident or level.extent < 2:
        return False
    is_point = any(coordinate.mod for coordinate in level.coordinates.values())
    return level in tiles or not is_point


def _mapped_in_place(whole: list[Level], may_fork: bool, has_leaves: bool) -> list[Level]:
    """Map the loops of a band that is not permutable, in the order in which they are."""
    levels = list(whole)
    if has_leaves and levels[-1].is_coincident:
        levels[-1] = replace(levels[-1], kind=LoopKind.VECTOR)
    for position, level in enumerate(levels):
        if may_fork and level.is_coincident and level.extent > 1:
            levels[position] = replace(level, kind=LoopKind.PARALLEL)
            break
    return levels


def _wavefront(tiles: Sequence[Level]) -> list[Level]:
    """Return the tile loops of a permutable band, skewed: fronts in order, tiles in parallel."""
    lead, *others = tiles[:-1]  # the last is what the front leaves
    return [front_of(tiles), replace(lead, kind=LoopKind.PARALLEL), *others]


def _chunk(extent: int, threads: int) -> int:
    """Return a part of a loop for one thread: some for each, of whole cache lines."""
    return max(1024, -(-extent // (CHUNKS_PER_THREAD * threads) // 64) * 64)


def is_recurrence(shape: Shape) -> bool:
    """Return whether only a wavefront could run *shape* in parallel, and is worth it."""
    long = [role for role, extent in zip(shape.roles, shape.extents, strict=True) if extent > 1]
    is_ordered = len(long) > 1 and all(role is Role.ORDERED for role in long)
    return is_ordered and shape.instances >= WAVEFRONT_INSTANCES


def wavefront_tile(shape: Shape) -> tuple[int, ...]:
    """Return the tile of a recurrence, as deep as its band may be."""
    outer, inner = WAVEFRONT_TILE
    return (outer,) * (len(shape.extents) - 1) + (inner,)


def has_parallel_loop(tree: Node) -> bool:
    """Return whether some loop of *tree* runs on several threads."""
    return any(loop.kind is LoopKind.PARALLEL for loop in loops_of(tree))


def bare_schedule(members: Sequence[str], shapes: Mapping[str, Shape]) -> Schedule:
    """Return a schedule without choices."""
    remaining = {
        name: tuple(
            Piece(Coordinate(dim), shapes[name].extents[dim], shapes[name].roles[dim])
            for dim in shapes[name].order
        )
        for name in members
    }
    return Schedule(tuple(members), (), remaining, {}, template="plain")


def textual_tree(shape: Shape, cpu: Cpu, prefix: str) -> Node:
    """Return the loops of a statement as they were written, the outermost parallel if it may be."""
    statement = shape.statement
    outermost = next((d for d, extent in enumerate(shape.extents) if extent > 1), None)
    pays = cpu.threads > 1 and work_of(shape) >= PARALLEL_WORK
    body: Node = Leaf(statement.name)
    for dim in reversed(range(len(statement.indices))):
        is_parallel = pays and dim == outermost and shape.roles[dim] is Role.PARALLEL
        body = Loop(
            f"{prefix}.{statement.indices[dim]}.{dim}",
            {statement.name: Coordinate(dim)},
            LoopKind.PARALLEL if is_parallel else LoopKind.SERIAL,
            body,
            shape.extents[dim],
        )
    return body


def plain_schedule(group: Group, shapes: Mapping[str, Shape], cpu: Cpu) -> Schedule:
    """Return the schedule of a statement alone: its outermost parallel loop on the threads."""
    schedule = bare_schedule(group.members, shapes)
    work = sum(work_of(shapes[name]) for name in group.members)
    if cpu.threads == 1 or work < PARALLEL_WORK:
        return schedule
    parallel = [axis for axis in group.axes if group.has_parallel(axis, shapes)]
    axis = next((a for a in parallel if _extent(a, shapes) >= cpu.threads), None)
    if axis is None:
        return schedule
    pieces = {
        name: Piece(Coordinate(dim), shapes[name].extents[dim], Role.PARALLEL)
        for name, dim in axis.items()
    }
    remaining = {
        name: tuple(p for p in schedule.remaining[name] if p.coordinate.position != axis[name])
        for name in group.members
    }
    return replace(schedule, outer=(OuterLoop(pieces, LoopKind.PARALLEL),), remaining=remaining)


def _extent(axis: Mapping[str, int], shapes: Mapping[str, Shape]) -> int:
    return max(shapes[name].extents[dim] for name, dim in axis.items())
