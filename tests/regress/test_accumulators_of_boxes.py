"""Sums whose initialisation has names of its own: planning failed, and one thread did it all.

The initialisation of ``t(c, h + r)`` is over the elements of t.  With one value of r the sums are
of plain indices, and get accumulators; with several their copies are added up after a kernel that
has the initialisation already.
"""

from collections.abc import Callable

import pytest

CASES = [
    (
        "def f(float32(F, 1, W) a, float32(F, C, R, S) b) -> (t)"
        " { t(c, h + r, w + 2*s) +=! b(f, c + 1, r, s) * a(f, h, w) where c in 0:32 }",
        [(4096, 1, 1), (4096, 35, 1, 1)],
    ),
    (
        "def f(uint8(F, H) a, uint8(C, F, R) b) -> (t) { t(c, h + r) +=! a(f, h) * b(c, f, r) }",
        [(127, 127), (1, 127, 5)],
    ),
]


@pytest.mark.slow_but("copies")
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("case", CASES, ids=["one value", "copies"])
def test_results(
    case: tuple[str, list[tuple[int, ...]]],
    check_all: Callable[..., None],
    check_emulated: Callable[..., None],
) -> None:
    check_all([case])
    check_emulated([case])
