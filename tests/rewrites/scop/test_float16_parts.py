"""Products of float32 of parts of float16: what becomes of them, how exact, what is not finite."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.interp.arithmetic import Array
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.options import Options
from tcdsl.plan import search
from tcdsl.plan.library_rewrite import library_rewrites
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.float16_parts import in_float16, why_not_in_float16
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.stages import print_scop
from tcdsl.strategies.templates import tile_mma
from tcdsl.testing.comparison import check

MakeUnit = Callable[..., Any]
needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")
PARTS = Options(precision="float16x3")
PRODUCT = "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
FORMS = {"nn": ("mk", "kn"), "nt": ("mk", "nk"), "tn": ("km", "kn"), "tt": ("km", "nk")}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are made so, too."""
    monkeypatch.setattr(search, "WORTH", 1e9)
    monkeypatch.setattr(search, "REWRITES", ())
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)


def source_of(form: str) -> str:
    one, other = (", ".join(axes) for axes in FORMS[form])
    return f"""def f(float({one.upper()}) A, float({other.upper()}) B) -> (C) {{
        C(m, n) +=! A({one}) * B({other})
    }}"""


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def is_in_parts(unit: Any) -> bool:
    return any(name.endswith("_scaled") for name in unit.done.plan.scop.by_name)


@pytest.mark.slow_but("nn-sizes0")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("form", "sizes"),
    [("nn", (65, 72, 51)), ("nt", (72, 72, 64)), ("tn", (67, 33, 100)), ("tt", (64, 48, 129))],
)
def test_products(
    form: str, sizes: tuple[int, int, int], cuda_unit: MakeUnit, emulated: Any
) -> None:
    one, other = FORMS[form]
    shapes = [tuple(sizes["mnk".index(axis)] for axis in axes) for axes in (one, other)]
    unit = cuda_unit(source_of(form), *shapes, options=PARTS)
    assert is_in_parts(unit) and not unit.done.is_fallback
    assert form == "tt" or "tc_wgmma_promoted" in unit.source.functions
    (program,) = emulated([unit])
    a, b = drawn(*shapes)
    check(program, a, b, options=PARTS)
    x, y = (a if one == "mk" else a.T), (b if other == "kn" else b.T)
    c = np.empty((len(x), y.shape[1]), np.float32)
    program(a, b, out=c)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    plain = np.zeros_like(c)
    for k in range(x.shape[1]):
        plain += x[:, k, None] * y[None, k]
    own, usual = (np.linalg.norm(found - exact) for found in (c, plain))
    assert own <= 1.5 * usual  # as exact as float32 is


@pytest.mark.slow_but("epilogue", "one", "no terms", "no rows")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        ("""def f(float(M, K) A, float(K, N) B, float(N) bias) -> (Y) {
            C(m, n) +=! A(m, k) * B(k, n)
            Y(m, n) = relu(C(m, n) + bias(n))
        }""", [(40, 50), (50, 24), (24,)]),
        ("""def f(float(P, M, K) A, float(P, K, N) B) -> (C) {
            C(p, m, n) +=! A(p, m, k) * B(p, k, n)
        }""", [(3, 20, 50), (3, 50, 16)]),
        ("def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) += A(m, k) * B(k, n) }",
         [(40, 50), (50, 24)]),
        ("def f(float(M, K) A) -> (C) { C(m, n) +=! A(m, k) * A(n, k) }", [(40, 50)]),
        ("""def f(float(M, K) A, float(K, N) B, float(N, J) D) -> (E) {
            E(m, j) +=! A(m, k) * B(k, n) * D(n, j)
        }""", [(24, 64), (64, 24), (24, 32)]),
        ("""def f(float(B, H, C) I, float(F, R, C) W) -> (O) {
            O(b, h, f) +=! I(b, h + r, c) * W(f, r, c)
        }""", [(2, 24, 32), (16, 3, 32)]),
        ("""def f(float(B, C, H) I, float(F, C, R) W) -> (O) {
            O(b, f, h) +=! (1 <= h + r && h + r < H + 1 ? I(b, c, h + r - 1) : 0) * W(f, c, r)
                where h in 0:H
        }""", [(2, 32, 24), (16, 32, 3)]),
        ("def f(float(M, K) A, float(K) x) -> (y) { y(m) +=! A(m, k) * x(k) }", [(40, 50), (50,)]),
        (PRODUCT, [(1, 64), (64, 1)]),
        (PRODUCT, [(1, 1), (1, 1)]),
        (PRODUCT, [(4, 0), (0, 4)]),
        (PRODUCT, [(0, 64), (64, 4)]),
    ],
    ids=["epilogue", "batch", "adds to", "square", "three", "window", "guard", "vector",
         "dot", "one", "no terms", "no rows"],
)  # fmt: skip
def test_other_products(
    source: str, shapes: list[tuple[int, ...]], cuda_unit: MakeUnit, emulated: Any
) -> None:
    unit = cuda_unit(source, *shapes, options=PARTS)
    assert is_in_parts(unit) == (shapes[0] not in [(1, 1), (4, 0), (0, 64)])
    (program,) = emulated([unit])
    check(program, *drawn(*shapes), options=PARTS)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_products_of_single_warps(cuda_unit: MakeUnit, emulated: Any) -> None:
    unit = cuda_unit(PRODUCT, (72, 64), (64, 56), options=PARTS, gpu=load_chip("a100"))
    assert is_in_parts(unit) and "tc_mma_promoted" in unit.source.functions
    (program,) = emulated([unit])
    check(program, *drawn((72, 64), (64, 56)), options=PARTS)


