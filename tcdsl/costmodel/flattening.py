"""When the threads of a block share both axes of an interleaved row, as one of their product.

    y(c) +=! x(n,c,p)       threads along p alone, n in turn: fine where p has work for all of them;
                            along f = n * P + p otherwise, which costs a division a vector

A loop over n starts no loads of the next image before those of this one are used.  A pass over rows
that nobody keeps therefore wants IN_FLIGHT loads of every thread along p.  Where several passes
share a row, a block has fetched all of it before the first one: then threads along p need only not
idle, as 15 of 64 do along 49 vectors.

Measured on an H200, N images of C channels: sums (32, 256, 14, 14) 17.2 -> 6.9 us, (32, 64, 56, 56)
18.3 -> 11.6 us, (8, 64, 224, 224) 33 -> 36 us; batchnorm (32, 256, 14, 14) 8.9 -> 7.8 us, (64, 128,
28, 28) 24.5 -> 26.5 us in float32 and 14.7 -> 12.6 us in bfloat16.
"""

from collections.abc import Sequence

from tcdsl.costmodel.chip import VECTOR_BYTES, WARP, Chip
from tcdsl.costmodel.reductions import IN_FLIGHT
from tcdsl.records import dataclass

ENOUGH_WARPS = 2  # along the inner axis
MOST_IDLE = 0.2  # of the threads


@dataclass(frozen=True, slots=True)
class InterleavedRow:
    """Rows of *outer* times *inner* values, which *passes* statements go over.

    *steps* are the strides of all axes but the inner one.
    """

    outer: int
    inner: int
    value_bytes: int
    steps: Sequence[int]
    passes: int

    @property
    def vectors(self) -> int:
        """How many vectors the inner axis has: aligned, of one image each."""
        width = max(1, VECTOR_BYTES // self.value_bytes)
        while any(number % width for number in (self.inner, *self.steps)):
            width //= 2
        return -(-self.inner // width)


def why_flat(gpu: Chip, row: InterleavedRow) -> str | None:
    """Return why threads should be along both axes of *row*, None if the inner one will do."""
    if row.outer < 2 or row.inner < 1:
        return None
    if row.passes == 1:
        loads = row.vectors / gpu.threads_per_block
        return f"{loads:.2g} loads of a thread along the inner axis" if loads < IN_FLIGHT else None
    warps = -(-row.vectors // WARP)
    idle = 1 - row.vectors / (WARP * warps)
    if warps <= ENOUGH_WARPS or idle > MOST_IDLE:
        return f"{row.vectors} vectors along the inner axis leave {idle:.0%} of {warps} warps idle"
    return None
