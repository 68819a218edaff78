"""The reference has values of functions where Python's raise: they overflow, or an argument does.

``math.lgamma`` raises beyond 2.5e305, and half of the least denormal is no argument of ``log``.
"""

import numpy as np
import pytest

import tcdsl


@pytest.mark.parametrize("name", ["lgamma", "tgamma", "y0", "y1", "erfcx"])
def test_functions_at_extremes(name: str) -> None:
    f = tcdsl.define(f"def f(double(N) x) -> (y) {{ y(i) = {name}(x(i)) }}").f
    x = np.array([2.6e305, 1.7e308, -1.7e308, 5e-324, -5e-324, 2.3e-308])
    tcdsl.testing.check(f, x, targets=("cpu", "reference"))


@pytest.mark.parametrize("operation", ["*", "/", "%", "+", "-"])
def test_bounds_of_subnormal_results(operation: str) -> None:
    """What a rounding below the normal doubles loses is less than the least double: not nothing."""
    source = f"def f(double(N) x, double(M) y) -> (z) {{ z(i, j) = x(i) {operation} y(j) }}"
    x = np.array([1.0, 1e-3, 1.5, 7.0, 2.3e-308, 1.7e308, 5e-324, 3e-320])
    tcdsl.testing.check(tcdsl.define(source).f, x, -x, targets=("cpu",))
