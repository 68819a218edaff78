"""Random inputs: well scaled, valid as labels, masks or variances, the same for the same seed.

A draw maps (rng, shape, dtype, sizes) to an array; *sizes* are the size symbols' values.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass

Array = NDArray[Any]
Sizes = Mapping[str, int]
Draw = Callable[[np.random.Generator, tuple[int, ...], DType, Sizes], Array]

_INTEGER_BOUND = 100


def ordinary(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
    """Standard normal floats, small integers of both signs where there are signs, fair bools."""
    if dtype.is_float:
        return _normal(rng, shape, dtype).astype(dtype.numpy, copy=False)
    if not dtype.is_integer:
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype.numpy)
    low, high = max(info.min, -_INTEGER_BOUND), min(info.max, _INTEGER_BOUND)
    return rng.integers(low, high, shape, dtype.numpy, endpoint=True)


def any_value(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes
) -> Array:
    """Integers from the whole range of *dtype*."""
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Floats from [low, high)."""

    low: float
    high: float

    def __call__(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes
    ) -> Array:
        return (self.low + (self.high - self.low) * rng.random(shape)).astype(dtype.numpy)


def uniform(low: float, high: float) -> Draw:
    """Floats from [low, high), such as variances and other values that must be positive."""
    return Uniform(low, high)


def weights(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
    """Normal floats divided by the root of the fan-in, so that a chain of layers keeps its scale.

    The first dimension counts outputs, the others are summed over.
    """
    fan_in = max(1, math.prod(shape[1:]))
    return (_normal(rng, shape, dtype) / math.sqrt(fan_in)).astype(dtype.numpy)


def near_one(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
    """Values of both signs whose product neither overflows nor vanishes.

    All are 1 or -1, but for about 16 floats: a small factor for each would drift in a half type,
    which has more numbers just below 1 than just above it.
    """
    signs = rng.choice(np.array([-1, 1]), shape)
    if not dtype.is_float:
        return signs.astype(dtype.numpy)
    is_other = rng.random(shape) * math.prod(shape) < 16
    factors = np.exp(np.where(is_other, 0.3 * _normal(rng, shape, dtype), 0.0))
    return (signs * factors).astype(dtype.numpy)


@dataclass(frozen=True, slots=True)
class Mostly:
    """Bools, most of them *value*."""

    value: bool

    def __call__(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes
    ) -> Array:
        drawn: Array = (rng.random(shape) * max(1, shape[-1]) >= 1.0) == self.value
        return drawn


def mostly(value: bool) -> Draw:
    """Bools that are *value* but for one in the last dimension's extent, on average."""
    return Mostly(value)


def mask(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
    """Bools, four of five true, and the first of each row true, so that no row is empty."""
    chosen = rng.random(shape) < 0.8
    chosen[..., :1] = True
    return chosen


def below(size: str) -> Draw:
    """Integers from [0, size), for labels and gathered indices."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
        return rng.integers(0, max(1, sizes[size]), shape, dtype.numpy)

    return draw


def pointers(size: str) -> Draw:
    """Integers that do not decrease, from 0 to *size*: where rows begin, and the last one ends."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
        starts = np.sort(rng.integers(0, sizes[size], shape, dtype.numpy, endpoint=True), axis=-1)
        starts[..., :1], starts[..., -1:] = 0, sizes[size]
        return starts

    return draw


def value(number: float) -> Draw:
    """One number everywhere: for host scalars."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Array:
        return np.full(shape, number, dtype.numpy)

    return draw


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Standard normal floats in the type that *dtype* is computed in."""
    return rng.standard_normal(shape, np.float64 if dtype.size_bytes == 8 else np.float32)
