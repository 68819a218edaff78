"""Contractions on tensor cores: when, that they are right, and that faults are found."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT16, DType
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Loop, LoopKind, Node, Sequence
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import why_not_legal
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.synchronisation import why_not_synchronised
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import choices_of, kernel_of, planned

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")

PRODUCTS = {
    "nn": ("A(m,k) * B(k,n)", lambda m, n, k: [(m, k), (k, n)]),
    "nt": ("A(m,k) * B(n,k)", lambda m, n, k: [(m, k), (n, k)]),
    "tn": ("A(k,m) * B(k,n)", lambda m, n, k: [(k, m), (k, n)]),
    "tt": ("A(k,m) * B(n,k)", lambda m, n, k: [(k, m), (n, k)]),
}
SIZES = [(64, 64, 64), (136, 72, 40), (8, 200, 136), (200, 8, 24), (50, 70, 38), (36, 60, 92)]


def source_of(form: str, dtype: str = "bfloat16", rest: str = "") -> str:
    terms, _ = PRODUCTS[form]
    sizes = [re.findall("[mnk]", part) for part in terms.split("*")]
    a, b = (", ".join(size.upper() for size in part) for part in sizes)
    return f"def f({dtype}({a}) A, {dtype}({b}) B{rest}) -> (C) {{ C(m,n) +=! {terms} }}"


FEW = replace(load_chip("h200"), multiprocessors=4)  # blocks have several tiles
FORMS = {
    "batches": (
        "def f(half(B,M,K) A, half(B,K,N) W) -> (C) { C(b,m,n) +=! A(b,m,k) * W(b,k,n) }",
        [(3, 40, 72), (3, 72, 56)],
    ),
    "one operand for all": (
        "def f(half(B,M,K) A, half(K,N) W) -> (C) { C(m,b,n) +=! A(b,m,k) * W(k,n) }",
        [(3, 40, 72), (72, 56)],
    ),
    "transposed result": (
        "def f(half(M,K) A, half(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }",
        [(72, 64), (64, 136)],
    ),
    "of itself": (
        "def f(half(M,K) A) -> (C) { C(i,j) +=! A(i,k) * A(j,k) }", [(104, 72)],
    ),
    "bias and activation": (
        """def f(bfloat16(M,K) A, bfloat16(K,N) B, float(N) b, float(M,N) x) -> (C) {
            c(m,n) +=! A(m,k) * B(k,n)
            C(m,n) = fmax(c(m,n) + b(n), 0.0) + x(m,n)
        }""",
        [(72, 136), (136, 104), (104,), (72, 104)],
    ),
    "update": (
        "def f(float(M,N) C, half(M,K) A, half(K,N) B) -> (C) { C(m,n) += A(m,k) * B(k,n) }",
        [(72, 104), (72, 64), (64, 104)],
    ),
    "convolution with channels last": (
        """def f(half(N,H,W,C) I, half(F,KH,KW,C) K, float(F) b) -> (O) {
            o(n,h,w,f) +=! I(n,h+kh,w+kw,c) * K(f,kh,kw,c)
            O(n,h,w,f) = fmax(o(n,h,w,f) + b(f), 0.0)
        }""",
        [(2, 4, 20, 72), (24, 3, 2, 72), (24,)],
    ),
    "dilated convolution": (
        "def f(half(N,W,C) I, half(KW,C,F) K) -> (O) { O(n,w,f) +=! I(n,w+3*kw,c) * K(kw,c,f) }",
        [(2, 30, 40), (3, 40, 32)],
    ),
    "float32 result": (
        "def f(half(M,K) A, half(K,N) B) -> (float(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(72, 64), (64, 96)],
    ),
}  # fmt: skip


def templates(unit: Any) -> list[str]:
    return [kernel.template for kernel in unit.done.plan.kernels]


# --- right ----------------------------------------------------------------------------------


@pytest.mark.slow_but("bfloat16-nn", "bfloat16-tt")
@pytest.mark.parametrize("form", PRODUCTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
def test_products(form: str, dtype: str, check_emulated: CheckAll, monkeypatch: Any) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    shapes = PRODUCTS[form][1]
    sizes = SIZES if dtype == "half" else [(72, 48, 40), (0, 8, 8), (8, 8, 0)]
    check_emulated([(source_of(form, dtype), shapes(*size)) for size in sizes])


@pytest.mark.slow_but("bias and activation")
@pytest.mark.parametrize("form", FORMS)
def test_other_forms(form: str, check_emulated: CheckAll, monkeypatch: Any) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    check_emulated([FORMS[form]])


def asked(unit: Any, config: Mapping[str, Any]) -> Options:
    """Return the options that ask for *config* for the first kernel of *unit*."""
    plain = {
        "loader": "threads", "swath": 1, "chunks": 1, "is_persistent": False, "is_finished": False,
        "cluster_rows": 1, "cluster_columns": 1, "shares": 0,
    }  # fmt: skip
    return Options(choices=choices_of(kernel_of(unit), "tile_mma", {**plain, **config}))


def groups(columns: int, warps: int, stages: int) -> dict[str, int]:
    """Return the configuration of warps that multiply in fours."""
    return {
        "rows": 16, "columns": columns, "warp_rows": warps, "warp_columns": 1, "step": 64,
        "stages": stages, "together": 4,
    }  # fmt: skip


@pytest.mark.slow_but("nt")
@pytest.mark.parametrize("form", PRODUCTS)
def test_products_of_four_warps(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    dtype = BFLOAT16 if form == "nt" else FLOAT16
    source, of = source_of(form, "bfloat16" if dtype is BFLOAT16 else "half"), PRODUCTS[form][1]
    units, inputs = [], []
    for sizes, config in (
        ((72, 136, 200), groups(64, 4, 3)), ((136, 72, 136), groups(128, 8, 2)),
    ):  # fmt: skip
        shapes = of(*sizes)
        options = asked(planned(source, *shapes), config)
        units.append(cuda_unit(source, *shapes, options=options))
        inputs.append(drawn(dtype, shapes))
        assert "tc_wgmma" in units[-1].source.functions
        assert units[-1].source.arch("sm_90") == "sm_90a"
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


def boxes(columns: int, warps: int, stages: int, swath: int = 1) -> dict[str, Any]:
    """Return the configuration of warps that multiply what a producer brings in boxes."""
    return {**groups(columns, warps, stages), "loader": "boxes", "swath": swath}


@pytest.mark.one_in(3)  # either order of each factor
@pytest.mark.slow_but("nn")
@pytest.mark.parametrize("form", PRODUCTS)
def test_products_of_boxes(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    dtype = BFLOAT16 if form == "nt" else FLOAT16
    source, of = source_of(form, "bfloat16" if dtype is BFLOAT16 else "half"), PRODUCTS[form][1]
    units, inputs = [], []
    cases = [
        ((72, 136, 200), boxes(64, 4, 3)), ((136, 72, 136), boxes(128, 8, 3)),
        ((616, 72, 136), boxes(64, 4, 3, swath=8)), ((136, 200, 136), boxes(192, 8, 3)),
    ]  # fmt: skip
    if form.endswith("t"):  # atoms of 128 bytes are along the terms
        cases.append(((72, 40, 520), boxes(48, 4, 8)))
    for sizes, config in cases:
        shapes = of(*sizes)
        options = asked(planned(source, *shapes), config)
        units.append(cuda_unit(source, *shapes, options=options))
        inputs.append(drawn(dtype, shapes))
        assert "tc_copy_box" in units[-1].source.functions and not units[-1].done.is_fallback
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


@pytest.mark.one_in(3)  # either order of each factor
@pytest.mark.slow
@pytest.mark.parametrize("form", PRODUCTS)
def test_blocks_that_share_sums(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    dtype = BFLOAT16 if form == "nt" else FLOAT16
    source, of = source_of(form, "bfloat16" if dtype is BFLOAT16 else "half"), PRODUCTS[form][1]
    few = {"rows": 16, "columns": 16, "warp_rows": 2, "warp_columns": 2, "step": 32, "stages": 3}
    units, inputs = [], []
    for sizes, config in (
        ((72, 136, 1096), {**boxes(64, 4, 3), "chunks": 4}),
        ((72, 72, 1000), {**groups(64, 4, 3), "chunks": 3}),
        ((40, 72, 520), {**few, "together": 1, "chunks": 4}),
    ):  # fmt: skip
        shapes = of(*sizes)
        options = sharing(planned(source, *shapes), config)
        units.append(cuda_unit(source, *shapes, options=options))
        assert len(units[-1].done.plan.kernels) == 2 and not units[-1].done.is_fallback
        inputs.append(drawn(dtype, shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


FINISHED = {
    "bias and activation": [(71, 520), (520, 104), (104,), (71, 104)],
    "update": [(72, 104), (72, 520), (520, 104)],
    "float32 result": [(72, 520), (520, 96)],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FINISHED)
def test_last_blocks_of_tiles_finish_sums(
    form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any
) -> None:
    """What the blocks of a tile leave, and what is computed of it, is the last one's, in order."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    source, shapes = FORMS[form][0], FINISHED[form]
    bare, units = planned(source, *shapes), []
    every = (c.get("config", {}) for c in bare.done.plan.weighed[0].candidates())
    finished = [config for config in every if config.get("is_finished")]
    for loader, together in (("boxes", 4), ("threads", 1), ("threads", 4)):
        own = (c for c in finished if (c["loader"], c["together"]) == (loader, together))
        units.append(cuda_unit(source, *shapes, options=sharing(bare, next(own))))
        plan = units[-1].done.plan
        assert len(plan.kernels) == 1 and not units[-1].done.is_fallback
        assert "tc_last_block" in units[-1].source.functions
    arrays = [units[0].done.plan.scop.arrays[name] for name in re.findall(r"\) (\w+)[,)]", source)]
    types = [array.dtype for array in arrays[: len(shapes)]]
    inputs = [values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True))]
    for program in emulated(units):
        check(program, *inputs)


