"""Sums of products whose results have an open size between others were in memory, not in registers.

A thread has every fourth of the open size's values: of no more than a class has, but how many there
are was asked of the extent, which is no number.
"""

import numpy as np

import tcdsl
from tcdsl.options import Options
from tcdsl.testing import check

SOURCE = """def f(float(D,A) U, float(E,B) V, float(F,C) W, float(M,A,B,C) X) -> (Y) {
    S(m,a,b,f) +=! X(m,a,b,c) * W(f,c)
    T(m,a,e,f) +=! S(m,a,b,f) * V(e,b)
    Y(m,d,e,f) +=! T(m,a,e,f) * U(d,a)
}"""


def test_sums_of_an_open_size_are_in_registers() -> None:
    f, options = tcdsl.define(SOURCE).f, Options(dynamic_sizes=("D",))
    shapes = (16, 16), (16, 16), (16, 16), (256, 16, 16, 16)
    specs = [tcdsl.spec(shape, "float32") for shape in shapes]
    exe = f.compile(*specs, target="emulate", options=options)
    assert exe.opened == ("D",) and "product_chain" in str(exe.choices)
    head = exe.source[exe.source.index("__global__") :].partition("{")[0]
    assert "part" not in head  # no parameter is an array of partial sums
    # The stride of m is 256 D: rows of F begin at multiples of 16, whatever D is.
    assert "tc_vstore(&Y" in exe.source


def test_results_with_an_open_size_between_others() -> None:
    f, options = tcdsl.define(SOURCE).f, Options(dynamic_sizes=("D",))
    rng = np.random.default_rng(0)
    for size in (16, 2, 3, 7, 15):
        shapes = (size, 16), (16, 16), (16, 16), (4, 16, 16, 16)
        args = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        check(f, *args, targets="emulate", options=options)
