"""Sparse matrices in CSR, ragged batches, segments: ranges whose bounds are data.

Sizes: rows of 30 entries, of 5, and few rows with many; P is one more than there are rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tcdsl.library.case import COMPUTED, Case, grid
from tcdsl.library.draws import Array, Draw, Sizes, below, pointers

_VECTOR = grid("P E C", (1001, 10_000_000, 10_000), (1_000_001, 30_000_000, 1_000_000),
               (1_000_001, 5_000_000, 1_000_000))  # fmt: skip
_MATRIX = grid("P E C D", (100_001, 3_000_000, 100_000, 64), (100_001, 500_000, 100_000, 16))
_BAGS = grid("P E V D", (4097, 131_072, 50_257, 128), (65_537, 655_360, 1_000_000, 64))
_SEGMENTS = grid("P E", (1001, 10_000_000), (100_001, 500_000), (1_000_001, 30_000_000))
_SMALL_VECTOR = grid("P E C", (2, 1, 1), (8, 33, 5), (4, 300, 17))
_SMALL_MATRIX = grid("P E C D", (2, 1, 1, 1), (8, 33, 5, 3), (4, 300, 17, 40))
_SMALL_BAGS = grid("P E V D", (2, 1, 1, 1), (8, 33, 5, 3), (4, 300, 17, 40))
_SMALL_SEGMENTS = grid("P E", (2, 1), (8, 33), (4, 300))


def _rows(ptr: Array) -> Array:
    """Return the row of every entry."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def _summed(values: Array, ptr: Array) -> Array:
    """Return the sums of *values*, (E, ...), over every row."""
    total = np.zeros((len(ptr) - 1, *values.shape[1:]), values.dtype)
    np.add.at(total, _rows(ptr), values)
    return total


def _csr(val: Array, col: Array, ptr: Array, x: Array) -> Array:
    return _summed(val * x[col], ptr)


def _csr_matrix(val: Array, col: Array, ptr: Array, X: Array) -> Array:
    return _summed(val[:, None] * X[col], ptr)


def _embedding_bag(table: Array, word: Array, ptr: Array) -> Array:
    return _summed(table[word], ptr)


def _segment_max(x: Array, ptr: Array) -> Array:
    largest = np.full(len(ptr) - 1, -np.inf, x.dtype)
    np.maximum.at(largest, _rows(ptr), x)
    return largest


def _segment_mean(x: Array, ptr: Array) -> Array:
    mean: Array = _summed(x, ptr) / np.maximum(np.diff(ptr), 1)
    return mean


def _segment_softmax(x: Array, ptr: Array) -> Array:
    rows = _rows(ptr)
    power = np.exp(x - _segment_max(x, ptr)[rows])
    softmax: Array = power / _summed(power, ptr)[rows]
    return softmax


def _case(
    name: str,
    formula: Callable[..., Any],
    sizes: tuple[Sizes, ...],
    small_sizes: tuple[Sizes, ...],
    results: tuple[str, ...] = (),
    **draws: Draw,
) -> Case:
    return Case(
        name=name, family="sparse", file="sparse", def_name=name, formula=formula, sizes=sizes,
        small_sizes=small_sizes, results=results, draws={"ptr": pointers("E"), **draws},
    )  # fmt: skip


CASES = (
    _case("csr", _csr, _VECTOR, _SMALL_VECTOR, col=below("C")),
    _case("csr_matrix", _csr_matrix, _MATRIX, _SMALL_MATRIX, col=below("C")),
    _case("embedding_bag", _embedding_bag, _BAGS, _SMALL_BAGS, word=below("V")),
    _case("segment_max", _segment_max, _SEGMENTS, _SMALL_SEGMENTS),
    _case("segment_mean", _segment_mean, _SEGMENTS, _SMALL_SEGMENTS, (COMPUTED,)),
    _case("segment_softmax", _segment_softmax, _SEGMENTS, _SMALL_SEGMENTS, (COMPUTED,)),
)
