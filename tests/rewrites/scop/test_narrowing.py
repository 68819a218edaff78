"""Factors of float32 as bfloat16: what becomes of them, how exact, what is not finite."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.interp.arithmetic import Array
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32
from tcdsl.options import Options
from tcdsl.plan import search
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.rewrites.scop.narrowing import (
    narrowed,
    narrowed_together,
    why_not_narrowed,
    why_not_narrowed_together,
)
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]
ROUGH = Options(precision="bfloat16")
PRODUCT = "def f({}(M, K) A, {}(K, N) B) -> (C) {{ C(m, n) +=! A(m, k) * B(k, n) }}"
FLOATS, MIXED = PRODUCT.format("float", "float"), PRODUCT.format("float", "bfloat16")
LAYERS = """
def mlp(bfloat16(B, I) x, bfloat16(I, H) w1, bfloat16(H) b1, bfloat16(H, O) w2, bfloat16(O) b2)
        -> (bfloat16(B, O) y) {
    h(b, n) +=! x(b, i) * w1(i, n)
    a(b, n) = relu(h(b, n) + b1(n))
    s(b, o) +=! a(b, n) * w2(n, o)
    y(b, o) = s(b, o) + b2(o)
}
"""


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are made so, too, and no other rewrite is weighed."""
    monkeypatch.setattr(search, "WORTH", 1e9)
    monkeypatch.setattr(search, "REWRITES", ())
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.rewrites.scop.repacking.LEAST_USES", 1)


def drawn(unit: Any, seed: int = 0) -> list[Array]:
    """Return normal inputs of *unit*."""
    c, shapes = unit.comprehension, unit.special.shapes
    dtypes = [c.tensors[name].dtype for name in c.inputs]
    pairs = zip(c.inputs, dtypes, strict=True)
    return [values(of, shapes[name], "real", seed + n) for n, (name, of) in enumerate(pairs)]


def arrays_of(unit: Any) -> dict[str, Any]:
    return dict(unit.done.plan.scop.arrays)


def copies_of(unit: Any) -> list[str]:
    return [name for name in arrays_of(unit) if name.endswith(".narrow")]


def in_memory(unit: Any) -> set[str]:
    """Return the temporaries that are not local to a kernel."""
    plan = unit.done.plan
    arrays = plan.scop.arrays.values()
    return {a.name for a in arrays if a.storage is Storage.SCRATCH} - set(plan.placements)


def layers(
    sizes: tuple[int, int, int, int], forward: str = LAYERS
) -> tuple[str, list[tuple[int, ...]]]:
    """Return the derivative of two layers of bfloat16, and the shapes of its inputs."""
    g = tcdsl.vjp(tcdsl.define(forward).mlp)
    at = dict(zip("BIHO", sizes, strict=True))
    dims = [g.comprehension.tensors[name].dims for name in g.comprehension.inputs]
    return g.source, [tuple(at[str(dim)] for dim in own) for own in dims]


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("source", [MIXED, FLOATS, PRODUCT.format("bfloat16", "float")],
                         ids=["MIXED", "FLOATS", "BEFORE"])  # fmt: skip
