"""Float literals without a suffix: what they meet gives them a type."""

import math
from fractions import Fraction

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from tcdsl.lang.types.rationals import Exact
from tcdsl.lang.types.sema import analyse
from tcdsl.lang.types.weak_literals import nearest
from tcdsl.source import Source

PARAMS = "float(N) f, double(N) d, half(N) h, bfloat16(N) b, int32(N) j, bool(N) p"


def typed(expression: str, declared: str = "y") -> tuple[str, str]:
    """Return the type of ``y(i) = expression`` and the text of its value."""
    from tcdsl.lang.syntax.printer import print_typed_expr

    text = f"def t({PARAMS}) -> ({declared}) {{ y(i) = {expression} where i in 0:N }}"
    (c,) = analyse(parse_program(Source(text)))
    return c.tensors["y"].dtype.name, print_typed_expr(c.statements[0].value)


@pytest.mark.parametrize(
    ("expression", "dtype", "text"),
    [
        ("d(i) * 0.1", "float64", "d(i) * 0.1f64"),
        ("f(i) * 0.1", "float32", "f(i) * 0.1"),
        ("h(i) * 0.1", "float16", "float32(h(i)) * 0.1"),
        ("b(i) + 0.1", "bfloat16", "float32(b(i)) + 0.1"),
        ("h(i) * 1e30", "float16", "float32(h(i)) * 1e+30"),
        ("d(i) * 1e300", "float64", "d(i) * 1e+300f64"),
        # Folded exactly, then typed by what it meets.
        ("2.0 * 0.1 * d(i)", "float64", "0.2f64 * d(i)"),
        ("d(i) / (0.1 + 0.2)", "float64", "d(i) / 0.3f64"),
        ("f(i) * (1 / 3.0)", "float32", "f(i) * 0.33333334"),
        ("-(0.5 - 0.25) * f(i)", "float32", "-0.25 * f(i)"),
        ("f(i) + 7.5 % 2", "float32", "f(i) + 1.5"),
        # Beside integers alone a float32, at the end of the expression.
        ("0.1", "float32", "0.1"),
        ("0.1 + i", "float32", "0.1 + float32(i)"),
        ("j(i) * 0.5", "float32", "float32(j(i)) * 0.5"),
        ("i * 0.1 * d(i)", "float64", "float64(i) * 0.1f64 * d(i)"),
        ("i == j(i) ? 1.0 : 0.0", "float32", "i == j(i) ? 1.0 : 0.0"),
        ("(p(i) ? 0.1 : 0.2) * d(i)", "float64", "(p(i) ? 0.1f64 : 0.2f64) * d(i)"),
        ("p(i) ? d(i) : -inf", "float64", "p(i) ? d(i) : -float64(inf)"),
        ("h(i) > 0.1 ? h(i) : nan", "float16", "float32(h(i)) > 0.1 ? float32(h(i)) : nan"),
        # Functions.
        ("pow(d(i), 0.1)", "float64", "pow(d(i), 0.1f64)"),
        ("pow(f(i), 0.1)", "float32", "pow(f(i), 0.1)"),
        ("fma(f(i), 0.1, d(i))", "float64", "fma(float64(f(i)), 0.1f64, d(i))"),
        ("min(h(i), 0.1)", "float16", "min(float32(h(i)), 0.1)"),
        ("exp(h(i) * 0.1)", "float32", "exp(float32(h(i)) * 0.1)"),
        ("d(i) / sqrt(2.0)", "float64", "d(i) / sqrt(2.0f64)"),
        ("sqrt(2.0)", "float32", "sqrt(2.0)"),
        ("isnan(0.1)", "bool", "isnan(0.1)"),
        # Comparisons, conversions, suffixes.
        ("d(i) > 0.1", "bool", "d(i) > 0.1f64"),
        ("i > 0.5", "bool", "float32(i) > 0.5"),
        ("double(0.1)", "float64", "0.1f64"),
        ("d(i) * 0.1f32", "float64", "d(i) * 0.10000000149011612f64"),
        ("f(i) * 0.1f64", "float64", "float64(f(i)) * 0.1f64"),
        ("int32(0.1 * 10)", "int32", "1"),
        ("int64(1e30)", "int64", "9223372036854775807"),
        ("f(i) * 2", "float32", "f(i) * 2.0"),
        # What rational numbers have not is left to the floats.
        ("-0.0", "float32", "-0.0"),
        ("d(i) + 1.0 / 0.0", "float64", "d(i) + 1.0f64 / 0.0f64"),
        ("0.0 * -1.0", "float32", "0.0 * -1.0"),
    ],
)
def test_types_and_values(expression: str, dtype: str, text: str) -> None:
    assert typed(expression) == (dtype, text)


