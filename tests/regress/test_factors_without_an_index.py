"""A factor that is computed and has no index: an array without dimensions had no rows to pad.

On a GPU the plan fell back on statement by statement, and each open size had code of its own.
"""

from collections.abc import Callable

import numpy as np
import pytest

SOURCES = (
    "def f(half(M,K) a, half w) -> (y) { y(m,n) +=! a(m,j) * exp(w) where n in 0:70 }",
    "def f(float(M,K) a, float w) -> (y) { y(m) +=! a(m,j) * relu(w) }",
    "def f(half(M,K) a, half(3) w, int32(2) k) -> (y) { y(m) +=! a(m,j) * w(k(0)) }",
    "def f(int8(M,K) a, int8(3) w, int32(2) k) -> (y) { y(m) +=! a(m,j) * w(k(0)) }",
)


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_on_a_gpu(check_emulated: Callable[..., None]) -> None:
    index = np.array([2, 0], np.int32)
    inputs = ([(33, 65), ()], [(33, 65), ()], [(33, 65), (3,), index], [(33, 65), (3,), index])
    check_emulated(list(zip(SOURCES, inputs, strict=True)))