def test_products(source: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units = []
    for m, k, n in (
        (64, 72, 64), (67, 51, 129), (1, 64, 31), (8, 1, 8), (0, 8, 8), (8, 0, 8),
    ):  # fmt: skip
        units.append(cuda_unit(source, (m, k), (k, n), options=ROUGH))
        assert not units[-1].done.is_fallback
        assert bool(copies_of(units[-1])) == (0 not in (m, k, n))
    for unit, program in zip(units, emulated(units), strict=True):
        check(program, *drawn(unit), options=ROUGH)


OTHERS = {
    "batch": (
        """def f(float(P, M, K) A, float(P, K, N) B) -> (C) {
            C(p, m, n) +=! A(p, m, k) * B(p, k, n)
        }""", [(3, 20, 50), (3, 50, 16)]),
    "square": ("def f(float(M, K) A) -> (C) { C(m, n) +=! A(m, k) * A(n, k) }", [(40, 50)]),
    "guard": (
        """def f(float(B, H, C) I, bfloat16(F, R, C) W) -> (O) {
            O(b, h, f) +=! (1 <= h + r && h + r < H + 1 ? I(b, h + r - 1, c) : 0.0) * W(f, r, c)
                where h in 0:H
        }""", [(2, 24, 32), (16, 3, 32)]),
    "window": (
        """def f(float(B, H, C) I, float(F, R, C) W) -> (O) {
            O(b, h, f) +=! I(b, h + 2 * r, c) * W(f, r, c)
        }""", [(2, 25, 16), (16, 3, 16)]),
    "adds to": (
        "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) += A(m, k) * B(k, n) }",
        [(40, 50), (50, 24)]),
    "chain": (
        """def f(float(M, K) A, float(K, N) B, float(N, J) D) -> (E) {
            C(m, n) +=! A(m, k) * B(k, n)
            E(m, j) +=! C(m, n) * D(n, j)
        }""", [(24, 64), (64, 24), (24, 32)]),
    "part": ("""def f(float(M, L) A, float(K, N) B) -> (C) {
            C(m, n) +=! A(m, k + 3) * B(k, n)
        }""", [(16, 43), (40, 16)]),
}  # fmt: skip


@pytest.mark.slow_but("guard")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", OTHERS)
def test_other_products(name: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = OTHERS[name]
    unit = cuda_unit(source, *shapes, options=ROUGH)
    assert copies_of(unit) and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *drawn(unit), options=ROUGH)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_products_of_single_warps(cuda_unit: MakeUnit, emulated: Any) -> None:
    unit = cuda_unit(MIXED, (264, 128), (128, 264), options=ROUGH, gpu=load_chip("a100"))
    assert copies_of(unit) == ["A.narrow"] and "tc_mma" in unit.source.functions
    (program,) = emulated([unit])
    check(program, *drawn(unit), options=ROUGH)


@pytest.mark.usefixtures("always")
def test_infinities_and_nan(cuda_unit: MakeUnit, emulated: Any) -> None:
    unit = cuda_unit(MIXED, (48, 64), (64, 40), options=ROUGH)
    (program,) = emulated([unit])
    a, b = drawn(unit)
    a[3, 5], a[9, 10], a[17, 20], a[20, 7], a[21, 8] = np.inf, -np.inf, np.nan, 3.3895e38, 3.4e38
    b[5, 30], b[10, 31], b[63, 33], b[8] = 1e-30, 0, np.inf, 0.5
    check(program, a, b, options=ROUGH)
    c = np.empty((48, 40), np.float32)
    program(a, b, out=c)
    with np.errstate(all="ignore"):
        terms = a[:, :, None].astype(np.float64) * b[None].astype(np.float64)
        plain = terms.sum(axis=1).astype(np.float32)
    assert np.isinf(c[21]).any(), "3.4e38 is an infinity in bfloat16, and may be"
    c, plain = np.delete(c, 21, axis=0), np.delete(plain, 21, axis=0)
    special = ~np.isfinite(plain)
    assert special.any() and np.isinf(c[3, 30]) and np.isnan(c[9, 31]) and np.isnan(c[17]).all()
    assert np.array_equal(c[special], plain[special], equal_nan=True)
    assert np.isfinite(c[~special]).all() and not special.all()


@pytest.mark.usefixtures("always")
def test_check_can_fail(cuda_unit: MakeUnit, emulated: Any) -> None:
    (program,) = emulated([cuda_unit(MIXED, (48, 64), (64, 40), options=ROUGH)])
    a, b = drawn(cuda_unit(MIXED, (48, 64), (64, 40), options=ROUGH))
    with pytest.raises(AssertionError, match="elements are wrong"):
        check(program, a, b)  # the bound of float32
    exact = a.astype(BFLOAT16.numpy).astype(np.float32)  # of whose rounding nothing is lost
    check(program, exact, b)
    check(program, exact, b, options=ROUGH)


def test_a_bound_is_of_what_is_rounded() -> None:
    f = tcdsl.define(MIXED).f
    rng = np.random.default_rng(0)
    a = rng.normal(size=(16, 512)).astype(np.float32)
    b = rng.normal(size=(512, 16)).astype(BFLOAT16.numpy)
    rough = a.astype(BFLOAT16.numpy).astype(np.float32)

    def bound(a: Array, precision: str) -> Array:
        given, s = {"A": a, "B": b}, f.specialise(a, b)
        return evaluate_with_bounds(
            f.comprehension, s, given, options=Options(precision=precision)
        )["C"][1]

    assert (bound(rough, "bfloat16") == bound(rough, "float32")).all()
    lost = bound(a, "bfloat16") - bound(a, "float32")
    products = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert (lost > 0.2 * 2.0**-8 * products).all() and (lost < 1.01 * 2.0**-8 * products).all()
    a[3, 5], a[4, 5], a[5, 5], a[6, 5] = 3.4e38, np.inf, np.nan, 3.3895e38
    limits = bound(a, "bfloat16")
    assert np.isinf(limits[3]).all() and (limits[4:6] == 0).all()
    assert np.isfinite(limits[6][np.abs(b[5]).astype(np.float64) < 0.9]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("sizes", [(24, 40, 32, 16), (67, 31, 70, 13), (1, 8, 8, 8)], ids=str)
def test_layers(sizes: tuple[int, int, int, int], cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes = layers(sizes)
    unit = cuda_unit(source, *shapes, options=ROUGH)
    assert not unit.done.is_fallback and copies_of(unit) == ["d_h.narrow", "a.narrow"]
    (program,) = emulated([unit])
    check(program, *drawn(unit), options=ROUGH)


@pytest.mark.one_in(3)  # each chip, and each text
@pytest.mark.slow
@pytest.mark.parametrize("chip", ["h100", "h200"])
@pytest.mark.parametrize("text", ["no biases", "biases"])
def test_layers_store_an_adjoint_once_in_bfloat16(
    text: str, chip: str, cuda_unit: MakeUnit
) -> None:
    forward = LAYERS if text == "biases" else LAYERS.replace("+ b1(n)", "").replace("+ b2(o)", "")
    source, shapes = layers((4096, 1024, 4096, 1024), forward)
    unit = cuda_unit(source, *shapes, options=ROUGH, gpu=load_chip(chip))
    types = {name: arrays_of(unit)[name].dtype for name in in_memory(unit)}
    assert types["d_h.narrow"] == types["a.narrow"] == BFLOAT16
    wide = {name for name, dtype in types.items() if dtype == FLOAT32 and "part" not in name}
    # Where h is positive is stored, and a bias' derivative is begun in the product's kernel.
    assert wide == set(), "all are in registers"
    products = [k for k in unit.done.plan.kernels if k.template == "tile_mma"]
    assert len(products) == 5 and "tc_wgmma_f32" not in unit.source.functions
    # A warp stores whole lines of the copy.
    assert re.search(r"tc_vstore\(&u0_d_h_narrow\[.*, tc_vload<8>\(tc_row<", unit.source.text)
    first = unit.done.plan.tried[0]
    assert first.rewrite == "factors as bfloat16 first" and "us become" in first.result


@pytest.mark.slow
def test_an_estimate_decides(cuda_unit: MakeUnit) -> None:
    assert copies_of(cuda_unit(FLOATS, (2048, 2048), (2048, 2048), options=ROUGH))
    assert not copies_of(cuda_unit(FLOATS, (2048, 2048), (2048, 2048)))
    small = cuda_unit(FLOATS, (72, 72), (72, 72), options=ROUGH)
    assert not copies_of(small) and "us would become" in small.done.plan.tried[0].result


def test_float16_stays(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(PRODUCT.format("float", "half"), (2048, 2048), (2048, 2048), options=ROUGH)
    assert not copies_of(unit) and "tc_wgmma_f32" in unit.source.functions


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_rows_may_be_open() -> None:
    f = tcdsl.define(MIXED).f
    options = Options(precision="bfloat16", dynamic_sizes=("M",))
    rng = np.random.default_rng(0)
    b = rng.normal(size=(64, 48)).astype(BFLOAT16.numpy)
    for rows in (40, 17, 65):
        a = rng.normal(size=(rows, 64)).astype(np.float32)
        exe = f.compile(a, b, target="emulate", options=options)
        assert exe.opened == ("M",) and "A.narrow" in str(exe.choices)
        check(f, a, b, targets="emulate", options=options)


@pytest.mark.slow
def test_choices_are_followed() -> None:
    source, shapes = layers((4096, 1024, 4096, 1024))
    g = tcdsl.define(source)["mlp_vjp"]
    specs = [tcdsl.spec(shape, "bfloat16") for shape in shapes]
    exe = g.compile(*specs, target="emulate", options=ROUGH)
    again = g.compile(*specs, target="emulate", options=ROUGH, choices=exe.choices)
    assert again.choices == exe.choices and "d_h.narrow" in str(exe.choices)
    assert "factors as bfloat16 first" in exe.explain()


def test_a_cpu_takes_the_option_and_leaves_products_as_they_are() -> None:
    f = tcdsl.define(FLOATS).f
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 64), (64, 5)))
    check(f, a, b, targets=("cpu", "reference"), options=ROUGH)
    assert np.array_equal(f(a, b, target="cpu", options=ROUGH), f(a, b, target="cpu"))


@pytest.mark.slow
def test_compensated_sums_stay(cuda_unit: MakeUnit) -> None:
    options = replace(ROUGH, summation="compensated")
    assert not copies_of(cuda_unit(FLOATS, (2048, 2048), (2048, 2048), options=options))


SHARED = """def f(float(M, K) D, bfloat16(N, K) A, bfloat16(M, J) B, float(K, L) E) -> (X, Y, Z) {
    X(m, n) +=! D(m, k) * A(n, k)
    Y(k, j) +=! D(m, k) * B(m, j)
    Z(k) max=! E(k, l)
}"""


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    scop = lower(SHARED, (128, 65), (128, 65), (128, 128), (65, 3))
    assert narrowed_together(scop) == [("S0", "S1")]
    golden("narrowing", print_scop(narrowed(scop, ("S0", "S1"))))


def test_products_that_share_factors_of_factors_are_narrowed_together(lower: Lower) -> None:
    scop = lower("""def f(float(N, N) A, float(N, N) B, float(N, N) C, float(N, N) D)
            -> (X, Y, Z, W) {
        X(i, j) +=! A(i, k) * B(k, j)
        Y(i, j) +=! C(i, k) * D(k, j)
        Z(i, j) +=! B(k, i) * C(k, j)
        W(i, j) +=! X(i, k) * Y(k, j)
    }""", *[(64, 64)] * 4)  # fmt: skip
    assert narrowed_together(scop) == [("S0", "S1", "S2"), ("S3",)]


NO_PRODUCT = "it is no product of an element of float32 and one of float32 or bfloat16"
REFUSED = {
    FLOATS.replace("+=!", "max=!"): "it is no sum of float32",
    FLOATS.replace("+=!", "+=! double(1) *"): "it is no sum of float32",
    FLOATS.replace("* B(k, n)", "- B(k, n)"): NO_PRODUCT,
    FLOATS.replace("B(k, n) }", "exp(B(k, n)) }"): NO_PRODUCT,
    PRODUCT.format("float", "half"): NO_PRODUCT,
    PRODUCT.format("bfloat16", "bfloat16"): NO_PRODUCT,
    FLOATS.replace("A(m, k)", "bfloat16(A(m, k))"): NO_PRODUCT,
    FLOATS.replace("A(m, k) *", "(A(m, k) > 0.1 ? A(m, k) : 0.0) *"): (
        "a condition reads its factors"
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", REFUSED)
def test_why_not(source: str, lower: Lower) -> None:
    scop = lower(source, (64, 64), (64, 64))
    product = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert (why_not_narrowed(scop, product) or "") == REFUSED[source]


def test_few_uses_are_refused(lower: Lower) -> None:
    scop = lower(FLOATS, (8, 64), (64, 64))
    product = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_narrowed(scop, product) == "its operands' elements are used a few times"


def test_gathered_factors_are_refused(lower: Lower) -> None:
    scop = lower("def f(float(L, K) A, int32(M) at, float(K, N) B) -> (C) "
                 "{ C(m, n) +=! A(at(m), k) * B(k, n) }", (64, 64), (64,), (64, 64))  # fmt: skip
    assert why_not_narrowed(scop, scop.by_name["S0"]) == "a subscript of A is gathered"


def test_a_number_has_no_copy(lower: Lower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.rewrites.scop.repacking.LEAST_USES", 1)
    scop = lower("def f(float(M, N) A, float x) -> (s) { s +=! A(m, n) * x }", (64, 64), ())
    assert why_not_narrowed(scop, scop.by_name["S0"]) == "x is one number"


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_a_part_of_known_rows_may_end_at_an_open_size() -> None:
    f = tcdsl.define("""def f(float(L, 40) A, bfloat16(40, N) B, float(K) length) -> (C) {
        C(m, n) +=! A(m, k) * B(k, n) where k in 0:min(K, 40)
    }""").f  # fmt: skip
    options = Options(precision="bfloat16", dynamic_sizes=("K",))
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((24, 40), (40, 16)))
    b = b.astype(BFLOAT16.numpy)
    for terms in (33, 17, 70):
        length = np.zeros(terms, np.float32)
        exe = f.compile(a, b, length, target="emulate", options=options)
        assert exe.opened == ("K",) and "A.narrow" in str(exe.choices)
        check(f, a, b, length, targets="emulate", options=options)


def test_a_factor_that_changes_between_products_has_no_copy(lower: Lower) -> None:
    scop = lower("""def f(float(M, K) A, float(K, N) B) -> (T, C, D) {
        T(m, k) = A(m, k) + 1.0
        C(m, n) +=! T(m, k) * B(k, n)
        T(m, k) = T(m, k) * 2.0
        D(m, n) +=! T(m, k) * B(k, n)
    }""", (64, 64), (64, 64))  # fmt: skip
    names = tuple(s.name for s in scop.statements if s.kind is Kind.UPDATE)
    assert narrowed_together(scop) == [names]
    reason = why_not_narrowed_together(scop, names)
    assert reason is not None and reason.endswith("writes T before its last reader")
