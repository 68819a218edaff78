"""``tcdsl.jvp``: its text, its values beside differences, and the vjp as its transpose."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.errors import OptionError, SemanticError
from tcdsl.library import Case
from tests.derivatives.gradients import (
    cotangents,
    float_parameters,
    in_float64,
    library_cases,
    sizes_of,
    tupled,
)
from tests.derivatives.test_vjp import FORMS, REFUSED, body, draw, function


def directions(f: tcdsl.Function, inputs: Sequence[Any], wrt: Sequence[str]) -> list[Any]:
    """Return a random direction for each of *wrt*."""
    c, rng = f.comprehension, np.random.default_rng(11)
    by_name = dict(zip(c.parameters, inputs, strict=True))
    return [np.asarray(rng.standard_normal(np.shape(by_name[name])))[()] for name in wrt]


def check_transpose(f: tcdsl.Function, inputs: Sequence[Any], wrt: Sequence[str] = ()) -> None:
    """Check <d_y, jvp(d_x)> == <vjp(d_y), d_x>, which holds to rounding, at kinks too."""
    names = list(wrt) or float_parameters(f)
    moved, given = directions(f, inputs, names), cotangents(f, inputs)
    tangent = tcdsl.jvp(f, names)
    forward = tupled(tangent.reference(*inputs, *moved))
    backward = tupled(tcdsl.vjp(f, names).reference(*inputs, *given))
    one = [np.sum(np.asarray(a, np.float64) * b) for a, b in zip(forward, given, strict=True)]
    other = [np.sum(np.asarray(a, np.float64) * b) for a, b in zip(backward, moved, strict=True)]
    scale = max(1.0, *map(abs, (*one, *other)))
    assert abs(sum(one) - sum(other)) <= 1e-9 * scale, f"{one} {other}\n{tangent.source}"


def test_the_text() -> None:
    mm = function("def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }")
    assert tcdsl.jvp(mm).source == (
        "def mm_jvp(float32(M, K) A, float32(K, N) B, float32(M, K) d_A, float32(K, N) d_B) "
        "-> (d_C) {\n"
        "    d_C(m, n) +=! d_A(m, k) * B(k, n) + d_B(k, n) * A(m, k)\n"
        "}\n"
    )
    assert body(tcdsl.jvp(mm, "B")) == ["d_C(m, n) +=! d_B(k, n) * A(m, k)"]
    f = function("def f(float(N) x, int32(N) k) -> (y, at) { y(i) = sin(x(i)) * k(i)  "
                 "at argmax=! x(i) }")  # fmt: skip
    assert body(tcdsl.jvp(f)) == ["d_y(i) = d_x(i) * (float32(k(i)) * cos(x(i)))"]


@pytest.mark.slow_but(
    "shifted",
    "padding",
    "triangle",
    "a part in place",
    "cleared",
    "read and summed on",
    "product on",
    "second order",
    "in two directions",
    "max and sum",
)
@pytest.mark.parametrize("name", FORMS)
def test_it_is_the_transpose_of_the_vjp(name: str) -> None:
    text, shapes = FORMS[name]
    f, inputs = function(text), [draw(*shape) for shape in shapes]
    check_transpose(f, inputs)
    check_transpose(f, inputs, float_parameters(f)[:1])


@pytest.mark.parametrize("zeros", range(3))
def test_ties_and_products_of_zeros(zeros: int) -> None:
    x = np.array([[2.0, 3.0, 5.0, 3.0], [4.0, 4.0, 4.0, 1.0]])
    x[:, :zeros] = 0
    for operator in ("*=!", "max=!", "min=!"):
        check_transpose(
            function(f"def f(float64(M, N) x) -> (y) {{ y(m) {operator} x(m, n) }}"), [x]
        )
    on = function(
        "def f(float64(M, N) x, float64(M) y) -> (y) { y(m) max= x(m, n)  y(m) *= x(m, n) }"
    )
    check_transpose(on, [x, np.array([5.0, 4.0])])


def test_gathers_scatters_and_sizes() -> None:
    index = np.array([3, 0, 3, 1], np.int32)
    gather = "def f(float64(V, D) t, int32(N) i) -> (y) { y(n, d) = t(i(n), d) * t(0, d) }"
    check_transpose(function(gather), [draw(5, 2), index])
    last = "def f(float64(V) y, float64(N) x, int32(N) i) -> (y) { y(i(n)) = x(n) * x(n) }"
    check_transpose(function(last), [draw(5), draw(4), index])
    sized = "def f(float64(T) x, float64(K) w, size D) -> (y) { y(t) +=! x(t + D * k) * w(k) }"
    check_transpose(function(sized), [draw(9), draw(3), 2])


def test_a_result_that_does_not_move_has_no_tangent() -> None:
    f = function("def f(float64(N) x, float64(N) z) -> (y, z) { y(i) = z(i) * 2.0  z(i) = x(i) }")
    d_y, d_z = tcdsl.jvp(f, "x").reference(draw(3), draw(3), np.ones(3))
    np.testing.assert_array_equal((d_y, d_z), (np.zeros(3), np.ones(3)))


def test_of_a_derivative() -> None:
    """The product of a Hessian and a direction."""
    f = function("def f(float64(N) x) -> (s) { s +=! x(i) * x(i) * x(i) }")
    hessian = tcdsl.jvp(tcdsl.vjp(f), "x")
    x, v = draw(4), draw(4)
    np.testing.assert_allclose(hessian.reference(x, 1.0, v), 6 * x * v, rtol=1e-13)


def test_half_types_and_the_cpu() -> None:
    f = function("def f(half(N) x, half(N) z) -> (half(N) y) { y(i) = x(i) * z(i) + x(i) }")
    assert tcdsl.jvp(f).reference(*[np.ones(3, np.float16)] * 4).dtype == np.float16
    softmax = function(library.load("softmax"))
    inputs = [draw(3, 7).astype(np.float32), draw(3, 7).astype(np.float32)]
    tcdsl.testing.check(tcdsl.jvp(softmax), *inputs, targets=("cpu",))


@pytest.mark.slow_but("softmax", "layernorm", "conv2d", "cross_entropy", "mlp3", "csr", "row_prod")
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in library_cases()])
def test_programs_of_the_library(case: Case) -> None:
    f = in_float64(case)
    if not any(f.comprehension.tensors[name].dtype.is_float for name in f.comprehension.outputs):
        with pytest.raises(OptionError, match="no floating-point result"):
            tcdsl.jvp(f)
        return
    inputs = case.make_inputs(sizes_of(case), np.random.default_rng(3), "float64")
    check_transpose(f, list(inputs.values()))


@pytest.mark.filterwarnings("ignore:.*goes on from")
@pytest.mark.parametrize("text", [REFUSED[0][0], REFUSED[1][0], REFUSED[-2][0], REFUSED[-1][0]])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(SemanticError) as caught:
        tcdsl.jvp(function(text))
    assert caught.value.code == "TC093" and caught.value.hint and caught.value.line == 1
