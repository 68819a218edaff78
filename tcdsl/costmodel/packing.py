"""What packing adds to a product on tensor cores: addresses and guards of each copy.

    along the terms    a thread has its rows for good: what a step adds is a guard and a sum
    else               each line is another term, whose indices are divided out in each step

A copy of one element of a half type moves through registers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.tensor_tiles import PART_BYTES
from tcdsl.costmodel.work import Chain, Work

KEPT, DIVIDED = 14, 26  # instructions of a copy
BY_REGISTERS = 6  # more, where one element is loaded and stored
LEAST_COPY = 4  # bytes that an asynchronous copy moves
PARTS = 0.7  # instructions' time of each product of float32 in parts


def with_parts(work: Work, products: float) -> Work:
    """Return *work* with what parts of float32 take where barriers stand between steps.

    3 x 3 convolutions of 56 x 56 x 64 with channels last, 3.7 G products, took 113 to 121 us on an
    H200; with channels second 229 with 64 columns a warp, 192 with 128, for as many images' copies
    and half as many of weights (benchmarks/measured/candidates_tiles_h200.jsonl).
    """
    return replace(work, instructions=work.instructions + PARTS * products)


class Copied(NamedTuple):
    """What loaders copy of an operand: *elements*, *vector* at once, *apart* in memory."""

    elements: float
    vector: int
    is_along_terms: bool
    apart: float  # from an element of a tile's line to its neighbour


def with_loaders(
    work: Work,
    copied: Sequence[Copied],
    element_bytes: int,
    shared_sums: float,
    chip: Chip,
) -> Work:
    """Return *work* with packing loaders, and with *shared_sums* added up by a kernel after it.

    Where a line's neighbours are apart in memory, each brings the rest of its sector along.
    """
    more, beside = 0.0, 0.0
    for own in copied:
        each = (KEPT if own.is_along_terms else DIVIDED) + (
            BY_REGISTERS if own.vector * element_bytes < LEAST_COPY else 0
        )
        more += each * own.elements / own.vector
        fetched = min(own.apart * element_bytes, chip.sector_bytes)
        beside += own.elements * max(0.0, fetched - element_bytes)
    work = replace(
        work, instructions=work.instructions + more, l2_bytes=work.l2_bytes + beside
    )  # fmt: skip
    if not shared_sums:
        return work
    part_bytes = PART_BYTES * shared_sums
    return replace(
        work, l2_bytes=work.l2_bytes + part_bytes, launches=2,
        is_programmatic=chip.overlaps_kernels,
        finish=Chain(l2_loads=2, cycles=part_bytes / chip.l2_bytes_per_s * chip.clock_hz),
    )  # fmt: skip
