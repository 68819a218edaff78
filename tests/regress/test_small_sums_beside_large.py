"""A sum of small products that is added to another one kept none of its terms, once both were one.

`a + b` of two statements is two sums, each with its own error: in the accumulators of a, 2048 terms
of 2^-24 beside 64 are nothing.  ``added_sums`` made one sum of any two.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tcdsl.testing.comparison import check


def test_a_correction_is_not_lost(cuda_unit: Callable[..., Any], emulated: Any) -> None:
    source = """def f(half(M,K) x, half(K,N) w, half(M,J) u, half(J,N) v) -> (float(M,N) y) {
        a(m,n) +=! float(x(m,k)) * w(k,n)
        b(m,n) +=! float(u(m,j)) * v(j,n)
        y(m,n) = a(m,n) + b(m,n)
    }"""
    shapes = [(64, 64), (64, 64), (64, 2048), (2048, 64)]
    (program,) = emulated([cuda_unit(source, *shapes)])
    factors = (1.0, 1.0, 2.0**-12, 2.0**-12)
    check(program, *(np.full(s, f, np.float16) for s, f in zip(shapes, factors, strict=True)))
