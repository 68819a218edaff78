"""How many threads blocks have, whatever they compute.

Who chooses by them reads them from here, as ``block_sizes.WARP``: tests lower them in one place.
"""

WARP = 32
BLOCK_THREADS = 256
MAX_ROW_THREADS = 1024


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least *number*."""
    return 1 << max(0, number - 1).bit_length()
