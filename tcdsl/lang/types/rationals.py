"""Decimal fractions as exact numbers: what a float literal says, before it has a type.

0.1    --->   Exact(1/10), which is 0.1 where a float is asked for
"""

from fractions import Fraction
from typing import Any

_MAX_DIGITS = 1000  # of a literal; of a longer one the nearest float64 stands for it
_MAX_EXPONENT = 2000  # beyond it a number that is no infinity is 0 in every type


class Exact(float):
    """A float that knows the rational number it is nearest to."""

    __slots__ = ("rational",)
    rational: Fraction

    def __new__(cls, value: Fraction) -> "Exact":
        try:
            self = super().__new__(cls, float(value))
        except OverflowError:
            self = super().__new__(cls, "inf" if value > 0 else "-inf")
        self.rational = value
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:  # copies and pickles keep what is exact
        return (self.rational,)


def rational(value: bool | int | float) -> Fraction | None:
    """Return *value* as a rational number, None for infinities and NaN."""
    if isinstance(value, Exact):
        return value.rational
    try:
        return Fraction(value)
    except (OverflowError, ValueError):
        return None


def from_decimal(digits: str) -> Exact:
    """Return the number that *digits* denote, as in ``12.5e-3``; it fits a float64."""
    exponent = digits.lower().partition("e")[2]
    if len(digits) > _MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > _MAX_EXPONENT:
        return Exact(Fraction(float(digits)))
    return Exact(Fraction(digits))


def to_decimal(value: float) -> str:
    """Return digits that :func:`from_decimal` reads as the finite *value*, few if possible."""
    exact = rational(value)
    if exact is None or not isinstance(value, Exact) or Fraction(repr(float(value))) == exact:
        return repr(float(value))
    places = 0
    while exact.denominator != 1:
        if places == _MAX_EXPONENT:
            return repr(float(value))  # no decimal fraction: a folded constant
        exact, places = exact * 10, places + 1
    return f"{exact.numerator}e-{places}"
