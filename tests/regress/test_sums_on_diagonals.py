"""Sums whose targets are diagonals: the elements beside them were left as they were.

``y(m,m) +=! ...`` first sets all of the square around the diagonal to 0; sums of half types were
not planned at all, but for one thread.
"""

from collections.abc import Callable

import pytest

import tcdsl
from tcdsl.options import Options
from tcdsl.testing import check
from tests.programs import arrays_for

CheckAll = Callable[..., None]

PROGRAMS = {
    "product": "def f(float(M,K) x, float(K,M) w) -> (y) { y(m,m) +=! x(m,k) * w(k,m) }",
    "half": "def f(half(M,K) x, half(K,M) w) -> (half(M,M) y) { y(m,m) +=! x(m,k) * w(k,m) }",
    "places": "def f(float(M,K) x, float(K,M) w) -> (int64(M,M) y) { y(m,m) argmax=! x(m,k) }",
    "batch": "def f(float(M,K) x, float(K,M) w) -> (y) { y(m,n,m) max=! x(m,k) + w(k,n) }",
    "update": "def f(half(M,K) x, half(K,M) w, half(M,M) y) -> (y) { y(m,m) += x(m,k) * w(k,m) }",
}
SIZES = [(7, 300), (1, 3), (5, 0)]


@pytest.mark.slow_but("product", "half")
@pytest.mark.parametrize("form", PROGRAMS)
def test_the_square_around_it_is_initialised(
    form: str, check_all: CheckAll, check_emulated: CheckAll
) -> None:
    n_inputs = 3 if form == "update" else 2
    cases = [(PROGRAMS[form], [(m, k), (k, m), (m, m)][:n_inputs]) for m, k in SIZES]
    check_all(cases)
    check_emulated(cases)


def test_compensated_sums() -> None:
    f = tcdsl.define(PROGRAMS["product"])["f"]
    inputs = arrays_for(f.comprehension, [(7, 300), (300, 7)], 1)
    check(f, *inputs, options=Options(summation="compensated"))
