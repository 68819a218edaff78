"""Integers that Python refuses to print, as arguments: the errors that name them failed."""

import numpy as np
import pytest

import tcdsl

HUGE = 10**5000


@pytest.mark.parametrize(
    ("parameter", "why"),
    [
        ("size a", "the size a: an integer of 16610 bits is too large"),
        ("float a", "an integer of 16610 bits is too large for it"),
        ("int8 a", "an integer of 16610 bits is outside -128 to 127"),
        ("bool a", "an integer of 16610 bits is not a bool"),
    ],
)
def test_huge_numbers(parameter: str, why: str) -> None:
    f = tcdsl.define(f"def f(int32(N) x, {parameter}) -> (y) {{ y(i) = x(i) + int32(a) }}").f
    with pytest.raises(tcdsl.ShapeError, match=why):
        f(np.ones(2, np.int32), HUGE)
