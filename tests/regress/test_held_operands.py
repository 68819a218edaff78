"""Operands held in registers are those that the tile has, wherever the subscript puts them."""

from collections.abc import Callable

import pytest

from tcdsl.costmodel.chip import Chip

PROGRAM = "def f(float(M, S) a, float(N, K) b) -> (t) {{ t(m, n) +=! b(n, k) * a(m, {}) {} }}"


@pytest.mark.slow_but("K - 1 - k--8", "2*k-where k in 1:K-16")
@pytest.mark.parametrize(
    ("subscript", "where", "extent"),
    [
        ("3*k + 1", "", 25),
        ("K - 1 - k", "", 8),
        ("k + 1", "where k in 3:K", 9),
        ("2*k", "where k in 1:K", 16),
        ("2*K - 1 - 2*k", "where k in 1:K", 16),
    ],
)
def test_strided_and_reversed_terms(
    subscript: str,
    where: str,
    extent: int,
    check_emulated: Callable[..., None],
    small_chip: Chip,
) -> None:
    check_emulated([(PROGRAM.format(subscript, where), [(40, extent), (3, 8)])], gpu=small_chip)


MASKED = """def f(float(K, N) a, float(M, K) b) -> (t) {
    t(m, n) +=! a(k, n) * (k % 4 != 0 ? b(m, k) : 0)
}"""


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_terms_that_are_never_read(check_emulated: Callable[..., None], small_chip: Chip) -> None:
    """The box of a step's reads begins at its second term: the plan failed verification."""
    check_emulated([(MASKED, [(40, 24), (16, 40)])], gpu=small_chip)
