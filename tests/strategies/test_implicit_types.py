"""Implicit products of bytes and doubles: windows along the terms, quotients, guards."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.strategies import contracted
from tcdsl.strategies.templates import tile_implicit
from tests.emulated_programs import cuda_unit_of

FEW = replace(load_chip("h200"), multiprocessors=4)
AMPERE = replace(load_chip("a100"), multiprocessors=4)
WIDE = {"int8": "int32", "uint8": "int32", "float8_e4m3": "float", "double": ""}
FORMS = {
    "weights": (
        """T(B,P,Q,F) g, T(B,H,W,C) x) -> (k) {
        k(f,r,s,c) +=! wide(g(b,p,q,f)) * x(b,p+r,q+s,c)
            where r in 0:3, s in 0:2, p in 0:P, q in 0:Q }""",
        ((2, 5, 6, 19), (2, 7, 7, 12)),
    ),
    "weights of a padded image": (
        """T(B,H,W,F) g, T(B,H,W,C) x) -> (k) {
        k(f,r,s,c) +=! wide(g(b,h,v,f)) * (h+r >= 1 && h+r <= H && v+s >= 1 && v+s <= W
            ? x(b,h+r-1,v+s-1,c) : 0) where r in 0:3, s in 0:3 }""",
        ((2, 5, 6, 24), (2, 5, 6, 16)),
    ),
    "strided, by data": (
        """T(B,P,Q,F) g, T(F,R,S,C) k) -> (d) {
        d(b,y,v,c) +=! wide((y-r) % 2 == 0 && (v-s) % 2 == 0 && y >= r && v >= s && (y-r)/2 < P
            && (v-s)/2 < Q ? g(b,(y-r)/2,(v-s)/2,f) : 0) * k(f,r,s,c)
            where y in 0:11, v in 0:9 }""",
        ((2, 5, 4, 20), (20, 3, 3, 9)),
    ),
    "strided, channels second": (
        """T(B,C,H,W) x, T(F,C,R,S) k) -> (y) {
        y(b,f,p,q) +=! wide(x(b,c,2*p+r,2*q+s)) * k(f,c,r,s) where p in 0:4, q in 0:5 }""",
        ((2, 6, 9, 11), (21, 6, 3, 3)),
    ),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, brief_tiles: None) -> None:
    monkeypatch.setattr(contracted, "MIN_WORK", 1)
    monkeypatch.setattr(tile_implicit, "LEAST_EXTENT", 1)
    monkeypatch.setattr(tile_implicit, "least_seconds", lambda *_: inf)


def text_of(name: str, dtype: str) -> str:
    return f"def f({FORMS[name][0]}".replace("wide", WIDE[dtype]).replace("T(", f"{dtype}(")


def test_each_form_is_right_in_one_type(small: None, check_emulated: Callable[..., None]) -> None:
    cases = [
        (text_of(name, dtype), FORMS[name][1]) for name, dtype in zip(FORMS, WIDE, strict=True)
    ]
    check_emulated(2 * cases, gpu=FEW)


@pytest.mark.one_in(3)  # either half of the pairs, and either chip
@pytest.mark.slow
@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("chip", [FEW, AMPERE], ids=["h200", "a100"])
def test_each_form_is_right_in_every_type(
    half: int, chip: object, small: None, check_emulated: Callable[..., None]
) -> None:
    pairs = [
        (name, dtype) for name in FORMS for dtype in WIDE if dtype != "float8_e4m3" or chip is FEW
    ]
    cases = [(text_of(name, dtype), FORMS[name][1]) for name, dtype in pairs[half::2]]
    check_emulated(2 * cases, gpu=chip)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["int8", "double"])
def test_they_run_on_tensor_cores(name: str, dtype: str, small: None) -> None:
    unit = cuda_unit_of(text_of(name, dtype), FORMS[name][1], gpu=FEW)
    assert "tile_implicit" in {kernel.template for kernel in unit.done.plan.kernels}
    assert "tc_mma" in unit.source.text
