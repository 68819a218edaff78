"""When the threads of a block share both axes of an interleaved row, as one of their product.

    y(c) +=! x(n,c,p)       threads along p alone, n in turn: fine where p has work for all of them;
                            along f = n * P + p otherwise, which costs a division a vector

With p alone, a block has a whole number of warps: a row of 49 vectors leaves 15 of 64 threads
idle, and no block has more than these 64, whatever the number of images.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tcdsl.costmodel.machine import Gpu

WARP = 32
VECTOR_BYTES = 16
ENOUGH_WARPS = 2  # along the inner axis
MOST_IDLE = 0.25  # of the threads


@dataclass(frozen=True, slots=True)
class InterleavedRow:
    """Rows of *outer* times *inner* values; *steps* are the strides beside the inner one's."""

    outer: int
    inner: int
    value_bytes: int
    steps: Sequence[int]

    @property
    def vector(self) -> int:
        """How many neighbours a thread loads at once: aligned, and of one run."""
        width = VECTOR_BYTES // self.value_bytes
        while width > 1 and any(number % width for number in (self.inner, *self.steps)):
            width //= 2
        return max(width, 1)


def why_flat(gpu: Gpu, row: InterleavedRow) -> str | None:
    """Return why threads should be along both axes of *row*, None if the inner one will do."""
    groups = -(-row.inner // row.vector)
    warps = -(-groups // WARP)
    idle = 1 - groups / (WARP * warps)
    if row.outer < 2:
        return None
    if warps <= ENOUGH_WARPS:
        return f"{groups} vectors along the inner axis are work for {warps} warps"
    if idle > MOST_IDLE:
        return f"{idle:.0%} of {WARP * warps} threads along the inner axis would idle"
    return None
