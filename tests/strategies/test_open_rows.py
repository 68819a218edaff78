"""Rows of an open length: one kernel for the lengths that vectors divide, another for the rest.

Results begin as NaN, so that what is not written is seen.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tcdsl
import tcdsl.testing
from tcdsl.options import Options
from tcdsl.testing.random_inputs import values

PRODUCTS = {
    "NN": "def f({t}(M,K) x, {t}(K,N) w) -> (float(M,N) y) {{ y(m,n) +=! x(m,k) * w(k,n) }}",
    "NT": "def f({t}(M,K) x, {t}(N,K) w) -> (float(M,N) y) {{ y(m,n) +=! x(m,k) * w(n,k) }}",
    "TN": "def f({t}(K,M) x, {t}(K,N) w) -> (float(M,N) y) {{ y(m,n) +=! x(k,m) * w(k,n) }}",
    "bias": """def f({t}(M,K) x, {t}(N,K) w, float(N) b) -> ({t}(M,N) y) {{
        t(m,n) +=! float32(x(m,k)) * float32(w(n,k))
        y(m,n) = fmax(t(m,n) + b(n), 0)
    }}""",
}
LENGTHS = (72, 8, 256, 136, 0, 1, 67, 251)


def drawn(f: Any, sizes: dict[str, int], kind: str) -> list[Any]:
    """Return arguments of *f* at *sizes*."""
    tensors = [f.comprehension.tensors[name] for name in f.comprehension.inputs]
    shapes = [tuple(sizes.get(str(d), d) for d in tensor.dims) for tensor in tensors]
    each = enumerate(zip(tensors, shapes, strict=True))
    return [values(tensor.dtype, shape, kind, seed) for seed, (tensor, shape) in each]


def check(f: Any, opened: str, sizes: dict[str, int], lengths: Sequence[int]) -> dict[int, Any]:
    """Compare *f* with the reference at all *lengths* of its size *opened*; return its code."""
    tensors, options = f.comprehension.tensors, Options(dynamic_sizes=(opened,))
    found = {}
    for length in lengths:
        known = {**sizes, opened: length}
        args = drawn(f, known, "real")
        tcdsl.testing.check(f, *args, targets="emulate", options=options)
