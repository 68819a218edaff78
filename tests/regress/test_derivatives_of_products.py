"""Derivatives of a product of factors of which some are 0, of the first three orders."""

import numpy as np
import pytest

import tcdsl

ORDERS = ("x",), ("x",), ("x",)
STATEMENTS = "y *=! x(i)", "y = x(0)  y *= x(i) where i in 1:N"


def others(x: np.ndarray, *left_out: int) -> float:
    """Return the product of *x* without the factors at *left_out*; 0 if one is named twice."""
    if len(set(left_out)) < len(left_out):
        return 0.0
    return float(np.prod(np.delete(x, left_out)))


@pytest.mark.slow_but("y *=! x(i)-2", "y = x(0)  y *= x(i) where i in 1:N-1")
@pytest.mark.slow_but(*(f"{STATEMENTS[0]}-{n}" for n in range(5)), f"{STATEMENTS[1]}-1")
@pytest.mark.parametrize("zeros", range(5))
@pytest.mark.parametrize("statement", STATEMENTS)
def test_two_orders_at_any_zeros_and_the_third_at_two(zeros: int, statement: str) -> None:
    """The second derivative by two factors of which one is 0 was 0, and the product of the others
    is right: their adjoints were branches that no factor moved."""
    first = tcdsl.define(f"def f(float64(N) x) -> (y) {{ {statement} }}").f
    rng = np.random.default_rng(zeros)
    count = 5
    x, d_y = rng.uniform(0.5, 2.0, count), 1.5
    x[rng.permutation(count)[:zeros]] = 0
    by = range(count)
    gradient = tcdsl.vjp(first)
    np.testing.assert_allclose(
        gradient.reference(x, d_y), [d_y * others(x, i) for i in by], rtol=1e-13
    )
    u, v = rng.standard_normal((2, count))
    second = tcdsl.vjp(gradient, "x")
    hessian = np.array([[others(x, i, j) for j in by] for i in by])
    np.testing.assert_allclose(second.reference(x, d_y, u), d_y * hessian @ u, rtol=1e-12)
    third = tcdsl.vjp(second, "x").reference(x, d_y, u, v)
    if zeros < 3:
        cube = np.array([[[others(x, i, j, k) for k in by] for j in by] for i in by])
        np.testing.assert_allclose(third, d_y * cube @ v @ u, rtol=1e-11, atol=1e-12)
    else:
        assert not np.any(np.isfinite(third[x == 0]))
