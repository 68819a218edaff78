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


def check(f: Any, opened: str, sizes: dict[str, int], lengths: Sequence[int]) -> dict[int, Any]:
    """Compare *f* with the reference at all *lengths* of its size *opened*; return its code."""
    tensors, options = f.comprehension.tensors, Options(dynamic_sizes=(opened,))
    found = {}
    for length in lengths:
        known = {**sizes, opened: length}
        args = [
            values(
                tensors[n].dtype,
                tuple(known.get(str(d), d) for d in tensors[n].dims),
                "whole",
                seed,
            )
            for seed, n in enumerate(f.comprehension.inputs)
        ]
        found[length] = exe = f.compile(*args, target="emulate", options=options)
        (result,) = f.comprehension.outputs
        out = np.full(f.output_shapes(*args)[result], np.nan, tensors[result].dtype.numpy)
        np.testing.assert_array_equal(exe(*args, out=out), f.reference(*args))
        assert exe.opened == ((opened,) if length > 1 else ())
    return found


@pytest.mark.one_in(5)  # each form, type and size among them
@pytest.mark.slow_but("half-NT-K")
@pytest.mark.parametrize("opened", "MNK")
@pytest.mark.parametrize("form", PRODUCTS)
@pytest.mark.parametrize("dtype", ["half", "float", "bfloat16"])
def test_products_are_for_tensor_cores(dtype: str, form: str, opened: str) -> None:
    f = tcdsl.define(PRODUCTS[form].format(t=dtype)).f
    found = check(f, opened, {"M": 128, "N": 128, "K": 128}, LENGTHS)
    if dtype == "float":  # such short sums would not be as accurate in three of tf32
        return
    for length in (72, 8, 256, 136):
        templates = [kernel["template"] for kernel in found[length].choices["kernels"]]
        assert templates == ["tile_mma"], length


CONVOLUTIONS = {
    "NHWC": """def f({t}(N,H,W,C) x, {t}(F,3,3,C) w) -> (float(N,H,W,F) y) {{
        y(n,h,w_,f) +=! (h + r >= 1 && h + r - 1 < H && w_ + s >= 1 && w_ + s - 1 < W
            ? x(n,h+r-1,w_+s-1,c) : 0) * w(f,r,s,c) where h in 0:H, w_ in 0:W
    }}""",
    "NCHW": """def f({t}(N,C,H,W) x, {t}(F,C,3,3) w) -> (float(N,F,H,W) y) {{
        y(n,f,h,w_) +=! (h + r >= 1 && h + r - 1 < H && w_ + s >= 1 && w_ + s - 1 < W
            ? x(n,c,h+r-1,w_+s-1) : 0) * w(f,c,r,s) where h in 0:H, w_ in 0:W
    }}""",
    "weights of 1 x 1": """def f({t}(N,C,H,W) x, {t}(N,F,H,W) g) -> (float(F,C) y) {{
        y(f,c) +=! g(n,f,h,w_) * x(n,c,h,w_)
    }}""",
}


@pytest.mark.one_in(7)  # each form, type and size among them
@pytest.mark.slow
@pytest.mark.parametrize("opened", "CFHW")
@pytest.mark.parametrize("form", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["half", "float", "bfloat16"])
def test_convolutions_of_open_channels(dtype: str, form: str, opened: str) -> None:
    """An index that steps go over may have an open number of values: its steps have no gaps."""
    f = tcdsl.define(CONVOLUTIONS[form].format(t=dtype)).f
    lengths = (40, 8, 24, 13, 1) if opened in "HW" else (72, 8, 136, 0, 1, 67)
    found = check(f, opened, {"N": 2, "C": 32, "H": 6, "W": 8, "F": 32}, lengths)
    if form == "NHWC" and opened in "CF":
        assert "tile_implicit" in [kernel["template"] for kernel in found[72].choices["kernels"]]


GRAPHS = {
    "batchnorm": """def f({t}(N,C,H,W) x) -> ({t}(N,C,H,W) y) {{
        m(c) +=! float32(x(n,c,h,w_)) / (N * H * W)
        v(c) +=! (x(n,c,h,w_) - m(c)) * (x(n,c,h,w_) - m(c)) / (N * H * W)
        y(n,c,h,w_) = (x(n,c,h,w_) - m(c)) * rsqrt(v(c) + 1)
    }}""",
    "sums": "def f({t}(N,C,H,W) x) -> (float(C) y) {{ y(c) +=! float32(x(n,c,h,w_)) }}",
    "sums of halves": """def f({t}(N,C,H,W) x, {t}(N,C,H,W) z) -> (float(N,C,H) y) {{
        y(n,c,h) +=! float32(x(n,c,h,w_)) * z(n,c,h,w_)
    }}""",
    "planes": """def f({t}(N,C,H,W) x, float(C) b) -> (float(N,C,H,W) y) {{
        y(n,c,h,w_) = x(n,c,h,w_) * b(c)
    }}""",
    "crops": """def f({t}(N,C,H,W) x) -> (float(N,C,H,W) y) {{
        y(n,c,h,w_) = x(n,c,h,w_) + x(n,c,0,w_) where h in 0:H
    }}""",
    "inner rows": """def f({t}(N,C,H,W) x) -> (float(N,C,2,W) y) {{
        y(n,c,h,w_) = x(n,c,h+1,w_) where h in 0:2
    }}""",
}


@pytest.mark.one_in(5)
@pytest.mark.slow_but("half-batchnorm-W")
@pytest.mark.parametrize("opened", "HW")
@pytest.mark.parametrize("form", GRAPHS)
@pytest.mark.parametrize("dtype", ["half", "float"])
def test_planes_of_images_are_one_index(dtype: str, form: str, opened: str) -> None:
    """Whichever of their sizes is open: the other one is a number."""
    f = tcdsl.define(GRAPHS[form].format(t=dtype)).f
    sizes = {"N": 3, "C": 8, "H": 7, "W": 7, opened: 0}
    tensors, options = f.comprehension.tensors, Options(dynamic_sizes=(opened,))
    for length in (56, 8, 64, 13, 31, 1, 67, 200):
        if form == "inner rows" and opened == "H" and length < 3:
            continue
        known = {**sizes, opened: length}
        args = [
            values(
                tensors[n].dtype, tuple(known.get(str(d), d) for d in tensors[n].dims), "real", k
            )
            for k, n in enumerate(f.comprehension.inputs)
        ]
        tcdsl.testing.check(f, *args, targets="emulate", options=options)
