"""Properties of the float types that the error analysis needs, and its values."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import FLOAT64, DType

# Bounds are computed in floating point as well; this covers what that loses.
_SLACK = 1 + 2.0**-30


@dataclass(frozen=True, slots=True)
class Approximate:
    """Values and bounds on their errors (float64, inf where nothing is known)."""

    value: Array
    bound: Array


def working(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type in which the analysis computes values of *dtype*."""
    if not dtype.is_float:
        return dtype.numpy
    return np.dtype(np.longdouble if dtype == FLOAT64 else np.float64)


def unit_roundoff(dtype: DType) -> float:
    """Return u: a result r is off by at most u |r|; the analysis' own rounding is included."""
    significand = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
    return 2.0**-significand + float(np.finfo(working(dtype)).eps) / 2


def largest(dtype: DType) -> float:
    """Return the largest finite number of *dtype*."""
    if dtype.name == "bfloat16":
        return float.fromhex("0x1.fep127")
    return float(np.finfo(dtype.numpy).max)


def smallest(dtype: DType) -> float:
    """Return the smallest positive number of *dtype*, a subnormal."""
    if dtype.name == "bfloat16":
        return 2.0**-133
    return float(np.finfo(dtype.numpy).smallest_subnormal)


def settled(value: Array, bound: Array, dtype: DType) -> Approximate:
    """Return *value* with *bound*: inf where *dtype* might overflow, 0 at certain infinities."""
    bound, finite = np.where(np.isnan(bound), np.inf, bound * _SLACK), np.isfinite(value)
    over = finite & (np.abs(value) + bound > largest(dtype))
    certain = ~finite & np.isfinite(bound)  # no number is near an infinity, and NaN is NaN
    bound = np.where(over, np.inf, np.where(certain, 0.0, bound))
    return Approximate(value, bound.astype(np.float64))
