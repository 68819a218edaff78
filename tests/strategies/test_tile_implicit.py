"""Products whose operands are packed, on tensor cores: convolutions and their gradients."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import pytest

import tcdsl
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT16, DType
from tcdsl.options import Options
from tcdsl.testing import contractions
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.emulated_programs import strides_of
from tests.hunts import drawn as drawn_programs
from tests.programs import arrays_for, comprehension_of
from tests.strategies.tile_configs import choices_of, kernel_of, planned

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

FORWARD = """def f(half(N,H,W,C) I, half(F,KH,KW,C) K) -> (O) {
    O(n,h,w,f) +=! ((h + kh >= 1 && h + kh - 1 < H && w + kw >= 1 && w + kw - 1 < W)
        ? I(n, h + kh - 1, w + kw - 1, c) : 0) * K(f,kh,kw,c)
        where n in 0:N, h in 0:H, w in 0:W
}"""
STRIDED = """def f(half(N,H,W,C) I, half(F,KH,KW,C) K, float(F) b) -> (O) {
    o(n,h,w,f) +=! ((2*h + 2*kh >= 3 && 2*h + 2*kh - 3 < H && 2*w + kw >= 3 && 2*w + kw - 3 < W)
        ? float(I(n, 2*h + 2*kh - 3, 2*w + kw - 3, c)) : 0.0) * K(f,kh,kw,c)
        where n in 0:N, h in 0:(H+1)/2, w in 0:(W+1)/2
    O(i,j,k,l) = fmax(o(i,j,k,l) + b(l), 0.0)
}"""
PLANES = """def f(bfloat16(N,C,H,W) I, bfloat16(F,C,KH,KW) K) -> (bfloat16(N,F,H,W) O) {
    O(n,f,h,w) +=! ((h + kh >= 1 && h + kh - 1 < H && w + kw >= 1 && w + kw - 1 < W)
        ? I(n, c, h + kh - 1, w + kw - 1) : 0) * K(f,c,kh,kw)
        where n in 0:N, h in 0:H, w in 0:W
}"""
DATA = """def f(half(N,P,Q,F) dO, half(F,KH,KW,C) K) -> (dI) {
    dI(n,h,w,c) +=! ((h + 1 - kh >= 0 && h + 1 - kh < 2*P && w + 1 - kw >= 0 && w + 1 - kw < 2*Q
        && (h + 1 - kh) % 2 == 0 && (w + 1 - kw) % 2 == 0)
        ? dO(n, (h + 1 - kh) / 2, (w + 1 - kw) / 2, f) : 0) * K(f,kh,kw,c)
        where n in 0:N, h in 0:2*P, w in 0:2*Q
}"""
WEIGHTS = """def f(half(N,P,Q,F) dO, half(N,P,Q,C) I) -> (float(F,3,3,C) dK) {
    dK(f,kh,kw,c) +=! dO(n,h,w,f)
        * ((h + kh >= 1 && h + kh - 1 < P && w + kw >= 1 && w + kw - 1 < Q)
           ? float(I(n, h + kh - 1, w + kw - 1, c)) : 0.0)
        where kh in 0:3, kw in 0:3, c in 0:C
}"""
GROUPS = """def f(half(N,H,W,G,C) I, half(G,F,KH,C) K) -> (O) {
    O(n,h,w,g,f) +=! (h + kh >= 1 && h + kh - 1 < H ? I(n, h + kh - 1, w, g, c) : 0) * K(g,f,kh,c)
        where n in 0:N, h in 0:H, w in 0:W
}"""
MASKED = """def f(half(M,K) A, half(K,N) B) -> (C) {
    C(m,n) +=! (m >= k ? A(m,k) : 0) * B(k,n)
}"""

CASES: Mapping[str, tuple[str, list[tuple[int, ...]]]] = {
    "forward": (FORWARD, [(2, 5, 7, 40), (24, 3, 3, 40)]),
    "forward of few channels": (FORWARD, [(1, 9, 11, 3), (10, 3, 3, 3)]),
    "strided and dilated": (STRIDED, [(2, 9, 8, 16), (24, 3, 5, 16), (24,)]),
    "planes": (PLANES, [(2, 6, 7, 9), (12, 6, 3, 3)]),
    "data of a stride": (DATA, [(2, 3, 4, 40), (40, 3, 3, 24)]),
    "weights": (WEIGHTS, [(3, 5, 7, 24), (3, 5, 7, 16)]),
    "groups": (GROUPS, [(2, 5, 6, 3, 16), (3, 8, 3, 16)]),
    "masked": (MASKED, [(72, 72), (72, 40)]),
}


@pytest.fixture(autouse=True)
def _are_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are worth while, and no other template is faster."""
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.least_seconds", lambda *_: inf)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.LEAST_EXTENT", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", inf)  # as they are


