"""Products of half types whose sums end before their operands do."""

import numpy as np
import pytest

import tcdsl

CUT = """def f(half(M,K) A, half(K,N) B) -> (float(M,N) C) {
    C(m,n) +=! A(m,k) * B(k,n) where k in 0:%d
}"""


@pytest.mark.parametrize("terms", [40, 64])
def test_what_comes_after_the_sum_is_not_added(terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    a, b = (np.ones((80, 80), np.float16) for _ in "ab")
    a[0, terms] = np.inf
    got = tcdsl.define(CUT % terms).f(a, b, target="emulate")
    assert (got == terms).all()
