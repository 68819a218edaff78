"""Expressions as C text: exact literals, defined arithmetic, 64-bit subscripts."""

import math
import re
import struct
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.ast.build import call
from tcdsl.codegen.ast.nodes import Index as At
from tcdsl.codegen.ast.nodes import Name
from tcdsl.codegen.ast.text import text as text_of
from tcdsl.codegen.c.expressions import (
    ExpressionPrinter,
    Scope,
    c_type,
    cast_code,
    combine,
    identity,
    literal,
    suffix,
)
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Size,
    Unary,
)
from tcdsl.lang.types.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
)  # fmt: skip

II, JJ = Index("i"), Index("j")
PRINTER = ExpressionPrinter(
    Scope(
        index=Name,
        size=lambda name: Name(name.lower()),
        element=lambda load, at: At(Name(load.tensor), at[0] if at else Name("")),
    )
)


def binary(op: str, left: Expr, right: Expr, dtype: object = None) -> Binary:
    return Binary(op, left, right, dtype or left.dtype)  # type: ignore[arg-type]


def load(name: str, *subscripts: Expr) -> Load:
    return Load(name, subscripts, FLOAT32)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_types_and_suffixes(dtype: object) -> None:
    assert c_type(dtype) and suffix(dtype)  # type: ignore[arg-type]
    assert len({suffix(t) for t in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1, FLOAT32, "1.0f"), (1, FLOAT64, "1.0"), (-1.0, FLOAT32, "(-0x1.0000000000000p+0f)"),
        (math.inf, FLOAT32, "TC_INF_F32"), (-math.inf, FLOAT64, "(-TC_INF_F64)"),
        (math.nan, FLOAT32, 'TC_NAN_F32'), (7, INT32, "7"), (-7, INT32, "(-7)"),
        (True, BOOL, "1"), (False, BOOL, "0"), (200, UINT8, "((uint8_t)200u)"),
        (-(2**63), INT64, "(-9223372036854775807ll - 1)"),
        (2**64 - 1, UINT64, "((uint64_t)18446744073709551615ull)"),
    ],
)  # fmt: skip
def test_literals(value: float, dtype: object, text: str) -> None:
    assert text_of(literal(value, dtype)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.1, 1e-45, 3.4028234663852886e38, 1 / 3, 123456789.0, 1e6])
def test_float_literals_are_exact(value: float) -> None:
    rounded = struct.unpack("f", struct.pack("f", value))[0]
    text = text_of(literal(rounded, FLOAT32)).strip("()").removesuffix("f")
    assert (float.fromhex(text) if text.startswith("0x") else float(text)) == rounded


def test_the_sign_of_zero_is_kept() -> None:
    assert text_of(literal(-0.0, FLOAT32)) == "(-0x0.0p+0f)"
    assert text_of(literal(0.0, FLOAT32)) == "0.0f"


@pytest.mark.parametrize(
    ("operator", "dtype", "text"),
    [
        (Operator.ADD, FLOAT32, "0.0f"), (Operator.MUL, INT32, "1"), (Operator.AND, BOOL, "1"),
        (Operator.OR, BOOL, "0"), (Operator.MIN, FLOAT32, "TC_INF_F32"),
        (Operator.MAX, FLOAT64, "(-TC_INF_F64)"), (Operator.MAX, INT8, "(-128)"),
        (Operator.MIN, INT8, "127"), (Operator.MIN, UINT8, "((uint8_t)255u)"),
        (Operator.MAX, UINT32, "((uint32_t)0u)"), (Operator.MAX, BOOL, "0"),
        (Operator.MIN, BOOL, "1"), (Operator.ARGMAX, FLOAT32, "(-TC_INF_F32)"),
    ],
)  # fmt: skip
def test_identities(operator: Operator, dtype: object, text: str) -> None:
    assert text_of(identity(operator, dtype)) == text  # type: ignore[arg-type]