@pytest.mark.parametrize(
    ("declared", "text"), [("double y", "0.1f64"), ("half y", "0.1"), ("int32 y", "0")]
)
def test_the_declared_type_of_a_result_counts(declared: str, text: str) -> None:
    assert typed("0.1", declared)[1] == text


@pytest.mark.parametrize(
    ("expression", "snippet", "message"),
    [
        ("1e39", "1e39", "'1e39' does not fit float32"),
        ("f(i) * 1e300", "1e300", "'1e300' does not fit float32"),
        ("f(i) + 1e30 * 1e30", "1e30 * 1e30", "'1e30 * 1e30' does not fit float32"),
        ("d(i) + 1e300 * 1e300", "1e300 * 1e300", "does not fit float64"),
    ],
)
def test_what_does_not_fit_its_type(expression: str, snippet: str, message: str) -> None:
    with pytest.raises(tcdsl.ParseError) as caught:
        typed(expression)
    error = caught.value
    assert error.code == "TC015" and message in error.message
    assert error.hint is not None and error.hint.endswith("write inf if infinity is meant")
    assert ("1e39f64" in error.hint) == (snippet == "1e39")
    text = f"def t({PARAMS}) -> (y) {{ y(i) = {expression}"
    assert error.column == text.index(snippet, len(PARAMS) + 20) + 1


def test_long_constants_are_left_to_the_arithmetic_of_their_type() -> None:
    product = " * ".join(["0.123456789012345678901234567890"] * 60)
    assert typed(f"d(i) * ({product})")[0] == "float64"


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, FLOAT64])
def test_nearest_rounds_once(dtype: tcdsl.lang.types.dtypes.DType) -> None:
    # Just above the middle of two neighbours: the nearest float64 is the middle itself.
    step = Fraction(float(np.finfo(dtype.numpy).eps))
    above = 1 + step / 2 + Fraction(1, 10**40)
    assert nearest(Exact(above), dtype) == 1 + step
    assert nearest(Exact(1 + step / 2), dtype) == 1.0  # to even
    assert nearest(Exact(-above), dtype) == -1 - step
    assert math.isinf(nearest(Exact(Fraction(10) ** 400), dtype))
    assert nearest(Exact(Fraction(1, 10)), BFLOAT16) == 0.10009765625


SOURCE = """
def f(double(N) d, half(N) h) -> (a, b, c, e) {
    a(i) = d(i) * 0.1
    b(i) = h(i) * 0.1
    c(i) = d(i) * (i * 0.1) + gain
        where gain = 2.0 * 0.1
    e(i) = exp(d(i) * 0.1) > 1.05 ? d(i) : 0.1
}
"""


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_all_targets_agree(target: str) -> None:
    f = tcdsl.define(SOURCE).f
    d, h = np.arange(5.0), np.arange(5, dtype=np.float16)
    a, b, c, e = f.reference(d, h) if target == "reference" else f(d, h, target=target)
    assert (a == d * 0.1).all()
    assert (
        b.dtype == np.float16
        and (b == (h.astype(np.float32) * np.float32(0.1)).astype(b.dtype)).all()
    )
    assert (c == d * (np.arange(5) * 0.1) + 0.2).all()
    assert (e == np.where(np.exp(d * 0.1) > 1.05, d, 0.1)).all()
