"""What a register tile's operands bring from beyond the second-level cache, for an order of loops.

    for n, h:  for f / 32:  for w / 7:  a tile          K (9.4 MB) is read again for each n and h
    for f / 32:  for n, h:  for w / 7:  a tile          K once, the images for each f / 32

From the innermost loop outwards, what all operands need grows until it no longer fits.  From there
on each is read again in each iteration, but for loops right around that leave it as it is.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Expr, Index, walk
from tcdsl.poly.parallelism import Role
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.materialisation import box_elements
from tcdsl.strategies.contraction import Tile

WORTH = gpu_thresholds.TILE_ORDER_BYTES
LEAST_TERMS = gpu_thresholds.TILE_CHUNK_TERMS


@dataclass(frozen=True, slots=True)
class Operand:
    """What is read: its subscripts, and the bytes of an element."""

    subscripts: tuple[Expr, ...]
    element_bytes: int

    def bytes_of(self, extents: Mapping[str, int]) -> int:
        """Return the bytes of the box that is read while indices run through *extents*."""
        return self.element_bytes * box_elements(self.subscripts, dict(extents))

    def depends_on(self, index: str) -> bool:
        """Return whether other elements are read for other values of *index*."""
        nodes = (node for s in self.subscripts for node in walk(s))
        return any(isinstance(node, Index) and node.name == index for node in nodes)


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around the tile: over *index*, *trips* iterations with *step* values each."""

    index: str
    trips: int
    step: int = 1


def bytes_moved(
    operands: Sequence[Operand], tile: Mapping[str, int], loops: Sequence[Around], cache_bytes: int
) -> int:
    """Return how many bytes come into a cache of *cache_bytes*.

    :arg tile: the values of each index in a tile, of reduced ones all.
    :arg loops: outermost first.
    """
    depth, inside = len(loops), dict(tile)
    if sum(operand.bytes_of(inside) for operand in operands) > cache_bytes:
        # Not even what a tile reads is there for the next one.
        return prod(one.trips for one in loops) * sum(o.bytes_of(inside) for o in operands)
    while depth:
        one = loops[depth - 1]
        grown = {**inside, one.index: one.trips * one.step}
        if sum(operand.bytes_of(grown) for operand in operands) > cache_bytes:
            break
        depth, inside = depth - 1, grown
    return sum(operand.bytes_of(inside) * _times(operand, loops[:depth]) for operand in operands)


def _times(operand: Operand, loops: Sequence[Around]) -> int:
    """Return how often *operand* is read anew in *loops*."""
    found = 1
    is_anew = False
    for one in reversed(loops):
        is_anew = is_anew or operand.depends_on(one.index)
        found *= one.trips if is_anew else 1
    return found


def largest_chunk(
    own: Mapping[str, int], index: str, operands: Sequence[Operand], cache_bytes: int
) -> int:
    """Return how many values of *index* fit, 1 at least: if one is near, a divisor of all.

    Boxes grow with the values, so that those which fit are found by halving: sums may have
    millions of terms.
    """

    def does_not_fit(size: int) -> bool:
        return sum(o.bytes_of({**own, index: size}) for o in operands) > cache_bytes

    fitting = bisect_right(range(1, own[index] + 1), False, key=does_not_fit)
    return _near_divisor(own[index], max(1, fitting))


