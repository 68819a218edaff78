"""An infinite factor of three may multiply a sum: an infinity, where the terms add up to NaN."""

from collections.abc import Callable
from math import inf, isinf, isnan, nan

import numpy as np
import pytest

import tcdsl
from tcdsl.testing import check

THREE = """def f(float32(M,K) a, float32(N,J) b, float32(M,J,K) c) -> (t) {
    t(m, n) +=! c(m, j, k) * a(m, k) * b(n, j)
}"""
TWO = "def f(float32(M,K) a, float32(K,N) b) -> (t) { t(m, n) +=! a(m, k) * b(k, n) }"


def inputs(value: float) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    a, c = rng.normal(size=(2, 100)), rng.normal(size=(2, 3, 100))
    b = rng.normal(size=(2048, 3))
    b[5, 1] = value
    return [x.astype(np.float32) for x in (a, b, c)]


@pytest.mark.parametrize("target", ["cpu", "emulate"])
@pytest.mark.parametrize("value", [inf, -inf, nan])
def test_an_order_of_three_factors(target: str, value: float) -> None:
    check(tcdsl.define(THREE).f, *inputs(value), targets=(target,))


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_infinities_times_zeros(target: str) -> None:
    a, b, c = inputs(inf)
    a[:, ::2] = 0.0
    check(tcdsl.define(THREE).f, a, b, c, targets=(target,))


class Wrong:
    """A function whose results another program computes, of the factors as *change* has them."""

    def __init__(self, text: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.f, self.change = tcdsl.define(text).f, change
        self.comprehension, self.specialise = self.f.comprehension, self.f.specialise

    def __call__(self, *arrays: np.ndarray, **given: object) -> object:
        return self.f(*map(self.change, arrays), **given)


def test_what_is_nan_in_any_order_is_nan() -> None:
    """A NaN among the factors, and sums of two factors, are compared as ever."""
    wrong = Wrong(THREE, lambda x: np.where(np.isnan(x), np.float32(inf), x))
    with pytest.raises(AssertionError, match="expected nan"):
        check(wrong, *inputs(nan))
    a, b = np.ones((2, 9), np.float32), np.ones((9, 3), np.float32)
    a[0, :2] = inf, -inf
    wrong = Wrong(TWO, lambda x: np.where(np.isinf(x), np.float32(inf), x))
    with pytest.raises(AssertionError, match="expected nan"):
        check(wrong, a, b)


def test_the_case_is_what_it_says() -> None:
    f, arrays = tcdsl.define(THREE).f, inputs(inf)
    as_written = f(*arrays, target="reference")[0, 5]
    in_pairs = f(*arrays, target="cpu")[0, 5]
    assert isnan(as_written) and isinf(in_pairs)
