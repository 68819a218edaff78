"""Factors that are no elements: computed first, in a type that holds them, and where not."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.lang.comprehension import Cast, Const, Load
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    DType,
)
from tcdsl.options import Options
from tcdsl.plan.rewrites import OF_FACTORS
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.computed_factors import _holds, computed_first, why_not_computed_first
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import subscripts, values

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

# What is declared, the sum, and the types of what is computed first.
FORMS = {
    "relu": ("bfloat16(M,K) x, bfloat16(K,N) w", "fmax(x(m,k), 0.0) * w(k,n)", ["bfloat16"]),
    "sign": ("half(M,K) x, half(K,N) w", "x(m,k) * (-fabs(w(k,n)))", ["float16"]),
    "mask": (
        "uint8(M,K) s, half(M,K) x, half(K,N) w",
        "(s(m,k) > 100 ? x(m,k) : 0.0) * w(k,n)",
        ["float16"],
    ),
    "causal": ("half(M,K) x, half(K,N) w", "(k <= m ? x(m,k) : 0.0) * w(k,n)", ["float16"]),
    "int8": ("bfloat16(M,K) x, int8(K,N) w", "x(m,k) * bfloat16(w(k,n))", ["bfloat16"]),
    "float8": ("float8_e4m3(M,K) x, half(K,N) w", "x(m,k) * w(k,n)", ["float16"]),
    "two integers": (
        "int8(M,K) x, uint8(K,N) w", "float(x(m,k)) * float(w(k,n))", ["bfloat16", "bfloat16"],
    ),
    "scaled": (
        "bfloat16(M,K) x, float(K) s, bfloat16(K,N) w", "x(m,k) * s(k) * w(k,n)",
        ["float32", "float32"],
    ),
    "both": ("half(M,K) x, half(K,N) w", "fmax(x(m,k), 0.0) * fmin(w(k,n), 1.0)", ["float16"] * 2),
    "square": ("float(M,K) x, float(K,N) w", "(x(m,k) * x(m,k)) * w(k,n)", ["float32"]),
    "threshold": (
        "half(M,K) x, half(K,N) w", "fmax(x(m,k), 0.1) * w(k,n)", ["float32", "float32"],
    ),
    "int16": ("half(M,K) x, int16(K,N) w", "x(m,k) * float(w(k,n))", ["float32", "float32"]),
    "gathered": ("half(V,K) x, int32(M) i, half(K,N) w", "x(i(m),k) * w(k,n)", ["float16"]),
    "strided": (
        "half(M,L) x, half(K,N) w", "fabs(x(m,3*k+2)) * w(k,n)", ["float16"],
    ),
    "convolution": (
        "half(H,K) x, half(R,K,N) w", "relu(x(m+r,k)) * w(r,k,n)", ["float16"],
    ),
    "padded": (
        "half(M,K) x, half(R,K,N) w",
        "(m+r-1 >= 0 && m+r-1 < M ? x(m+r-1,k) * 0.1 : 0.0) * w(r,k,n)", ["float32", "float32"],
    ),
    "relu of int8": ("int8(M,K) x, int8(K,N) w", "relu(x(m,k)) * w(k,n)", ["int8"]),
    "limits of int8": (
        "int8(M,K) x, uint8(K,N) w", "min(max(x(m,k), -100), 7) * min(w(k,n), 9)",
        ["int8", "uint8"],
    ),
    "causal of float64": (
        "double(M,K) x, double(K,N) w", "(k <= m ? x(m,k) : 0.0) * w(k,n)", ["float64"],
    ),
    "gathered int8": ("int8(V,K) x, int32(M) i, int8(K,N) w", "x(i(m),k) * w(k,n)", ["int8"]),
    "padded int8": (
        "int8(M,K) x, int8(R,K,N) w", "(m+r >= 1 && m+r <= M ? x(m+r-1,k) : 0) * w(r,k,n)",
        ["int8"],
    ),
    "padded, dilated float64": (
        "double(M,K) x, double(R,K,N) w",
        "(m+2*r >= 2 && M >= m+2*r-1 ? x(m+2*r-2,k) : 0.0) * w(r,k,n)", ["float64"],
    ),
    "padded float8": (
        "float8_e4m3(M,K) x, float8_e4m3(R,K,N) w",
        "(3*m+r >= 1 && 3*m+r-1 < M ? float(x(3*m+r-1,k)) : 0.0) * w(r,k,n)", ["bfloat16"] * 2,
    ),
    "batches": (
        "half(B,M,K) x, half(B,K,N) w, float(B) s", "x(b,m,k) * fmax(w(b,k,n), 0.0)", ["float16"],
    ),
}  # fmt: skip
EXTENTS = {"M": 129, "K": 72, "N": 101, "V": 40, "B": 3, "R": 3}


def source_of(form: str) -> str:
    declared, terms, _ = FORMS[form]
    left = "b,m,n" if form == "batches" else "m,n"
    where = " where m in 0:M" if form.startswith("padded") else ""
    return f"def f({declared}) -> (y) {{ y({left}) +=! {terms}{where} }}"


def inputs_of(c: Any, shapes: list[tuple[int, ...]], rows: int = 0) -> list[Any]:
    """Return arrays of *shapes*; those that gather are among *rows*."""
    found = []
    for number, (name, shape) in enumerate(zip(c.inputs, shapes, strict=True)):
        tensor = c.tensors[name]
        if name == "i":
            found.append(subscripts(rows, shape, tensor.dtype, number))
        else:
            found.append(values(tensor.dtype, shape, "real", number))
    return found


def product_of(scop: Scop) -> Statement:
    return next(s for s in scop.statements if s.kind is Kind.UPDATE)


# Conversions that change values which the type of the other factor does not hold.
CONVERTED = {
    "int16 saturates": ("half(M,K) x, half(K,N) w", "float(int16(x(m,k))) * w(k,n)"),
    "int32 saturates": ("half(M,K) x, half(K,N) w", "float(int32(x(m,k))) * w(k,n)"),
    "uint16 wraps": ("int8(M,K) x, half(K,N) w", "float(uint16(x(m,k))) * w(k,n)"),
    "bfloat16 rounds up": ("half(M,K) x, half(K,N) w", "float(bfloat16(x(m,k))) * w(k,n)"),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rewrite be applied wherever it is legal, and products be on tensor cores."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    monkeypatch.setattr("tcdsl.rewrites.scop.computed_factors.LEAST_USES", 1)
    own = tuple(one for one in OF_FACTORS if one.apply is computed_first)
    monkeypatch.setattr("tcdsl.plan.search.OF_FACTORS", own)
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", ())


@pytest.mark.slow_but("gathered")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("always")
def test_products(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units, inputs = [], []
    for extents in (EXTENTS, {**EXTENTS, "M": 1, "K": 7}, {**EXTENTS, "K": 0}):
        c = cuda_unit(source_of(form), *_shapes(form, extents)).comprehension
        own = inputs_of(c, _shapes(form, extents), extents["V"])
        units.append(cuda_unit(source_of(form), *(array.shape for array in own)))
        assert not units[-1].done.is_fallback
        inputs.append(own)
    arrays = units[0].done.plan.scop.arrays
    types = [a.dtype.name for n, a in arrays.items() if re.search(r"\.factor\dS0$", n)]
    assert types == FORMS[form][2]
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


@pytest.mark.parametrize("form", CONVERTED)
@pytest.mark.usefixtures("always")
def test_converted_values_are_held(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    declared, terms = CONVERTED[form]
    unit = cuda_unit(f"def f({declared}) -> (y) {{ y(m,n) +=! {terms} }}", (40, 72), (72, 24))
    own = inputs_of(unit.comprehension, [(40, 72), (72, 24)])
    if form != "uint16 wraps":
        own[0][:4, 5] = [65504, 50000, -60000, float("inf")]
    (program,) = emulated([unit])
    check(program, *own)


SQUARE = """def f(half(N,K) x, float(N) s) -> (y) {
    y(n) +=! fabs(x(n,k)) * fabs(x(n,k)) * s(n) where j in 0:9
}"""


def test_squares_have_one_factor(cuda_unit: MakeUnit, monkeypatch: Any) -> None:
    """One of the two was left, and computed once more under the same name."""
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    monkeypatch.setattr("tcdsl.rewrites.scop.computed_factors.LEAST_USES", 1)
    unit = cuda_unit(SQUARE, (72, 40), (72,))
    assert not unit.done.is_fallback
    scop = unit.done.plan.scop
    assert [name for name in scop.arrays if ".factor" in name] == ["x.factor0S0"]


def _shapes(form: str, extents: dict[str, int]) -> list[tuple[int, ...]]:
    declared = re.findall(r"\w+\(([\w,]+)\) \w+", FORMS[form][0])
    known = {**extents, "L": 3 * extents["K"], "H": extents["M"] + extents["R"] - 1}
    return [tuple(known[dim] for dim in dims.split(",")) for dims in declared]


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    scop = lower(source_of("scaled"), (256, 128), (128,), (128, 256))
    golden("computed_factors", print_scop(computed_first(scop, "S0")))


LARGE = {"M": 2048, "K": 1024, "N": 1024, "V": 50_000, "B": 8, "R": 3}


@pytest.mark.slow_but("causal", "int8", "gathered")
@pytest.mark.parametrize("form", ["relu", "causal", "int8", "gathered", "mask"])
def test_large_ones_are_computed_first(
    form: str, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.costmodel.tensor_tiles.HELD_MARGIN", 1e-3)  # none in registers
    unit = cuda_unit(source_of(form), *_shapes(form, LARGE))
    assert "tc_wgmma" in unit.source.functions
    assert any(".factor" in name for name in unit.done.plan.scop.arrays)


def test_with_bfloat16_for_float32_they_are_rounded(cuda_unit: MakeUnit) -> None:
    options = Options(precision="bfloat16")
    unit = cuda_unit(source_of("scaled"), *_shapes("scaled", LARGE), options=options)
    assert "tc_wgmma" in unit.source.functions and "tc_wgmma_f32" not in unit.source.functions


REFUSED = {
    "x(m,k) * w(k,n)": "its factors are elements as they are multiplied",
    "x(m,k) * w(k,n) * x(m,n)": "its factors are used a few times",
    "x(m,k) + fabs(w(k,n))": "it is no sum of products of a type that tensor cores add",
    "(k < 9 && m+k < 99 ? x(m+k,1) : 0.0) * w(k,n) where m in 0:100, k in 0:56": (
        "an index of a factor is in a window, and elsewhere"
    ),
    "(m+k < 99 ? x(m+k,1) : 0.0) * w(k,n) where m in 0:100, k in 0:56": (
        "its factors are windows, or 0"
    ),
    "fabs(x(m,k)) * w(k,n) where k in 0:m+1": "its instances are no box of a known size",
}


@pytest.mark.parametrize("terms", REFUSED)
def test_what_is_refused(terms: str, lower: Lower) -> None:
    source = f"def f(half(M,K) x, half(K,N) w) -> (y) {{ y(m,n) +=! {terms} }}"
    scop = lower(source, (256, 256), (256, 256))
    assert why_not_computed_first(scop, product_of(scop)) == REFUSED[terms]


@pytest.mark.parametrize(
    ("factor", "is_computed"),
    [
        ("relu(x(m,k))", True), ("min(x(m,k), -128)", True), ("min(x(m,k), 128)", False),
        ("(-x(m,k))", False), ("abs(x(m,k))", False), ("(x(m,k) + 1)", False),
        ("(m+k >= 1 ? x(m,k) : 0)", True), ("x(m,k)", False),
    ],
)  # fmt: skip
def test_bytes_hold_all_values(factor: str, is_computed: bool, lower: Lower) -> None:
    """Neither the negation nor the absolute value of -128 is an int8."""
    source = f"def f(int8(M,K) x, int8(K,N) w) -> (y) {{ y(m,n) +=! {factor} * w(k,n) }}"
    scop = lower(source, (256, 256), (256, 256))
    assert (why_not_computed_first(scop, product_of(scop)) is None) is is_computed


def test_few_uses_are_refused(lower: Lower) -> None:
    scop = lower(source_of("relu"), (8, 128), (128, 256))
    wanted = "its factors are used a few times"
    scop = lower(source_of("sign"), (8, 128), (128, 256))
    assert why_not_computed_first(scop, product_of(scop)) == wanted


@pytest.mark.parametrize(
    ("value", "dtype", "is_held"),
    [
        (1.5, BFLOAT16, True), (257.0, BFLOAT16, False), (257.0, FLOAT16, True),
        (1e5, FLOAT16, False), (0.1, FLOAT32, False), (float("inf"), FLOAT16, True),
        (float("nan"), FLOAT32, False), (2.0**-15, FLOAT16, False), (0.0, BFLOAT16, True),
    ],
)  # fmt: skip
def test_numbers_of_a_type(value: float, dtype: DType, is_held: bool) -> None:
    assert _holds(Const(value, FLOAT32), dtype) is is_held


@pytest.mark.parametrize(
    ("source", "dtype", "held_by", "is_held"),
    [
        (INT8, INT32, BFLOAT16, True), (UINT8, INT16, FLOAT16, True),
        (INT8, UINT16, FLOAT16, False),
        (FLOAT16, INT32, FLOAT16, False), (FLOAT16, INT8, BFLOAT16, True),
        (FLOAT16, BFLOAT16, FLOAT16, False), (FLOAT8_E4M3, BFLOAT16, FLOAT16, True),
        (INT16, INT8, FLOAT16, True), (INT8, FLOAT16, BFLOAT16, True),
        (INT8, FLOAT16, FLOAT8_E4M3, False),
    ],
)  # fmt: skip
def test_conversions(source: DType, dtype: DType, held_by: DType, is_held: bool) -> None:
    assert _holds(Cast(Load("x", (), source), dtype), held_by) is is_held
