"""Products of other types than halves by four warps together (wgmma): int8, uint8, tf32."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda import boxes
from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT32, FLOAT64, INT8, UINT8, DType
from tcdsl.options import Options
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.strategies import tensor_configs
from tcdsl.strategies.templates import tile_mma
from tcdsl.strategies.tensor_types import has_groups
from tcdsl.testing.comparison import check
from tests.strategies.test_tensor_types import FORMS, drawn, source_of

MakeUnit = Callable[..., Any]
needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")
FEW = replace(load_chip("h200"), multiprocessors=4)  # blocks have several tiles
TF32, FLOAT8 = Options(precision="tf32"), Options(precision="float8")
CASES = [
    (("int8", "int8"), Options()), (("uint8", "int8"), Options()), (("int8", "uint8"), Options()),
    (("uint8", "uint8"), Options()), (("float32", "float32"), TF32),
    (("float8_e4m3", "float8_e4m3"), FLOAT8), (("float8_e5m2", "float8_e4m3"), FLOAT8),
    (("float8_e4m3", "float8_e5m2"), FLOAT8), (("float8_e5m2", "float8_e5m2"), FLOAT8),
]  # fmt: skip
SIZES = [
    {"m": 200, "n": 96, "k": 160},
    {"m": 130, "n": 272, "k": 336},
    {"m": 64, "n": 40, "k": 288},
]


@pytest.fixture(autouse=True)
def _in_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products have only the configurations of boxes, whatever their size."""
    configs = tensor_configs.configs_of

    def boxed(*problems: Any) -> Any:
        return (one for one in configs(*problems) if one.loader == tensor_configs.BOXES)

    monkeypatch.setattr(tile_mma, "configs_of", boxed)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)


def forms_of(types: tuple[str, str]) -> list[str]:
    """Return the forms that need no copy: bytes along the terms, words if one operand is."""
    return [form for form in FORMS if form == "nt" or (types[0] == "float32" and form != "tn")]


def calls(unit: Any) -> bool:
    """Return whether four warps multiply in *unit*."""
    return any(name.startswith("tc_wgmma_of") for name in unit.source.functions)


@pytest.mark.one_in(2)
@pytest.mark.slow_but(*(f"sizes0-types{n}-options{n}" for n in (1, 4)))
@pytest.mark.parametrize(("types", "options"), CASES)
@pytest.mark.parametrize("sizes", SIZES)
def test_products(
    types: tuple[str, str],
    options: Options,
    sizes: dict[str, int],
    cuda_unit: MakeUnit,
    emulated: Any,
) -> None:
    made = [source_of(form, types, sizes) for form in forms_of(types)]
    units = [cuda_unit(source, *shapes, gpu=FEW, options=options) for source, shapes in made]
    name = "tc_wgmma_of_promoted" if options is FLOAT8 else "tc_wgmma_of"
    assert all(name in unit.source.functions for unit in units)
    for program, (_, shapes) in zip(emulated(units), made, strict=True):
        check(program, *drawn(types, shapes), options=options)


