"""The workspace of known sizes is as large as its arrays, also where blocks take tickets."""

from collections.abc import Callable

SOURCE = """
def f(uint8(K, L) a, uint8(K, L, N) b) -> (t) { t(n) +=! a(k, l) * b(k, l, n) }
"""


def test_parts_of_blocks_after_their_tickets(check_emulated: Callable[..., None]) -> None:
    """Parts were taken for those of open sizes, and had no room behind the tickets."""
    check_emulated([(SOURCE, [(16, 52), (16, 52, 17)])])
