"""Which thread of a warp holds what where threads multiply on their own, by fused multiply-adds.

A warp is 4 rows of 8 threads, which have runs of neighbours: of 32 x 64 results 8 x 8 a thread,

    thread  8 (m / 4 % 4) + n / 4 % 8        m     0 - 3     4 - 7     8 - 11   ... 16 - 19
    run     m % 4, n % 4                     row   0         1         2            0

so that a thread reads runs of both operands, whose tiles have a line for each term, and a warp
reads neighbours.  The same loops of warps as for tensor cores (fragments.py).
"""

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.loop_tree import AffineCoordinate, LoopKind, X
from tcdsl.strategies.fragments import At, Level, WarpTiles, warps

ROWS, COLUMNS = 4, 8  # of threads
RUN = 4  # neighbours of a thread, at most


def _run(size: int, threads: int) -> int:
    """Return how many neighbours a thread has, of *size* results along a warp's *threads*."""
    return min(RUN, size // threads)


def _lane(row: At, column: At, tiles: WarpTiles) -> Level:
    """Return the loop over the threads of a warp."""
    rows = row.digit(_run(tiles.rows, ROWS), ROWS)
    columns = column.digit(_run(tiles.columns, COLUMNS), COLUMNS)
    return Level(LoopKind.THREAD, AffineCoordinate(((COLUMNS, rows), (1, columns))), WARP, X, WARP)


def _runs(at: At, size: int, threads: int, last: LoopKind) -> list[Level]:
    """Return the loops over what a thread has of *size* results: runs, then neighbours."""
    run = _run(size, threads)
    count = size // (run * threads)
    return [
        Level(LoopKind.UNROLL, at.digit(run * threads, count), count),
        Level(last, at.digit(1, run), run),
    ]


def _results(row: At, column: At, tiles: WarpTiles) -> list[Level]:
    return [
        *_runs(row, tiles.rows, ROWS, LoopKind.UNROLL),
        *_runs(column, tiles.columns, COLUMNS, LoopKind.LANES),
    ]


def held(tiles: WarpTiles, row: At, column: At) -> list[Level]:
    """Return the loops of a statement on the sums, which are a thread's registers."""
    around = [*warps(row, column, tiles), _lane(row, column, tiles)]
    return [*around, *_results(row, column, tiles)]


def multiplied(tiles: WarpTiles, row: At, column: At, term: At) -> list[Level]:
    """Return the loops of the multiply-accumulate: one term of a step after another."""
    around = [*warps(row, column, tiles), _lane(row, column, tiles)]
    terms = Level(LoopKind.UNROLL, term.digit(1, tiles.step), tiles.step)
    return [*around, terms, *_results(row, column, tiles)]
