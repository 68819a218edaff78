"""A size that was not left open, for the range of a statement begins at it.

Asking whether a range begins at 0 compared a bound of isl, a function of the open size, with the
number: islpy fails at that, and every size was compiled by itself without a word.
"""

import numpy as np

import tcdsl
from tcdsl.options import Options
from tcdsl.testing import check

SOURCE = "def f(float(N) x) -> (y) { y(i) = 2 * x(i) where i in N-1:N }"


def test_a_range_that_begins_at_an_open_size() -> None:
    f = tcdsl.define(SOURCE).f
    options = Options(dynamic_sizes=("N",))
    exe = f.compile(tcdsl.spec((16,), "float32"), target="emulate", options=options)
    assert exe.opened == ("N",)
    for n in (1, 7, 16):
        x = np.random.default_rng(n).standard_normal(n, "f4")
        check(f, x, targets="emulate", options=options)