@pytest.mark.usefixtures("always")
def test_ranges_zeros_infinities_and_nan(cuda_unit: MakeUnit, emulated: Any) -> None:
    shapes = (48, 64), (64, 40)
    (program,) = emulated([cuda_unit(PRODUCT, *shapes, options=PARTS)])
    a, b = drawn(*shapes)
    check(program, np.zeros_like(a), b, options=PARTS)
    a[5], b[:, 7] = 0, 0
    check(program, a, b, options=PARTS)
    rng = np.random.default_rng(1)
    wide = [x * np.exp2(rng.integers(-30, 31, x.shape)).astype(np.float32) for x in (a, b)]
    check(program, *wide, options=PARTS)
    check(program, a * np.float32(2.0**100), b * np.float32(2.0**-110), options=PARTS)
    check(program, a * np.float32(2.0**-120), b * np.float32(2.0**110), options=PARTS)
    check(program, a * np.float32(2.0**-75), b * np.float32(2.0**-74), options=PARTS)
    check(program, a * np.float32(2.0**-140), b * np.float32(2.0**120), options=PARTS)
    a[3, 5], a[9, 10], a[17, 20], a[20, 7] = np.inf, -np.inf, np.nan, 3.3e38
    b[5, 30], b[10, 31], b[63, 33], b[1, 34] = 1e-30, 0, np.inf, -1e-38
    check(program, a, b, options=PARTS)
    c = np.empty((48, 40), np.float32)
    program(a, b, out=c)
    with np.errstate(all="ignore"):
        plain = (a[:, :, None].astype(np.float64) * b[None]).sum(axis=1).astype(np.float32)
    special = ~np.isfinite(plain)
    assert special.any() and np.isinf(c[3, 30]) and np.isnan(c[9, 31])
    assert np.array_equal(c[special], plain[special], equal_nan=True)
    assert np.isfinite(c[~special]).all()


def test_a_bound_is_wider_than_of_float32_and_much_tighter_than_of_tf32() -> None:
    f = tcdsl.define(PRODUCT).f
    a, b = drawn((16, 512), (512, 16))
    s = f.specialise(a, b)
    bounds = {
        precision: evaluate_with_bounds(
            f.comprehension, s, {"A": a, "B": b}, options=Options(precision=precision)
        )["C"][1]
        for precision in ("float32", "float16x3", "tf32")
    }  # fmt: skip
    assert (bounds["float32"] < bounds["float16x3"]).all()
    assert (bounds["float16x3"] < 4 * bounds["float32"]).all()
    assert (bounds["float16x3"] < bounds["tf32"] / 5).all()


