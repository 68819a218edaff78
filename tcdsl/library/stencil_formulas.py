"""Formulas of stencils by slices and arithmetic alone: for PyTorch's tensors and JAX's arrays."""

from typing import Any


def harris(image: Any) -> Any:
    """Return the corner response of *image*, (height, width, 3): two rows and columns fewer twice.

    C. Harris, M. Stephens, A combined corner and edge detector, Alvey Vision Conference 1988,
    doi:10.5244/C.2.23.
    """
    grey = 0.299 * image[:, :, 0] + 0.587 * image[:, :, 1] + 0.114 * image[:, :, 2]
    rows, columns = grey[:-2] + 2 * grey[1:-1] + grey[2:], grey[2:] - grey[:-2]
    dx = (rows[:, 2:] - rows[:, :-2]) / 12
    dy = (columns[:, :-2] + 2 * columns[:, 1:-1] + columns[:, 2:]) / 12
    xx, xy, yy = _box(dx * dx), _box(dx * dy), _box(dy * dy)
    return xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy)


def _box(x: Any) -> Any:
    rows = x[:-2] + x[1:-1] + x[2:]
    return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
