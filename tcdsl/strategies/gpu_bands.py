"""The bands of isl's schedule as loops over blocks and threads.

    permutable band [i, j, k]        block i / 8, block j / 32         tiles of what is coincident
    i, j coincident            --->    thread.y i % 8, thread.x j % 32
                                         k                             in each thread

    band [t]                         one block:  t                     in order, a barrier each
      band [i] coincident      --->    thread.x i

    permutable band [i, j]           one block:  i + j                 the wavefront, in order
    none coincident            --->    thread.x i                      j is what is left

In a band without coincident members one function is chosen that carries all its dependences (a
member, or the sum of all: no member of a permutable band decreases along a dependence): below it
the others are coincident.  The grid has no barrier, so that a kernel without outer coincident
members is one block.  After PPCG (Verdoolaege et al., TACO 2013, doi:10.1145/2400682.2400713).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import islpy as isl

from tcdsl.costmodel import chip, gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    loops_of,
    sequence,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scheduler import Band, Instances, Member, Parts, Scheduled
from tcdsl.poly.scop import Scop
from tcdsl.strategies import block_sizes
from tcdsl.strategies.levels import Level, front_of, level_of, opened, points_of, tiles_of
from tcdsl.strategies.schedule import Bands

BLOCK_THREADS = block_sizes.BLOCK_THREADS
WARP = chip.WARP
ENOUGH_THREADS = gpu_thresholds.BATCH_THREADS
_X, _Y = 0, 1


class Opened(NamedTuple):
    """The loops of one kernel; *why* explains them to the user."""

    tree: Node
    why: tuple[str, ...]


def threads_of(tree: Node) -> int:
    """Return how many threads run *tree*, of all blocks."""
    mapped = [1, 1, 1], [1, 1, 1]
    for loop in loops_of(tree):
        if loop.kind in (LoopKind.BLOCK, LoopKind.THREAD):
            widths = mapped[loop.kind is LoopKind.THREAD]
            widths[loop.axis] = max(widths[loop.axis], loop.width)
    return prod(mapped[0]) * prod(mapped[1])


class BandMapper:
    """Opens the loops of one kernel."""

    def __init__(
        self,
        scop: Scop,
        dependences: Dependences,
        shapes: Mapping[str, Shape],
        gpu: Chip,
        bands: Bands,
        prefix: str,
    ) -> None:
        self.scop = scop
        self.dependences = dependences
        self.shapes = shapes
        self.gpu = gpu
        self.bands = bands
        self.prefix = prefix
        self.why: list[str] = ["the loops that isl's scheduler found"]
        self._n_loops = 0

    def opened(self, part: Scheduled) -> Opened:
        """Return the loops of *part*, a part of the program that runs on its own."""
        band = _one_by_one(part)
        outer = self._levels(band) if isinstance(band, Band) else []
        if isinstance(band, Band) and any(_is_free(level) for level in outer):
            tree = self._on_blocks(band, outer)
        else:
            tree = self._together(band, (), (_X, _Y), may_front=True)
            tree = _with_widths(tree, self.gpu.threads_per_block)
            what, loops = ("block", "outer loop") if threads_of(tree) > 1 else ("thread", "loop")
            self.why.append(f"one {what}: no {loops} is free of dependences")
        return Opened(tree, tuple(self.why))

    # --- blocks ----------------------------------------------------------------------------

    def _on_blocks(self, band: Band, outer: list[Level]) -> Node:
        """Map the coincident members of the outermost *band* to blocks and to threads."""
        free = [position for position, level in enumerate(outer) if _is_free(level)]
        is_deep = self._has_threads(band.body)
        if not is_deep and self._is_batch(band, outer):
            blocks = self._blocks(outer, dict.fromkeys(free, 1))
            rest = [level for level in outer if not _is_free(level)]
            inside = self._wavefront(rest, tuple(blocks))
            if inside is not None:
                self.why.append("few recurrences: each has a block")
                tree = self._nest([*blocks, *inside], self._serial(band.body))
                return _with_widths(tree, self.gpu.threads_per_block)
        sizes = self._sizes(outer, free, is_deep)
        path = (
            *self._blocks(outer, sizes), *self._points(outer, sizes, is_deep),
            *self._serial_tiles(outer),
        )  # fmt: skip
        if is_deep:
            body = self._together(band.body, path, (_X,), may_front=False)
        else:
            body = self._serial(band.body)
        return _with_widths(self._nest(path, body), self.bands.threads)

    def _is_batch(self, band: Band, outer: Sequence[Level]) -> bool:
        """Return whether *outer* holds few recurrences, each with wavefronts."""
        free = prod(level.extent for level in outer if _is_free(level))
        left = [level for level in outer if not level.is_coincident and level.extent > 1]
        names = outer[0].coordinates
        is_strict = not any(edge.source in names for edge in self.dependences.relaxed)
        return band.is_permutable and len(left) > 1 and is_strict and free < ENOUGH_THREADS

    def _sizes(self, outer: Sequence[Level], free: Sequence[int], is_deep: bool) -> dict[int, int]:
        """Return how many iterations of each member in *free* a block takes."""
        near = sorted(free, key=lambda p: (self._neighbours(outer[p]), p), reverse=True)
        wanted = dict.fromkeys(free, 1)
        if is_deep:
            wanted[near[0]] = self.bands.threads // WARP
        elif len(near) == 1:
            wanted[near[0]] = self.bands.threads
        else:
            wanted |= {near[0]: WARP, near[1]: self.bands.threads // WARP}
        sizes = {p: min(size, outer[p].extent) for p, size in wanted.items()}
        for position in reversed(near[:2]):
            # Multiprocessors without work are worse than small blocks.
            least = 1 if is_deep or position != near[0] else WARP
            while (
                _count(outer, sizes) < self.gpu.multiprocessors
                and (half := -(-sizes[position] // 2)) >= least
                and half < sizes[position]
            ):
                sizes[position] = half
        if _count(outer, sizes) == 1:
            sizes[near[0]] = -(-sizes[near[0]] // 2)
        for position in free:
            if position < len(self.bands.tile):
                sizes[position] = min(self.bands.tile[position], outer[position].extent)
        return sizes

    def _blocks(self, outer: Sequence[Level], sizes: Mapping[int, int]) -> list[Level]:
        """Return the loops over blocks, the most numerous along x; the fourth is no block's."""
        tiles = [
            tiles_of(outer[position], size)
            for position, size in sizes.items()
            if size < outer[position].extent
        ]
        mapped = sorted(tiles, key=lambda level: -level.extent)[: len(self.gpu.grid)]
        found = []
        for axis, level in enumerate(mapped):
            width = min(level.extent, self.gpu.grid[axis])
            found.append(replace(level, kind=LoopKind.BLOCK, axis=axis, width=width))
        return [*found, *(level for level in tiles if level not in mapped)]

    def _points(
        self, outer: Sequence[Level], sizes: Mapping[int, int], is_deep: bool
    ) -> list[Level]:
        """Return the loops over what a block takes of each member: threads, neighbours along x."""
        wide = [position for position, size in sizes.items() if size > 1]
        wide.sort(key=lambda p: (self._neighbours(outer[p]), p), reverse=True)
        threads, serial = [], []
        budget = self.bands.threads // WARP if is_deep else self.bands.threads
        axes = iter((_Y,) if is_deep else (_X, _Y))
        for position in wide:
            size = sizes[position]
            level = points_of(outer[position], size)
            # Threads that meet barriers further inside have one turn.
            axis = next(axes, None) if not is_deep or size <= budget else None
            if axis is None or budget < 2:
                serial.append(level)
                continue
            width = min(size, budget)
            budget //= width
            threads.append(replace(level, kind=LoopKind.THREAD, axis=axis, width=width))
        return [*reversed(threads), *serial]

    def _serial_tiles(self, outer: Sequence[Level]) -> list[Level]:
        """Return the loops over the members that no thread shares, in tiles where asked."""
        tiles, points = [], []
        for position, level in enumerate(outer):
            if _is_free(level):
                continue
            tile = self.bands.tile
            size = tile[position] if position < len(tile) else level.extent
            if size < level.extent:
                tiles.append(tiles_of(level, size))
                points.append(points_of(level, size))
            else:
                points.append(level)
        return [*tiles, *points]

    # --- threads of one block --------------------------------------------------------------

    def _together(
        self, scheduled: Scheduled, path: tuple[Level, ...], axes: tuple[int, ...], may_front: bool
    ) -> Node:
        """Return the loops of *scheduled*, below *path*; the first free ones get the threads."""
        match scheduled:
            case Instances(statements=statements):
                return sequence([Leaf(name) for name in statements])
            case Parts(children=children):
                return sequence([self._together(c, path, axes, may_front) for c in children])
        band = _one_by_one(scheduled)
        assert isinstance(band, Band)
        levels = self._levels(band)
        if any(_is_free(level) for level in levels):
            return self._nest(self._on_threads(levels, axes), self._serial(band.body))
        if may_front and band.is_permutable and not self._has_threads(band.body):
            front = self._wavefront(levels, path)
            if front is not None:
                return self._nest(front, self._serial(band.body))
        below = self._together(band.body, (*path, *levels), axes, may_front)
        return self._nest(levels, below)

    def _on_threads(self, levels: Sequence[Level], axes: Sequence[int]) -> list[Level]:
        """Return *levels* with the free ones outermost, on the threads of *axes*."""
        free = [level for level in levels if _is_free(level)]
        near = sorted(free, key=self._neighbours, reverse=True)
        chosen = dict(zip(map(id, near), axes, strict=False))
        threads = [
            replace(level, kind=LoopKind.THREAD, axis=chosen[id(level)])
            for level in free
            if id(level) in chosen
        ]
        return [*threads, *(level for level in levels if id(level) not in chosen)]

    def _wavefront(self, levels: Sequence[Level], path: tuple[Level, ...]) -> list[Level] | None:
        """Return loops over the members of a permutable band: one in order, the others free below.

        The loop in order is the shortest of those that carry all dependences.
        """
        long = [level for level in levels if level.extent > 1]
        if len(long) < 2:
            return None
        candidates = [(level, [other for other in long if other is not level]) for level in long]
        last = max(long, key=lambda level: level.extent)
        candidates.append((front_of(long), [level for level in long if level is not last]))
        legal = [
            (lead, others)
            for lead, others in candidates
            if self._carries((*path, lead), others) and lead.extent
        ]
        if not legal:
            return None
        lead, others = min(legal, key=lambda found: found[0].extent)
        is_front = all(lead is not level for level in long)
        if is_front:
            self.why.append("wavefronts: what is on one front is independent")
        else:
            others = [self._unskewed(level, lead) for level in others]
        free = sorted(
            (replace(level, is_coincident=True) for level in others),
            key=lambda level: (0 if is_front else self._neighbours(level), level.extent),
            reverse=True,
        )
        threads = [
            replace(level, kind=LoopKind.THREAD, axis=axis)
            for axis, level in zip((_X, _Y), free, strict=False)
        ]
        short = [level for level in levels if level.extent <= 1]
        return [*short, lead, *threads, *free[len(threads) :]]

    def _unskewed(self, level: Level, lead: Level) -> Level:
        """Return *level* less a multiple of *lead*, below which it has the same order: t + i as i.

        Then neighbours in memory may be neighbouring threads.
        """
        found, factors = {}, set()
        for name, coordinate in level.coordinates.items():
            outer = lead.coordinates[name]
            if not isinstance(coordinate, AffineCoordinate) or outer.position < 0:
                return level
            terms = [(f, c) for f, c in coordinate.terms if c.position != outer.position]
            factors.add(sum(f for f, c in coordinate.terms if c.position == outer.position))
            shift = coordinate.shift - max(factors) * outer.shift
            if len(terms) == 1 and terms[0][0] == 1:
                found[name] = replace(terms[0][1], shift=shift)
            else:
                found[name] = AffineCoordinate(tuple(terms), shift)
        if len(factors) > 1:
            return level
        return level_of(self.scop, Member(found, level.is_coincident))

    def _carries(self, path: Sequence[Level], others: Sequence[Level]) -> bool:
        """Return whether below *path* no dependence has a distance along any of *others*."""
        for edge in self.dependences.edges:
            if any(n not in path[-1].coordinates for n in (edge.source, edge.sink)):
                continue
            left = edge.relation
            for level in path:
                left = left.intersect(self._same(edge, level))
            if not all(left.is_subset(self._same(edge, level)) for level in others):
                return False
        return True

    def _same(self, edge: Dependence, level: Level) -> isl.Map:
        """Return the pairs of *edge*'s statements in equal iterations of *level*."""
        ends = []
        for name in (edge.source, edge.sink):
            aff = level.coordinates[name].function(self.scop.by_name[name].domain.get_space())
            ends.append(isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(aff)))
        return ends[0].eq_map(ends[1])

    # --- loops -----------------------------------------------------------------------------

    def _serial(self, scheduled: Scheduled) -> Node:
        """Return the loops of *scheduled* in one thread."""
        match scheduled:
            case Instances(statements=statements):
                return sequence([Leaf(name) for name in statements])
            case Parts(children=children):
                return sequence([self._serial(child) for child in children])
            case Band(body=body):
                return self._nest(self._levels(scheduled), self._serial(body))

    def _has_threads(self, scheduled: Scheduled) -> bool:
        """Return whether a loop of *scheduled* could be shared by threads."""
        match scheduled:
            case Instances():
                return False
            case Parts(children=children):
                return any(self._has_threads(child) for child in children)
            case Band(body=body):
                free = any(_is_free(level) for level in self._levels(scheduled))
                return free or self._has_threads(body)

    def _levels(self, band: Band) -> list[Level]:
        return [level_of(self.scop, member) for member in band.members]

    def _neighbours(self, level: Level) -> int:
        """Return how many more accesses walk neighbours along *level* than jump."""
        score = 0
        for name, coordinate in level.coordinates.items():
            for row in self.shapes[name].strides:
                stride = row[coordinate.position] if coordinate.position >= 0 else 2
                score += (stride == 1) - (stride > 1)
        return score

    def _nest(self, levels: Sequence[Level], body: Node) -> Node:
        """Return the loops *levels*, outermost first, around *body*."""
        for level in reversed(levels):
            self._n_loops += 1
            body = opened(level, body, self.shapes, self.prefix, self._n_loops)
        return body


