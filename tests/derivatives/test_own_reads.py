"""Statements that read their own target: old values, new ones, and either; gathers and scatters."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tests.derivatives.gradients import (
    check_gradients,
    cotangents,
    float_parameters,
    tupled,
)

DTYPES = {"float32": np.float32, "float16": np.float16}
AT = np.array([3, 1, 5, 0, 2, 2], np.int32)
N = (6,)

# ruff: noqa: E501  (one form a line)
FORMS: dict[str, tuple[str, list[Any]]] = {
    "mirrored": ("def f(float64(N) y) -> (y) { y(i) = y(N - 1 - i) * y(i) }", [N]),
    "mirrored values": ("def f(float64(N) x) -> (y) { y(i) = x(i) * x(i)  y(i) = y(N - 1 - i) * x(i) }", [N]),
    "downwards": ("def f(float64(N) y) -> (y) { y(N - 1 - i) = y(i) * 0.5 + y(N - 1 - i) * y(i) where i in 0:N }", [N]),
    "in two dimensions": ("def f(float64(N, M) y) -> (y) { y(i, j) = y(N - 1 - i, M - 1 - j) * y(i, j) }", [(3, 4)]),
    "in rows": ("def f(float64(N, M) y) -> (y) { y(i, j) = y(i, M - 1 - j) * y(i, j) }", [(3, 4)]),
    "transposed": ("def f(float64(N, N) y) -> (y) { y(i, j) = y(j, i) * y(i, j) }", [(4, 4)]),
    "Gauss and Seidel": ("def f(float64(N, N) A, float64(N) y) -> (y) { y(i) += A(i, k) * y(k) where exists k != i }", [(4, 4), (4,)]),
    "data": ("def f(float64(N) x, int32(N) I) -> (y) { y(i) = x(i) * x(i)  y(i) = y(I(i)) * x(i) }", [N, AT]),
    "data, squared": ("def f(float64(N) y, int32(N) I) -> (y) { y(i) = y(I(i)) * y(i) + y(I(i)) * y(I(i)) }", [N, AT]),
    "data of rows": ("def f(float64(N, M) y, int32(N) I) -> (y) { y(i, j) = y(I(i), j) * y(i, j) }", [(6, 3), AT]),
    "guarded data": ("def f(float64(N) x, int32(N) I) -> (y) { y(i) = x(i) * x(i)  y(i) = (I(i) < 4 ? y(I(i)) : x(i)) * x(i) }", [N, np.where(AT > 3, 9, AT)]),
    "data, twice": ("def f(float64(N) x, int32(N) I) -> (y) { y(i) = x(i) * x(i)  y(i) = y(I(i)) * y(I(i) / 2) * x(i) }", [N, AT]),
    "data along rows": ("def f(float64(M, N) x, int32(N) I) -> (y) { y(b, i) = x(b, i) * x(b, i)  y(b, i) = y(b, I(i)) * x(b, i) }", [(3, 6), AT]),
    "data along rows, some": ("def f(float64(M, N) x, int32(N) I) -> (y) { y(b, i) = x(b, i)  y(b, i) = (I(i) >= 0 ? y(b, I(i)) : 0.5) * x(b, i) }", [(3, 6), AT - 2]),
    "data of both": ("def f(float64(M, N) x, int32(M) J, int32(N) I) -> (y) { y(b, i) = x(b, i)  y(b, i) = y(J(b), I(i)) * x(b, i) }", [(6, 6), AT, AT[::-1].copy()]),
    "data of both, crossed": ("def f(float64(N, N) x, int32(N) J, int32(N) I) -> (y) { y(b, i) = x(b, i)  y(b, i) = y(J(i), I(b)) * x(b, i) }", [(6, 6), AT, AT[::-1].copy()]),
    "a fixed element": ("def f(float64(N) x) -> (y) { y(0) = x(0) * x(1)  y(i) = y(i - 1) * x(i) + y(0) where i in 1:N }", [N]),
    "a fixed element at the end": ("def f(float64(N) x) -> (y) { y(i) = x(i)  y(i) = y(i - 1) * x(i) + y(N - 1) where i in 1:N - 1 }", [N]),
    "a fixed element that changes": ("def f(float64(N) x) -> (y) { y(i) = x(i)  y(i) = y(i - 1) * x(i) + y(3) where i in 1:N }", [N]),
    "halves": ("def f(float64(N) x) -> (y) { y(0) = x(0)  y(i) = y(i / 2) * x(i) where i in 1:N }", [N]),
    "halves and neighbours": ("def f(float64(N) x) -> (y) { y(0) = x(0)  y(i) = y(i / 2) * x(i) * y(i - 1) where i in 1:N }", [N]),
    "remainders": ("def f(float64(N) x) -> (y) { y(i) = x(i) * x(i) where i in 0:2  y(i) = y(i % 2) * x(i) + y(i - 1) where i in 2:N }", [N]),
    "summed over others": ("def f(float64(N, M) x) -> (float64(N, M) h) { h(t, j) = 0.5  h(t, j) += x(t, k) * (t > 0 ? h(t - 1, k) : 1.0) + (t > 0 ? h(t - 1, j) : 0.0) }", [(4, 3)]),
    "sums of other lengths": ("def f(float64(N, M) x, float64(K) z) -> (float64(N, M) h) { h(t, j) = x(t, j)  h(t, j) += z(k) * h(t - 1, j) + h(t - 1, 0) where t in 1:N }", [(4, 3), (2,)]),
    "a row before": ("def f(float64(N, M) x) -> (y) { y(i, j) = x(i, j)  y(i, j) = y(i - 1, j) * y(0, j) * x(i, j) * y(i, j - 1) where i in 1:N, j in 1:M }", [(4, 3)]),
    "rows in other orders": ("def f(float64(N, M) x) -> (y) { y(i, j) = x(i, j)  y(i, j) = y(i - 1, M - 1 - j) * x(i, j) * y(i - 1, (j * 2) / 3) where i in 1:N }", [(4, 3)]),
    "sums of pairs": ("def f(float64(N) x) -> (y) { y(i) = x(i)  y(i / 2) += y(i) * y(i) where i in 0:N }", [N]),
    "in bounds at some sizes": ("def f(float64(N) x, float64(N) y) -> (y) { y(2 * i) = y(2 * i - 2) * x(i) where i in 1:3 }", [N, N]),
    "in bounds at some sizes, the least": ("def f(float64(N) x, float64(M) y) -> (y) { y(2 * i) = y(2 * i - 2) * x(i) * x(i) where i in 1:3 }", [(3,), (5,)]),
    "in bounds at some sizes, none": ("def f(float64(N) x, float64(M) y) -> (y) { y(2 * i) = y(2 * i - 2) * x(i) where i in 1:N }", [(1,), (3,)]),
    "in bounds at some sizes, halves": ("def f(float64(N) x, float64(M) y) -> (y) { y(i) = y(i / 2) * x(i) * y(i) where i in 1:N }", [(4,), (7,)]),
    "in bounds at some sizes, two": ("def f(float64(N) x, float64(M) y) -> (y) { y(3 * i) = y(i) * x(i) + y(2 * i) * y(i) where i in 1:N }", [(4,), (10,)]),
    "in bounds at some sizes, downwards": ("def f(float64(N) x, float64(M) y) -> (y) { y(M - 1 - 2 * i) = y(M + 1 - 2 * i) * x(i) where i in 1:N }", [(3,), (6,)]),
    "in bounds at some sizes, rows": ("def f(float64(B, N) x, float64(B, M) y) -> (y) { y(b, i + 1) = y(b, i / 2) * x(b, i) + y(b, i) where b in 0:B, i in 0:N }", [(2, 4), (2, 5)]),
    "in bounds at some sizes, data": ("def f(float64(N) x, int32(N) I, float64(M) y) -> (y) { y(i) = y(I(i)) * x(i) where i in 1:N }", [N, AT, (8,)]),
    "in bounds at some sizes, guarded": ("def f(float64(N) x, int32(N) I, float64(M) y) -> (y, float64(M) z) { y(i) = (I(i) < i ? y(I(i) / 2) : 0.5) * x(i) where i in 1:N  z(i) = y(i) * y(i) }", [N, AT, (8,)]),
    "in bounds at some sizes, triangles": ("def f(float64(N, N) x, float64(M, N) y) -> (y) { y(i, j) = y(i, j / 2) * x(i, j) where i in 0:N, j in 1:i + 1 }", [(4, 4), (5, 4)]),
    "every second": ("def f(float64(N) y) -> (y) { y(2 * i) = y(N - 1 - i) * y(2 * i) where i in 0:(N + 1) / 2 }", [N]),
}  # fmt: skip
SCATTERED = (
    "data",
    "data along rows",
    "data along rows, some",
    "halves and neighbours",
    "in bounds at some sizes, two",
    "in bounds at some sizes, rows",
    "in bounds at some sizes, data",
    "summed over others",
)


def draw(shapes: list[Any]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.random(s) + 0.2 if isinstance(s, tuple) else s for s in shapes]


@pytest.mark.parametrize("name", FORMS)
def test_the_derivatives_are_those_of_differences(name: str) -> None:
    text, shapes = FORMS[name]
    f, inputs = tcdsl.define(text).f, draw(shapes)
    derivative = check_gradients(f, *inputs)
    # Along a direction it is the same, and compiled code agrees with the reference.
    given = cotangents(f, inputs)
    gradients = tupled(derivative.reference(*inputs, *given))
    positions = [f.comprehension.inputs.index(name) for name in float_parameters(f)]
    moves = [np.cos(1 + np.arange(np.size(inputs[n])).reshape(inputs[n].shape)) for n in positions]
    along = tupled(tcdsl.jvp(f).reference(*inputs, *moves))
    one = sum(float(np.sum(y * d)) for y, d in zip(along, given, strict=True))
    other = sum(float(np.sum(g * v)) for g, v in zip(gradients, moves, strict=True))
    assert one == pytest.approx(other, rel=1e-10)
    if name in ("mirrored", *SCATTERED):
        tcdsl.testing.check(derivative, *inputs, *given, targets=("cpu", "emulate"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_recurrences_in_bounds_at_some_sizes_at_all_of_them(dtype: str) -> None:
    """Compiled for open sizes, too: ranges that are shortened are as they were wherever it runs."""
    f = tcdsl.define(f"""def f({dtype}(N) x, {dtype}(M) y) -> (y) {{
        y(3 * i) = y(i) * x(i) + y(2 * i) where i in 1:N
    }}""").f
    derivative = tcdsl.vjp(f)
    for n, m in ((1, 1), (1, 9), (3, 7), (3, 8), (6, 16)):
        x, y, d = (np.linspace(0.5, 1.5, size) for size in (n, m, m))
        inputs = [a.astype(DTYPES[dtype]) for a in (x, y, d)]
        for options in (None, tcdsl.Options(dynamic_sizes=("M", "N"))):
            tcdsl.testing.check(derivative, *inputs, targets=("cpu", "emulate"), options=options)
    with pytest.raises(tcdsl.TCError, match="out of bounds"):
        derivative(*(inputs[0], inputs[1][:15], inputs[2][:15]))


@pytest.mark.parametrize(
    "name",
    [
        "in bounds at some sizes",
        "mirrored",
        "transposed",
        "Gauss and Seidel",
        "a fixed element",
    ],
)
def test_second_derivatives(name: str) -> None:
    text, shapes = FORMS[name]
    f, inputs = tcdsl.define(text).f, draw(shapes)
    check_gradients(tcdsl.vjp(f), *inputs, *cotangents(f, inputs), tolerance=1e-5)


def test_a_comparison_of_elements_decides_which_version_is_read() -> None:
    f = tcdsl.define("def f(float(N) y) -> (y) { y(i) = y(N - 1 - i) * y(i) }").f
    assert "N - 1 - i < i ? y_1(N - 1 - i) : y(N - 1 - i)" in tcdsl.jvp(f).source
    rows = tcdsl.define("def f(float(N, N) y) -> (y) { y(i, j) = y(j, i) * y(i, j) }").f
    assert "j < i || j == i && i < j ? y_1(j, i) : y(j, i)" in tcdsl.jvp(rows).source


def test_a_scatter_of_rows_is_parallel_over_rows() -> None:
    f = tcdsl.vjp(tcdsl.define(FORMS["data along rows"][0]).f)
    assert "d_y_total(b, I(N - 1 - i)) += d_y_total(b, N - 1 - i) *" in f.source
    specs = [tcdsl.spec((64, 40), "float64"), tcdsl.spec((40,), "int32")]
    exe = f.compile(*specs, tcdsl.spec((64, 40), "float64"), target="emulate")
    assert all(kernel["grid"] != (1, 1, 1) for kernel in exe.kernels)


def test_a_scatter_runs_from_the_last_instance_on() -> None:
    text, _ = FORMS["halves and neighbours"]
    source = " ".join(tcdsl.vjp(tcdsl.define(text).f).source.split())
    assert "d_y_total(N - i >= 1 ? n == 0 ? (N - i) / 2 : N - i - 1 : 0) += n == 0 ?" in source
