"""Rows that blocks share, a chunk each: what ``row_chunks`` has decided before kernels are made."""

from tcdsl.costmodel.row_chunks import Cut
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class ChunkedRows:
    """Sums of exponentials in chunks: what a block runs, and what the last one of a row does."""

    members: tuple[str, ...]
    wholes: tuple[str, ...]
    index: str  # the chunk's number
    cut: Cut
