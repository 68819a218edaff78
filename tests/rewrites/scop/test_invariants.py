"""What is the same for all of a row is computed once a row."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

RMSNORM = """def f(float(M,N) x, float(N) gamma, float eps) -> (y) {
    s(i) +=! x(i,j) * x(i,j)
    y(i,j) = x(i,j) * rsqrt(s(i) / N + eps) * gamma(j)
}"""
COLUMNS = """def f(float(M,N) x) -> (y) {
    s(j) +=! x(i,j)
    y(i,j) = x(i,j) * exp(-abs(s(j)))
}"""
TWICE = """def f(float(M,N) x) -> (y, z) {
    s(i) +=! x(i,j)
    y(i,j) = x(i,j) * sqrt(abs(s(i))) + sqrt(abs(s(i)))
    z(i) max=! y(i,j) / tanh(s(i))
}"""
CHOICE = """def f(float(M,N) x) -> (y) {
    s(i) +=! x(i,j)
    y(i,j) = x(i,j) > 0.0 ? log(s(i)) : log(1.0 - s(i))
}"""
POINTWISE = """def f(float(M,N) x, float(M) v) -> (y) {
    y(i,j) = x(i,j) * rsqrt(v(i) + 1.0)
}"""
BLOCKS = """def f(float(A,B,N) x) -> (y) {
    s(a,b) +=! x(a,b,j)
    t(a) +=! s(a,b)
    y(a,b,j) = x(a,b,j) * exp(-abs(s(a,b))) * tanh(t(a))
}"""
PART = """def f(float(M,N) x) -> (y) {
    s(i) +=! x(i,j)
    y(i) max=! x(i,j) * log(abs(s(i))) where i in 1:M-1, j in 0:i+1
}"""
UPDATED = """def f(float(M,N) y, float(M,N) x) -> (y) {
    s(i) +=! x(i,j)
    y(i,j) += x(i,j) * cos(s(i))
}"""
HALVES = RMSNORM.replace("float(", "half(")
CASES = {
    "rmsnorm": (RMSNORM, [[(5, 1000), (1000,), ()], [(300, 64), (64,), ()], [(3, 7), (7,), ()]]),
    "columns": (COLUMNS, [[(50, 33)], [(7, 1000)]]),
    "twice": (TWICE, [[(5, 1000)], [(40, 33)]]),
    "a choice": (CHOICE, [[(5, 100)]]),
    "pointwise": (POINTWISE, [[(5, 100), (5,)]]),
    "several axes": (BLOCKS, [[(3, 4, 129)]]),
    "a part": (PART, [[(20, 33)]]),
    "an update": (UPDATED, [[(5, 200)] * 2]),
    "half types": (HALVES, [[(5, 1000), (1000,), ()]]),
}


@pytest.mark.slow_but("rmsnorm", "a choice")
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right(name: str, check_emulated: CheckAll) -> None:
    source, given = CASES[name]
    check_emulated([(source, inputs) for inputs in given])


@pytest.mark.slow_but("columns", "an update")
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    source, given = CASES[name]
    check_emulated([(source, inputs) for inputs in given], gpu=small_chip)


def test_a_function_is_called_once_a_row(cuda_unit: MakeUnit) -> None:
    (launch,) = (unit := cuda_unit(RMSNORM, (3000, 4096), (4096,), ())).source.launches
    assert "S1_row0" in launch.label
    text = unit.source.text
    assert (
        text.count("tc_rsqrt_f32") == 1 and "for (" not in text.partition("tc_rsqrt_f32")[0][-200:]
    )


def test_no_kernel_is_added(cuda_unit: MakeUnit) -> None:
    assert "_row0" not in cuda_unit(POINTWISE, (3000, 4096), (3000,)).source.text
    apart = cuda_unit(RMSNORM, (3000, 4096), (4096,), (), options=Options(fuse="none"))
    assert "_row0" not in apart.source.text


def test_what_may_not_run_stays(cuda_unit: MakeUnit) -> None:
    assert "_row0" not in cuda_unit(CHOICE, (3000, 4096)).source.text
