"""Several left-hand instances that find the place of one extreme value: of all their terms.

The reference had that of the last instance; a CPU's, among equal values, depended on its loops.
"""

import numpy as np
import pytest

import tcdsl
from tcdsl.testing import check

RNG = np.random.default_rng(0)
X = RNG.integers(-3, 4, (150, 9)).astype(np.int8)
PLACES = np.array([3, 1, 3, 0, 0, 7, 1, 9, 9], np.int32)


@pytest.mark.slow_but("int8-argmin-i(v) % 25", "int64-argmax-i(v) % 25")
@pytest.mark.parametrize("at", ["i(v) % 25", "v / 2"])
@pytest.mark.parametrize("op", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_scattered(op: str, at: str, dtype: str) -> None:
    text = f"t({at}) {op}=! x(m,v) where v in 0:V"
    f = tcdsl.define(f"def f(int8(M,V) x, int32(V) i, {dtype}(W) t) -> (t) {{ {text} }}").f
    start = np.ones(25, dtype)
    check(f, X, PLACES, start, targets=("cpu", "emulate"), out=start.copy())


def test_diagonals() -> None:
    f = tcdsl.define("def f(int8(N,M,K) x) -> (t) { t(i + j) argmin=! x(i,j,k) }").f
    x = RNG.integers(-3, 4, (7, 9, 50)).astype(np.int8)
    check(f, x, targets=("cpu", "emulate"))


def test_the_first_instance_counts() -> None:
    f = tcdsl.define("def f(int8(V,M) x) -> (t) { t(v / 2) argmin=! x(v,m) where v in 0:V }").f
    x = np.array([[5, 1, 1], [1, 7, 0], [2, 2, 1], [1, 1, 1]], np.int8)
    for target in ("reference", "cpu", "emulate"):
        assert f(x, target=target).tolist() == [2, 2]