def test_reductions_combine_by_defined_arithmetic() -> None:
    a, b = Name("a"), Name("b")
    assert text_of(combine(Operator.ADD, FLOAT32, a, b)) == "(a + b)"
    assert text_of(combine(Operator.ADD, INT32, a, b)) == "tc_add_i32(a, b)"
    assert text_of(combine(Operator.MAX, FLOAT32, a, b)) == "tc_max_f32(a, b)"
    assert text_of(combine(Operator.AND, BOOL, a, b)) == "(a & b)"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (binary("+", II, JJ), "tc_add_i32(((int32_t)i), ((int32_t)j))"),
        (binary("/", II, JJ), "tc_div_i32(((int32_t)i), ((int32_t)j))"),
        (binary("+", load("x", II), load("y")), "(x[i] + y[])"),
        (binary("%", load("x", II), load("y")), "tc_mod_f32(x[i], y[])"),
        (binary("<", II, JJ, BOOL), "(((int32_t)i) < ((int32_t)j))"),
        (Unary("-", load("x", II), FLOAT32), "(-x[i])"),
        (Unary("-", II, INT32), "tc_neg_i32(((int32_t)i))"),
        (Cast(load("x", II), INT8), "tc_cast_f32_i8(x[i])"),
        (Call("exp", (load("x", II),), FLOAT32), "tc_exp_f32(x[i])"),
        (Size("N"), "((int32_t)n)"),
        (Select(binary("<", II, JJ, BOOL), load("x", II), load("x", JJ), FLOAT32),
         "((((int32_t)i) < ((int32_t)j)) ? x[i] : x[j])"),
    ],
)  # fmt: skip
def test_values(expr: Expr, text: str) -> None:
    assert text_of(PRINTER.value(expr)) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (binary("+", binary("*", II, Const(2, INT32)), JJ), "((i * 2) + j)"),
        (binary("-", II, Const(-1, INT32)), "(i - (-1))"),
        (binary("/", II, Const(2, INT32)), "tc_div_i64(i, 2)"),
        (binary("%", II, Size("N")), "tc_mod_i64(i, n)"),
        (Cast(II, INT64), "i"),
        (Load("p", (II,), INT32), "((int64_t)p[i])"),
        (Cast(Load("p", (II,), INT64), INT8), "((int64_t)tc_cast_i64_i8(p[i]))"),
        (Call("min", (II, JJ), INT32), "tc_min_i64(i, j)"),
    ],
)  # fmt: skip
def test_subscripts_are_exact_64_bit_integers(expr: Expr, text: str) -> None:
    assert text_of(PRINTER.subscript(expr)) == text


def test_a_deep_expression_needs_no_stack() -> None:
    expr: Expr = load("x", II)
    for _ in range(20_000):
        expr = Binary("+", expr, load("x", II), FLOAT32)
    assert text_of(PRINTER.value(expr)).count("x[i]") == 20_001


def test_casts_to_the_same_type_vanish() -> None:
    assert cast_code(Name("a"), FLOAT32, FLOAT32) == Name("a")
    assert cast_code(Name("a"), FLOAT16, FLOAT32) == call("tc_cast_f16_f32", "a")


# --- powers ----------------------------------------------------------------------------------
POWERS = {
    "2.0": "pow_2", "2": "pow_2", "3": "pow_3", "4.0": "pow_4", "-1.0": "pow_m1", "-2": "",
    "-0.5": "pow_m1_2", "0.5": "pow_1_2", "1.5": "pow_3_2", "2.5": "", "x(i)": "",
    "int32(x(i))": "",
}  # fmt: skip


@pytest.mark.slow_but("float")
@pytest.mark.parametrize("dtype", ["float", "double", "bfloat16"])
def test_powers_that_take_few_operations(
    dtype: str, compiled: Any, check_all: Any, check_emulated: Any
) -> None:
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, 1, 2.25, 1e-30, 3e30, -2.5, 7])
    x = x.astype({"float": "f4", "double": "f8", "bfloat16": BFLOAT16.numpy}[dtype])
    programs = []
    for exponent, name in POWERS.items():
        source = f"def f({dtype}(N) x) -> (y) {{ y(i) = pow(x(i), {exponent}) }}"
        text = compiled(source, (12,)).source.text
        assert set(re.findall(r"tc_(pow\w*)_f\d\d", text)) == {name or "pow"}
        programs.append((source, [x]))
    check_all(programs)
    check_emulated(programs)
