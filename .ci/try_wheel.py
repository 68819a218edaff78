"""Try the installed wheel from outside the checkout: grammar, programs, headers, a matmul."""

from pathlib import Path

import numpy as np

import tcdsl
import tcdsl.library

assert Path.cwd() not in Path(tcdsl.__file__).parents, "this tries the checkout, not the wheel"

a, b = (np.arange(35, dtype=np.float32).reshape(shape) for shape in ((5, 7), (7, 5)))
program = tcdsl.define(
    "def matmul(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
)
np.testing.assert_array_equal(program.matmul(a, b, target="cpu"), a @ b)
np.testing.assert_array_equal(tcdsl.einsum("ij,jk->ik", a, b), a @ b)
for case in tcdsl.library.cases():
    assert tcdsl.define(case.source).names
print("the wheel works:", Path(tcdsl.__file__).parent)
