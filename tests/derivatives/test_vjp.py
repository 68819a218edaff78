"""``tcdsl.vjp``: its text, its values beside differences, and what it refuses."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.errors import OptionError, SemanticError, ShapeError
from tcdsl.library import Case
from tests.derivatives.gradients import (
    check_gradients,
    cotangents,
    in_float64,
    library_cases,
    sizes_of,
)

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.fixture(autouse=True)
def _draws_do_not_depend_on_other_tests() -> None:
    """A difference across a kink (of a remainder, say) is none of a derivative."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def function(text: str) -> tcdsl.Function:
    program = tcdsl.define(text)
    return program[program.names[-1]]


# --- text -------------------------------------------------------------------------------------


def body(derivative: tcdsl.Function) -> list[str]:
    """Return the statements of a vjp, each on one line."""
    _, _, text = derivative.source.partition("{\n")
    lines: list[str] = []
    for line in text.removesuffix("}\n").splitlines():
        if line.startswith(" " * 12):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.strip())
    return lines


def test_a_product_of_matrices() -> None:
    f = function("def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }")
    assert tcdsl.vjp(f).source == (
        "def mm_vjp(float32(M, K) A, float32(K, N) B, float32(M, N) d_C)\n"
        "        -> (float32(M, K) d_A, float32(K, N) d_B) {\n"
        "    d_A(m, k) +=! d_C(m, n) * B(k, n)\n"
        "    d_B(k, n) +=! d_C(m, n) * A(m, k)\n"
        "}\n"
    )
    assert body(tcdsl.vjp(f, wrt=("B",))) == ["d_B(k, n) +=! d_C(m, n) * A(m, k)"]
    assert body(tcdsl.vjp(f, "A")) == ["d_A(m, k) +=! d_C(m, n) * B(k, n)"]


def test_the_adjoint_of_a_window_is_gathered() -> None:
    f = function(
        "def conv(float(H) x, float(K) w) -> (y) { y(h) +=! x(h + k) * w(k) }"
    )  # fmt: skip
    assert body(tcdsl.vjp(f, "x")) == [
        "d_x(h) +=! (h - k >= 0 && h - k < H - K + 1 ? d_y(h - k) : 0.0) * w(k) where h in 0:H"
    ]


def test_windows_that_tile_their_stride_need_no_sum() -> None:
    f = function("def pool(float(N) x) -> (y) { y(i) +=! x(2 * i + j) where j in 0:2 }")
    assert body(tcdsl.vjp(f)) == ["d_x(i) = i / 2 < N / 2 ? d_y(i / 2) : 0.0 where i in 0:N"]


def test_values_that_cost_are_read_again() -> None:
    f = function("def f(float64(N) x) -> (y) { e(i) = exp(x(i))  y(i) = e(i) * 0.1 }")
    assert body(tcdsl.vjp(f)) == [
        "e(i) = exp(x(i))", "d_e(i) = d_y(i) * 0.1", "d_x(i) = d_e(i) * e(i)",
    ]  # fmt: skip


# --- values -----------------------------------------------------------------------------------

