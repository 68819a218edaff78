"""Which thread of a warp holds what: the operands and results of tensor cores as coordinates.

A product of 16 x 8 results is made by the 32 threads of a warp together (``mma.m16n8k16``; of other
types than halves as many terms as 32 bytes have).  Each has four of them, two neighbours of a row
and two eight rows below:

    thread  4 (m % 8) + n % 8 / 2            row 0:  0 0 1 1 2 2 3 3      row 8:  0 0 1 1 2 2 3 3
    slot    2 (m / 8 % 2) + n % 2            row 1:  4 4 5 5 6 6 7 7      row 9:  4 4 5 5 6 6 7 7

A warp's tile is rows and columns of these, a block's tile those of its warps: z along rows, y along
columns.  Four warps may multiply 64 rows together, 16 each (``wgmma.m64nNk16``), whose threads hold
the same then.  What the threads hold is an array in registers like others, whose elements' threads
and places follow from these coordinates.  PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.costmodel.chip import WARP, Chip
from tcdsl.costmodel.locality import stride_divisors
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate, LoopKind, X, Y, Z
from tcdsl.poly.scop import Array
from tcdsl.records import dataclass

ROWS, COLUMNS = 16, 8  # of one instruction
HALF = 8  # rows of a fragment between a thread's two pairs
PAIR = 2  # results of a thread that are neighbours
COPIES = (16, 8, 4)  # bytes that one copy may move
BOX_BYTES, BOX_RANK = 16, 5  # strides of a box's array are multiples of; its most dimensions
QUAD = 4  # threads that have a row of eight columns, and exchange what they have of four of these


@dataclass(frozen=True, slots=True)
class Level:
    """A loop of one statement: see ``loop_tree.Loop``."""

    kind: LoopKind
    coordinate: AnyCoordinate
    extent: int
    axis: int = 0
    width: int = 0
    cluster: int = 1
    runs_on: bool = False


@dataclass(frozen=True, slots=True)
class WarpTiles:
    """The tile of a block: *warp_rows* x *warp_columns* warps of *rows* x *columns* results."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    step: int  # of the reduced index
    # Neighbours along rows that multiply at once: 4 of 16 rows each (wgmma); 0: threads multiply on
    # their own (thread_tiles.py).
    together: int = 1

    @property
    def block(self) -> tuple[int, int]:
        """The rows and columns of a block's results."""
        return self.rows * self.warp_rows, self.columns * self.warp_columns

    @property
    def threads(self) -> int:
        return WARP * self.warp_rows * self.warp_columns


def swath_in_turn(gpu: Chip, rows: int, columns: int) -> int:
    """Return how many tiles of rows neighbouring blocks have, that each has tiles of all rows.

    As many as there is a multiprocessor for; 0 where each has one tile, or rows are not cut.

    :arg rows: the tiles along rows, and along *columns*.
    """
    swath = gpu.multiprocessors // columns
    return swath if 1 < swath < rows else 0


@dataclass(frozen=True, slots=True)
class At:
    """A dimension of a statement, and where its tiles begin."""

    position: int
    low: int = 0

    def digit(self, div: int, mod: int) -> Coordinate:
        """Return the coordinate ``(x - low) / div % mod``."""
        return Coordinate(self.position, self.low, div, mod)


def warps(row: At, column: At, tiles: WarpTiles) -> list[Level]:
    """Return the loops over the warps of a block."""
    ways = ((row, tiles.rows, tiles.warp_rows, Z), (column, tiles.columns, tiles.warp_columns, Y))
    return [
        Level(LoopKind.THREAD, at.digit(size, count), count, axis, count)
        for at, size, count, axis in ways
        if count > 1
    ]


def lane(row: At, column: At) -> Level:
    """Return the loop over the threads of a warp that hold results."""
    pairs = COLUMNS // PAIR
    thread = AffineCoordinate(((pairs, row.digit(1, HALF)), (1, column.digit(PAIR, pairs))))
    return Level(LoopKind.THREAD, thread, WARP, X, WARP)


def slots(row: At, column: At, tiles: WarpTiles, kind: LoopKind, last: LoopKind) -> list[Level]:
    """Return the loops over the results of a thread, of a *kind*, neighbours *last*."""
    rows, columns = tiles.rows // HALF, tiles.columns // COLUMNS
    return [
        Level(kind, row.digit(HALF, rows), rows),
        Level(kind, column.digit(COLUMNS, columns), columns),
        Level(last, column.digit(1, PAIR), PAIR),
    ]


