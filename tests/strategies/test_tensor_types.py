"""Products of other types than halves on tensor cores: int8, float8, float64."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import BY_NAME, FLOAT32, FLOAT64, INT8, INT32, UINT8, DType
from tcdsl.options import Options
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.strategies.tensor_types import why_not_made
from tcdsl.testing.comparison import check
from tests.strategies.tile_configs import asked, tiles

MakeUnit = Callable[..., Any]
needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")

FORMS = {"nn": ("mk", "kn"), "nt": ("mk", "nk"), "tn": ("km", "kn"), "tt": ("km", "nk")}
TYPES = [
    ("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"),
    ("float8_e4m3", "float8_e4m3"), ("float8_e5m2", "float8_e4m3"), ("float8_e5m2", "float8_e5m2"),
    ("float64", "float64"),
]  # fmt: skip
SIZES = {"m": 72, "n": 48, "k": 80}  # of no tile's


def source_of(form: str, types: tuple[str, str], sizes: dict[str, int] = SIZES) -> Any:
    """Return a product's text and its inputs' shapes."""
    parameters, factors, shapes = [], [], []
    for name, axes, dtype in zip("AB", FORMS[form], types, strict=True):
        parameters.append(f"{dtype}({', '.join(axes.upper())}) {name}")
        factors.append(f"{name}({', '.join(axes)})")
        shapes.append(tuple(sizes[axis] for axis in axes))
    declared = "float(M, N) C" if types[0].startswith("float8") else "C"
    return (
        f"def f({', '.join(parameters)}) -> ({declared}) {{ C(m, n) +=! {' * '.join(factors)} }}",
        shapes,
    )


def drawn(types: tuple[str, str], shapes: list[tuple[int, ...]]) -> list[Array]:
    """Return operands, integers from all of their range."""
    rng, found = np.random.default_rng(0), []
    for name, shape in zip(types, shapes, strict=True):
        dtype = BY_NAME[name]
        if dtype.is_integer:
            info = np.iinfo(dtype.numpy)
            found.append(rng.integers(info.min, int(info.max) + 1, shape).astype(dtype.numpy))
        else:
            found.append(rng.normal(size=shape).astype(dtype.numpy))
    return found


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)


@pytest.mark.one_in(3)
@pytest.mark.slow_but("nn-types7")
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_products(form: str, types: tuple[str, str], cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of(form, types)
    # Boxes bring bytes along the terms to an H200: see below.
    gpu = load_chip("a100" if form == "nt" and types in TYPES[:4] else "h200")
    unit = cuda_unit(source, *shapes, gpu=gpu)
    assert "tc_mma_of" in unit.source.functions
    (program,) = emulated([unit])
    check(program, *drawn(types, shapes))


@pytest.mark.parametrize("types", TYPES[:4])
def test_bytes_of_one_step_come_in_boxes(
    types: tuple[str, str], cuda_unit: MakeUnit, emulated: Any
) -> None:
    source, shapes = source_of("nt", types)
    unit = cuda_unit(source, *shapes)
    assert {"tc_wgmma_of", "tc_copy_box"} <= unit.source.functions
    (program,) = emulated([unit])
    check(program, *drawn(types, shapes))


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns", "step"), [(64, 64, 128), (16, 16, 64), (32, 16, 128)])
@pytest.mark.parametrize("types", [("int8", "int8"), ("float64", "float64")])
def test_tiles(
    types: tuple[str, str], rows: int, columns: int, step: int, cuda_unit: MakeUnit, emulated: Any
) -> None:
    source, shapes = source_of("nn", types, {"m": 130, "n": 72, "k": 144})
    config = {
        "rows": rows // 2 if types[0] == "float64" and rows == 64 else rows, "columns": columns,
        "warp_rows": 2, "warp_columns": 2,
        "step": 16 if types[0] == "float64" else step // BY_NAME[types[0]].size_bytes,
        "stages": 3, "together": 1,
    }  # fmt: skip
    (weighed,) = cuda_unit(source, *shapes).done.plan.weighed
    choice = {"kernel": weighed.kernel, "template": "tile_mma", **config}
    kept = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    (program,) = emulated([cuda_unit(source, *shapes, options=Options(choices=kept))])
    check(program, *drawn(types, shapes))


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("types", [*TYPES, ("float32", "float32")])
def test_what_is_printed_for_a_gpu_compiles(types: tuple[str, str], cuda_unit: MakeUnit) -> None:
    source, shapes = source_of("nt", types, dict.fromkeys("mnk", 4096))
    options = Options(precision="tf32")
    for name in ("h200", "h100", "a100", "rtx4090"):
        chip = load_chip(name)
        unit = cuda_unit(source, *shapes, gpu=chip, options=options)
        assert not unit.done.is_fallback
        text = header_text(parts_for(unit.source.functions)) + unit.source.text
        if "tc_mma_of" in unit.source.functions and name != "h100":
            assert compile_cuda(text, unit.source.arch(chip.arch))


def test_casts_may_be_written_and_the_result_goes_on(cuda_unit: MakeUnit, emulated: Any) -> None:
    source = """
        def f(int8(M, K) A, uint8(N, K) B, float(N) scale) -> (C) {
            c(m, n) +=! int32(A(m, k)) * int32(B(n, k))
            C(m, n) = c(m, n) * scale(n)
        }"""
    shapes = [(72, 80), (48, 80), (48,)]
    unit = cuda_unit(source, *shapes, gpu=load_chip("a100"))  # an H200 has one step of boxes
    assert "tc_mma_of" in unit.source.functions
    (program,) = emulated([unit])
    a, b = drawn(("int8", "uint8"), shapes[:2])
    check(program, a, b, np.linspace(-1, 1, 48).astype(np.float32))


@pytest.mark.slow_but("nt")
@pytest.mark.parametrize("form", FORMS)
def test_float32_as_tf32(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of(form, ("float32", "float32"))
    assert "tc_mma_of" not in cuda_unit(source, *shapes).source.functions
    options = Options(precision="tf32")
    unit = cuda_unit(source, *shapes, gpu=load_chip("a100"), options=options)
    assert "tc_mma_of" in unit.source.functions
    (program,) = emulated([unit])
    a, b = drawn(("float32", "float32"), shapes)
    check(program, a, b, options=options)
    with pytest.raises(AssertionError, match="elements are wrong"):  # float32 would be nearer
        check(program, a, b)
    a.flat[7], b.flat[90] = np.inf, np.nan
    check(program, a, b, options=options)


@pytest.mark.parametrize(
    ("factors", "total", "chip", "why"),
    [
        ((INT8, UINT8), INT32, "h200", None), ((FLOAT64, FLOAT64), FLOAT64, "a100", None),
        ((FLOAT64, FLOAT64), FLOAT64, "rtx4090", "sm_89 has no tensor cores for it"),
        ((BY_NAME["float8_e4m3"],) * 2, FLOAT32, "a100", "sm_80 has no tensor cores for it"),
        ((FLOAT32, FLOAT32), FLOAT32, "h200", None),
        ((FLOAT32, FLOAT32), FLOAT32, "a100", "whose parts sm_80 does not multiply"),
        ((INT32, INT32), INT32, "h200", "do not multiply int32 by int32"),
        ((INT8, BY_NAME["half"]), FLOAT32, "h200", "two types that tensor cores do not multiply"),
        ((BY_NAME["half"], BY_NAME["bfloat16"]), FLOAT32, "h200", "two types"),
        ((INT8, INT8), FLOAT32, "h200", "its sums are of float32, not of int32"),
    ],
)  # fmt: skip
def test_what_chips_multiply(
    factors: tuple[DType, DType], total: DType, chip: str, why: str | None
) -> None:
    found = why_not_made(factors, total, load_chip(chip), Options())
    assert found is None if why is None else found is not None and why in found


def test_fused_multiply_adds_may_be_asked_for() -> None:
    options = Options(precision="ieee")
    found = why_not_made((FLOAT32, FLOAT32), FLOAT32, load_chip("h200"), options)
    assert found is not None and "fused multiply-adds are asked for" in found


FAULTS = {
    "lines of an operand are taken for others": (r"(tc_mma_of<.*?), 1>", r"\1, 0>", ""),
    "vectors that are not where they are looked for": (
        r"&(u\d+_A_tile\w+)\[tc_swizzled<\d+, 1>\((.*?)\)\], &A", r"&\1[\2], &A", "",
    ),
    "a step is overwritten early": (
        r"\((c\d) \+ (\d)\) % (\d)", r"(\1 + \2 + 1) % \3", "race|never written",
    ),
}  # fmt: skip


@pytest.mark.slow_but("vectors that are not where they are looked for")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_code_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    sizes = {"m": 64, "n": 64, "k": 512}
    source, shapes = source_of("nt", ("int8", "int8"), sizes)
    by_threads = tiles((16, 16, 2, 2), step=128, together=1)
    options = asked(cuda_unit(source, *shapes), by_threads)
    own = cuda_unit(source, *shapes, options=options).source
    pattern, new, message = FAULTS[fault]
    text = re.sub(pattern, new, own.text)
    assert text != own.text
    a, b = drawn(("int8", "int8"), shapes)
    (program,) = emulated_programs([replace(own, text=text)])
    result = np.zeros((64, 64), np.int32)
    wrong = ""
    try:
        program.run({"A": a, "B": b, "C": result})
    except EmulationError as error:
        wrong = str(error)
    assert (
        re.search(message, wrong)
        if message
        else wrong or (not np.array_equal(result, a.astype(np.int32) @ b.T.astype(np.int32)))
    )


USE = """
extern "C" __global__ void k_{of}(tc_of_{of}::S *out, const tc_of_{of}::A *a) {{
  __shared__ TC_VARIABLE(tc_of_{of}::A, x, [64 * {line}], 128);
  for (int i = threadIdx.x; i < 64 * {line}; i += 32) x[i] = a[i];
  __syncthreads();
  tc_of_{of}::S sums[64] = {{}};
  tc_mma_of<tc_of_{of}, 2, 8, {units}, {line}, 1, {line}, 1>(sums, x, 0, (tc_of_{of}::B *)x, 0);
  for (int i = 0; i < 64; i++) out[threadIdx.x * 64 + i] = sums[i];
}}
"""


@needs_nvrtc
@pytest.mark.parametrize(
    ("of", "arch", "instruction", "count"),
    [
        ("i8_u8", "sm_80", "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", 16),
        ("e4m3_e5m2", "sm_89", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 32),
        ("f64_f64", "sm_80", "mma.sync.aligned.m8n8k4.row.col.f64", 128),
        ("f64_f64", "sm_90", "mma.sync.aligned.m16n8k16.row.col.f64", 16),
        ("f32_f32", "sm_80", "mma.sync.aligned.m16n8k8.row.col.f32.tf32", 16),
    ],
)  # fmt: skip
def test_instructions(of: str, arch: str, instruction: str, count: int) -> None:
    line = 128 // {"f64": 8, "f32": 4}.get(of[:3], 1)
    text = header_text(frozenset({"mma_of"})) + USE.format(
        of=of, line=line, units=4 if of[:3] == "f64" else 1
    )
    ptx = compile_cuda(text, arch, ptx=True).decode()
    assert ptx.count(instruction) == count and ".local" not in ptx
