"""Which rows are numbered from their first vector of memory (rewrites/scop/alignment_shift).

A row of n vectors, where rows are aligned, has one more, and two of them in pieces: what is added
up there is chosen lane by lane, and stored one by one.  Short rows do not pay that back.

Measured on an H200, unaligned rows before and after (microseconds): bfloat16 sums of (1280, 30522)
27.9 and 25.3; cross-entropy of (4096, 50257) float32 264 and 214, bfloat16 231 and 159, its
gradient 758 and 487, 858 and 473; softmax of (8192, 5001) float32 103 and 84, bfloat16 89 and 47,
of (65536, 257) bfloat16 28 and 43.
"""

from tcdsl.costmodel.chip import VECTOR_BYTES, WARP
from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.scop import Array

LEAST_VECTORS = 3 * WARP


def why_not_shifted(array: Array) -> str | None:
    """Return why the rows of *array*, along its last dimension, stay as they are."""
    length = greatest(array.shape[-1]) if array.shape else 0
    if length is None:
        return "their length is only known at the call"
    is_short = length * array.dtype.size_bytes < LEAST_VECTORS * VECTOR_BYTES
    return "they are short" if is_short else None
