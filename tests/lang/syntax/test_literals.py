"""Numbers: exact values, types by suffix and size, and what does not fit."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from tcdsl.errors import ParseError
from tcdsl.lang.syntax.ast import Assign, Expr, Number, Unary
from tcdsl.lang.syntax.literals import SUFFIXES, largest, text_of
from tcdsl.lang.syntax.parser import parse_program, parse_statements
from tcdsl.lang.types import dtypes
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.rationals import rational
from tcdsl.source import Source


def value(text: str) -> Expr:
    (statement,) = parse_statements(Source(f"O = {text}"))
    assert isinstance(statement, Assign)
    return statement.value


@pytest.mark.parametrize(
    ("text", "expected", "dtype"),
    [
        ("0", 0, dtypes.INT32),
        ("007", 7, dtypes.INT32),
        ("2147483647", 2**31 - 1, dtypes.INT32),
        ("2147483648", 2**31, dtypes.INT64),
        ("9223372036854775807", 2**63 - 1, dtypes.INT64),
        ("18446744073709551615u64", 2**64 - 1, dtypes.UINT64),
        ("3i64", 3, dtypes.INT64),
        ("255u8", 255, dtypes.UINT8),
        ("1.0", 1.0, dtypes.WEAK),
        ("1.", 1.0, dtypes.WEAK),
        (".5", 0.5, dtypes.WEAK),
        ("3E5", 3e5, dtypes.WEAK),
        ("3e-5", 3e-5, dtypes.WEAK),
        ("1.0f64", 1.0, dtypes.FLOAT64),
        ("3f16", 3.0, dtypes.FLOAT16),
        ("1e-3bf16", 1e-3, dtypes.BFLOAT16),
        ("0.1", 0.1, dtypes.WEAK),  # not rounded yet
        ("0.1f32", 0.1, dtypes.FLOAT32),
        ("3.4028235677973362e38", 3.4028235677973362e38, dtypes.WEAK),
        ("65519.99f16", 65519.99, dtypes.FLOAT16),
        ("464f8e4m3", 464.0, dtypes.FLOAT8_E4M3),
        ("1.5f8e5m2", 1.5, dtypes.FLOAT8_E5M2),
        ("1e308f64", 1e308, dtypes.FLOAT64),
        ("1e-400", 0.0, dtypes.WEAK),
        ("true", True, dtypes.BOOL),
        ("false", False, dtypes.BOOL),
        ("inf", math.inf, dtypes.WEAK),
    ],
)
def test_literals(text: str, expected: bool | int | float, dtype: DType) -> None:
    assert value(text) == Number(expected, dtype)
    assert isinstance(value(text).value, type(expected))  # type: ignore[union-attr]


def test_nan() -> None:
    number = value("nan")
    assert isinstance(number, Number) and math.isnan(number.value)


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL if t.kind is dtypes.Kind.SIGNED])
def test_the_smallest_integer_can_be_written(dtype: DType) -> None:
    smallest = -largest(dtype) - 1
    assert value(text_of(smallest, dtype)) == Number(smallest, dtype)
    assert value(f"-({text_of(-smallest, dtype)})") == Number(smallest, dtype)


def test_minus_is_otherwise_an_operator() -> None:
    assert value("-5") == Unary("-", Number(5, dtypes.INT32))
    assert value("-0.0") == Unary("-", Number(0.0, dtypes.WEAK))
    assert value("-2147483648") == Unary("-", Number(2**31, dtypes.INT64))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("9223372036854775808", "does not fit int64", "9223372036854775808u64"),
        ("128i8", "'128i8' does not fit int8", "128i16"),
        ("129i8", "'129i8' does not fit int8", "129i16"),
        ("300u8", "does not fit uint8", "300u16"),
        ("18446744073709551616u64", "does not fit uint64", "as a float"),
        ("9" * 5000, "does not fit int64", "as a float"),
        ("0" * 5000 + "1u8" + "0", "is not a suffix", "the suffixes are"),
        ("1e39f32", "'1e39f32' does not fit float32", "1e39f64"),
        ("3.4028235677973366e38f32", "does not fit float32", "f64"),
        ("65520f16", "does not fit float16", "65520f64"),
        ("464.1f8e4m3", "does not fit float8_e4m3", "464.1f64"),
        ("61440f8e5m2", "does not fit float8_e5m2", "61440f64"),
        ("3.4e38bf16", "does not fit bfloat16", "f64"),
        ("1e999", "'1e999' does not fit float64", "write inf"),
        ("1e999f64", "does not fit float64", "write inf"),
        ("1.0f", "'1.0f' is not a number: 'f' is not a suffix", "f16 bf16 f32 f64"),
        ("2i", "'i' is not a suffix", "i8 i16 i32 i64"),
        ("1_000", "'_000' is not a suffix", "write 1000; the suffixes are"),
        ("0x1F", "'x1F' is not a suffix", "write 31; the suffixes are"),
        ("1e", "'e' is not a suffix", "the suffixes are"),
        ("1.5i32", "a number with a fraction or an exponent cannot be int32", "the suffixes are"),
    ],
)
def test_bad_literals(text: str, message: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        value(f"1 + {text}")
    error = caught.value
    assert message in error.message and len(error.message) < 120
    assert error.hint is not None and hint in error.hint
    assert (error.line, error.column) == (1, 9)
    assert str(error).splitlines()[2].strip() == "^" * min(len(text), 160 - 8)


def test_extents_are_literals_too() -> None:
    with pytest.raises(ParseError, match="does not fit int64") as caught:
        parse_program(Source("def f(float(9223372036854775808) A) -> (B) { B = 1 }"))
    assert caught.value.column == 13


@pytest.mark.parametrize("dtype", [*SUFFIXES.values(), dtypes.WEAK])
def test_text_and_value_agree(dtype: DType) -> None:
    samples = [0, 1, largest(dtype)] if dtype.is_integer else [0.0, 0.1, 1e-8, 4e2, 1.0]
    for sample in samples:
        assert value(text_of(sample, dtype)) == Number(sample, dtype)


def test_text_is_short_where_the_type_is_implied() -> None:
    assert text_of(5, dtypes.INT32) == "5"
    assert text_of(5, dtypes.INT64) == "5i64"
    assert text_of(5_000_000_000, dtypes.INT64) == "5000000000"
    assert text_of(5.0, dtypes.WEAK) == "5.0"
    assert text_of(5.0, dtypes.FLOAT32) == "5.0f32"
    assert text_of(5.0, dtypes.FLOAT64) == "5.0f64"
    assert text_of(math.inf, dtypes.WEAK) == "inf"
    assert text_of(-math.inf, dtypes.FLOAT64) == "float64(-inf)"
    assert text_of(True, dtypes.BOOL) == "true"


@pytest.mark.parametrize(
    "text", ["0.1", "1.", ".5", "12.50e-3", "0.30000000000000000000001", "1e-400"]
)
def test_a_literal_without_a_suffix_is_exact(text: str) -> None:
    number = value(text)
    assert isinstance(number, Number)
    assert rational(number.value) == Fraction(Decimal(text))
    again = value(text_of(number.value, number.dtype))
    assert isinstance(again, Number) and rational(again.value) == rational(number.value)


@pytest.mark.parametrize("text", ["0." + "3" * 5000, "1e-99999999", "0e99999999", "0.0e-1"])
def test_long_literals_take_no_time(text: str) -> None:
    number = value(text)
    assert isinstance(number, Number) and number.value == float(text)
