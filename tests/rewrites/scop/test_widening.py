"""Factors of half types beside float32: converted first, for products of one type."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.plan.rewrites import REWRITES
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.widening import why_not_widened, widened
from tcdsl.strategies.asked import data_of
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import choices_of

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

MIXED = "def f(float(M,K) A, {}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}"
BEFORE = "def f({}(K,M) A, float(N,K) B) -> (C) {{ C(m,n) +=! A(k,m) * (k >= n ? B(n,k) : 0.0) }}"
SHAPES = {MIXED: [(128, 264), (264, 136)], BEFORE: [(264, 128), (136, 264)]}


def product_of(scop: Scop) -> Statement:
    return next(s for s in scop.statements if s.kind is Kind.UPDATE)


@pytest.mark.slow_but("second-bfloat16")
@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
@pytest.mark.parametrize("source", SHAPES, ids=["second", "first"])
def test_products(
    source: str, dtype: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    monkeypatch.setattr("tcdsl.rewrites.scop.repacking.LEAST_USES", 1)
    own = tuple(one for one in REWRITES if one.apply is widened)
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", own)
    monkeypatch.setattr("tcdsl.plan.search.OF_FACTORS", ())
    unit = cuda_unit(source.format(dtype), *SHAPES[source])
    assert not unit.done.is_fallback
    assert any("wide" in name for name in unit.done.plan.scop.arrays)
    arrays = unit.done.plan.scop.arrays.values()
    types = [array.dtype for array in arrays if array.is_input]
    pairs = zip(types, SHAPES[source], strict=True)
    (program,) = emulated([unit])
    check(program, *(values(*of, "real", n) for n, of in enumerate(pairs)))


def test_a_large_product_is_widened_by_itself(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(MIXED.format("bfloat16"), (4096, 1024), (1024, 4096))
    assert "tc_wgmma_f32" in unit.source.functions
    assert any(name.startswith("B.wide") for name in unit.done.plan.scop.arrays)


HALVES = {  # a source, its shapes, and which factor alone has low parts: of rows 1, of columns 2
    "columns": (MIXED.format("bfloat16"), [(128, 264), (264, 136)], "1"),
    "rows": (BEFORE.format("half").replace("(k >= n ? B(n,k) : 0.0)", "B(n,k)"),
             [(264, 128), (136, 264)], "2"),
    "rows beside planes": (
        "def f(half(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
        [(264, 128), (264, 136)], "2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HALVES)
def test_the_factor_of_a_half_type_has_no_low_parts(
    name: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the three products of parts is left out, and no digits are lost."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    monkeypatch.setattr("tcdsl.rewrites.scop.repacking.LEAST_USES", 1)
    are_planes = name == "rows beside planes"
    for constant in ("LEAST_ROWS", "LEAST_PRODUCTS"):
        monkeypatch.setattr(f"tcdsl.strategies.operand_planes.{constant}", 1)
    source, shapes, low = HALVES[name]
    plan = cuda_unit(source, *shapes).done.plan
    copies = [one for one in data_of(plan.weighed, "cuda")["kernels"] if "wide" in one["kernel"]]
    copies += [{"kernel": "S0_B_planes0", "template": "elementwise"}] if are_planes else []
    tile = {
        "kernel": "S0", "template": "tile_mma", "rows": 16, "columns": 128, "warp_rows": 8,
        "warp_columns": 1, "step": 32, "stages": 2, "together": 4, "loader": "boxes", "swath": 1,
    }  # fmt: skip
    choices = choices_of("S0", "tile_mma", tile)
    choices["kernels"] = [*copies, tile]
    unit = cuda_unit(source, *shapes, options=Options(choices=choices))
    function = "tc_wgmma_planes" if are_planes else "tc_wgmma_f32"
    found = re.findall(rf"{function}<(.*?)>", unit.source.text)
    assert found and {numbers.split(", ")[-1] for numbers in found} == {low}
    assert len(found[0].split(", ")) == (8 if are_planes else 9) and not unit.done.is_fallback
    (program,) = emulated([unit])
    of = [a.dtype for a in unit.done.plan.scop.arrays.values() if a.is_input]
    check(
        program, *(values(t, s, "real", n) for n, (t, s) in enumerate(zip(of, shapes, strict=True)))
    )


REFUSED = {
    MIXED.format("float"): "it is no product of an element of a half type and one of float32",
    MIXED.format("half").replace("float(M", "half(M"): (
        "it is no product of an element of a half type and one of float32"
    ),
    MIXED.format("half").replace("+=!", "max=!"): "it is no sum",
    MIXED.format("half").replace("B(k,n) }", "B(k,n) * A(m,0) }"): (
        "it is no product of an element of a half type and one of float32"
    ),
}


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_refused(source: str, lower: Lower) -> None:
    scop = lower(source, (256, 128), (128, 256))
    assert why_not_widened(scop, product_of(scop)) == REFUSED[source]


def test_few_uses_are_refused(lower: Lower) -> None:
    scop = lower(MIXED.format("half"), (8, 128), (128, 256))
    assert why_not_widened(scop, product_of(scop)) == "its operands' elements are used a few times"
