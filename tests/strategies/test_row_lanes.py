"""How many threads of a warp share a row that they keep in registers."""

import pytest

from tcdsl.strategies.row_registers import _busy_lanes


@pytest.mark.parametrize(
    ("groups", "threads"),
    [(32, 32), (24, 8), (20, 8), (40, 16), (28, 32), (25, 32), (64, 32), (33, 8), (96, 32)],
)
def test_few_threads_idle(groups: int, threads: int) -> None:
    """Of 24 vectors eight threads have three each; 25 are no better off with fewer threads."""
    assert _busy_lanes(groups, 32) == threads


def test_fewer_threads_than_a_line_has_vectors_stay() -> None:
    assert [_busy_lanes(groups, 4) for groups in (3, 4, 5)] == [4, 4, 4]
