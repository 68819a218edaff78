"""The contractions: matrix products, table look-ups, small networks, Kronecker, tensordot.

Sizes are those of Tensor Comprehensions (TACO 2019) and of Panamera's split-K shapes.
"""

# The formulas' parameters are the programs' own, and these call an image I.
# ruff: noqa: E741

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from tcdsl.library.case import ALL_FLOATS, Case, Details, Formula, grid
from tcdsl.library.draws import Array, Draw, Sizes, any_value, below, weights

_SQUARES = ((1024,) * 3, (4096,) * 3, (8192,) * 3)
_MATMUL = grid("M N K", (128, 32, 256), (128, 1024, 1024), (128, 4096, 16384), *_SQUARES)
# Few results of long sums: only the summed index has enough work for a whole machine.
_SPLIT_K = grid("M N K", *((128, 32, 1024 * 4**n) for n in range(4)))
_SMALL_MATMUL = grid("M N K", (0, 3, 2), (3, 2, 0), (1, 1, 1), (7, 13, 5), (33, 17, 65))


def _case(
    name: str,
    formula: Formula,
    sizes: tuple[Sizes, ...],
    small_sizes: tuple[Sizes, ...],
    multiply_adds: tuple[str, ...],
    draws: Mapping[str, Draw] | None = None,
    **details: Unpack[Details],
) -> Case:
    details.setdefault("dtypes", ALL_FLOATS)
    return Case(
        name=name, family="contraction", file="contractions", def_name=name, formula=formula,
        sizes=sizes, small_sizes=small_sizes, multiply_adds=multiply_adds, draws=draws or {},
        **details,
    )  # fmt: skip


def _einsum(subscripts: str, *names: str) -> Formula:
    """Return the contraction *subscripts* of the parameters *names*, as NumPy writes it."""

    def formula(**inputs: Array) -> Any:
        return np.einsum(subscripts, *(inputs[name] for name in names), optimize=True)

    return formula


def _integer_product(A: Array, B: Array) -> Array:
    return A.astype(np.int64) @ B.astype(np.int64).T


def _look_up(table: Array, index: Array) -> Any:
    return table[index].sum(axis=1)


def _look_up_twice(
    table1: Array, index1: Array, table2: Array, index2: Array
) -> tuple[Array, Array]:
    return _look_up(table1, index1), _look_up(table2, index2)


def _mlp1(I: Array, W: Array, bias: Array) -> Any:
    return np.maximum(I @ W + bias, 0)


def _mlp3(
    I: Array,
    W1: Array,
    bias1: Array,
    W2: Array,
    bias2: Array,
    W3: Array,
    bias3: Array,
) -> Any:
    h = np.maximum(I @ W1.T + bias1, 0)
    h = np.maximum(h @ W2.T + bias2, 0)
    return np.maximum(h @ W3.T + bias3, 0)


def _kronecker(W0: Array, W1: Array, W2: Array, X: Array) -> Array:
    """Multiply each row of X by the whole Kronecker product: independent of any chain."""
    product = np.kron(np.kron(W0, W1), W2)
    flat = X.reshape(len(X), product.shape[1]) @ product.T
    return flat.reshape(len(X), len(W0), len(W1), len(W2))


def _kronecker_chain(W0: Array, W1: Array, W2: Array, X: Array) -> Array:
    y = np.tensordot(X, W2, (3, 1))  # (m, n0, n1, d2)
    y = np.tensordot(y, W1, (2, 1))  # (m, n0, d2, d1)
    y = np.tensordot(y, W0, (1, 1))  # (m, d2, d1, d0)
    return np.ascontiguousarray(y.transpose(0, 3, 2, 1))


def _tensordot(I0: Array, I1: Array) -> Array:
    """Multiply the matrices of each pixel, which for @ stand last."""
    pixels = I0.transpose(0, 3, 4, 1, 2) @ I1.transpose(0, 3, 4, 1, 2)
    return pixels.transpose(0, 3, 4, 1, 2)


