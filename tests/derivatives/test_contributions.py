"""What the contributions to an adjoint become: one assignment, sums of little, or nothing."""

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tests.derivatives.gradients import check_gradients
from tests.derivatives.test_vjp import body, draw, function


def statements(name: str, wrt: str) -> list[str]:
    case = library.case(name)
    source = library.source_for(case, "float32")
    return body(tcdsl.vjp(tcdsl.define(source)[case.def_name], wrt))


def test_a_softmax_does_not_depend_on_what_is_subtracted() -> None:
    assert statements("cross_entropy", "logits") == [
        "peak(b) max=! logits(b, v)", "total(b) +=! exp(logits(b, v) - peak(b))",
        "d_loss_1 = d_loss / float32(B)", "d_total(b) = d_loss_1 / total(b)",
        "d_logits(b, v) = (v == labels(b) ? -d_loss_1 : 0.0) + "
        "d_total(b) * exp(logits(b, v) - peak(b))",
    ]  # fmt: skip
    assert not any("ties" in line for line in statements("softmax", "x"))


def test_a_variance_does_not_depend_on_its_mean() -> None:
    lines = statements("layernorm", "x")
    sums = [line.partition(" +=! ")[0] for line in lines if " +=! " in line]
    assert sums == ["mean(i)", "var(i)", "d_rstd(i)", "d_mean_1_sum(i)"]
    assert lines[-1].startswith("d_x(i, j) = ") and lines[-1].endswith("+ d_mean(i)")


@pytest.mark.parametrize("body_", [
    "m +=! x(i)  m = m / (N + 1.0)  s +=! (x(i) - m) * (x(i) - m)",  # another mean
    "m +=! x(i)  m = m / N  s +=! (x(i) - m) * (x(i) - m) * x(i)",
    "m +=! x(i)  m = m / N  s +=! x(i) - m where i in 1:N",
    "m +=! x(i) where i in 1:N  m = m / N  s +=! (x(i) - m) * (x(i) - m)",
    "m max=! x(i)  e(i) = exp(x(i) - m)  t +=! e(i)  s +=! e(i) * e(i) / t",
    "m max=! x(i)  t +=! exp(x(i) - m)  s +=! x(i) * exp(x(i) - 2.0 * m) / t",
    "m +=! x(i) where exists x(i) > 0.0  m = m / N  s +=! (x(i) - m) * (x(i) - m)",
])  # fmt: skip
def test_what_does_not_cancel_stays(body_: str) -> None:
    check_gradients(function(f"def f(float64(N) x) -> (s) {{ {body_} }}"), draw(6))


def test_sums_wait_for_no_factor() -> None:
    f = function("def f(float(M, N) x, float(M) a, float(N) b) -> (y) "
                 "{ y(m, n) = a(m) * b(n) * x(m, n) }")  # fmt: skip
    assert body(tcdsl.vjp(f, "a")) == ["d_a(m) +=! d_y(m, n) * x(m, n) * b(n)"]
    g = function("def f(float(M, N) x, float(M) a) -> (y) { y(m, n) = sin(a(m)) * x(m, n) }")
    assert body(tcdsl.vjp(g, "a")) == [
        "d_a_sum(m) +=! d_y(m, n) * x(m, n)", "d_a(m) = cos(a(m)) * d_a_sum(m)",
    ]  # fmt: skip


def test_a_sum_of_sums_is_shared() -> None:
    case = library.case("group_norm")
    f = tcdsl.define(library.source_for(case, "float64"))[case.def_name]
    lines = body(tcdsl.vjp(f, ("x", "gamma", "beta")))
    whole = [line for line in lines if " +=! d_y(n, g, d, h, w)" in line]
    assert [line.partition(" +=!")[0] for line in whole] == [
        "d_rstd_part(n, g, d)", "d_mean_1_part(n, g, d)",
    ]  # fmt: skip
    assert lines[-2:] == [
        "d_gamma(g, d) +=! rstd(n, g) * d_rstd_part(n, g, d)",
        "d_beta(g, d) +=! d_mean_1_part(n, g, d)",
    ]


@pytest.mark.parametrize(("extent", "lines"), [
    ("3", ["d_k_sum +=! a(i) * x(i, c)"]),
    ("C", ["d_k_part(i) +=! x(i, c)", "d_k_sum +=! a(i) * d_k_part(i)"]),
])  # fmt: skip
def test_a_sum_of_few_terms_is_no_sum_of_sums(extent: str, lines: list[str]) -> None:
    f = function(f"def f(float(N, {extent}) x, float(N) a, float k) -> (s) "
                 "{ s +=! k * x(i, c) * a(i) }")  # fmt: skip
    assert body(tcdsl.vjp(f, "k")) == [*lines, "d_k = d_s * d_k_sum"]


def test_a_factor_that_may_be_no_number_stays_behind_its_condition() -> None:
    f = function("def f(float64(M, N) x, float64(M) a) -> (s) "
                 "{ s(m) +=! x(m, n) / a(m) where exists a(m) > 0.0 }")  # fmt: skip
    d_a = tcdsl.vjp(f, "a").reference(np.ones((2, 3)), np.array([0.0, 2.0]), np.ones(2))
    np.testing.assert_array_equal(d_a, [0, -0.75])


def test_what_is_cleared_passes_on_what_it_held_before() -> None:
    text = """def f(float64(N) x) -> (z, float64(N) y) {
        y(i) = x(i) * x(i)  z(i) = y(i) * x(i)  y(i) = y(i) * x(i) where i in 0:2
    }"""
    check_gradients(function(text), draw(5))


def test_adjoints_that_no_gradient_needs_are_not_computed() -> None:
    f = function("def f(float(N) x, float(N) a) -> (y) { t(i) = a(i) * a(i)  u(i) = exp(t(i))  "
                 "y(i) = u(i) * x(i) }")  # fmt: skip
    assert body(tcdsl.vjp(f, "x")) == [
        "t(i) = a(i) * a(i)", "u(i) = exp(t(i))", "d_x(i) = d_y(i) * u(i)",
    ]  # fmt: skip
