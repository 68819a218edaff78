"""A product of three factors whose result repeats along an index that none of them has.

The order of contraction was asked for with that index in the result alone, which is no einsum: an
internal error.
"""

import numpy as np
import pytest

import tcdsl

HEAD = "float(N, M) a, float(M, N) b, float(N) c"


@pytest.mark.parametrize(
    "text",
    [
        f"def f({HEAD}) -> (y) {{ y(k, i) +=! a(i, j) * b(j, l) * c(l) where k in 0:3 }}",
        f"def f({HEAD}) -> (y) {{ y(k) +=! a(i, j) * b(j, l) * c(l) where k in 0:3 }}",
    ],
)
def test_they_are_repeated(text: str) -> None:
    rng = np.random.default_rng(1)
    shapes = (40, 50), (50, 40), (40,)
    tcdsl.testing.check(tcdsl.define(text).f, *(rng.random(s, np.float32) for s in shapes))
