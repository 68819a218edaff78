"""Random arrays for random programs: values of moderate size, in every memory layout."""

from typing import Any

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import DType

# Simple ones first: Hypothesis shrinks towards them.
LAYOUTS = ("contiguous", "transposed", "negative", "strided", "broadcast")
VALUES = ("whole", "real", "special")


def values(dtype: DType, shape: tuple[int, ...], kind: str, seed: int) -> Array:
    """Return random values of *dtype*: whole numbers, reals, or reals with NaN, +-inf and -0.0."""
    rng = np.random.default_rng(seed)
    if not dtype.is_float:
        low, high = (
            (0, 2) if dtype.name == "bool" else (0, 7) if dtype.kind == "unsigned" else (-5, 6)
        )
        return rng.integers(low, high, shape).astype(dtype.numpy)
    if kind == "whole":
        return rng.integers(-4, 5, shape).astype(dtype.numpy)
    reals = rng.normal(size=shape)
    if kind == "special":
        special = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-42], size=shape)
        reals = np.where(rng.random(shape) < 0.1, special, reals)
    return np.asarray(reals).astype(dtype.numpy)


def subscripts(extent: int, shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    """Return random integers in ``[0, extent)``, with repetitions."""
    return np.random.default_rng(seed).integers(0, extent, shape).astype(dtype.numpy)


def range_bounds(values: range, shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    """Return bounds of ranges of *values*, its end among them; those of odd seeds in any order."""
    rng = np.random.default_rng(seed)
    bounds = rng.integers(values.start, max(values.start, values.stop), shape, endpoint=True)
    if seed % 2 == 0 and bounds.ndim:
        bounds = np.sort(bounds, axis=-1)
    return np.asarray(bounds, dtype.numpy)


def laid_out(array: Array, layout: str) -> Array:
    """Return *array*'s values (the first ones repeated, for "broadcast") laid out in memory so."""
    if not array.ndim:
        return array
    match layout:
        case "transposed":
            return np.asarray(array.T.copy().T)
        case "negative":
            return _spaced(array, -1)
        case "strided":
            return _spaced(array, 2)
        case "broadcast" if array.shape[0]:
            return np.broadcast_to(array[:1], array.shape)
        case _:
            return array


def _spaced(array: Array, step: int) -> Array:
    """Return *array* as every *step*-th element of the last axis of a larger one."""
    last = array.shape[-1]
    room: Any = np.zeros((*array.shape[:-1], last * abs(step)), array.dtype)
    view = room[..., ::step]
    view[...] = array
    return np.asarray(view)
