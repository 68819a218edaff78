"""Arrays with more elements than memory has, by strides of 0: the emulator copied each element."""

import numpy as np
import pytest

import tcdsl
from tcdsl.emulator.cxx import why_no_cxx_compiler


@pytest.mark.skipif(why_no_cxx_compiler() is not None, reason="no C++ compiler")
def test_elements_beyond_two_to_the_33() -> None:
    f = tcdsl.define(
        "def f(float(M, N) x, int64(K) at) -> (y) { y(k) = x(at(k), N - 1 - at(k)) }"
    ).f
    x = np.broadcast_to(np.float32(3), (2**17, 2**17))
    at = np.array([0, 2**17 - 1], np.int64)
    assert f(x, at, target="emulate").tolist() == [3, 3]
    with pytest.raises(tcdsl.LaunchError, match="index 131072 of 'x'"):
        f(x, at + 1, target="emulate")
