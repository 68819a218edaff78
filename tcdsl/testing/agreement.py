"""Whether two results agree within the rounding of their type.

For benchmarks, where a derived bound (:mod:`tcdsl.testing.comparison`) would take longer than all
the rest.
"""

from typing import Any

import numpy as np


def as_arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    """Return a call's result as float64 arrays, whatever library it is of."""
    results = result if isinstance(result, tuple) else (result,)
    return [_as_float64(one) for one in results]


def _as_float64(one: Any) -> np.ndarray[Any, Any]:
    if hasattr(one, "detach"):  # a tensor; its bfloat16 has no NumPy form
        one = one.detach().double().numpy()
    return np.asarray(one).astype(np.float64)


def tolerance_of(dtype: str) -> float:
    """Return how far results of element type *dtype* may differ, relative to the largest."""
    return {"float64": 1e-8, "float16": 3e-2, "bfloat16": 6e-2}.get(dtype, 2e-3)


def disagreement(result: Any, expected: Any, dtype: str) -> str | None:
    """Return how *result* differs from *expected* beyond *dtype*'s rounding, or None."""
    tolerance = tolerance_of(dtype)
    for number, (ours, theirs) in enumerate(
        zip(as_arrays(result), as_arrays(expected), strict=True)
    ):
        if ours.shape != theirs.shape:
            return f"output {number} has shape {ours.shape}, not {theirs.shape}"
        scale = np.max(np.abs(theirs[np.isfinite(theirs)]), initial=1.0)
        if not np.allclose(ours / scale, theirs / scale, rtol=0, atol=tolerance, equal_nan=True):
            with np.errstate(invalid="ignore"):  # infinities
                worst = np.nanmax(np.abs(ours - theirs)) / scale
            return f"output {number} differs by {worst:.2g} of its largest element"
    return None
