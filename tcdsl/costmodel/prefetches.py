"""How much blocks may ask the second-level cache for before they load it.

What is asked for too early is gone when it is loaded: other blocks have asked, too, and what they
store passes the cache as well.  On an H200, whose cache holds 60 MB, layernorm's backward of
(16384, 4096) in bfloat16 takes 118 us instead of 137 with the next row of each block asked for, 4.3
MB of all together; with the row after the next one 121, after the fourth 141.  In float32 8.6 MB
made 208 to 224 of 210 us.
"""

from tcdsl.costmodel.chip import Chip

LEAST_BYTES = 1 << 10  # of a row, for which an instruction is worth while
SHARE = 0.1  # of the cache, for what all blocks have asked for


def bytes_ahead(gpu: Chip) -> int:
    """Return how many bytes all blocks together may have asked for."""
    return int(SHARE * gpu.l2_bytes)
