"""A place in a local array whose last index is a choice: ``h[8 * b + c ? i - 5 : i + 3]``."""

import numpy as np
import pytest

import tcdsl

SOURCE = """def f(float(B,8) x) -> (y) {
    h(b,i) = x(b,i) * 2
    s(b) +=! h(b,i)
    y(b,i) = h(b, i + 3 >= 8 ? i - 5 : i + 3) * s(b) where i in 0:8
}"""


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_the_choice_is_one_term_of_the_place(target: str) -> None:
    f = tcdsl.define(SOURCE).f
    x = np.random.default_rng(0).integers(-3, 4, (5, 8)).astype("f4")
    np.testing.assert_array_equal(f(x, target=target), f.reference(x))