CASES: tuple[Case, ...] = (
    _case("matmul", lambda A, B: A @ B, _MATMUL, _SMALL_MATMUL, ("M N K",)),
    _case("tmm", lambda A, B: A @ B.T, _MATMUL + _SPLIT_K, _SMALL_MATMUL, ("M N K",)),
    _case("tmm_int8", _integer_product, _MATMUL, _SMALL_MATMUL, ("M N K",),
          draws={"A": any_value, "B": any_value}, dtypes=("int8",), results=("int32",)),
    _case("matmul_tn", lambda A, B: A.T @ B, _MATMUL, _SMALL_MATMUL, ("M N K",)),
    _case("matmul_transposed", lambda A, B: (A @ B).T, _MATMUL, _SMALL_MATMUL, ("M N K",)),
    _case("tbmm", lambda X, Y: X @ Y,
          grid("B N M K", (500, 26, 72, 26), (32 * 12, 128, 64, 128)),
          grid("B N M K", (0, 2, 2, 2), (1, 1, 1, 1), (3, 7, 5, 2), (2, 26, 13, 17)),
          ("B N M K",)),
    _case("tmv", lambda A, x: A @ x, grid("M N", (4096, 4096), (8192, 1000)),
          grid("M N", (0, 3), (3, 0), (1, 1), (7, 13), (33, 129)), ("M N",)),
    _case("lut1", _look_up, grid("E D B L", (10**7, 64, 128, 50), (10**5, 64, 128, 50)),
          grid("E D B L", (1, 1, 1, 1), (11, 5, 3, 7), (100, 17, 0, 3)), ("B L D",),
          draws={"index": below("E")}),
    _case("lut2", _look_up_twice,
          grid("E1 D B L1 E2 L2", (10**7, 64, 128, 50, 10**7, 50), (10**5, 64, 128, 50, 10**5, 50)),
          grid("E1 D B L1 E2 L2", (1, 1, 1, 1, 1, 1), (11, 5, 3, 7, 23, 2)),
          ("B L1 D", "B L2 D"), draws={"index1": below("E1"), "index2": below("E2")}),
    _case("c3", _einsum("bm,nm->bn", "I", "W"), grid("B M N", (128, 1000, 1024)),
          grid("B M N", (0, 2, 3), (1, 1, 1), (5, 13, 7)), ("B M N",), draws={"W": weights},
          numpy_formula=lambda I, W: I @ W.T),
    _case("mlp1", _mlp1, grid("B M N", (128, 2000, 128)),
          grid("B M N", (0, 2, 3), (1, 1, 1), (5, 13, 7)), ("B M N",), draws={"W": weights}),
    _case("mlp3", _mlp3, grid("B N O P Q", (128, 128, 64, 32, 2)),
          grid("B N O P Q", (0, 2, 3, 2, 1), (1, 1, 1, 1, 1), (5, 13, 7, 3, 2)),
          ("B N O", "B O P", "B P Q"), draws={"W1": weights, "W2": weights, "W3": weights}),
    _case("kronecker3", _kronecker,
          grid("M N0 N1 N2 D0 D1 D2", *((256, n, n, n, 16, 16, 16) for n in (16, 32, 64))),
          grid("M N0 N1 N2 D0 D1 D2", (0, 2, 2, 2, 2, 2, 2), (1,) * 7, (3, 2, 5, 3, 4, 1, 7)),
          ("M N0 N1 N2 D2", "M N0 N1 D2 D1", "M N0 D1 D2 D0"),
          draws={"W0": weights, "W1": weights, "W2": weights}, numpy_formula=_kronecker_chain),
    _case("tensordot", _einsum("nabhw,nbchw->nachw", "I0", "I1"),
          grid("N A B C H W", (32, 512, 8, 2, 28, 28)),
          grid("N A B C H W", (0, 2, 2, 2, 2, 2), (1,) * 6, (2, 5, 3, 2, 3, 7)),
          ("N A B C H W",), numpy_formula=_tensordot),
)  # fmt: skip
