"""Implicit products by fused multiply-adds: which tiles, and what they cost.

For factors of float32 that tensor cores do not multiply as exactly (short sums, IEEE arithmetic
asked for), and for fewer rows or columns than fill their tiles.  Threads hold what thread_tiles.py
says; operands are packed as for tensor cores, a line for each term.
"""

from collections.abc import Sequence

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.packing import Copied, with_loaders
from tcdsl.costmodel.tiles import Product, TileConfig, work_of_tiles
from tcdsl.costmodel.work import Work
from tcdsl.lang.types.dtypes import FLOAT32, DType
from tcdsl.strategies.fragments import WarpTiles
from tcdsl.strategies.implicit_product import Classes, Loaded
from tcdsl.strategies.thread_tiles import COLUMNS, ROWS

# Results of a warp, rows and columns; warps of a block along rows and columns.
SHAPES = (
    (32, 64, 4, 2), (32, 64, 2, 2), (32, 64, 4, 1), (32, 64, 2, 1), (32, 32, 4, 1), (16, 64, 1, 4),
    (32, 16, 4, 1), (16, 64, 1, 2), (8, 64, 1, 4), (32, 8, 4, 1),
)  # fmt: skip
STEPS, STAGES = (16, 8), (3, 2)
LEAST_EXTENT = 8  # of rows, columns and terms


def why_not_on_threads(factor: DType, classes: Classes) -> str | None:
    """Return why threads do not multiply factors of this type, or None."""
    if factor != FLOAT32:
        return "its factors are not of float32"
    if min(one.extent for one in (classes.row, classes.column, classes.term)) < LEAST_EXTENT:
        return "most of a tile would be empty"
    return None


def work_on_threads(
    product: Product,
    tiles: WarpTiles,
    stages: int,
    chunks: int,
    copied: Sequence[tuple[float, Loaded]],
    chip: Chip,
) -> Work:
    """Return what *product* costs, the sum of its chunks included.

    :arg copied: elements of each factor, and how they come; one that lies along the terms is
        turned, an element a copy.
    """
    config = TileConfig(
        tiles.rows // ROWS, tiles.columns // COLUMNS, COLUMNS * tiles.warp_columns,
        ROWS * tiles.warp_rows, tiles.step, stages, chunks, widths=(), unrolled=tiles.step,
    )  # fmt: skip
    work = work_of_tiles(product, config, chip)
    loads = [
        Copied(count, 1 if one.is_along_terms else one.vector, one.is_along_terms, one.apart)
        for count, one in copied
    ]
    return with_loaders(work, loads, product.element_bytes, 0, chip)
