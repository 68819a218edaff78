"""Asynchronous copies of what begins between two vectors.

Such a run of neighbours is picked from the two vectors around it, in registers.  A copy from memory
to shared memory has none: it moved a vector from an address that is no multiple of its size.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

SOURCE = """def f(double(K,M) x, double(K,N) w) -> (float(M,200) y) {
    y(m,n) +=! x(k,m) * w(k,n+1) where n in 0:200
}"""


def test_a_slice_of_an_operand(check_emulated: Callable[..., Any], small_chip: Chip) -> None:
    check_emulated([(SOURCE, [(48, 1), (48, 202)])], gpu=small_chip)
