"""The derivative of every builtin, by every argument, beside differences."""

import numpy as np
import pytest

import tcdsl
from tcdsl.derivatives.builtin_rules import rules
from tcdsl.lang.types.builtins import BUILTINS, BuiltinKind
from tests.derivatives.gradients import check_gradients

# Where the arguments are drawn from: within the domain of nearly all, and off their kinks.
USUAL = (0.15, 0.85)
RANGES = {"acosh": (1.2, 2.5), "erfcinv": (0.3, 1.7), "y0": (0.5, 3.0), "y1": (0.5, 3.0)}
BOTH_SIGNS = frozenset(
    ("abs", "fabs", "sign", "relu", "copysign", "atan2", "cbrt", "rcbrt", "sin", "cos", "tan",
     "erf", "tanh", "sinh", "cosh", "exp", "j0", "j1", "fmod", "remainder", "fdim", "fma",
     "hypot", "min", "max", "fmin", "fmax", "sigmoid", "norm3d", "norm4d", "rhypot")
)  # fmt: skip
NONE = {"tgamma", "lgamma"}


def drawn(name: str, rng: np.random.Generator) -> np.ndarray:
    x = rng.uniform(*RANGES.get(name, USUAL), 6)
    return x * rng.choice((-1, 1), 6) if name in BOTH_SIGNS else x


def test_all_builtins_but_those_that_are_refused_have_rules() -> None:
    floats = {name for name, b in BUILTINS.items() if b.kind is not BuiltinKind.TEST}
    assert set(rules()) == floats - NONE
    assert all(len(slopes) == BUILTINS[name].arity for name, slopes in rules().items())


@pytest.mark.parametrize("name", sorted(rules()))
def test_the_rule_of(name: str) -> None:
    parameters = BUILTINS[name].parameters
    inputs = ", ".join(f"float64(N) {p}" for p in parameters)
    call = f"{name}({', '.join(f'{p}(i)' for p in parameters)})"
    f = tcdsl.define(f"def f({inputs}) -> (out) {{ out(i) = {call} }}").f
    rng = np.random.default_rng(7)
    arrays = [drawn(name, rng) for _ in parameters]
    for parameter in parameters:
        check_gradients(f, *arrays, wrt=(parameter,), tolerance=2e-6)
    if name != "nextafter":
        check_gradients(tcdsl.vjp(f, parameters[0]), *arrays, rng.uniform(1, 2, 6), tolerance=2e-6)


def test_kinks() -> None:
    f = tcdsl.define("""def f(float64(N) x, float64(N) y) -> (a, b, c, d) {
        a(i) = abs(x(i))  b(i) = relu(x(i))  c(i) = max(x(i), y(i))  d(i) = fmin(x(i), y(i))
    }""").f
    zero, one = np.zeros(1), np.ones(1)
    d_x, d_y = tcdsl.vjp(f).reference(zero, zero, one, 2 * one, 4 * one, 8 * one)
    assert d_x == 0 + 0 + 2 + 4 and d_y == 2 + 4
    nan = np.full(1, np.nan)
    d_x, d_y = tcdsl.vjp(f).reference(one, nan, zero, zero, zero, one)
    assert d_x == 1 and d_y == 0  # fmin ignores a NaN


def test_powers_at_zero() -> None:
    f = tcdsl.define("def f(float64(N) x, float64(N) y) -> (z) { z(i) = pow(x(i), y(i)) }").f
    d_x, d_y = tcdsl.vjp(f).reference(np.zeros(4), np.array([0.0, 1.0, 2.0, 3.0]), np.ones(4))
    np.testing.assert_array_equal(d_x, [0, 1, 0, 0])
    np.testing.assert_array_equal(d_y, [0, 0, 0, 0])


def test_an_exponent_that_is_a_number_leaves_no_choice() -> None:
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = pow(x(i), 3.0) }").f
    assert "d_x(i) = d_y(i) * 3.0 * pow(x(i), 2.0)" in tcdsl.vjp(f).source


def test_a_number_is_not_asked_whether_it_is_nan() -> None:
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = fmax(x(i), 0.0) }").f
    text = tcdsl.vjp(f).source
    assert "x(i) > 0.0 ? d_y(i) : x(i) == 0.0 ? d_y(i) * 0.5 : 0.0" in text
