"""Two defects of derivatives of statements that update their target.

A tensor of which only a part was written, then overwritten, was copied as a whole: the vjp did not
pass its own checks of bounds.  A sum whose instances read it while later ones go on with it was
taken for a recurrence: its jvp read the final values, and was wrong.
"""

import numpy as np
import pytest

import tcdsl
from tests.derivatives.gradients import check_gradients


@pytest.mark.parametrize(
    "text",
    [
        "def f(float64(N) x) -> (y) { y(0) = x(0) * x(1)  y(0) = y(0) * x(1)  "
        "y(i) = y(i - 1) * x(i) where i in 1:N }",
        "def f(float64(N) x) -> (y) { y(i) = x(0) * x(i) where i in 0:2  s +=! y(i) * y(i)  "
        "y(i) += x(i) where i in 0:2  y(i) = y(i - 2) * x(i) * s where i in 2:N }",
    ],
)
def test_a_part_is_overwritten_before_the_rest_is_written(text: str) -> None:
    check_gradients(tcdsl.define(text).f, np.random.default_rng(1).random(6))


@pytest.mark.parametrize("derivative", [tcdsl.vjp, tcdsl.jvp])
def test_sums_that_are_read_in_their_middle_are_refused(derivative: object) -> None:
    text = """def f(float64(N) x) -> (y) {
        y(i) = x(i)
        y(i / 3) += y((i - 1) / 3) * x(i) where i in 3:N
    }"""
    with pytest.raises(tcdsl.SemanticError, match="goes on to change") as caught:
        derivative(tcdsl.define(text).f)  # type: ignore[operator]
    assert caught.value.line == 3
