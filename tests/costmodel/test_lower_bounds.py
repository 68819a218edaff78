"""Bytes and operations, counted from the program; tests/cli/bench/test_device.py has gathers."""

import pytest

import tcdsl
from tcdsl.costmodel.lower_bounds import least_bytes, operations


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("def f(float(N) x) -> (y) { y(i) = x(i) }", (5,), 0),
        ("def f(float(N) x) -> (y) { y(i) = -x(i) * 2.0 + 1.0 }", (5,), 15),
        ("def f(float(N) x) -> (s) { s +=! exp(x(i)) }", (5,), 10),
        ("def f(float(N) x) -> (y) { y(i) = x(i + 1) }", (5,), 0),  # subscripts are integers
        ("def f(int32(N) x) -> (y) { y(i) = x(i) * 2 }", (5,), 0),
        ("def f(float(N, N) x) -> (s) { s(i) +=! x(i, j) where j in 0:i+1 }", (4, 4), 10),
        ("def f(float(N) x) -> (y) { t(i) = x(i) + 1.0  y(i) = t(i) * t(i) }", (5,), 10),
    ],
)
def test_operations(text: str, shape: tuple[int, ...], expected: int) -> None:
    function = tcdsl.define(text).f
    dtype = function.comprehension.tensors["x"].dtype.name
    special = function.specialise(tcdsl.spec(shape, dtype))
    assert operations(function.comprehension, special) == expected


def test_a_large_triangle_counts_as_its_box() -> None:
    text = "def f(float(N, N) x) -> (s) { s(i) +=! x(i, j) where j in 0:i+1 }"
    function = tcdsl.define(text).f
    special = function.specialise(tcdsl.spec((2048, 2048), "float32"))
    assert operations(function.comprehension, special) == 2048 * 2048


def test_least_bytes() -> None:
    function = tcdsl.define(
        "def f(float(N) x, float64(N) z) -> (y) { t(i) = x(i)  y(i) = t(i) + float(z(i)) }"
    ).f
    special = function.specialise(tcdsl.spec((5,), "float32"), tcdsl.spec((5,), "float64"))
    assert least_bytes(function.comprehension, special) == 5 * (4 + 8 + 4)