def test_infinities_and_nan_as_tf32(cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nn", ("float32", "float32"), SIZES[0])
    (program,) = emulated([cuda_unit(source, *shapes, gpu=FEW, options=TF32)])
    a, b = drawn(("float32", "float32"), shapes)
    a.flat[7], b.flat[90], a.flat[900] = np.inf, np.nan, 3e38
    check(program, a, b, options=TF32)


def test_what_no_copy_has_rounded_is_found(
    cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor cores read 19 bits of an element: they truncate what was not rounded."""
    monkeypatch.setattr(boxes, "TFLOAT32", "float32")
    source = "def f(float32(M, K) A, float32(N, K) B) -> (C) { C(m, n) +=! A(m, k) * B(n, k) }"
    shapes = [(64, 96), (32, 96)]
    (program,) = emulated([cuda_unit(source, *shapes, gpu=FEW, options=TF32)])
    a = np.full((64, 96), 1 + 2.0**-10 - 2.0**-23, np.float32)
    b = np.ascontiguousarray(a[:32])
    with pytest.raises(AssertionError, match="elements are wrong"):
        check(program, a, b, options=TF32)


@pytest.mark.slow_but("tn-types2-options2-AB", "nn-types4-options4-B", "nn-types5-options5-")
@pytest.mark.parametrize(
    ("form", "types", "options", "copied"),
    [
        ("nn", ("int8", "int8"), Options(), "B"), ("tt", ("uint8", "int8"), Options(), "A"),
        ("tn", ("int8", "int8"), Options(), "AB"), ("tn", ("float32", "float32"), TF32, "A"),
        ("nn", ("float8_e4m3", "float8_e4m3"), FLOAT8, "B"),
        ("nn", ("float32", "float32"), TF32, ""), ("nt", ("int8", "int8"), Options(), ""),
    ],
)  # fmt: skip
def test_operands_that_are_copied_along_the_terms(
    form: str, types: tuple[str, str], options: Options, copied: str, cuda_unit: MakeUnit
) -> None:
    source, shapes = source_of(form, types, {"m": 4096, "n": 4096, "k": 4096})
    unit = cuda_unit(source, *shapes, options=options)
    assert calls(unit)
    names = {name.split(".")[0] for name in unit.done.plan.scop.arrays if ".ordered" in name}
    assert names == set(copied)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tn", "nn"])
def test_copied_operands_are_right(
    form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tcdsl.strategies.operand_orders.MIN_WORK", 1)
    for types, options in (CASES[0], CASES[4], CASES[5]):
        source, shapes = source_of(form, types, {"m": 128, "n": 64, "k": 96})
        unit = cuda_unit(source, *shapes, gpu=FEW, options=options)
        (program,) = emulated([unit])
        check(program, *drawn(types, shapes), options=options)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(("types", "options"), CASES)
def test_what_is_printed_for_a_gpu_compiles(
    types: tuple[str, str], options: Options, cuda_unit: MakeUnit
) -> None:
    number = [own for own, _ in CASES].index(types)
    for size in (4096, (1024, 192)[number % 2]):
        for form in forms_of(types):
            source, shapes = source_of(form, types, dict.fromkeys("mnk", size))
            unit = cuda_unit(source, *shapes, options=options)
            assert calls(unit) and not unit.done.is_fallback
            text = header_text(parts_for(unit.source.functions)) + unit.source.text
            assert compile_cuda(text, unit.source.arch(load_chip("h200").arch))


@pytest.mark.parametrize(
    ("factor", "options", "rows", "columns", "has"),
    [
        (BFLOAT16, TF32, False, False, True), (INT8, TF32, True, True, True),
        (UINT8, TF32, False, True, False), (INT8, TF32, True, False, False),
        (FLOAT32, TF32, False, True, True), (FLOAT32, TF32, True, False, False),
        (FLOAT64, TF32, True, True, False), (FLOAT8_E4M3, TF32, True, True, False),
        (FLOAT8_E4M3, FLOAT8, True, True, True), (FLOAT8_E4M3, FLOAT8, True, False, False),
    ],
)  # fmt: skip
def test_what_four_warps_multiply(
    factor: DType, options: Options, rows: bool, columns: bool, has: bool
) -> None:
    assert has_groups(factor, options, is_along=(rows, columns)) == has


def test_sums_of_float8_are_cut_and_the_bound_knows(cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nt", ("float8_e4m3", "float8_e4m3"), SIZES[2])
    (program,) = emulated([cuda_unit(source, *shapes, gpu=FEW, options=FLOAT8)])
    a, b = (np.full(shape, 2.0**-7, FLOAT8_E4M3.numpy) for shape in shapes)
    a[:, ::32], b[:, ::32] = 1.0, 1.0  # beside 1 each of the others is cut to 0
    check(program, a, b, options=FLOAT8)
    with pytest.raises(AssertionError, match="elements are wrong"):
        check(program, a, b)
    exact = cuda_unit(source, *shapes, gpu=FEW)
    assert not calls(exact)
    check(*emulated([exact]), a, b)
