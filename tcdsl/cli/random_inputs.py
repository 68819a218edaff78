"""Random arrays for a definition's parameters, such that a run of it means something.

Floats are normal, small integers stay small so that sums do not overflow, and a tensor whose
values subscript another (a gather, a scatter) gets values within the extents of what it subscripts,
one whose values bound a range (rows of a sparse matrix) ascending ones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.types.dtypes import DType, Kind
from tcdsl.testing.parameters import range_limits, shapes_of, subscript_limits
from tcdsl.testing.random_inputs import range_bounds

LARGEST_PLAIN_INTEGER = 9


def _random_array(
    dtype: DType, shape: tuple[int, ...], limit: int, rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    match dtype.kind:
        case Kind.BOOL:
            values: np.ndarray[Any, Any] = rng.integers(0, 2, shape).astype(bool)
        case Kind.FLOAT:
            values = np.asarray(rng.standard_normal(shape))
        case _:
            values = np.asarray(rng.integers(0, max(limit, 1), shape))
    return np.asarray(values, dtype.numpy)


def random_inputs(
    comprehension: Comprehension, sizes: Mapping[str, int], seed: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Return an array for each parameter, the same for the same *seed*."""
    rng = np.random.default_rng(seed)
    limits, ranges = subscript_limits(comprehension, sizes), range_limits(comprehension, sizes)
    found = {}
    for name, shape in shapes_of(comprehension, sizes).items():
        dtype = comprehension.tensors[name].dtype
        if name in ranges and name not in limits and dtype.is_integer:
            found[name] = range_bounds(ranges[name], shape, dtype, 2 * seed)
        else:
            limit = limits.get(name, LARGEST_PLAIN_INTEGER + 1)
            found[name] = _random_array(dtype, shape, limit, rng)
    return found