# ruff: noqa: E501  (one form a line)
FORMS = {
    "pointwise": ("def f(float64(N) x, float64(N) z, float64 a) -> (y) "
                  "{ y(i) = a * x(i) * x(i) / z(i) - sin(z(i)) }", [(5,), (5,), ()]),
    "reversed": ("def f(float64(N) x) -> (y) { y(i) = x(N - 1 - i) * x(i) }", [(6,)]),
    "shifted": ("def f(float64(N) x) -> (y) { y(i) = x(i + 2) * x(i) }", [(7,)]),
    "a part": ("def f(float64(N) x) -> (y) { y(i) = x(i) * x(i) where i in 2:5 }", [(7,)]),
    "padding": ("def f(float64(N) x) -> (y) "
                "{ y(i) = (i >= 1 ? x(i - 1) : 0.0) * (i + 1 < N ? x(i + 1) : 2.0) * x(i) }", [(6,)]),
    "strided": ("def f(float64(N) x, float64(K) w) -> (y) { y(i) +=! x(3 * i + k) * w(k) "
                "where i in 0:2 }", [(9,), (4,)]),
    "divided": ("def f(float64(N) x, float64(N) z) -> (y) { y(i) = x(i / 2) * z(i) }", [(7,), (7,)]),
    "diagonal": ("def f(float64(N, N) x) -> (y) { y(i) = x(i, i) * x(i, 0) }", [(5, 5)]),
    "triangle": ("def f(float64(N, N) a, float64(N) x) -> (y) "
                 "{ y(i) +=! a(i, j) * x(j) where j in 0:i + 1 }", [(5, 5), (5,)]),
    "trace": ("def f(float64(N, N) x) -> (s) { s +=! x(i, i) * x(i, i) }", [(4, 4)]),
    "condition": ("def f(float64(N) x, float64(N) z) -> (s) "
                  "{ s +=! x(i) * z(i) where exists z(i) > 0.0 }", [(9,), (9,)]),
    "repeated": ("def f(float64(N) x) -> (y) { y(i) +=! x(i) where k in 0:3 }", [(4,)]),
    "of a dim": ("def f(float64(A, B) x) -> (y) { y(4 * i + j) = x(i, j) where j in 0:4 }", [(3, 4)]),
    "flattened": ("def f(float64(N) x) -> (y) { y(i, j) = x(4 * i + j) where i in 0:2, j in 0:4 }",
                  [(9,)]),
    "results": ("def f(float64(N) x) -> (y, z) { y(i) = x(i) * x(i)  z(i) = y(i) * x(i) }", [(4,)]),
    "in place": ("def f(float64(N) w, float64(N) g) -> (w) { w(i) = w(i) * w(i) - g(i) }",
                 [(4,), (4,)]),
    "a part in place": ("def f(float64(N) w) -> (w) { w(i) = w(i) * w(i) where i in 1:3 }", [(5,)]),
    "updated": ("def f(float64(N) w, float64(N) x) -> (w, s) { s +=! w(i) * w(i) "
                "w(i) += x(i) * w(i) }", [(5,), (5,)]),
    "overwritten": ("def f(float64(B) x) -> (float64(B, 4) y) "
                    "{ y(b, i) = x(b) * x(b)  y(b, 0) = x(b) }", [(3,)]),
    "cleared": ("def f(float64(N) x) -> (float64(N) y) "
                "{ y(i) = x(i) * x(i)  y(i) +=! x(i) where i in 0:2 }", [(5,)]),
    "summed on": ("def f(float64(M, N) x, float64(M) b) -> (y) "
                  "{ y(m) = b(m) * b(m)  y(m) += x(m, n) * b(m) }", [(3, 4), (3,)]),
    "read and summed on": ("def f(float64(N) x) -> (y, s) { y(i) = x(i) * x(i)  "
                           "s +=! y(i) * y(i)  y(i) += x(i) * s }", [(4,)]),
    "max": ("def f(float64(M, N) x) -> (y) { y(m) max=! x(m, n) * x(m, n) }", [(3, 5)]),
    "max on": ("def f(float64(M, N) x, float64(M) y) -> (y) { y(m) max= x(m, n) }", [(9, 2), (9,)]),
    "product": ("def f(float64(M, N) x) -> (y) { y(m) *=! x(m, n) }", [(3, 5)]),
    "product on": ("def f(float64(M, N) x, float64(M) y) -> (y) { y(m) *= x(m, n) }", [(9, 2), (9,)]),
    "prefix sum": ("def f(float64(N) x) -> (y) { y(0) = x(0)  y(i) = y(i - 1) + x(i) * x(i) }", [(6,)]),
    "prefix product": ("def f(float64(N) x) -> (y) { y(0) = x(0)  y(i) = y(i - 1) * x(i) }", [(6,)]),
    "second order": ("def f(float64(N) x, float64 a) -> (y) { y(i) = x(i) where i in 0:2  "
                     "y(i) = a * y(i - 1) - y(i - 2) * x(i) where i in 2:N }", [(7,), ()]),
    "rows of a recurrence": ("def f(float64(B, N) x) -> (float64(B, N) y) { y(b, 0) = x(b, 0)  "
                             "y(b, i) = tanh(y(b, i - 1)) * x(b, i) }", [(3, 5)]),
    "solved": ("def f(float64(N, N) L, float64(N) b) -> (x) { x(i) = b(i)  "
               "x(i) += -L(i, j) * x(j) where j in 0:i }", [(5, 5), (5,)]),
    "network in time": ("def f(float64(T, I) x, float64(H, H) W) -> (float64(T, H) h) { "
                        "h(0, j) = x(0, j) where j in 0:H  h(t, j) = 0.0 where t in 1:T "
                        "h(t, j) += W(j, k) * h(t - 1, k) * x(t, 0) where t in 1:T }",
                        [(4, 3), (3, 3)]),
    "in two directions": ("def f(float64(N, M) x) -> (float64(N, M) y) { y(i, j) = x(i, j)  y(i, j) = y(i, j) * "
                          "(y(i - 1, j) + x(i, j) * y(i, j - 1)) where i in 1:N, j in 1:M }", [(4, 5)]),
    "suffix product": ("def f(float64(N) x) -> (float64(N) y) { y(N - 1) = x(N - 1)  y(N - 2 - i) = "
                       "y(N - 1 - i) * x(N - 2 - i) where i in 0:N - 1 }", [(6,)]),
    "shifted recurrence": ("def f(float64(N) x) -> (y) { y(0) = x(0)  y(i + 1) = y(i) * x(i + 1) "
                           "where i in 0:N - 1 }", [(6,)]),
    "max and sum": (
        "def f(float64(N, M) x) -> (y) { y(i) max=! x(i, k)  y(i) += x(i, 0) * x(i, 1) }",
        [(4, 3)],
    ),
    "a first element": (
        "def f(float64(N) x, float64(M) z) -> (y) { t(i + j) +=! x(i) * z(j)  y(j) +=! t(0) where i in 0:N, j in 0:M }",
        [(3,), (2,)],
    ),
    "remainder": ("def f(float64(N) x, float64(N) z) -> (y) { y(i) = x(i) % z(i) }", [(5,), (5,)]),
    "called": ("def g(float64(N) x) -> (y) { t(i) = x(i) * x(i)  y(i) = t(i) * x(i) } "
               "def f(float64(N) x) -> (y) { a = g(x)  b = g(a)  y(i) = a(i) * b(i) }", [(4,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_derivatives_are_those_of_differences(name: str) -> None:
    text, shapes = FORMS[name]
    check_gradients(function(text), *(draw(*shape) for shape in shapes))


@pytest.mark.parametrize(("text", "inputs"), [
    ("def f(float64(T) x, float64(K) w, size D) -> (y) { y(t) +=! x(t + D * k) * w(k) }",
     (draw(9), draw(3), 2)),
    ("def f(float64(M, N) a, float64(P, Q) b) -> (float64(M*P, N*Q) c) "
     "{ c(i * P + k, j * Q + l) = a(i, j) * b(k, l) }", (draw(2, 3), draw(3, 2))),
    ("def f(float64(N) x, size R) -> (y) { t(i) = x(i / R) where i in 0:N * R  y(i) = t(i) * t(i) }",
     (draw(3), 2)),
    ("def f(float64(N) x, size R) -> (s) { s +=! x(i / R) where i in 0:N * R  s = s * s }",
     (draw(3), 2)),
    ("def f(float64(N) x, size R) -> (float64(N*R, 2) y) { y(i, c) = x(i / R) * c where i in 0:N*R }",
     (draw(3), 2)),
])  # fmt: skip
def test_products_of_sizes(text: str, inputs: tuple[Any, ...]) -> None:
    f = function(text)
    derivative = check_gradients(f, *inputs)
    shape = np.shape(f.reference(*inputs))
    if (
        shape
        and "*" not in derivative.comprehension.tensors[derivative.comprehension.inputs[-1]].dims
    ):
        with pytest.raises(ShapeError):
            derivative(*inputs, np.ones((shape[0] - 1, *shape[1:])))


def test_results_that_begin_at_a_product_of_sizes_are_refused_at_the_call() -> None:
    f = function("def f(float64(N) x, size R) -> (y) { y(i + R) = x(i) * x(i / R) }")
    derivative = tcdsl.vjp(f)
    with pytest.raises(SemanticError, match="begin at others than 0"):
        derivative(draw(5), 2, draw(5))


def test_gathers_and_scatters() -> None:
    index = np.array([3, 0, 3, 1], np.int32)
    gather = function(
        "def f(float64(V, D) t, int32(N) i) -> (y) { y(n, d) = t(i(n), d) * t(0, d) }"
    )
    check_gradients(gather, draw(5, 2), index)
    scatter = function(
        "def f(float64(V) y, float64(N) x, int32(N) i) -> (y) { y(i(n)) += x(n) * x(n) }"
    )
    check_gradients(scatter, draw(5), draw(4), index)


def test_equal_extremes_share() -> None:
    f = function("def f(float64(M, N) x) -> (y) { y(m) max=! x(m, n) }")
    x = np.array([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    shares = [[0, 0.5, 0.5, 0], [0.25, 0.25, 0.25, 0.25]]
    np.testing.assert_array_equal(tcdsl.vjp(f).reference(x, np.ones(2)), shares)


def test_products_with_zeros() -> None:
    f = function("def f(float64(M, N) x) -> (y) { y(m) *=! x(m, n) }")
    x = np.array([[2.0, 0.0, 5.0], [0.0, 3.0, 0.0], [2.0, 3.0, 4.0]])
    wanted = [[0, 10, 0], [0, 0, 0], [12, 8, 6]]
    np.testing.assert_array_equal(tcdsl.vjp(f).reference(x, np.ones(3)), wanted)


def test_a_branch_that_is_not_taken_is_not_differentiated() -> None:
    f = function("def f(float64(N) x) -> (y) { y(i) = x(i) > 0.0 ? log(x(i)) * sqrt(x(i)) : 0.0 }")
    d_x = tcdsl.vjp(f).reference(np.array([0.0, -1.0, 1.0]), np.ones(3))
    np.testing.assert_array_equal(d_x, [0, 0, 1])


def test_of_several_assignments_to_one_element_the_last_counts() -> None:
    text = "def f(float64(V, 3) y, float64(N, 3) x, int32(N, 3) i) -> (y) { y(i(n, d), d) = x(n, d) * y(0, d) }"
    with pytest.raises(SemanticError, match="subscripts that data give"):
        tcdsl.vjp(function(text))
    f = function(text.replace("* y(0, d)", "* x(n, d)"))
    index = np.array([[3, 0, 3], [3, 1, 3], [0, 1, 2]], np.int32)
    check_gradients(f, draw(5, 3), draw(3, 3), index)
    flat = function(
        "def f(float64(V) y, float64(N) x, int32(N) i) -> (y) { y(i(n)) = x(n) * x(n) }"
    )
    assert (
        "last_y_1(i(n)) max= int64(n)" in check_gradients(flat, draw(5), draw(3), index[0]).source
    )


@pytest.mark.slow_but("prefix product", "second order")
@pytest.mark.parametrize("name", ["prefix product", "second order", "network in time", "solved"])
def test_recurrences_again(name: str) -> None:
    text, shapes = FORMS[name]
    f = function(text)
    inputs = [draw(*shape) for shape in shapes]
    given = cotangents(f, inputs)
    check_gradients(tcdsl.vjp(f), *inputs, *given)


@pytest.mark.slow_but(
    "row_prod",
    "softmax",
    "batchnorm_running",
    "cross_entropy",
    "lut2",
    "mlp3",
    "conv3x3_stride2",
    "csr",
    "segment_softmax",
    "kmeans_step",
)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in library_cases()])
def test_programs_of_the_library(case: Case) -> None:
    f = in_float64(case)
    inputs = case.make_inputs(sizes_of(case), np.random.default_rng(3), "float64")
    check_gradients(f, *inputs.values(), tolerance=1e-5)


def test_names_that_are_taken_get_a_number() -> None:
    text = """def f(float64(N) d_y, float64(N) y_1) -> (y, d_d_y) {
        y(i) = d_y(i) * y_1(i)  y(i) = exp(y(i))  d_d_y(i) = y(i) * y_1(i)
    }"""
    derivative = check_gradients(function(text), draw(3), draw(3))
    assert derivative.comprehension.parameters == ("d_y", "y_1", "d_y_2", "d_d_d_y")
    assert derivative.comprehension.outputs == ("d_d_y", "d_y_1")


def test_the_derivative_of_a_derivative() -> None:
    f = function("def f(float64(N) x, float64(N) z) -> (y) { y(i) = exp(x(i)) * z(i) * z(i) }")
    first = tcdsl.vjp(f)
    x, z, d_y = draw(4), draw(4), draw(4)
    check_gradients(first, x, z, d_y)
    second = tcdsl.vjp(tcdsl.vjp(f, "x"), "x")
    np.testing.assert_allclose(
        second.reference(x, z, d_y, np.ones(4)), np.exp(x) * z * z * d_y
    )  # fmt: skip


def test_compiled_code_agrees_with_the_reference() -> None:
    f = function(library.load("softmax"))
    inputs = [draw(3, 7).astype(np.float32), draw(3, 7).astype(np.float32)]
    tcdsl.testing.check(tcdsl.vjp(f), *inputs, targets=("cpu",))


# --- types ------------------------------------------------------------------------------------


def test_half_types_accumulate_in_float32() -> None:
    f = function("def f(half(N) x, half(N) z) -> (y) { y(i) = x(i) * z(i) + x(i) }")
    (d_x, d_z) = tcdsl.vjp(f).reference(*[np.ones(3, np.float16)] * 3)
    assert d_x.dtype == d_z.dtype == np.float16
    twice = function("def f(half(N) x) -> (half(N) y, half(N) z) { y(i) = x(i)  z(i) = x(i) }")
    assert body(tcdsl.vjp(twice)) == ["d_x(i) = float32(d_z(i)) + float32(d_y(i))"]
    parts = function("def f(half(N) x) -> (y, z) { y(i) = x(i) where i in 0:2  z(i) = x(2 * i) }")
    assert body(tcdsl.vjp(parts)) == [
        "d_x_sum(i) = i % 2 == 0 ? float32(d_z(i / 2)) : 0.0 where i in 0:N",
        "d_x_sum(i) += float32(d_y(i)) where i in 0:min(2, N)", "d_x(i0) = d_x_sum(i0)",
    ]  # fmt: skip


def test_integers_have_no_adjoint() -> None:
    f = function(
        "def f(float64(N) x, int32(N) k) -> (y, at) { y(i) = x(i) * k(i)  at argmax=! x(i) }"
    )
    derivative = tcdsl.vjp(f)
    assert derivative.comprehension.parameters == ("x", "k", "d_y")
    assert derivative.comprehension.outputs == ("d_x",)
    check_gradients(f, draw(4), np.arange(4, dtype=np.int32))


# --- calls that are wrong ---------------------------------------------------------------------


def test_a_cotangent_has_the_shape_of_its_result() -> None:
    f = function("def f(float64(N) x) -> (y) { y(i) = x(i) * x(i + 1) }")
    derivative = tcdsl.vjp(f)
    assert derivative(draw(5), draw(4)).shape == (5,)
    for wrong in (3, 5):
        with pytest.raises(ShapeError, match=r"dimension 0 of 'd_y' and that of 'y'"):
            derivative(draw(5), draw(wrong))


def test_wrt_names_parameters() -> None:
    f = function("def f(float64(N) x, int32(N) k) -> (y) { y(i) = x(i) * k(i) }")
    for wrong in ("z", "k", ("x", "z"), 3, (3,), ()):
        with pytest.raises(OptionError, match="wrt") as caught:
            tcdsl.vjp(f, wrong)  # type: ignore[arg-type]
        assert caught.value.hint
    with pytest.raises(OptionError, match="no floating-point parameter"):
        tcdsl.vjp(function("def f(int32(N) k) -> (y) { y(i) = k(i) }"))
    with pytest.raises(OptionError, match="vjp"):
        tcdsl.vjp(tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }"))  # type: ignore[arg-type]


REFUSED = [
    (
        "def f(float(N) x, int32(N) I) -> (y) { y(i) = x(i)  y(i / 2) += y(I(i)) where i in 0:N }",
        "data give",
        (1, 53),
    ),
    (
        "def f(float(8) y) -> (y) { y(i / 2) += y(3 - i / 2) where i in 0:8 }",
        "old elements",
        (1, 28),
    ),
    (
        "def f(float(N) y) -> (y) { y((N - 1 - i) / 2) += y(N - 1 - i) where i in 0:N - 1 }",
        "not one to one",
        (1, 28),
    ),
    (
        "def f(float(M, N) y) -> (y) { y(3, i) = y(3, i / 2) * 0.5 where i in 1:N }",
        "at some sizes alone",
        (1, 31),
    ),
    (
        "def f(float(N) x, size R) -> (y) { y(i) = x(i * R)  y(i) +=! x(i) where i in 0:2 }",
        "writes y again",
        (1, 53),
    ),
    (
        "def f(float(N) x, size R) -> (y) { y(i) = x(i * R) * (i > R ? x(i) : 0.0) }",
        "guarded",
        (1, 36),
    ),
    (
        "def g(float(N) x, size R) -> (y) { y(i) = x(i * R) * N } "
        "def f(float(N) x, size R) -> (y) { t(i) = x(i + 1)  y = g(t, R) }",
        "is called",
        (1, 36),
    ),
    ("def f(float(N) x) -> (y) { y(i) = tgamma(x(i)) }", "derivative of tgamma", (1, 35)),
    ("def f(float(N) x) -> (float(N) y) { y(i) += x(i) }", "passes as out=", (1, 37)),
]


@pytest.mark.filterwarnings("ignore:.*goes on from")
@pytest.mark.parametrize(("text", "message", "place"), REFUSED)
def test_what_is_refused(text: str, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(SemanticError, match=message) as caught:
        tcdsl.vjp(function(text))
    assert caught.value.code == "TC093" and caught.value.hint
    assert (caught.value.line, caught.value.column) == place
