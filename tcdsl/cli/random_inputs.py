"""Random arrays for a definition's parameters, such that a run of it means something.

Floats are normal, small integers stay small so that sums do not overflow, and a tensor whose
values subscript another (a gather, a scatter) gets values within the extents of what it subscripts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tcdsl.lang.comprehension import Cast, Comprehension, Expr, Load, Statement, walk
from tcdsl.lang.dtypes import DType, Kind

LARGEST_PLAIN_INTEGER = 9


def shapes_of(comprehension: Comprehension, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters at *sizes*."""
    return {
        name: tuple(
            sizes[dim] if isinstance(dim, str) else int(dim or 0)
            for dim in comprehension.tensors[name].dims
        )
        for name in comprehension.inputs
    }


def _accesses(statement: Statement) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Yield (tensor, subscripts) of every access of *statement*, the written one first."""
    yield statement.target, statement.subscripts
    for root in (*statement.subscripts, statement.value, *statement.conditions):
        for node in walk(root):
            if isinstance(node, Load):
                yield node.tensor, node.subscripts


def subscript_limits(comprehension: Comprehension, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return, for each tensor that serves as a subscript, the least extent that it subscripts."""
    limits: dict[str, int] = {}
    for statement in comprehension.statements:
        for tensor, subscripts in _accesses(statement):
            for dim, subscript in zip(comprehension.tensors[tensor].dims, subscripts, strict=False):
                extent = sizes[dim] if isinstance(dim, str) else dim
                while isinstance(subscript, Cast):
                    subscript = subscript.operand
                if isinstance(subscript, Load) and extent is not None:
                    name = subscript.tensor
                    limits[name] = min(limits.get(name, extent), extent)
    return limits


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
