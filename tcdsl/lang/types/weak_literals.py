"""Float literals without a suffix: exact until something gives them a type.

    x(i) * 0.1       x of doubles  --->   Binary("*", x(i), Const(0.1, float64))
    2.0 * 0.1 * h(i)               --->   Binary("*", Const(0.2, float32), h(i)), a half
    i * 0.1                        --->   Binary("*", Cast(i, WEAK), Const(0.1, WEAK), WEAK)

A literal, and an expression whose only floats are literals, has the type WEAK: a float that is
narrower than any other, so that promotion gives the other's type.  What meets no other float
(a result, a comparison) is float32.  Sums, differences, products and quotients of literals are
folded as rational numbers and rounded once, to the type that they get in the end.
"""

import math
import re
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tcdsl.errors import BAD_NUMBER, TCError
from tcdsl.lang.comprehension import Cast, Const, Expr, Unary
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.syntax.limits import shortened
from tcdsl.lang.types.dtypes import FLOAT32, FLOAT64, WEAK, DType, arithmetic
from tcdsl.lang.types.rationals import Exact, rational
from tcdsl.source import Source, Span

_MAX_BITS = 4096  # of a folded constant's numerator and denominator: more takes long


def nearest(value: bool | int | float, dtype: DType) -> float:
    """Return the number of the float type *dtype* that is nearest to *value*."""
    if dtype == FLOAT64:
        return float(value)
    with np.errstate(over="ignore"):  # what is too large is infinite
        return float(np.asarray(_to_odd(value), np.float64).astype(dtype.numpy))


def _to_odd(value: bool | int | float) -> float:
    """Return *value* as a float64 that rounds to any narrower type as *value* itself does.

    Where it lies between two float64, that is the one whose last bit is set: S. Boldo and
    G. Melquiond, "When double rounding is odd", IMACS World Congress, 2005.
    """
    exact = rational(value)
    near = float(value)
    if exact is None or math.isinf(near) or Fraction(near) == exact:
        return near
    if int(np.float64(near).view(np.int64)) & 1:
        return near
    return math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)


def folded(op: str, left: Expr, right: Expr, span: Span) -> Expr | None:
    """Return ``left op right`` as one weak literal, or None if it is none.

    Rational numbers have no infinities and no zero with a sign: such results are left to the
    arithmetic of the type.
    """
    a, b = _literal(left), _literal(right)
    if a is None or b is None or (op in ("/", "%") and b == 0):
        return None
    match op:
        case "+":
            value = a + b
        case "-":
            value = a - b
        case "*":
            value = a * b
        case "/":
            value = a / b
        case "%":
            value = a % b
        case _:
            return None
    may_be_negative_zero = value == 0 and op not in ("+", "-") and (a < 0 or b < 0)
    too_long = max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS
    return None if may_be_negative_zero or too_long else Const(Exact(value), WEAK, span)


def negated(operand: Expr, span: Span) -> Expr | None:
    """Return ``-operand`` as one weak literal, or None if it is none, or would be -0."""
    value = _literal(operand)
    return Const(Exact(-value), WEAK, span) if value else None


def _literal(expr: Expr) -> Fraction | None:
    is_literal = isinstance(expr, Const) and expr.dtype == WEAK
    return rational(expr.value) if is_literal and isinstance(expr, Const) else None


def weakened(expr: Expr) -> Expr:
    """Return the integer *expr* as an operand beside a weak one."""
    if isinstance(expr, Const) and expr.dtype.is_integer:
        return Const(Exact(Fraction(int(expr.value))), WEAK, expr.span)
    return Cast(expr, WEAK, expr.span)


def strengthened(expr: Expr, dtype: DType, source: Source | None) -> Expr:
    """Return the weak *expr* as a value of *dtype*; an integer takes it as it would a float32.

    :raises ParseError: TC015, a finite literal is infinite in its type.
    """
    value = _literal(expr)
    if value is not None and dtype.is_integer:
        return Const(_truncated(value, dtype), dtype, expr.span)
    if value is not None and dtype.is_narrow_float:
        return Const(nearest(Exact(value), dtype), dtype, expr.span)
    computed = arithmetic(dtype) if dtype.is_float else FLOAT32
    return rewrite(expr, lambda node: _typed(node, computed, source))


def strong_forms(expr: Expr) -> tuple[Expr, ...]:
    """Return what *expr* may be where it is used: itself, or if it is weak one of each type."""
    if expr.dtype != WEAK:
        return (expr,)
    forms: list[Expr] = []
    for dtype in (FLOAT32, FLOAT64):
        with suppress(TCError):  # a literal that does not fit: it is not used so
            forms.append(strengthened(expr, dtype, None))
    return tuple(forms)


def _truncated(value: Fraction, dtype: DType) -> int:
    """Return *value* converted to an integer type: towards zero, saturating."""
    info = np.iinfo(dtype.numpy)
    return max(int(info.min), min(int(value), int(info.max)))


def _typed(node: Expr, dtype: DType, source: Source | None) -> Expr:
    if node.dtype != WEAK:
        return node
    match node:
        case Const(value=value):
            return _constant(value, dtype, node.span, source)
        case Cast(operand=operand):
            return as_float(operand, dtype, node.span)
        case _:
            return replace(node, dtype=dtype)


def _constant(value: bool | int | float, dtype: DType, span: Span, source: Source | None) -> Expr:
    """Return the literal *value* of *dtype*; a negative one is written as it was, with a minus."""
    near, rounded = float(value), nearest(value, dtype)
    if math.isinf(rounded) and rational(value) is not None:
        text = f"{near!r}" if source is None else source.text[span.start : span.end]
        raise BAD_NUMBER(
            source, span, text=shortened(text), dtype=dtype,
            advice=f"{_wider(text, dtype)}write inf if infinity is meant",
        )  # fmt: skip
    if near < 0:
        return Unary("-", Const(-rounded, dtype, span), dtype, span)
    return Const(rounded, dtype, span)


def _wider(text: str, dtype: DType) -> str:
    """Return the advice for the literal, or the folded constant, *text*, too large for *dtype*."""
    if dtype == FLOAT64:
        return ""
    is_number = re.fullmatch(r"[0-9.]+([eE][+-]?[0-9]+)?", text) is not None
    return f"give it a wider type, {text}f64, or " if is_number else "compute with doubles, or "


def as_float(expr: Expr, dtype: DType, span: Span) -> Expr:
    """Return *expr*, not weak, as a value of the float type *dtype*; a constant stays one."""
    if isinstance(expr, Const):
        return Const(nearest(expr.value, dtype), dtype, expr.span)
    if expr.dtype == dtype:
        return expr
    return Cast(expr, dtype, span)
