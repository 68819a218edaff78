"""Bounds of ranges from data that no index can be."""

from itertools import pairwise

import numpy as np
import pytest

import tcdsl


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
@pytest.mark.parametrize(
    "ptr, what",
    [
        ([0, 2, 2**63 + 4], "reaches 9223372036854775807, but e ends at 5"),
        ([2, 2**64 - 1, 5], "reaches 9223372036854775807, but e ends at 5"),
        ([0, 2, 5], ""),
        ([2**63, 2, 2], ""),  # empty, wherever it lies
    ],
)
def test_bounds_of_uint64_are_no_negative_numbers(target: str, ptr: list[int], what: str) -> None:
    f = tcdsl.define(
        "def f(uint64(P) p, float(E) x) -> (y)"
        " { y(r) +=! x(e) where r in 0:P - 1, e in p(r):p(r + 1) }"
    ).f
    args = np.array(ptr, np.uint64), np.arange(5, dtype=np.float32)
    if what:
        with pytest.raises(tcdsl.TCError, match=what):
            f(*args, target=target)
        return
    expected = [args[1][int(a) : int(b)].sum() for a, b in pairwise(ptr)]
    np.testing.assert_allclose(f(*args, target=target), expected, rtol=1e-6)
