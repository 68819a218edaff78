"""Factors that a condition masks: their type is not that of what the condition reads.

The first array that a statement reads may be one of float32 in a condition: factors of float16 were
then planned, and multiplied, as three products of tf32, which no compiler took.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

SOURCE = """def f(float(N) m, half(N,F,H,W) x, half(N,C,S,W) w) -> (y) {
    y(c,s,f,r) +=! (m(n) > 0 ? x(n,f,h,v) : 0)
                 * (v + s - 1 >= 0 && v + s - 1 < W ? w(n,c,3*h+r,v+s-1) : 0)
                 where s in 0:2, r in 0:3
}"""


def test_halves_behind_a_condition_on_floats(
    check_emulated: Callable[..., Any], small_chip: Chip
) -> None:
    check_emulated([(SOURCE, [(3,), (3, 32, 2, 64), (3, 4, 9, 64)])], gpu=small_chip)
