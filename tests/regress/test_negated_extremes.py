"""Extremes of negated integers: CUDA's assembler lost a sign of one in three.

For sm_90 that of CUDA 12.6 to 13.3 makes one instruction of max(max(a, -b), -c), and forgets that b
is negated (found by random programs on a GPU, in ``t max=! (-x(i,j))`` of int8).
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.testing import check
from tests.codegen.ptx import ptx_kernels

VALUES = {
    "negated": "-x(i,j)",
    "from zero": "0 - x(i,j)",
    "times": "-1 * x(i,j)",
    "from an index": "i - x(i,j)",
    "of two": "max(-x(i,j), x(i,j))",
    "chosen": "(x(i,j) > -x(i,j) ? x(i,j) : (-x(i,j) > 3 ? 3 : -x(i,j)))",
}
SIZES = [(1, 3), (1, 8), (1, 9), (3, 5), (16, 33), (100, 64)]


@pytest.mark.gpu
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("operator", ["max", "min"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_on_a_gpu(dtype: str, operator: str, value: str) -> None:
    f = tcdsl.define(f"def f({dtype}(N, M) x) -> (t) {{ t {operator}=! {value} }}").f
    draw = np.random.default_rng(0)
    low = 0 if dtype.startswith("u") else -50
    for shape in SIZES:
        check(f, draw.integers(low, 100, shape).astype(dtype), targets=("cuda",))


STORED = [
    "t(i,j) = -x(i,j)  y(i) max=! t(i,j)",
    "t(i,j) = -x(i,j)  y(j) max=! t(i,j)",
    "t(i,j) = 0 - x(i,j)  y min=! t(i,j)",
]


@pytest.mark.parametrize("statements", STORED)
def test_what_the_kernel_has_stored_may_be_negated(
    statements: str, cuda_unit: Callable[..., Any]
) -> None:
    """A load of it is the register that was stored: no plain extreme may take it."""
    source = f"def f(int32(M,N) x) -> (t, y) {{ {statements} }}"
    for shape in ((300, 4096), (5, 7), (5000, 256)):
        text = cuda_unit(source, shape).source.text
        assert re.search(r"tc_(max|min)_i32\(", text) and "_loaded_" not in text


@pytest.mark.gpu
@pytest.mark.parametrize("statements", STORED)
def test_what_the_kernel_has_stored_on_a_gpu(statements: str) -> None:
    f = tcdsl.define(f"def f(int32(M,N) x) -> (t, y) {{ {statements} }}").f
    draw = np.random.default_rng(0)
    for shape in SIZES:
        check(f, draw.integers(-50, 100, shape).astype("int32"), targets=("cuda",))


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC")
@pytest.mark.parametrize("t", ["i8", "u8", "i16", "u16", "i32", "u32"])
def test_no_instruction_takes_a_negation(t: str) -> None:
    """With what is there for those versions, the operands are complements, and never negated."""
    header = header_text(parts_for({"tc_max_i32"}))
    types = {"8": "int8_t", "16": "int16_t", "32": "int32_t"}
    element = ("u" if t[0] == "u" else "") + types[t[1:]]
    text = f"""#define TC_BY_COMPLEMENTS 1
{header}
extern "C" __global__ void f(const {element} *x, {element} *y) {{
  {element} most = x[0], least = x[0];
  #pragma unroll
  for (int i = 1; i < 8; i++) {{
    const {element} away = tc_sub_{t}(({element})(i - 4), x[i]); // once -x[i]
    most = tc_max_{t}(tc_max_{t}(most, tc_neg_{t}(x[i])), away);
    least = tc_min_{t}(tc_min_{t}(least, tc_neg_{t}(x[i])), away);
  }}
  y[0] = most;
  y[1] = least;
}}"""
    ptx = compile_cuda(text, "sm_90", ptx=True).decode().rstrip("\0")
    (kernel,) = ptx_kernels(ptx)
    found = kernel.instructions
    places = [n for n, i in enumerate(found) if i.name[0] in ("max", "min")]
    assert len(places) == 28
    before = [found[n - 1] for n in places]
    assert {i.name for i in before} == {("not", "b32")}
    assert all(found[n].operands[2] == i.operands[0] for n, i in zip(places, before, strict=True))
    negated = {i.operands[0] for i in found if i.name[0] == "neg"}
    assert not [found[n].text for n in places if negated & set(found[n].operands[1:])]
