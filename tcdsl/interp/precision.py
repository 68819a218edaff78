"""Properties of the float types that the error analysis needs, and its values."""

from typing import Any

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    DType,
)
from tcdsl.records import dataclass

# Bounds are computed in floating point as well; this covers what that loses.
_SLACK = 1 + 2.0**-30
# Bits of a significand, the leading one included; NumPy knows no limits of types that it lacks.
_SIGNIFICANDS = {
    FLOAT8_E5M2: 3, FLOAT8_E4M3: 4, BFLOAT16: 8, FLOAT16: 11, FLOAT32: 24, FLOAT64: 53,
}  # fmt: skip
_LARGEST = {FLOAT8_E5M2: 57344.0, FLOAT8_E4M3: 448.0, BFLOAT16: float.fromhex("0x1.fep127")}
_SMALLEST = {FLOAT8_E5M2: 2.0**-16, FLOAT8_E4M3: 2.0**-9, BFLOAT16: 2.0**-133}


@dataclass(frozen=True, slots=True)
class Approximate:
    """Values and bounds on their errors (float64, inf where nothing is known).

    *largest* is at least any finite size in the tensor that they are elements of, if that counts;
    as terms of a sum they may be added in so many *parts*.  *size* is that of the products that
    they are sums of, or None.
    """

    value: Array
    bound: Array
    largest: float | None = None
    parts: int = 1
    size: Array | None = None


def working(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type in which the analysis computes values of *dtype*."""
    if not dtype.is_float:
        return dtype.numpy
    return np.dtype(np.longdouble if dtype == FLOAT64 else np.float64)


def unit_roundoff(dtype: DType) -> float:
    """Return u: a result r is off by at most u |r|; the analysis' own rounding is included."""
    return 2.0 ** -_SIGNIFICANDS[dtype] + float(np.finfo(working(dtype)).eps) / 2


def largest(dtype: DType) -> float:
    """Return the largest finite number of *dtype*."""
    return _LARGEST.get(dtype) or float(np.finfo(dtype.numpy).max)


def smallest(dtype: DType) -> float:
    """Return the smallest positive number of *dtype*, a subnormal."""
    return _SMALLEST.get(dtype) or float(np.finfo(dtype.numpy).smallest_subnormal)


def settled(value: Array, bound: Array, dtype: DType) -> Approximate:
    """Return *value* with *bound*: inf where *dtype* might overflow, 0 at certain infinities."""
    # What concerns no element at all is mostly left out: these arrays have all terms of a sum.
    bound, finite = np.asarray(bound * _SLACK), np.isfinite(value)
    if np.isnan(bound).any():
        bound = np.where(np.isnan(bound), np.inf, bound)
    over = finite & (np.abs(value) + bound > largest(dtype))
    if not finite.all():
        certain = ~finite & np.isfinite(bound)  # no number is near an infinity, and NaN is NaN
        bound = np.where(certain, 0.0, bound)
    if over.any() or over.shape != bound.shape:
        bound = np.where(over, np.inf, bound)
    return Approximate(value, _upwards(bound))


def _upwards(bound: Array) -> Array:
    """Return *bound* in float64, of which nothing less is a bound: what is tiny must not be 0."""
    if bound.dtype == np.float64:
        return bound
    narrow = bound.astype(np.float64)
    less = narrow < bound
    return np.where(less, np.nextafter(narrow, np.inf), narrow) if less.any() else narrow
