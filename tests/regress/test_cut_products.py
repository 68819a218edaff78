"""Products of half types whose sums end before their operands do, or with many axes of blocks."""

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


@pytest.mark.slow
@pytest.mark.filterwarnings("error")  # no other plan had to be taken
def test_blocks_along_four_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    f = tcdsl.define("""def f(half(N,H,W,C) I, half(F,KH,C) K) -> (O) {
        O(n,h,w,f) +=! I(n,h+kh,w,c) * K(f,kh,c)
    }""").f
    rng = np.random.default_rng(0)
    image, weights = (rng.integers(-2, 3, shape) for shape in ((40, 3, 2, 32), (40, 2, 32)))
    args = image.astype(np.float16), weights.astype(np.float16)
    np.testing.assert_array_equal(f(*args, target="emulate"), f.reference(*args))
