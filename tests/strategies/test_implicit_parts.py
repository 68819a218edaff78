"""Convolutions of float32 as three products of tf32: that they are right, infinities and NaN."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.options import Options
from tcdsl.testing.comparison import check
from tests.strategies.test_tile_implicit import CASES, FOURS, drawn
from tests.strategies.tile_configs import choices_of, kernel_of

MakeUnit = Callable[..., Any]
PARTS = Options()
DATA = """def f(float(N,P,Q,F) dO, float(F,KH,KW,C) K) -> (dI) {
    dI(n,h,w,c) +=! ((h + 1 - kh >= 0 && h + 1 - kh < P && w + 1 - kw >= 0 && w + 1 - kw < Q)
        ? dO(n, h + 1 - kh, w + 1 - kw, f) : 0) * K(f,kh,kw,c)
        where n in 0:N, h in 0:P, w in 0:Q
}"""
# Sizes whose sums are long enough.
SHAPES: Mapping[str, list[tuple[int, ...]]] = {
    "forward": [(2, 5, 7, 40), (24, 3, 3, 40)],
    "strided and dilated": [(2, 9, 8, 20), (24, 3, 5, 20), (24,)],
    "planes": [(2, 31, 7, 9), (12, 31, 3, 3)],
    "data": [(2, 6, 7, 40), (40, 3, 3, 24)],
    "weights": [(3, 11, 8, 24), (3, 11, 8, 16)],
    "groups": [(2, 5, 6, 3, 97), (3, 8, 3, 97)],
    "masked": [(72, 288), (288, 40)],
}


@pytest.fixture(autouse=True)
def _are_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are worth while, and nothing else is faster."""
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.least_seconds", lambda *_: inf)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.LEAST_EXTENT", 1)
    monkeypatch.setattr("tcdsl.strategies.implicit_threads.LEAST_EXTENT", 1 << 30)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", inf)  # as they are


def source_of(name: str) -> str:
    """Return the text of a case with operands of float32."""
    source = DATA if name == "data" else CASES[name][0]
    return source.replace("bfloat16", "float").replace("half", "float")


def asked(unit: Any, **config: Any) -> Options:
    """Return the options that ask for *config* for the first kernel of *unit*."""
    plain = {"step": 32, "stages": 2, "chunks": 1, **FOURS}
    choices = choices_of(kernel_of(unit), "tile_implicit", {**plain, **config})
    return replace(PARTS, choices=choices)


@pytest.mark.slow_but("masked")
@pytest.mark.parametrize("name", SHAPES)
def test_right(name: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of(name), SHAPES[name]
    unit = cuda_unit(source, *shapes, options=PARTS)
    assert "tile_implicit" in [kernel.template for kernel in unit.done.plan.kernels]
    assert "tc_wgmma_f32" in unit.source.functions and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *drawn(FLOAT32, shapes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes", "config"),
    [
        ("forward", [(2, 9, 7, 72), (136, 3, 3, 72)], {"columns": 128, "warp_rows": 8}),
        ("weights", [(3, 11, 9, 72), (3, 11, 9, 40)], {"chunks": 2, "stages": 3}),
        ("planes", [(2, 31, 9, 11), (72, 31, 3, 3)], {"warp_rows": 8, "stages": 4}),
    ],
)
def test_other_configurations(
    name: str, shapes: list[tuple[int, ...]], config: Mapping[str, int], cuda_unit: MakeUnit,
    emulated: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Other tiles, and blocks that share the terms."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.LEAST_STEPS", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit._is_filled", lambda *_: True)
    source = source_of(name)
    plain = cuda_unit(source, *shapes, options=PARTS)
    unit = cuda_unit(source, *shapes, options=asked(plain, **config))
    assert unit.done.plan.kernels[0].template == "tile_implicit"
    (program,) = emulated([unit])
    check(program, *drawn(FLOAT32, shapes))


@pytest.mark.slow
def test_infinities_and_nan_are_those_of_float32(cuda_unit: MakeUnit, emulated: Any) -> None:
    """Where a guard does not hold zeros are multiplied, too: 0 times infinity is NaN."""
    source, shapes = source_of("forward"), [(1, 6, 7, 40), (16, 3, 3, 40)]
    (program,) = emulated([cuda_unit(source, *shapes, options=PARTS)])
    image, filters = drawn(FLOAT32, shapes)
    image[0, 2, 3, 5], image[0, 5, 0, 39], image[0, 0, 6, 1] = np.inf, np.nan, -np.inf
    filters[3, 1, 1, 7], filters[9, 0, 0, 0], filters[10, 2, 2, 39] = np.inf, np.nan, 3.3e38
    check(program, image, filters)
    found = np.empty((1, 6, 7, 16), np.float32)
    program(image, filters, out=found)
    with np.errstate(all="ignore"):
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
        plain = np.zeros_like(found)
        for kh, kw, c in np.ndindex(3, 3, 40):
            window = padded[:, kh : kh + 6, kw : kw + 7, c]
            plain += window[..., None] * filters[:, kh, kw, c]
    special = ~np.isfinite(plain)
    assert special.any() and not special.all() and np.isinf(plain).any()
    assert np.array_equal(found[special], plain[special], equal_nan=True)
    assert np.isfinite(found[~special]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forward", "planes", "weights"])
def test_one_product_of_tf32(name: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    options = Options(precision="tf32")
    unit = cuda_unit(source_of(name), *SHAPES[name], options=options)
    assert unit.done.plan.kernels[0].template == "tile_implicit"
    assert {"tc_mma_of", "tc_wgmma_of"} & unit.source.functions
    (program,) = emulated([unit])
    check(program, *drawn(FLOAT32, SHAPES[name]), options=options)


def test_short_sums_stay_on_fma(cuda_unit: MakeUnit) -> None:
    shapes = [(2, 9, 9, 24), (24, 3, 3, 24)]  # 216 terms
    unit = cuda_unit(source_of("forward"), *shapes, options=PARTS)
    assert "tc_wgmma_f32" not in unit.source.functions