def held(tiles: WarpTiles, row: At, column: At) -> list[Level]:
    """Return the loops of a statement on the accumulators.

    Four threads have the pairs of eight neighbours, of four such runs each: what they store they
    exchange, so that each stores all of a run (codegen/cuda/exchanges.py).
    """
    rows, columns, pair = slots(row, column, tiles, LoopKind.UNROLL, LoopKind.LANES)
    several = [columns]
    if columns.extent % QUAD == 0:
        runs = columns.extent // QUAD
        together = replace(columns, coordinate=column.digit(COLUMNS, QUAD), extent=QUAD)
        several = [
            replace(columns, coordinate=column.digit(COLUMNS * QUAD, runs), extent=runs),
            replace(together, width=QUAD),
        ]
    return [*warps(row, column, tiles), lane(row, column), rows, *several, pair]


def multiplied(tiles: WarpTiles, row: At, column: At, term: At) -> list[Level]:
    """Return the loops of the multiply-accumulate: a warp does what is below them at once."""
    together = LoopKind.COLLECTIVE
    terms = Level(together, term.digit(1, tiles.step), tiles.step)
    own = [terms, *slots(row, column, tiles, together, together)]
    own = [replace(level, width=WARP * tiles.together) for level in own]
    return [*warps(row, column, tiles), *own, lane(row, column)]


def operand_held(tiles: WarpTiles, row: At, term: At) -> list[Level]:
    """Return the loops of a statement on the first operand, as threads have it for products.

    Of 16 x 16 elements a thread has pairs of terms, eight apart, of two rows, eight apart.
    """
    pairs, count = COLUMNS // PAIR, tiles.warp_rows
    thread = AffineCoordinate(((pairs, row.digit(1, HALF)), (1, term.digit(PAIR, pairs))))
    slots = (row, HALF, tiles.rows // HALF), (term, COLUMNS, tiles.step // COLUMNS)
    return [
        Level(LoopKind.THREAD, row.digit(tiles.rows, count), count, Z, count),
        Level(LoopKind.THREAD, thread, WARP, X, WARP),
        *(Level(LoopKind.UNROLL, at.digit(div, size), size) for at, div, size in slots),
        Level(LoopKind.LANES, term.digit(1, PAIR), PAIR),
    ]


def vector_of(array: Array) -> int:
    """Return how many elements of *array* a copy may move at once, 1 if only one."""
    *strides, _ = stride_divisors(array)
    counts = [size // array.dtype.size_bytes for size in COPIES]
    return next((n for n in counts if n > 1 and not any(s % n for s in strides)), 1)


def why_no_box(array: Array) -> str | None:
    """Return why no copies of whole boxes bring *array*, or None."""
    if array.rank > BOX_RANK:
        return f"{array.name} has too many dimensions"
    is_plain = all(isinstance(n, (int, isl.PwAff)) for n in array.strides or ())
    if not is_plain or any(not isinstance(n, int) for n in array.origin):
        return f"{array.name} has no plain strides"
    *strides, _ = (n * array.dtype.size_bytes for n in stride_divisors(array))
    if any(n <= 0 or n % BOX_BYTES for n in strides):
        return f"strides of {array.name} are no multiples of {BOX_BYTES} bytes"
    return None


def copied(
    line: At, within: At, sizes: Sequence[int], tiles: WarpTiles, vector: int
) -> list[Level]:
    """Return the loops of a copy of *sizes* lines and elements of a line, a *vector* a thread.

    Neighbouring threads take neighbours of a line, then the next lines.
    """
    lines, length = sizes
    vectors = length // vector
    apart = min(vectors, WARP)
    at_once = WARP // apart  # lines of a warp
    found = [within.digit(vector, apart)]
    thread: AnyCoordinate = found[0]
    if at_once > 1:
        thread = AffineCoordinate(((apart, line.digit(1, at_once)), (1, found[0])))
    levels = [Level(LoopKind.THREAD, thread, min(WARP, lines * apart), X, WARP)]
    done = at_once
    for axis, count in ((Y, tiles.warp_columns), (Z, tiles.warp_rows)):
        if count > 1:
            own = line.digit(done, count)
            levels.append(Level(LoopKind.THREAD, own, min(count, -(-lines // done)), axis, count))
            done *= count
    if lines > done:
        levels.append(Level(LoopKind.UNROLL, line.digit(done, 0), -(-lines // done)))
    if vectors > apart:
        more = within.digit(vector * apart, 0)
        levels.append(Level(LoopKind.UNROLL, more, vectors // apart))
    return [*levels, Level(LoopKind.LANES, within.digit(1, vector), vector)]


def boxed(elements: Sequence[int], sizes: Sequence[int]) -> list[Level]:
    """Return the loops of a copy of a whole box of *sizes*, which one thread asks for at once."""
    return [
        Level(LoopKind.COLLECTIVE, Coordinate(position, 0, 1, size), size, 0, 1)
        for position, size in zip(elements, sizes, strict=True)
        if size > 1
    ]
