"""Random arrays for a definition's parameters, such that a run of it means something.

Floats are normal, small integers stay small so that sums do not overflow, and a tensor whose
values subscript another (a gather, a scatter) gets values within the extents of what it subscripts.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.dtypes import DType, Kind
from tcdsl.testing.parameters import shapes_of, subscript_limits

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
    limits = subscript_limits(comprehension, sizes)
    return {
        name: _random_array(
            comprehension.tensors[name].dtype, shape,
            limits.get(name, LARGEST_PLAIN_INTEGER + 1), rng,
        )
        for name, shape in shapes_of(comprehension, sizes).items()
    }  # fmt: skip
