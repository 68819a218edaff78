"""Partial sums in the lanes of vectors on a CPU: wrong results that random programs found."""

from collections.abc import Callable

import numpy as np
import pytest

import tcdsl
from tcdsl.testing import check

CheckAll = Callable[..., None]


def test_a_guard_that_is_true_in_half_of_a_vector() -> None:
    """gcc 12.2 took it for true in all lanes (see OPTIONAL_FLAGS in runtime/c_compiler)."""
    source = """def f(uint32(3) A0, uint16(M) A1, float16(K) A2) -> (T0, T2) {
        T0 +=! 4 where i in 0:8
        T1(i + j) +=! A0(i) * A1(j) where i in 0:3
        T2(i + j) +=! A0(i) * A2(j) where j in 0:K
    }"""
    arrays = (np.ones(3, np.uint32), np.ones(5, np.uint16), np.ones(4, np.float16))
    check(tcdsl.define(source)["f"], *arrays, targets=("cpu",))


@pytest.mark.slow_but("int16")
@pytest.mark.parametrize("narrow", ["uint8", "int16", "bool"])
def test_fewer_lanes_than_a_vector_of_the_narrow_type_has(narrow: str, check_all: CheckAll) -> None:
    """A fold read a whole vector, beyond the lanes that a wider type had decided on."""
    value = "w(i, j)" if narrow == "bool" else f"w(i, j) < {narrow}(200)"
    source = f"""def f(double(N, M) x, {narrow}(N, M) w) -> (s, all, some, most) {{
        s(i) +=! x(i, j)
        all(i) and=! {value}
        some(i) or=! !({value})
        most(i) max=! int32(w(i, j))
    }}"""
    check_all([(source, [(n, m), (n, m)]) for n, m in ((1, 9), (3, 31), (5, 64), (40, 1000))])
    rng = np.random.default_rng(7)
    ones = np.ones((40, 31), np.dtype(narrow))
    check(tcdsl.define(source)["f"], rng.random((40, 31)), ones, targets=("cpu",))
