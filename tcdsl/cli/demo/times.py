"""Pairs of callables that compute the same, in tcdsl and in idiomatic NumPy, to be timed."""

from collections.abc import Callable
from typing import Any

import numpy as np

import tcdsl
from tcdsl.cli.demo import digits, photographs
from tcdsl.records import dataclass
from tcdsl.runtime.timing import compare as compare_times

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """One operation twice; both callables return the same arrays within *tolerance*."""

    ours: Callable[[], Any]
    numpy: Callable[[], Any]
    tolerance: float = 1e-4


def blur() -> Pair:
    """The demo's blur of a photograph: two passes of 19 weights."""
    picture = photographs.with_border(photographs.load("china"), photographs.BLUR_RADIUS)
    weight = photographs.gaussian(photographs.BLUR_RADIUS, photographs.BLUR_WIDTH)
    height, width = (extent - len(weight) + 1 for extent in picture.shape[:2])

    def with_numpy() -> Array:
        wide = picture.astype(np.float32)
        across = sum(w * wide[:, j : j + width] for j, w in enumerate(weight))
        smooth = sum(w * across[i : i + height] for i, w in enumerate(weight))
        return np.asarray(smooth + np.float32(0.5)).astype(np.uint8)

    ours = tcdsl.define(photographs.PROGRAM).blur
    return Pair(lambda: ours(picture, weight), with_numpy, tolerance=1.0)


def edges() -> Pair:
    """The demo's edge detection of a photograph: two 5 x 5 convolutions of its grey values."""
    picture = photographs.with_border(photographs.load("china"), photographs.SLOPE_RADIUS)
    slope = photographs.gaussian_slope(photographs.SLOPE_RADIUS, photographs.SLOPE_WIDTH)
    height, width = (extent - len(slope) + 1 for extent in picture.shape[:2])

    def convolved(grey: Array, weight: Array) -> Array:
        result = np.zeros((height, width), np.float32)
        for i, j in np.ndindex(weight.shape):
            result += weight[i, j] * grey[i : i + height, j : j + width]
        return result

    def with_numpy() -> Array:
        grey = picture.astype(np.float32).sum(axis=2) / np.float32(3)
        return np.hypot(convolved(grey, slope), convolved(grey, slope.T))

    ours = tcdsl.define(photographs.PROGRAM).edges
    return Pair(lambda: ours(picture, slope), with_numpy, tolerance=1e-2)


def network() -> Pair:
    """The demo's network, forward, on all digits."""
    data = digits.load()
    weights = digits.initial_weights(np.random.default_rng(digits.SEED))
    w1, b1, w2, b2 = weights

    def with_numpy() -> tuple[Array, Array]:
        hidden = np.maximum(data.train @ w1 + b1, 0)
        logit = hidden @ w2 + b2
        odds = np.exp(logit - logit.max(axis=1, keepdims=True))
        return hidden, odds / odds.sum(axis=1, keepdims=True)

    ours = tcdsl.define(digits.PROGRAM).forward
    return Pair(lambda: ours(data.train, *weights), with_numpy)


SOFTMAX = """
def softmax(float(M, N) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
"""


def softmax() -> Pair:
    """The softmax of 4096 rows of 1024."""
    x = np.random.default_rng(0).standard_normal((4096, 1024), np.float32)

    def with_numpy() -> Array:
        power = np.exp(x - x.max(axis=1, keepdims=True))
        return np.asarray(power / power.sum(axis=1, keepdims=True))

    ours = tcdsl.define(SOFTMAX).softmax
    return Pair(lambda: ours(x), with_numpy)


def matmul() -> Pair:
    """A product of two 512 x 512 matrices: here NumPy calls a hand-written BLAS."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512), np.float32) for _ in "ab")
    ours = tcdsl.define(
        "def matmul(float(M, K) a, float(K, N) b) -> (c) { c(m, n) +=! a(m, k) * b(k, n) }"
    ).matmul
    return Pair(lambda: ours(a, b), lambda: a @ b, tolerance=1e-2)


OPERATIONS: dict[str, Callable[[], Pair]] = {
    "blur, 427x640 photograph": blur,
    "edges, 427x640 photograph": edges,
    "network forward, 1348 digits": network,
    "softmax, 4096x1024": softmax,
    "matmul, 512x512 (NumPy: BLAS)": matmul,
}


def agree(pair: Pair) -> bool:
    """Whether both sides of *pair* give the same result, within its tolerance."""
    ours, expected = pair.ours(), pair.numpy()
    if not isinstance(ours, tuple):
        ours, expected = (ours,), (expected,)
    return all(
        np.allclose(a.astype(float), b.astype(float), rtol=1e-3, atol=pair.tolerance)
        for a, b in zip(ours, expected, strict=True)
    )


def compare(pair: Pair) -> tuple[float, float]:
    """Return the median times, in microseconds, of tcdsl and of NumPy, measured alternately."""
    assert agree(pair), "tcdsl and NumPy compute different things"
    timings = compare_times({"tcdsl": pair.ours, "numpy": pair.numpy}, min_time_s=1.0).timings
    return timings["tcdsl"].median_us, timings["numpy"].median_us