def _one_by_one(scheduled: Scheduled) -> Scheduled:
    """Return a band that is not permutable as bands of one member, inside one another."""
    if not isinstance(scheduled, Band) or scheduled.is_permutable or len(scheduled.members) < 2:
        return scheduled
    first, *rest = scheduled.members
    return Band((first,), True, Band(tuple(rest), False, scheduled.body))


def _is_free(level: Level) -> bool:
    return level.is_coincident and level.extent > 1


def _count(outer: Sequence[Level], sizes: Mapping[int, int]) -> int:
    """Return how many blocks there are."""
    return prod(-(-outer[position].extent // size) for position, size in sizes.items())


def _with_widths(tree: Node, threads: int) -> Node:
    """Return *tree*, its loops over threads as wide as they are long, as far as *threads* reach."""
    loops = [loop for loop in loops_of(tree) if loop.kind is LoopKind.THREAD]
    widths = {loop.axis: loop.width for loop in loops if loop.width}
    for axis in sorted({loop.axis for loop in loops} - set(widths)):
        extent = max(loop.extent or 1 for loop in loops if loop.axis == axis)
        widths[axis] = min(extent, max(1, threads // prod(widths.values())))
    return _widened(tree, widths)


def _widened(tree: Node, widths: Mapping[int, int]) -> Node:
    match tree:
        case Loop(kind=LoopKind.THREAD, body=body, axis=axis):
            return replace(tree, width=widths[axis], body=_widened(body, widths))
        case Loop(body=body):
            return replace(tree, body=_widened(body, widths))
        case Children(children=children):
            return Children(tuple(_widened(child, widths) for child in children))
        case Leaf():
            return tree
