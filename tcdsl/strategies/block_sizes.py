"""How many threads blocks have, whatever they compute.

Who chooses by them reads them from here, as ``block_sizes.WARP``: tests lower them in one place.
"""

from tcdsl.costmodel import chip

WARP = chip.WARP
BLOCK_THREADS = 256  # where nothing asks for another number: eight warps hide each other's latency
MAX_ROW_THREADS = chip.MOST_THREADS


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least *number*."""
    return 1 << max(0, number - 1).bit_length()
