"""Tensor maps for emulated kernels: what runtime/mbarriers.h reads of an array and its boxes."""

from typing import Any

import numpy as np

from tcdsl.codegen.cuda.source import TFLOAT32, TensorMap
from tcdsl.lang.types.dtypes import BY_NAME, FLOAT32

_RANK = 5  # of the numbers' room


def emulated_map(map_: TensorMap, address: int) -> "np.ndarray[Any, Any]":
    """Return the numbers of *map_* for an array at *address*; whoever uses them keeps them."""
    is_rounded = map_.dtype == TFLOAT32
    size_bytes = (FLOAT32 if is_rounded else BY_NAME[map_.dtype]).size_bytes
    lower, upper = map_.corners or ((), ())
    # Corners and steps are of all dimensions but the first: that of neighbours.
    pixels = [(0, *own) if map_.corners else () for own in (lower, upper, map_.steps)]
    rows = (map_.sizes, (size_bytes, *map_.strides), map_.box, *pixels)
    padded = [number for row in rows for number in (*row, *(0,) * (_RANK - len(row)))]
    kinds = bool(map_.corners), is_rounded
    numbers = np.array([address, len(map_.sizes), size_bytes, *kinds, *padded], object)
    return (numbers % (1 << 64)).astype(np.uint64)