def _near_divisor(extent: int, most: int) -> int:
    """Return the greatest divisor of *extent* from *most* to half of it, *most* if there is none.

    Candidates are these, or what *extent* is divided by, whichever are fewer: roots of it at most.
    """
    if most * most <= extent:
        return next((n for n in range(most, most // 2, -1) if extent % n == 0), most)
    quotients = range(-(-extent // most), extent // (most // 2 + 1) + 1)
    return next((extent // q for q in quotients if extent % q == 0), most)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The loops around *tile*, whose vector is an index of results.

    *sizes* are the bytes of an element of each read; *block_rows* those of a block of rows.
    """

    shape: Shape
    sizes: Sequence[int]
    tile: Tile
    block_rows: int

    def others_inside(self, others: Sequence[int], cache_bytes: int) -> int:
        """Return how many of *others* run in the loop over tiles of the vector, at best.

        As a rule none: where all operands fit, or the best order does not bring half of the bytes.
        """
        found = [self._moved(others, count, cache_bytes) for count in range(len(others) + 1)]
        best = min(range(len(found)), key=lambda count: (found[count], count))
        return best if found[best] < WORTH * found[0] else 0

    def bytes_of(self, values: Mapping[int, int]) -> int:
        """Return what is read for all boxes of so many *values* of some dimensions."""
        extents = self._extents(values)
        number = prod(-(-self.shape.extents[d] // n) for d, n in values.items())
        return number * sum(operand.bytes_of(extents) for operand in self._operands())

    def chunks(
        self, others: Sequence[int], cache_bytes: int, values: Mapping[int, int]
    ) -> tuple[tuple[str, int], ...]:
        """Return reduced indices and so many values of each that all operands fit the cache.

        Each thread has *values* of some dimensions of results, and all of others.  None where it
        would not save half of the bytes.  A chunk adds its sums to all results.
        """
        shape = self.shape
        names = shape.statement.indices
        extents = dict(zip(names, shape.extents, strict=True))
        own, operands = self._extents(values), self._operands()
        whole = self.bytes_of(values)
        chosen: list[tuple[str, int]] = []
        for dim in shape.order:
            if shape.roles[dim] is not Role.REDUCED or extents[names[dim]] == 1:
                continue
            size = largest_chunk(own, names[dim], operands, cache_bytes)
            own[names[dim]] = size
            chosen.append((names[dim], size))
            if sum(operand.bytes_of(own) for operand in operands) <= cache_bytes:
                break
        else:
            return ()
        terms = prod(own[n] for n, r in zip(names, shape.roles, strict=True) if r is Role.REDUCED)
        results = prod(
            e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.PARALLEL
        )
        times = prod(-(-extents[n] // size) for n, size in chosen)
        added = 2 * times * results * max(self.sizes)
        if times == 1 or terms < LEAST_TERMS:
            return ()
        moved = min(self._moved(others, n, cache_bytes) for n in range(len(others) + 1))
        return tuple(chosen) if whole + added < WORTH * moved else ()

    def _extents(self, values: Mapping[int, int]) -> dict[str, int]:
        """Return how many values each index has, of some dimensions *values*."""
        pairs = enumerate(zip(self.shape.statement.indices, self.shape.extents, strict=True))
        return {name: values.get(d, extent) for d, (name, extent) in pairs}

    def _operands(self) -> list[Operand]:
        reads = zip(self.shape.statement.reads, self.sizes, strict=True)
        return [Operand(read.subscripts, size) for read, size in reads]

    def _moved(self, others: Sequence[int], count: int, cache_bytes: int) -> int:
        """Return the bytes that come with *count* of *others* in the loop over vectors."""
        names, inside = self.shape.statement.indices, self._in_tile()
        at = len(others) - count
        loops = [self._around(d, names[d], inside) for d in others]
        vector = self._around(self.tile.vector, names[self.tile.vector], inside)
        rows = [self._around(d, names[d], inside) for d in self.tile.rows]
        order = [*loops[:at], vector, *loops[at:], *rows]
        if not count and rows:
            order = [*loops, *self._blocked(vector, rows)]
        return bytes_moved(self._operands(), inside, order, cache_bytes)

    def _in_tile(self) -> dict[str, int]:
        """Return how many values of each index a tile has."""
        shape, tile = self.shape, self.tile
        sizes = {**tile.rows, tile.vector: tile.lanes}
        found = {}
        for dim, index in enumerate(shape.statement.indices):
            is_kept = shape.roles[dim] is Role.PARALLEL
            found[index] = sizes.get(dim, 1) if is_kept else shape.extents[dim]
        return found

    def _around(self, dim: int, index: str, inside: Mapping[str, int]) -> Around:
        return Around(index, -(-self.shape.extents[dim] // inside[index]), inside[index])

    def _blocked(self, vector: Around, rows: Sequence[Around]) -> list[Around]:
        """Return the usual order of the innermost loops: blocks of the first rows around them."""
        first, *others = rows
        tiles = min(first.trips, max(1, self.block_rows // first.step))
        blocks = Around(first.index, -(-first.trips // tiles), tiles * first.step)
        return [blocks, vector, Around(first.index, tiles, first.step), *others]
