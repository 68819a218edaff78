"""A caller's first values in a result, read as subscripts without a check.

The statement that writes b tells that its values are 0 to 9: of the elements that it writes.  b(0)
is what ``out=`` brings, and was read from outside of lut.
"""

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import LaunchError

SOURCE = """def f(int32(N) x, float(M) lut) -> (int32(N) b, float(N) y) {
    b(i) = min(9, max(0, b(i-1) + x(i))) where i in 1:N
    y(i) = lut(b(i))
}"""


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_a_first_value_out_of_range_is_found(target: str) -> None:
    x, lut = np.arange(8, dtype="i4") - 3, np.arange(10, dtype="f4")
    exe = tcdsl.define(SOURCE).f.compile(x, lut, target=target)
    first, y = np.full(8, 10**6, "i4"), np.zeros(8, "f4")
    with pytest.raises(LaunchError, match="1000000"):
        exe(x, lut, out=(first, y))
    first = np.full(8, 3, "i4")
    b, y = exe(x, lut, out=(first, y))
    assert (y == lut[b]).all() and b[0] == 3
