"""Products of float32 as three products of tf32: when, that they are right, infinities and NaN."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.runtime.c_compiler import compile_shared
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.testing.comparison import check
from tests.strategies.split_factors import (
    FORMS,
    check_integers,
    check_largest,
    check_specials,
    drawn,
    source_of,
)
from tests.strategies.tile_configs import choices_of, kernel_of, planned

MakeUnit = Callable[..., Any]
needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")
PARTS = Options()


def asked(unit: Any, columns: int, warps: int, stages: int, swath: int = 1) -> Options:
    """Return the options that ask for tiles of 16 *warps* rows and *columns*."""
    config = {
        "rows": 16, "columns": columns, "warp_rows": warps, "warp_columns": 1, "step": 32,
        "stages": stages, "together": 4, "loader": "boxes", "swath": swath,
    }  # fmt: skip
    # A fold of shared sums may follow.
    return replace(PARTS, choices=choices_of(kernel_of(unit), "tile_mma", config))


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)


@pytest.mark.slow_but("nn")
@pytest.mark.parametrize("form", FORMS)
def test_products(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units, inputs = [], []
    for sizes, tile in (((72, 72, 264), (64, 4, 3)), ((136, 136, 256), (128, 8, 2))):
        source, shapes = source_of(form, dict(zip("mnk", sizes, strict=True)))
        options = asked(planned(source, *shapes, options=PARTS), *tile)
        units.append(cuda_unit(source, *shapes, options=options))
        inputs.append(drawn(shapes))
        assert "tc_wgmma_f32" in units[-1].source.functions and not units[-1].done.is_fallback
        assert units[-1].source.arch("sm_90") == "sm_90a"
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


def test_infinities_and_nan_are_those_of_float32(cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nt", {"m": 64, "n": 64, "k": 288})
    unit = cuda_unit(
        source, *shapes, options=asked(planned(source, *shapes, options=PARTS), 64, 4, 3)
    )
    (program,) = emulated([unit])
    check_specials(program)


def test_integers_are_exact_where_float32_is(cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nn", {"m": 64, "n": 64, "k": 256})
    options = asked(planned(source, *shapes, options=PARTS), 64, 4, 3)
    (program,) = emulated([cuda_unit(source, *shapes, options=options)])
    check_integers(program)


def test_factors_whose_high_part_is_infinite(cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nt", {"m": 64, "n": 64, "k": 256})
    options = asked(planned(source, *shapes, options=PARTS), 64, 4, 3)
    (program,) = emulated([cuda_unit(source, *shapes, options=options)])
    check_largest(program)


@pytest.mark.slow_but("-126")
@pytest.mark.parametrize("exponent", [-60, -100, -110, -126, -140])
def test_tiny_factors_are_as_exact_as_others(
    exponent: int, cuda_unit: MakeUnit, emulated: Any
) -> None:
    source, shapes = source_of("nn", {"m": 64, "n": 64, "k": 256})
    options = asked(planned(source, *shapes, options=PARTS), 64, 4, 3)
    (program,) = emulated([cuda_unit(source, *shapes, options=options)])
    a, b = drawn(shapes)
    check(program, (a * 2.0**exponent).astype(np.float32), b)
    check(program, a, (b * 2.0**exponent).astype(np.float32))


FORMS_AROUND = {
    "batches, bias and activation": (
        """def f(float(B,M,K) A, float(B,K,N) W, float(N) b) -> (C) {
            c(b0,m,n) +=! A(b0,m,k) * W(b0,k,n)
            C(b0,m,n) = fmax(c(b0,m,n) + b(n), 0.0)
        }""",
        [(2, 72, 256), (2, 256, 72), (72,)],
    ),
    "convolution with channels last": (
        """def f(float(N,H,W,C) I, float(F,KH,KW,C) K) -> (O) {
            O(n,h,w,f) +=! I(n,h+kh,w+kw,c) * K(f,kh,kw,c)
        }""",
        [(1, 5, 20, 40), (72, 3, 3, 40)],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS_AROUND)
def test_forms(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = FORMS_AROUND[form]
    options = asked(planned(source, *shapes, options=PARTS), 64, 4, 3)
    unit = cuda_unit(source, *shapes, options=options)
    assert "tc_wgmma_f32" in unit.source.functions and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *drawn(shapes))


def test_short_sums_and_other_chips_have_plain_products(cuda_unit: MakeUnit) -> None:
    sizes = {"m": 1024, "n": 1024, "k": 64}
    for form, gpu in (("nn", "h200"), ("nt", "a100")):
        source, shapes = source_of(form, sizes | ({"k": 1024} if gpu == "a100" else {}))
        unit = cuda_unit(source, *shapes, gpu=load_chip(gpu), options=PARTS)
        assert "tc_wgmma_f32" not in unit.source.functions and not unit.done.is_fallback
    source, shapes = source_of("nn", sizes | {"k": 1024})
    assert "tc_wgmma_f32" in cuda_unit(source, *shapes, options=PARTS).source.functions
    plain = cuda_unit(source, *shapes, options=Options(precision="ieee"))
    assert "tc_wgmma_f32" not in plain.source.functions


# The header's own text on this machine: the emulator does not ask which steps are to be looked at.
ODD = r"""
#include <stdint.h>
#include <string.h>
#define TC_FN static inline
static uint32_t tc_bits_f32(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
static float tc_float_u32(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }
%s
int is_odd(int n, const float *x)
{
  uint32_t least = ~0u;
  for (int i = 0; i < n; i++) {
    const uint32_t size = tc_size_tf32(x[i]);
    least = size < least ? size : least;
  }
  return tc_is_odd_tf32(least);
}
"""


@pytest.mark.parametrize(
    ("factors", "is_odd"),
    [
        ([0.0, 0.0], False), ([0.0, -0.0], False), ([0.5, 3.0], False), ([1.0, 3.0, 0.0], True),
        ([-1.0, 0.0], True), ([1e-33, 0.5], True), ([0.0, 0.5], False), ([float("inf")], True),
    ],
)  # fmt: skip
def test_threads_of_zeros_do_not_slow_down_a_step(
    factors: list[float], is_odd: bool, tmp_path: Path
) -> None:
    """1000 x 1000 x 1000 took 96 us instead of 36 on an H200: one block looked at all its steps."""
    text = header_text(parts_for({"tc_wgmma_f32"}))
    text = text[text.index("#define TC_LEAST_SPLIT") : text.index("enum { TC_TINY")]
    library = tmp_path / "odd.so"
    library.write_bytes(compile_shared(ODD % text))
    array = np.array(factors, np.float32)
    found = ctypes.CDLL(str(library)).is_odd(len(array), ctypes.c_void_p(array.ctypes.data))
    assert bool(found) == is_odd


@needs_nvrtc
def test_four_warps_keep_their_sums_in_registers(cuda_unit: MakeUnit) -> None:
    source, shapes = source_of("nn", {"m": 512, "n": 512, "k": 512})
    config = asked(planned(source, *shapes, options=PARTS), 64, 4, 3)
    unit = cuda_unit(source, *shapes, options=config)
    text = header_text(parts_for(unit.source.functions)) + unit.source.text
    ptx = compile_cuda(text, unit.source.arch("sm_90"), ptx=True).decode()
    assert ptx.count("wgmma.mma_async") == 12 and ".local" not in ptx
