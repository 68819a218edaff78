"""A product that shares two indices with another, one of them a row, was taken for a column sum.

The derivative of two layers has d_x(b,i) over n and d_w(i,n) over b, of the same d_h(b,n): for the
tile of d_x the second was a sum over its rows, for all n of them at once, that nothing walked.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.request import Request
from tcdsl.testing import check
from tests.programs import specialisation_of

SOURCE = """def mlp(float(B,I) x, float(I,H) w1, float(H) b1, float(H,O) w2) -> (float(B,O) y) {
    h(b,n) +=! x(b,i) * w1(i,n)
    a(b,n) = relu(h(b,n) + b1(n))
    y(b,o) +=! a(b,n) * w2(n,o)
}"""
SHAPES = ((512, 784), (784, 256), (256,), (256, 10), (512, 10))


def test_two_gradients_of_one_layer(recwarn: Any) -> None:
    c = tcdsl.vjp(tcdsl.define(SOURCE).mlp).comprehension
    done = compile_to_cuda(Request(c, specialisation_of(c, SHAPES)), load_chip("h200"))
    assert not done.is_fallback
    assert not [w for w in recwarn if issubclass(w.category, tcdsl.TCWarning)]


def test_a_product_over_rows_of_another(cuda_unit: Callable[..., Any], emulated: Any) -> None:
    source = """def f(half(B,N) h, half(N,I) w, half(B,I) x) -> (float(B,I) d, float(I,N) e) {
        d(b,i) +=! h(b,n) * w(n,i)
        e(i,n) +=! h(b,n) * x(b,i)
    }"""
    shapes = [(64, 32), (32, 128), (64, 128)]
    (program,) = emulated([cuda_unit(source, *shapes)])
    rng = np.random.default_rng(0)
    check(program, *(rng.integers(-3, 4, shape).astype(np.float16) for shape in shapes))
