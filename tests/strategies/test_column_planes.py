"""Products of float32 whose columns' parts are made before: right, infinities and NaN, integers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.options import Options
from tcdsl.rewrites.scop.column_planes import makes_planes
from tcdsl.runtime.nvrtc import compile_cuda
from tcdsl.strategies.asked import data_of
from tcdsl.testing.comparison import check
from tests.strategies.split_factors import (
    FORMS,
    check_integers,
    check_largest,
    check_specials,
    drawn,
    source_of,
)
from tests.strategies.test_split_products import FORMS_AROUND, needs_nvrtc
from tests.strategies.tile_configs import planned

MakeUnit = Callable[..., Any]


@pytest.fixture(autouse=True)
def _wherever_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_anywhere(monkeypatch)


@pytest.fixture(scope="module")
def product(cuda_unit: MakeUnit, emulated: Any) -> Any:
    """A product of 64 x 64 x 288 in planes, of which several tests look at special values."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        allow_anywhere(monkeypatch)
        source, shapes = source_of("nt", {"m": 64, "n": 64, "k": 288})
        (program,) = emulated([in_planes(cuda_unit, source, shapes, (128, 8, 3))])
        return program


def allow_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products of any size have their columns in planes, without other rewrites."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_planes.LEAST_ROWS", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_planes.LEAST_PRODUCTS", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e3)
    monkeypatch.setattr("tcdsl.plan.rewrites.REWRITES", ())
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", ())


def asked(
    cuda_unit: MakeUnit, source: str, shapes: Any, tile: tuple[int, ...], *, are_planes_asked: bool
) -> Any:
    """Return the unit with the product in tiles of *tile* columns, warps and stages."""
    plan = planned(source, *shapes).done.plan
    name = next(one.site for one in plan.tried if one.rewrite == "columns in two planes")
    columns, warps, stages = tile
    choices = data_of(plan.weighed, "cuda")
    kernels = [one for one in choices["kernels"] if makes_planes(one["kernel"])]
    choice = {
        "kernel": next(k.kernel for k in plan.weighed if name in k.kernel.split("+")),
        "template": "tile_mma", "rows": 16, "columns": columns, "warp_rows": warps,
        "warp_columns": 1, "step": 32, "stages": stages, "together": 4, "loader": "boxes",
        "swath": 1,
    }  # fmt: skip
    choices["kernels"] = [*(kernels if are_planes_asked else ()), choice]
    return cuda_unit(source, *shapes, options=replace(Options(), choices=choices))


def in_planes(cuda_unit: MakeUnit, source: str, shapes: Any, tile: tuple[int, ...]) -> Any:
    """Return the unit with columns in planes, in tiles of *tile* columns, warps and stages."""
    unit = asked(cuda_unit, source, shapes, tile, are_planes_asked=True)
    assert "tc_wgmma_planes" in unit.source.functions and not unit.done.is_fallback
    return unit


@pytest.mark.slow_but("nn")
@pytest.mark.parametrize("form", FORMS)
def test_products(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units, inputs = [], []
    for sizes, tile in (((72, 72, 264), (128, 8, 3)), ((136, 136, 256), (128, 8, 2))):
        source, shapes = source_of(form, dict(zip("mnk", sizes, strict=True)))
        units.append(in_planes(cuda_unit, source, shapes, tile))
        inputs.append(drawn(shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


def test_infinities_and_nan_are_those_of_float32(product: Any) -> None:
    check_specials(product)


@pytest.mark.slow
def test_integers_are_exact_where_float32_is(cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nn", {"m": 64, "n": 64, "k": 256})
    (program,) = emulated([in_planes(cuda_unit, source, shapes, (128, 8, 3))])
    check_integers(program)


def test_factors_whose_high_part_would_be_infinite(product: Any) -> None:
    check_largest(product, terms=288)


def test_low_parts_are_cut_by_a_bit(product: Any) -> None:
    _, b = drawn([(64, 288), (64, 288)])
    c = np.empty((64, 64), np.float32)
    product(np.eye(64, 288, dtype=np.float32) / 2, b, out=c)
    half = b[:, :64].T / 2
    assert (abs(c - half) <= np.spacing(abs(half))).all()


@pytest.mark.slow_but("-126")
@pytest.mark.parametrize("exponent", [-60, -100, -110, -126, -140])
def test_tiny_factors_are_as_exact_as_others(
    exponent: int, cuda_unit: MakeUnit, emulated: Any
) -> None:
    source, shapes = source_of("nn", {"m": 64, "n": 64, "k": 256})
    (program,) = emulated([in_planes(cuda_unit, source, shapes, (128, 8, 3))])
    a, b = drawn(shapes)
    check(program, (a * 2.0**exponent).astype(np.float32), b)
    check(program, a, (b * 2.0**exponent).astype(np.float32))
    b[:, ::3] = (b[:, ::3] * 2.0**exponent).astype(np.float32)
    b[::5] = 0
    check(program, a, b)


FORMS_OF_OTHERS = FORMS_AROUND | {
    "a factor that is computed, results added to others": (
        """def f(float(M,K) A, float(K,N) X, float(M,N) D) -> (B, C) {
            B(k,n) = fmax(X(k,n), 0.0)
            C(m,n) = D(m,n)
            C(m,n) += A(m,k) * B(k,n)
        }""",
        [(72, 256), (256, 72), (72, 72)],
    ),
    "rows of prime lengths, of columns alone": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(67, 260), (260, 73)],
    ),
    "transposed results": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }",
        [(72, 260), (260, 76)],
    ),
}  # fmt: skip


@pytest.mark.slow_but("rows of prime lengths, of columns alone")
@pytest.mark.parametrize("form", FORMS_OF_OTHERS)
def test_forms(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = FORMS_OF_OTHERS[form]
    (program,) = emulated([in_planes(cuda_unit, source, shapes, (128, 8, 3))])
    check(program, *drawn(shapes))


def test_products_share_planes(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,K) A, float(M,K) D, float(K,N) B) -> (C, E) {
        C(m,n) +=! A(m,k) * B(k,n)
        E(m,n) +=! D(m,k) * B(k,n)
    }"""
    unit = cuda_unit(source, (256, 256), (256, 256), (256, 256))
    assert sum("planes" in one.kernel for one in unit.done.plan.weighed) == 1


@needs_nvrtc
def test_four_warps_keep_their_sums_in_registers(cuda_unit: MakeUnit) -> None:
    source, shapes = source_of("nn", {"m": 512, "n": 512, "k": 512})
    unit = in_planes(cuda_unit, source, shapes, (128, 8, 4))
    text = header_text(parts_for(unit.source.functions)) + unit.source.text
    ptx = compile_cuda(text, unit.source.arch("sm_90"), ptx=True).decode()
    assert ptx.count("wgmma.mma_async") == 12 and ".local" not in ptx


def test_other_choices_leave_factors_as_they_are(cuda_unit: MakeUnit) -> None:
    source, shapes = source_of("nt", {"m": 256, "n": 256, "k": 256})
    unit = asked(cuda_unit, source, shapes, (64, 4, 3), are_planes_asked=False)
    assert "tc_wgmma_f32" in unit.source.functions and not unit.done.is_fallback