@pytest.mark.slow
def test_an_estimate_decides(cuda_unit: MakeUnit) -> None:
    long = cuda_unit(PRODUCT, (2048, 2048), (2048, 2048), options=PARTS)
    assert is_in_parts(long) and "tc_wgmma_promoted" in long.source.functions
    assert [one.rewrite for one in long.done.plan.tried][:1] == ["products of float16 parts"]
    assert not is_in_parts(cuda_unit(PRODUCT, (256, 256), (256, 256), options=PARTS))
    assert not is_in_parts(cuda_unit(PRODUCT, (2048, 32), (32, 2048), options=PARTS))
    assert not is_in_parts(cuda_unit(PRODUCT, (2048, 2048), (2048, 2048)))


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_rows_may_be_open() -> None:
    f = tcdsl.define(PRODUCT).f
    options = Options(precision="float16x3", dynamic_sizes=("M",))
    exe = f.compile(*drawn((40, 64), (64, 48)), target="emulate", options=options)
    assert exe.opened == ("M",) and "S0_scaled" in str(exe.choices)
    for rows in (40, 17, 65):
        a, b = drawn((rows, 64), (64, 48))
        check(f, a, b, targets="emulate", options=options)
    options = Options(precision="float16x3", dynamic_sizes=("K",))
    exe = f.compile(*drawn((40, 64), (64, 48)), target="emulate", options=options)
    assert exe.opened == ("K",) and "S0_scaled" not in str(exe.choices)


@needs_nvrtc
def test_sums_stay_in_registers(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(PRODUCT, (2048, 2048), (2048, 2048), options=PARTS)
    text = header_text(parts_for(unit.source.functions)) + unit.source.text
    ptx = compile_cuda(text, unit.source.arch("sm_90"), ptx=True).decode()
    assert ptx.count("wgmma.mma_async") == 4 and ".local" not in ptx


def test_a_stage_is_released_by_the_step_that_read_it(cuda_unit: MakeUnit) -> None:
    """Sums of a step are waited for before they are added, so that its operands were read."""
    text = cuda_unit(PRODUCT, (2048, 2048), (2048, 2048), options=PARTS).source.text
    awaited = re.search(r"tc_await<\d>\((.*)\);", text)
    released = re.search(r"tc_release<\d>\((.*)\);", text)
    assert awaited and released and awaited[1] == released[1]


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_gradients() -> None:
    gradient = tcdsl.vjp(tcdsl.define(PRODUCT).f)
    inputs = drawn((48, 64), (64, 50), (48, 50))
    exe = gradient.compile(*inputs, target="emulate", options=PARTS)
    assert {"S0_scaled", "S1_scaled"} <= set(exe.compilation.plan.value.scop.by_name)
    check(gradient, *inputs, targets="emulate", options=PARTS)


@pytest.mark.slow
def test_choices_are_followed() -> None:
    f, shapes = tcdsl.define(PRODUCT).f, [tcdsl.spec((2048, 2048), "float32")] * 2
    exe = f.compile(*shapes, target="emulate", options=PARTS)
    again = f.compile(*shapes, target="emulate", options=PARTS, choices=exe.choices)
    assert again.choices == exe.choices and len(again.kernels) == 3
    assert "products of float16 parts" in exe.explain()
    with pytest.raises(tcdsl.OptionError, match="S0_peak0"):
        f.compile(*shapes, target="emulate", choices=exe.choices)


def test_a_cpu_takes_the_option_and_leaves_products_as_they_are() -> None:
    f = tcdsl.define(PRODUCT).f
    a, b = drawn((48, 64), (64, 50))
    check(f, a, b, targets=("cpu", "reference"), options=PARTS)
    assert np.array_equal(f(a, b, target="cpu", options=PARTS), f(a, b, target="cpu"))


def test_statements(lower: Callable[..., Scop], golden: Callable[[str, str], None]) -> None:
    scop = in_float16(lower(PRODUCT, (8, 51), (51, 16)), "S0")
    golden("float16_parts", print_scop(scop))
    library = library_rewrites(
        Options(libraries=True), replace(load_chip("h200"), libraries=("cublas",))
    )
    assert library[0].why_not(scop, "S0")


OTHERS = {
    "its sums are too short": PRODUCT,
    "it is no sum of float32": PRODUCT.replace("+=!", "max=!"),
    "its terms are no products": PRODUCT.replace("* B", "- B"),
    "its terms are no products of two elements": PRODUCT.replace("B(k, n)", "exp(B(k, n))"),
    "no reduced index is a subscript of its own": PRODUCT.replace("A(m, k)", "A(m, K - 1 - k)"),
}


@pytest.mark.parametrize("why", OTHERS)
def test_why_not(why: str, lower: Callable[..., Scop]) -> None:
    length = 40 if "short" in why else 64
    scop = lower(OTHERS[why], (8, length), (length, 16))
    found = why_not_in_float16(scop, scop.by_name["S0"])
    assert found is not None and found.startswith(why)
