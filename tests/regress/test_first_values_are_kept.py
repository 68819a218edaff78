"""A caller's first values in a result that a kernel keeps in shared memory for its own readers.

What a kernel reads of its own result was kept in a temporary, which began as nothing: t(0) is what
``out=`` brings, no statement writes it, and ``w(t(0))`` was updated at what shared memory held.
"""

import numpy as np
import pytest

import tcdsl

SOURCE = """def f(int32(N) x, float(N) v) -> (int32(N) t, float(4) w) {
    t(i) = min(3, max(0, x(i))) where i in 1:N
    w(d) = 0 where d in 0:4
    w(t(i)) += v(i)
}"""


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_what_nobody_wrote_is_the_callers(target: str) -> None:
    x, v = np.arange(13, dtype="i4") - 4, np.arange(1, 14, dtype="f4")
    f = tcdsl.define(SOURCE).f
    first, w = np.full(13, 2, "i4"), np.zeros(4, "f4")
    f.compile(x, v, target=target)(x, v, out=(first, w))
    t = np.append(2, np.clip(x[1:], 0, 3))
    assert (first == t).all()
    assert (w == np.bincount(t, v, minlength=4)).all()