@pytest.mark.one_in(3)  # either order of each factor
@pytest.mark.slow_but("nt")
@pytest.mark.parametrize("form", PRODUCTS)
def test_blocks_with_several_tiles(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    """Stages run on: 4 blocks have 5 tiles of rows by 2 of columns, 3 stages and 4 or 5 steps."""
    source, of = source_of(form, "half"), PRODUCTS[form][1]
    units, inputs = [], []
    for sizes in ((312, 72, 264), (320, 128, 256)):
        shapes = of(*sizes)
        config = {**boxes(64, 4, 3, swath=2), "is_persistent": True}
        options = asked(planned(source, *shapes, gpu=FEW), config)
        units.append(cuda_unit(source, *shapes, gpu=FEW, options=options))
        assert not units[-1].done.is_fallback
        assert units[-1].source.launches[0].grid == (2, 2, 1)
        inputs.append(drawn(FLOAT16, shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


def sharing(unit: Any, config: Mapping[str, Any]) -> Options:
    """Return the options that ask for *config* for the product of *unit*, sums of chunks apart."""
    plain = {
        "loader": "threads", "swath": 1, "is_persistent": False, "is_finished": False,
        "cluster_rows": 1, "cluster_columns": 1, "shares": 0,
    }  # fmt: skip
    return Options(choices=choices_of(kernel_of(unit), "tile_mma", {**plain, **config}))


def test_few_tiles_share_their_sums(cuda_unit: MakeUnit) -> None:
    """(64, 96, 200000): two tiles, and blocks for the whole chip."""
    plan = cuda_unit(source_of("nn"), (64, 200000), (200000, 96)).done.plan
    (own, *_) = [c for c in plan.weighed[0].candidates() if c.get("is_chosen")]
    assert own["config"]["chunks"] > 16 and len(plan.kernels) == 2


RESIDUAL = """def f({t}(M,K) A, {t}(K,N) B, {t}(N) b, {t}(M,N) x) -> ({t}(M,N) C) {{
    c(m,n) +=! A(m,k) * B(k,n)
    C(m,n) = c(m,n) + b(n) + x(m,n)
}}"""
GELU = """def f({t}(M,K) A, {t}(K,N) B, {t}(N) b, {t}(M,N) x) -> ({t}(M,N) C) {{
    c(m,n) +=! A(m,k) * B(k,n)
    C(m,n) = 0.5 * c(m,n) * (1.0 + erf(0.70710678 * (c(m,n) + b(n))))
}}"""


def test_what_stays_in_registers_is_not_moved(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("""def f(half(M, K) A, half(K, N) B, half(N) b) -> (half(M, N) y) {
        C(m, n) +=! float(A(m, k)) * B(k, n)
        y(m, n) = relu(C(m, n) + b(n))
    }""", (2048, 2048), (2048, 2048), (2048,))  # fmt: skip
    (weighed,) = unit.done.plan.weighed
    (own,) = (one for one in weighed.candidates() if one.get("is_chosen"))
    assert own["template"] == "tile_mma" and own["moved_bytes"] == 3 * 2 * 2048**2 + 2 * 2048


@pytest.mark.slow_but("(136, 264, 200)")
@pytest.mark.parametrize("sizes", [(136, 264, 200), (315, 200, 136)], ids=str)
def test_what_fragments_are_added_to(
    sizes: tuple[int, int, int], cuda_unit: MakeUnit, emulated: Any
) -> None:
    """Threads exchange what they load, too, where runs of eight are whole: rows may be odd."""
    m, n, k = sizes
    shapes = [(m, k), (k, n), (n,), (m, n)]
    source = RESIDUAL.format(t="half")
    options = asked(planned(source, *shapes), boxes(128, 4, 3))
    unit = cuda_unit(source, *shapes, options=options)
    assert {"tc_vload_quad", "tc_vstore_quad"} <= set(unit.source.functions)
    assert unit.source.text.count("tc_vload_quad(") == 1, "all rows load the same of b"
    (program,) = emulated([unit])
    check(program, *drawn(FLOAT16, shapes))


@pytest.mark.slow_but("(136, 200, 200)-True")
@pytest.mark.parametrize(
    ("sizes", "is_exchanged"), [((136, 200, 200), True), ((67, 198, 136), False)], ids=str
)
def test_float32_results_are_stored_16_bytes_at_once(
    sizes: tuple[int, int, int], is_exchanged: bool, cuda_unit: MakeUnit, emulated: Any
) -> None:
    """Two threads exchange pairs where all runs of eight are whole."""
    m, n, k = sizes
    shapes = [(m, k), (n, k)]
    source = "def f(half(M,K) A, half(N,K) B) -> (float(M,N) C) { C(m,n) +=! A(m,k) * B(n,k) }"
    unit = cuda_unit(source, *shapes, options=asked(planned(source, *shapes), boxes(128, 4, 3)))
    assert ("tc_vstore_twin" in unit.source.functions) == is_exchanged
    (program,) = emulated([unit])
    check(program, *drawn(FLOAT16, shapes))


MASKED = """def f(half(M,K) A, half(K,N) B, {t}(M,N) x) -> (half(M,N) C) {{
    c(m,n) +=! A(m,k) * B(k,n)
    C(m,n) = x(m,n) > 0 ? c(m,n) : 0.0
}}"""


@pytest.mark.slow_but("float-(136, 320, 200)")
@pytest.mark.parametrize("sizes", [(136, 320, 200), (315, 200, 136)], ids=str)
@pytest.mark.parametrize(("dtype", "depth"), [("float", 2), ("int8", 4), ("double", 0)],
                         ids=["float", "int8", "double"])  # fmt: skip
def test_what_is_added_is_loaded_some_iterations_before(
    dtype: str, depth: int, sizes: tuple[int, int, int], cuda_unit: MakeUnit, emulated: Any
) -> None:
    """As many as sixteen registers hold: of the first ones before the loop, at its edges too."""
    m, n, k = sizes
    shapes, source = [(m, k), (k, n), (m, n)], MASKED.format(t=dtype)
    options = asked(planned(source, *shapes), boxes(128, 4, 3))
    unit = cuda_unit(source, *shapes, options=options)
    text = unit.source.text
    assert ("w_later" in text) == (depth > 0) and not unit.done.is_fallback
    assert f"w_early0[{depth}][4]" in text or not depth
    (program,) = emulated([unit])
    own = unit.comprehension.tensors["x"].dtype
    check(program, *drawn(FLOAT16, shapes[:2]), values(own, (m, n), "real", 3))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("source", [RESIDUAL, GELU, source_of("nn")], ids=["x", "gelu", "bare"])
def test_products_do_not_wait_for_one_another(
    source: str, cuda_unit: MakeUnit, tmp_path: Path
) -> None:
    """What is computed of sums stays behind the wait for them: else ptxas says C7510 or C7514."""
    shapes = [(4096, 4096), (4096, 4096), (4096,), (4096, 4096)]
    shapes = shapes if "{t}" in source else shapes[:2]
    source = source.format(t="bfloat16") if "{t}" in source else source
    made = cuda_unit(source, *shapes).source
    assert "tc_copy_box" in made.functions
    text = tmp_path / "kernel.cu"
    text.write_text(header_text(parts_for(made.functions)) + made.text)
    flags = ["-std=c++17", "--fmad=false", "-arch=sm_90a", "-cubin", "-Xptxas", "-v"]
    out = subprocess.run(
        ["nvcc", *flags, str(text), "-o", str(tmp_path / "k.cubin")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "registers" in out.stderr and "(C75" not in out.stderr


@pytest.mark.slow
@needs_nvrtc
def test_four_warps_keep_what_they_multiply_in_registers(cuda_unit: MakeUnit) -> None:
    shapes = [(512, 512), (512, 512)]
    for own in (groups(256, 8, 3), boxes(192, 8, 4), boxes(256, 8, 4)):
        config = asked(planned(source_of("nn"), *shapes), own)
        source = cuda_unit(source_of("nn"), *shapes, options=config).source
        text = header_text(parts_for(source.functions)) + source.text
        ptx = compile_cuda(text, source.arch("sm_90"), ptx=True).decode()
        assert ptx.count("wgmma.mma_async") == 4 and ".local" not in ptx
    assert ptx.count("cp.async.bulk.tensor") in (5, 8 * 5)  # of a step, or of all, unrolled


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.fuzz)])
def test_every_configuration(half: int, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = source_of("nt"), [(80, 72), (136, 72)]
    unit = cuda_unit(source, *shapes)
    (weighed,) = unit.done.plan.weighed
    own = [c for c in weighed.candidates() if c["template"] == "tile_mma"]
    assert len(own) > 4 and sum(c["is_chosen"] for c in own) == 1
    units = []
    for candidate in own[half::2]:
        options = asked(unit, candidate["config"])
        units.append(cuda_unit(source, *shapes, options=options))
    for program in emulated(units):
        check(program, *drawn(BFLOAT16, shapes))


def drawn(dtype: DType, shapes: list[tuple[int, ...]]) -> list[Array]:
    return [values(dtype, shape, "real", seed) for seed, shape in enumerate(shapes)]


# --- when -----------------------------------------------------------------------------------


def test_a_product_of_half_types_is_one_kernel(cuda_unit: MakeUnit) -> None:
    source, _ = FORMS["bias and activation"]
    unit = cuda_unit(source, (512, 512), (512, 512), (512,), (512, 512))
    assert templates(unit) == ["tile_mma"] and not unit.done.is_fallback
    assert len(re.findall("tc_w?g?mma<", unit.source.text)) == 1
    assert "tc_fmax_f32" in unit.source.text


@pytest.mark.parametrize(
    ("source", "shapes", "why"),
    [
        (source_of("nn", "float"), [(72, 72), (72, 72)], "its sums are too short"),
        (source_of("nn"), [(72, 71), (71, 72)], "rows of A are not all aligned to 4 bytes"),
        (source_of("nt"), [(72, 72), (71, 72)], None),
        (source_of("nn"), [(72, 72), (72, 71)], "rows of B are not all aligned to 4 bytes"),
        (source_of("nn").replace("+=!", "max=!"), [(72, 72), (72, 72)], "it is no sum"),
        (source_of("nn").replace("* B", "+ B"), [(72, 72), (72, 72)], "products of two elements"),
        (
            "def f(half(M,K,L) A, half(L,N,K) B) -> (C) { C(m,n) +=! A(m,k,l) * B(l,n,k) }",
            [(72, 8, 72), (72, 72, 8)], "neighbours in B are along no index of the product",
        ),
        (source_of("nn"), [(8, 8), (8, 8)], "it is small"),
    ],
)  # fmt: skip
def test_when_there_is_none(source: str, shapes: Any, why: Any) -> None:
    unit = planned(source, *shapes)
    reasons = {
        c["template"]: c["why_not"]
        for weighed in unit.done.plan.weighed
        for c in weighed.candidates()
        if "why_not" in c and "config" not in c
    }
    if why is None:
        assert "tile_mma" in templates(unit)
    elif reasons:  # other kernels are no templates yet
        assert why in reasons["tile_mma"]
    assert ("tile_mma" in templates(unit)) == (why is None)


def test_an_older_chip_has_none(cuda_unit: MakeUnit) -> None:
    turing = replace(load_chip("generic"), arch="sm_75")
    assert "tile_mma" not in templates(cuda_unit(source_of("nn"), (64, 64), (64, 64), gpu=turing))


# --- what would be wrong is found -------------------------------------------------------------


def without_barriers(node: Node) -> Node:
    match node:
        case Loop(body=body):
            return replace(node, body=without_barriers(body))
        case Sequence(children=children):
            kept = [c for c in children if not getattr(c, "statement", "").startswith("barrier")]
            return Sequence(tuple(map(without_barriers, kept)))
    return node


def reordered(node: Node, kinds: LoopKind) -> Node:
    """Return *node*, the thread that has a result being another than the instruction's."""
    match node:
        case Loop(kind=LoopKind.THREAD, axis=0, coordinates=coordinates, body=body):
            name, coordinate = next(iter(coordinates.items()))
            if name == "S0" and kinds is LoopKind.THREAD:
                terms = tuple((4 if f == 1 else 1, term) for f, term in coordinate.terms)
                return replace(node, coordinates={name: replace(coordinate, terms=terms)})
            return replace(node, body=reordered(body, kinds))
        case Loop(body=body):
            return replace(node, body=reordered(body, kinds))
        case Sequence(children=children):
            return Sequence(tuple(reordered(child, kinds) for child in children))
    return node


def test_plans_without_barriers_or_with_other_threads_are_refused(cuda_unit: MakeUnit) -> None:
    shapes = [(128, 128), (128, 128)]
    options = asked(planned(source_of("nn"), *shapes), groups(64, 4, 3))
    plan = cuda_unit(source_of("nn"), *shapes, options=options).done.plan
    (kernel,) = plan.kernels
    deps = dependences_of(plan.scop)

    def reason(tree: Node) -> str | None:
        return why_not_synchronised(Mapped(plan.scop, tree), deps, plan.placements)

    assert why_not_legal(plan.scop, deps, kernel.tree) is None and reason(kernel.tree) is None
    assert "no barrier is between" in (reason(without_barriers(kernel.tree)) or "")
    other = reordered(kernel.tree, LoopKind.THREAD)
    assert other != kernel.tree
    assert "is private, but" in (reason(other) or "")


FAULTS = {
    "an operand's vectors are not where they are looked for": (
        r"&(u\d+_A_tile\w+)\[tc_swizzled<\d+>\((.*?)\)\], &A", r"&\1[\2], &A", "",
    ),
    "another operand's vectors": (
        r"(tc_mma<1, \d+, \d+, \d+, \d+), 1, (\d+), 0>", r"\1, 1, \2, 1>", "",
    ),
    "no wait": (r"tc_copy_wait\w*(<\d>)?\(\);", "", "no tc_copy_wait"),
    "no barrier": (r"__syncthreads\(\);", "", "no barrier|never written|no tc_copy_wait"),
    "a step is overwritten early": (
        r"\((c\d) \+ (\d)\) % (\d)", r"(\1 + \2 + 1) % \3", "race|never written",
    ),
}  # fmt: skip


@pytest.mark.slow_but("no wait", "another operand's vectors")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_code_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    shapes = [(64, 136), (136, 64)]
    config = {"rows": 32, "columns": 32, "warp_rows": 2, "warp_columns": 2, "step": 64, "stages": 3}
    options = asked(planned(source_of("nn"), *shapes), {**config, "together": 1})
    unit = cuda_unit(source_of("nn"), *shapes, options=options)
    assert_found(unit.source, shapes, FAULTS[fault])


def assert_found(
    source: CudaSource, shapes: list[tuple[int, ...]], fault: tuple[str, str, str]
) -> None:
    """Assert that the *fault* is an error whose message it says, or (also: "x|") shows."""
    pattern, new, message = fault
    text = re.sub(pattern, new, source.text)
    assert text != source.text
    a, b = drawn(BFLOAT16, shapes)
    right, broken = emulated_programs([source, replace(source, text=text)])
    results = []
    for program in (right, broken):
        results.append(np.zeros((shapes[0][0], shapes[1][1]), a.dtype))
        try:
            program.run({"A": a, "B": b, "C": results[-1]})
        except EmulationError as error:
            assert program is broken and re.search(message, error.message)
            return
    assert message[-1:] in ("", "|") and (results[0] != results[1]).any()


GROUP_FAULTS = {
    "no wait for products at all": (r"tc_end_products\(\w+\);", "", "no tc_end_products"),
    # They run at the wait after the last: their operands are those of later steps by then.
    "products of several steps at once": (
        r"(tc_end_products\(\w+\);)(\s+tc_copy_end_group)", r"\2", "",
    ),
    "an operand in other atoms": (
        r"&(u\d+_B_tile\w+)\[tc_in_atoms<128, 64>", r"&\1[tc_swizzled<128>", "",
    ),
    "the first rows for all warps": (r"\(16 \* c\d\) \* 64 \+ 0", "0", ""),
    "another run of what threads exchange": (r"8 \* w_quad", "8 * (3 - w_quad)", ""),
}  # fmt: skip


@pytest.mark.slow_but("no wait for products at all")
@pytest.mark.parametrize("fault", GROUP_FAULTS)
def test_faults_in_the_code_of_four_warps_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    shapes = [(64, 264), (264, 128)]
    options = asked(planned(source_of("nn"), *shapes), groups(128, 4, 3))
    unit = cuda_unit(source_of("nn"), *shapes, options=options)
    assert_found(unit.source, shapes, GROUP_FAULTS[fault])


BOX_FAULTS = {
    "no wait for a stage": (r"tc_await<3>\(w_barriers, c\d\);", "", "data race|never written"),
    "no wait for a free stage": (
        r"tc_acquire<3, (\d+)>\(w_barriers, (c\d)\);",
        r"if (\2 < 1) tc_acquire<3, \1>(w_barriers, \2);", "data race|deadlock",
    ),
    "no release": (r"tc_release<3>\(w_barriers, c\d - 1\);", "", "deadlock"),
    "released before products are done": (
        r"tc_leave_products<1>\(\);(\s*tc_release<3>\(w_barriers, c\d) - 1", r"\1", "",
    ),
    "products are never waited for": (r"tc_leave_products<1>\(\);", "", ""),
    "sums of products that go on": (r"tc_end_products\(\w+\);", "", "no tc_end_products"),
    "the stage after": (
        r"(tc_copy_box<\d, \d+, \d+>\(\w+ \+ )\((c\d) % 3\)", r"\1((\2 + 1) % 3)",
        "data race|never written",
    ),
    "another stage's bytes": (
        r"(tc_copy_box<.*?w_barriers, )(c\d)", r"\1\2 + 1", "data race|never written|deadlock",
    ),
    "another box": (r"\(64 \* (c\d)\)", r"(64 * \1 + 64)", ""),
    "too few bytes": (r"tc_acquire<3, \d+>", "tc_acquire<3, 1024>", "data race|never|deadlock"),
    "too few readers": (r"tc_begin_pipeline<3, 4>", "tc_begin_pipeline<3, 3>", "data race"),
    "too many readers": (r"tc_begin_pipeline<3, 4>", "tc_begin_pipeline<3, 5>", "deadlock"),
    "an operand in other atoms": (
        r"(tc_wgmma<1, 128, 4, 64, 64, 1, )128, 64, 0", r"\g<1>64, 128, 0", "",
    ),
}  # fmt: skip


@pytest.mark.slow_but("no wait for a stage")
@pytest.mark.parametrize("fault", BOX_FAULTS)
def test_faults_in_pipelines_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    shapes = [(64, 520), (520, 128)]
    options = asked(planned(source_of("nn"), *shapes), boxes(128, 4, 3))
    unit = cuda_unit(source_of("nn"), *shapes, options=options)
    assert_found(unit.source, shapes, BOX_FAULTS[fault])


RUNNING_FAULTS = {
    "stages begin anew with each tile": (
        r"tc_await<3>\(w_barriers, 5 \* c2 \+ c3\)", "tc_await<3>(w_barriers, c3)",
        "data race|never written|deadlock",
    ),
    "a tile's products of other stages": (
        r"(tc_wgmma<.*?)\(\(5 \* c2 \+ c3\) % 3\)", r"\1(c3 % 3)", "data race|never written|",
    ),
    "no release of what runs on": (
        r"tc_release<3>\(w_barriers, 5 \* c2 \+ c3 - 1\)",
        "if (c3 > 0) tc_release<3>(w_barriers, 5 * c2 + c3 - 1)", "deadlock",
    ),
    "the rows of the tile before": (r" \+ 128 \* c2\)", ")", ""),
    "sums go on": (
        r"(\n *)(u0_C_part0\[.*?\] = 0\.0f;)", r"\1if (c2 == 0) \2", "never written|",
    ),
}  # fmt: skip


@pytest.mark.slow_but("no release of what runs on")
@pytest.mark.parametrize("fault", RUNNING_FAULTS)
def test_faults_in_stages_that_run_on_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    shapes = [(320, 264), (264, 128)]
    config = {**boxes(64, 4, 3, swath=2), "is_persistent": True}
    options = asked(planned(source_of("nn"), *shapes, gpu=FEW), config)
    unit = cuda_unit(source_of("nn"), *shapes, gpu=FEW, options=options)
    assert_found(unit.source, shapes, RUNNING_FAULTS[fault])


@pytest.mark.parametrize("extents", [(), (4,), (5, 5)])
def test_stages_that_do_not_run_on_are_refused(
    extents: tuple[int, ...], cuda_unit: MakeUnit
) -> None:
    shapes = [(320, 264), (264, 128)]
    config = {**boxes(64, 4, 3, swath=2), "is_persistent": True}
    options = asked(planned(source_of("nn"), *shapes, gpu=FEW), config)
    plan = cuda_unit(source_of("nn"), *shapes, gpu=FEW, options=options).done.plan
    statements = tuple(
        replace(s, event=replace(s.event, extents=extents)) if s.event and s.event.extents else s
        for s in plan.scop.statements
    )
    scop, deps = plan.scop.with_statements(statements), dependences_of(plan.scop)
    mapped = Mapped(scop, plan.kernels[0].tree)
    assert "as they run on" in (why_not_synchronised(mapped, deps, plan.placements) or "")


def without(node: Node, name: str) -> Node:
    """Return *node* without the statement *name*."""
    match node:
        case Loop(body=body):
            return replace(node, body=without(body, name))
        case Sequence(children=children):
            kept = [c for c in children if getattr(c, "statement", "") != name]
            return Sequence(tuple(without(child, name) for child in kept))
    return node


EVENTS = {
    "acquire0": "no acquire", "await0": "no await", "release0": "no release",
    "end0": "products that go on",
}  # fmt: skip


@pytest.mark.parametrize("event", EVENTS)
def test_pipelines_without_an_event_are_refused(event: str, cuda_unit: MakeUnit) -> None:
    shapes = [(128, 256), (256, 128)]
    options = asked(planned(source_of("nn"), *shapes), boxes(128, 8, 3))
    plan = cuda_unit(source_of("nn"), *shapes, options=options).done.plan
    tree, deps = plan.kernels[0].tree, dependences_of(plan.scop)

    def reason(scop: Scop, tree: Node) -> str:
        return why_not_synchronised(Mapped(scop, tree), deps, plan.placements) or ""

    assert reason(plan.scop, tree) == ""
    assert EVENTS[event] in reason(plan.scop, without(tree, event))


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("release0", {"lag": 0}, "still reads"), ("acquire0", {"size_bytes": 64}, "are expected"),
        ("await0", {"stages": 4}, "different stages"),
    ],
)  # fmt: skip
def test_other_events_are_refused(
    name: str, change: dict[str, int], why: str, cuda_unit: MakeUnit
) -> None:
    shapes = [(128, 256), (256, 128)]
    options = asked(planned(source_of("nn"), *shapes), boxes(128, 8, 3))
    plan = cuda_unit(source_of("nn"), *shapes, options=options).done.plan
    statements = tuple(
        replace(s, event=replace(s.event, **change)) if s.name == name and s.event else s
        for s in plan.scop.statements
    )
    scop, deps = plan.scop.with_statements(statements), dependences_of(plan.scop)
    mapped = Mapped(scop, plan.kernels[0].tree)
    assert why in (why_not_synchronised(mapped, deps, plan.placements) or "")


def test_stages_that_are_too_few_are_refused(cuda_unit: MakeUnit) -> None:
    shapes = [(128, 256), (256, 128)]
    options = asked(planned(source_of("nn"), *shapes), boxes(128, 8, 3))
    plan = cuda_unit(source_of("nn"), *shapes, options=options).done.plan
    mapped, deps = Mapped(plan.scop, plan.kernels[0].tree), dependences_of(plan.scop)
    fewer = {
        name: replace(p, ring=replace(p.ring, buffers=2)) if p.ring else p
        for name, p in plan.placements.items()
    }
    assert why_not_synchronised(mapped, deps, fewer) is not None
