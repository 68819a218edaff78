"""Rows of results in shared memory, from which bulk copies store them (codegen/cuda/rows.py)."""

from tcdsl.costmodel.chip import Chip, Feature

ROW_BYTES = 512  # of a row: what 256 columns of a half type take
BARRIER_BYTES = 8  # of an event of a pipeline
ROWS_OF_WARP = 8  # of sixteen: half of a warp's results at once
PAD_BYTES = 32  # of a row, at most


def rows_bytes(warps: int, row_bytes: int) -> int:
    """Return the shared memory that rows of *row_bytes* of so many *warps* take."""
    return warps * ROWS_OF_WARP * (row_bytes + PAD_BYTES) if row_bytes else 0


def row_bytes_within(chip: Chip, warps: int, columns: int, taken_bytes: int) -> int:
    """Return how long rows of *columns* are where stages take *taken_bytes*; 0: there is no room.

    No stage is given up for them: at 4096 one is worth 9 us on an H200.
    """
    own = min(ROW_BYTES, 4 * columns)
    is_there = chip.has(Feature.WARPGROUP_PRODUCTS)
    room = chip.shared_bytes_per_block - taken_bytes
    return own if is_there and rows_bytes(warps, own) <= room else 0
