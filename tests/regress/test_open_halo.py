"""Windows along an open size that were compiled for every size.

Configurations are weighed at a quarter of a class's greatest size, too: 4 of 1 to 16, where a
window of five values has no place.  Dividing by that no work was an error in the planning.
"""

import numpy as np

import tcdsl
from tcdsl.options import Options
from tcdsl.testing import check

SOURCE = "def f(float(N,C) x) -> (y) { y(i) +=! x(i,c) * x(i+4,c) }"


def test_a_window_that_a_quarter_of_the_size_does_not_hold() -> None:
    f = tcdsl.define(SOURCE).f
    options = Options(dynamic_sizes=("N",))
    exe = f.compile(tcdsl.spec((16, 8), "float32"), target="emulate", options=options)
    assert exe.opened == ("N",)
    for n in (5, 7, 16):
        x = np.random.default_rng(n).standard_normal((n, 8), "f4")
        check(f, x, targets="emulate", options=options)
