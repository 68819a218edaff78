"""Small factors of sums in the order of their results: filters of depthwise convolutions."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.lang.types.dtypes import FLOAT16
from tcdsl.strategies import operand_orders
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
DEPTHWISE = """def f(half(N,H,W,C) I, half(C,R,S) K) -> (O) {
    O(n,h,w,c) +=! ((h + r >= 1 && h + r - 1 < H && w + s >= 1 && w + s - 1 < W)
        ? I(n, h + r - 1, w + s - 1, c) : 0) * K(c,r,s) where n in 0:N, h in 0:H, w in 0:W
}"""
MATRIX = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
BATCHED = "def f(float(T,C) I, float(C,M,T) K) -> (O) { O(m,c) +=! I(k,c) * K(c,m,k) }"
SHAPES = [(2, 7, 9, 40), (40, 3, 3)]


@pytest.fixture(autouse=True)
def _are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operand_orders, "LEAST_SUMMED", 1)


def templates(unit: Any) -> list[str]:
    return [kernel.template for kernel in unit.done.plan.kernels]


def test_filters_are_loaded_in_vectors(cuda_unit: MakeUnit, emulated: Any) -> None:
    unit = cuda_unit(DEPTHWISE, *SHAPES)
    assert "K.ordered0" in unit.done.plan.scop.arrays
    text = unit.source.text.rpartition("__global__")[2]
    assert "u0_K_ordered0" in text
    (program,) = emulated([unit])
    check(program, *(values(FLOAT16, shape, "real", seed) for seed, shape in enumerate(SHAPES)))


def test_lanes_are_vectors_where_results_are_many(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(DEPTHWISE, (32, 28, 28, 64), (64, 3, 3))
    text = unit.source.text.rpartition("__global__")[2]
    assert re.search(r"tc_vload<[48]>\(&u0_K_ordered0\[", text)
    assert re.search(r"tc_vload_if<[48]>\(&I\[", text)


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (MATRIX, [(32, 24), (40, 24)]),
        (BATCHED, [(9, 16), (16, 5, 9)]),  # the small one has a parallel index of its own
        (DEPTHWISE.replace("K(c,r,s)", "K(r,s,c)").replace("(C,R,S)", "(R,S,C)"),
         [(2, 7, 9, 40), (3, 3, 40)]),  # in order
        (DEPTHWISE.replace("(N,H,W,C)", "(N,H,C,W)").replace("w + s - 1, c)", "c, w + s - 1)"),
         [(2, 7, 40, 9), (40, 3, 3)]),  # images have others
    ],
)  # fmt: skip
def test_what_stays(source: str, shapes: list[tuple[int, ...]], cuda_unit: MakeUnit) -> None:
    assert not any(".ordered" in name for name in cuda_unit(source, *shapes).done.plan.scop.arrays)


def test_large_factors_stay(cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operand_orders, "MOST_SMALL_BYTES", 8)
    assert "K.ordered0" not in cuda_unit(DEPTHWISE, *SHAPES).done.plan.scop.arrays


def test_few_products_stay(cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operand_orders, "LEAST_SUMMED", 1 << 40)
    assert "K.ordered0" not in cuda_unit(DEPTHWISE, *SHAPES).done.plan.scop.arrays
