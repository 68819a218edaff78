"""Rows of a warp in shared memory, by which it loads and stores lines (codegen/cuda/rows.py)."""

from tcdsl.costmodel.chip import Chip, Feature

ROW_BYTES = (512, 256, 128)  # 512: what a warp moves at once, of 256 columns of a half type
BARRIER_BYTES = 8  # of an event of a pipeline
ROWS_OF_WARP = 8  # of sixteen: half of a warp's results at once
PAD_BYTES = 32  # of a row, at most


def rows_bytes(warps: int, row_bytes: int) -> int:
    """Return the shared memory that rows of *row_bytes* of so many *warps* take."""
    return warps * ROWS_OF_WARP * (row_bytes + PAD_BYTES) if row_bytes else 0


def row_lengths(
    chip: Chip, warps: int, columns: int, taken_bytes: int, *, is_alone: bool
) -> tuple[int, ...]:
    """Return how long rows of *columns* may be where stages take *taken_bytes*, the longest first.

    Neither a stage nor a block of a multiprocessor is given up for them, which has one block if
    that *is_alone*: at 4096 a stage is worth 9 us on an H200.
    """
    if not chip.has(Feature.WARPGROUP_PRODUCTS):
        return ()
    others = taken_bytes + chip.reserved_shared_bytes_per_block
    blocks = 1 if is_alone else max(1, chip.shared_bytes_per_multiprocessor // others)
    room = chip.shared_bytes_per_multiprocessor // blocks - chip.reserved_shared_bytes_per_block
    room = min(room, chip.shared_bytes_per_block) - taken_bytes
    lengths = dict.fromkeys(min(size, 4 * columns) for size in ROW_BYTES)
    return tuple(size for size in lengths if rows_bytes(warps, size) <= room)