def templates(unit: Any) -> list[str]:
    return [kernel.template for kernel in unit.done.plan.kernels]


@pytest.mark.slow_but("masked")
@pytest.mark.parametrize("name", CASES)
def test_right(name: str, cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    source, shapes = CASES[name]
    assert templates(cuda_unit(source, *shapes))[0] == "tile_implicit"
    check_emulated([(source, shapes)])


@pytest.mark.slow
def test_derived_gradients(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    """Both gradients of a convolution are products of two operands, made from its text alone."""
    source, (image, weights) = CASES["forward"]
    backward = tcdsl.vjp(tcdsl.define(source)["f"]).source
    shapes = [image, weights, (*image[:3], weights[0])]
    assert templates(cuda_unit(backward, *shapes))[:2] == ["tile_implicit", "tile_implicit"]
    check_emulated([(backward, shapes)])


def asked(unit: Any, **config: Any) -> Options:
    """Return the options that ask for *config* for the first kernel of *unit*."""
    plain = {"step": 64, "stages": 2, "together": 1, "chunks": 1}
    return Options(choices=choices_of(kernel_of(unit), "tile_implicit", {**plain, **config}))


FOURS = {"rows": 16, "columns": 64, "warp_rows": 4, "warp_columns": 1, "together": 4}
PAIRS = {"rows": 32, "columns": 32, "warp_rows": 2, "warp_columns": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes", "config"),
    [
        ("forward", [(2, 9, 7, 72), (72, 3, 3, 72)], FOURS),
        ("weights", [(3, 9, 10, 72), (3, 9, 10, 40)], {**FOURS, "chunks": 2, "stages": 2}),
        ("weights", [(3, 9, 11, 24), (3, 9, 11, 16)], {**PAIRS, "chunks": 2}),
        ("planes", [(2, 6, 7, 9), (12, 6, 3, 3)], FOURS),
    ],
)
def test_other_configurations(
    name: str, shapes: list[tuple[int, ...]], config: Mapping[str, int], cuda_unit: MakeUnit,
    emulated: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Warps that multiply in fours, and blocks that share the terms."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.LEAST_STEPS", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit._is_filled", lambda *_: True)
    source, _ = CASES[name]
    dtype = BFLOAT16 if "bfloat16" in source else FLOAT16
    unit = cuda_unit(source, *shapes, options=asked(planned(source, *shapes), **config))
    assert templates(unit)[0] == "tile_implicit"
    assert ("tc_wgmma" in unit.source.functions) == (config is not PAIRS and "together" in config)
    inputs = drawn(dtype, shapes)
    (program,) = emulated([unit])
    check(program, *inputs)


def drawn(dtype: DType, shapes: list[tuple[int, ...]]) -> list[Array]:
    return [values(dtype, shape, "real", seed) for seed, shape in enumerate(shapes)]


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(9100, 9104))
def test_random_convolutions(number: int, cuda_unit: MakeUnit, emulated: Any) -> None:
    """Random contractions of half types, whose operands are packed wherever they may be."""
    pytest.importorskip("hypothesis")
    units, inputs = [], []
    for seed, (source, given) in enumerate(drawn_programs(number, 200, contractions())):
        if "half" not in source and "float16" not in source:
            continue
        c = comprehension_of(source)
        arrays = arrays_for(c, given, seed)
        shapes = [array.shape for array in arrays]
        unit = cuda_unit(source, *shapes, strides=strides_of(c, arrays))
        if "tile_implicit" in templates(unit):
            units.append(unit)
            inputs.append(arrays)
    assert len(units) >= 2, "few of them are products of half types"
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


def test_it_may_be_asked_for_where_another_is_faster(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.least_seconds", lambda *_: 0.0)
    source = """def f(half(H,W,C) I, half(F,KH,KW,C) K) -> (O) {
        O(h,w,f) +=! I(h+kh,w+kw,c) * K(f,kh,kw,c)
    }"""
    shapes = (66, 66, 64), (64, 3, 3, 64)
    (kernel,) = cuda_unit(source, *shapes).done.plan.kernels
    assert kernel.template == "tile_mma"
    choice = {"kernel": "S0", "template": "tile_implicit", "chunks": 1}
    asked = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    (kernel,) = cuda_unit(source, *shapes, options=Options(choices=asked)).done.plan.kernels
    assert kernel.template == "tile_implicit"
