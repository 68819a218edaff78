"""How long a register tile of a contraction takes, and the tile that covers a box soonest.

A tile of r rows and v vectors multiplies r v vectors a term.  Beside that it loads v vectors and r
numbers, each spread over a vector.  Sums, vectors and a number are in
registers, or they would be stored and loaded again.

Measured with gcc 12 on one thread of a Zen 4 (f += I * K, 56 x 64 results, 384 terms, GFLOP/s):

    rows        1    2    4    5    6    8   10   14
    1 vector   42   58   90   89   81   85  113   97
    2 vectors  30   70   70   98  108  107  109  101
    3 vectors  40   74   91  105  108  110  108
    4 vectors  45   81   92  109  111

Below 5 rows (10 of one vector) gcc unrolls them before it vectorises, and loads each vector again
for each row.

With AVX2 (gcc 12, one busy thread of a Zen 3, 384 terms; NumPy's BLAS meanwhile 68 of 256^3):

    rows          1    2    3    4    5    6    7    8   10   12   14
    1 vector     14   27   32   37   40   44   42   42   47   40   41
    1.5          15   16   17   20   20   21   21   21   23
    2 vectors    12   39   33   34   39   51   43
    2.5          12   23   25   25   26   27
    3 vectors    17   31   32   44   43
    4 vectors    21   29   42
"""

from functools import lru_cache

from tcdsl.costmodel.machine import Cpu

MOST_ROWS, MOST_VECTORS = 16, 4
# Rows of whole pages are in one set of the first-level cache, which has 8 ways: of 784 x 1024 by
# 1024 x 256 a tile of 14 rows took 1.35 times as long as one of 8.
COLLIDING_ROWS, COLLIDING_BYTES = 8, 4096
SHARING_ROWS = {1: 10}  # of so many vectors: from how many rows on they share loaded vectors
LEAST_SHARING = 5
REST = 1.03  # what tiles take that are not whole: code of their own, once for rows and for lanes
# Of so many registers: a term's share of the loop, in multiplications of a vector; the vector loads
# that a number takes, which is spread over a vector; and how much longer a tile takes whose last
# vector is not whole.
LOOP = {32: 1.0, 16: 3.0}
SPREAD = {32: 1.0, 16: 1.5}
BROKEN = {32: 1.0, 16: 2.0}


def registers_of(cpu: Cpu) -> int:
    """Return how many vector registers there are: 16 with AVX2, 32 with AVX-512 and on ARM."""
    return 16 if cpu.vector_bytes == 32 else 32


def vector_operations(lanes: int, width: int) -> float:
    """Return the operations that cover *lanes* values: whole vectors, and halves for the rest."""
    return lanes // width + (lanes % width).bit_count() / 2


def steps_of_tile(rows: int, lanes: int, width: int, registers: int) -> float:
    """Return how long a term of a tile takes, in multiplications of a vector.

    What is in no register is loaded and stored in each term.
    """
    vectors = vector_operations(lanes, width)
    is_sharing = rows >= SHARING_ROWS.get(-(-lanes // width), LEAST_SHARING)
    loads = vectors * (1 if is_sharing else rows) + SPREAD[registers] * rows
    broken = BROKEN[registers] if lanes % width else 1.0
    spilt = max(0, _registers(rows, lanes, width) - registers)
    return broken * (max(vectors * rows, loads) + LOOP[registers]) + 2 * spilt


@lru_cache(4096)
def best_tile(
    rows: int, lanes: int, width: int, registers: int, row_bytes: int = 0
) -> tuple[int, int]:
    """Return the rows and lanes of the tile that covers *rows* x *lanes* results soonest.

    :arg row_bytes: how far rows of the operand that vectors do not walk are apart.
    """
    is_colliding = lanes > width and row_bytes > 0 and row_bytes % COLLIDING_BYTES == 0
    most = min(rows, COLLIDING_ROWS if is_colliding else MOST_ROWS)
    found = [
        (steps_of_box(rows, lanes, (r, some), width, registers), -r * some, r, some)
        for some in _lanes(lanes, width)
        for r in range(1, most + 1)
        if r == 1 or _registers(r, some, width) <= registers
    ]
    return min(found)[2:]


def _lanes(extent: int, width: int) -> list[int]:
    whole = [n * width for n in range(1, MOST_VECTORS + 1) if n * width <= extent]
    return list(dict.fromkeys([*whole, *([extent] if extent < MOST_VECTORS * width else [])]))


def _registers(rows: int, lanes: int, width: int) -> int:
    """Return how many registers sums, vectors and a number take."""
    vectors = lanes // width + (lanes % width).bit_count()
    return rows * vectors + vectors + 1


def steps_of_box(rows: int, lanes: int, tile: tuple[int, int], width: int, registers: int) -> float:
    """Return how long a term of all results takes: of whole tiles, and of those that are less."""
    of_rows = ((rows // tile[0], tile[0]), (1, rows % tile[0]))
    of_lanes = ((lanes // tile[1], tile[1]), (1, lanes % tile[1]))
    rest = REST ** ((rows % tile[0] > 0) + (lanes % tile[1] > 0))
    return rest * sum(
        n * m * steps_of_tile(r, some, width, registers)
        for n, r in of_rows
        for m, some in of_lanes
        if n and m and r and some
    )
