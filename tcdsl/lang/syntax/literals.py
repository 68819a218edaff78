"""Numbers as text: from a literal to its exact value and type, and back.

    3 -> (3, int32)   3000000000 -> (3000000000, int64)   3u8 -> (3, uint8)
    3.0, 3E5, inf, nan -> WEAK, a type to be found    1.0f64 -> float64    true -> bool

A float keeps the number that its text denotes; semantic analysis rounds it to its type.  No
literal is negative, except that ``-`` and the literal one past a signed type's largest value are
together that type's smallest: ``-128i8``.
"""

import math
import re
from dataclasses import replace

from tcdsl.errors import BAD_NUMBER, BAD_SUFFIX, TCError
from tcdsl.lang.syntax.ast import Number
from tcdsl.lang.syntax.limits import shortened
from tcdsl.lang.types import dtypes
from tcdsl.lang.types.dtypes import DType, Kind
from tcdsl.lang.types.rationals import from_decimal, to_decimal
from tcdsl.source import Source, Span

SUFFIXES: dict[str, DType] = {
    "i8": dtypes.INT8, "i16": dtypes.INT16, "i32": dtypes.INT32, "i64": dtypes.INT64,
    "u8": dtypes.UINT8, "u16": dtypes.UINT16, "u32": dtypes.UINT32, "u64": dtypes.UINT64,
    "f16": dtypes.FLOAT16, "bf16": dtypes.BFLOAT16, "f32": dtypes.FLOAT32, "f64": dtypes.FLOAT64,
    "f8e4m3": dtypes.FLOAT8_E4M3, "f8e5m2": dtypes.FLOAT8_E5M2,
}  # fmt: skip
_SUFFIX_OF = {dtype: suffix for suffix, dtype in SUFFIXES.items()}
_CONSTANTS: dict[str, tuple[bool | float, DType]] = {
    "true": (True, dtypes.BOOL),
    "false": (False, dtypes.BOOL),
    "inf": (math.inf, dtypes.WEAK),
    "nan": (math.nan, dtypes.WEAK),
}
# The least magnitude that rounds to infinity: half a unit in the last place above the largest.
# 464 itself is halfway to 480, which would be an even number and is the NaN of float8_e4m3.
_ROUNDS_TO_INF = {
    dtypes.FLOAT8_E4M3: math.nextafter(464.0, math.inf),
    dtypes.FLOAT8_E5M2: (2 - 2.0**-3) * 2.0**15,
    dtypes.FLOAT16: (2 - 2.0**-11) * 2.0**15,
    dtypes.BFLOAT16: (2 - 2.0**-8) * 2.0**127,
    dtypes.FLOAT32: (2 - 2.0**-24) * 2.0**127,
    dtypes.FLOAT64: math.inf,
    dtypes.WEAK: math.inf,
}
_NUMBER = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z0-9_]*)")
_MAX_DIGITS = 40  # more than any integer type holds; Python refuses to convert 4300 and more


def constant(word: str, span: Span) -> Number:
    """Return the value of ``true``, ``false``, ``inf`` or ``nan``."""
    value, dtype = _CONSTANTS[word]
    return Number(value, dtype, span)


def number(text: str, span: Span) -> Number:
    """Return the value of the literal *text*.

    An integer may come out one past its type's largest value: :func:`negated` makes it the
    smallest, :func:`check` refuses what is left.

    :raises ParseError: the suffix is unknown or does not fit, or the value does not.
    """
    matched = _NUMBER.fullmatch(text)
    assert matched is not None, f"not a literal: {text!r}"
    digits, suffix = matched.groups()
    if suffix and suffix not in SUFFIXES:
        what, meant = f"{suffix!r} is not a suffix", _meant(digits, suffix)
        hint = f"write {meant}; {BAD_SUFFIX.hint}" if meant else None
        raise BAD_SUFFIX(None, span, text=shortened(text), what=what, hint=hint)
    dtype = SUFFIXES.get(suffix)
    if not digits.isdigit() or (dtype is not None and dtype.is_float):
        return _float(text, digits, dtype or dtypes.WEAK, span)
    return _integer(text, digits, dtype, span)


def _meant(digits: str, suffix: str) -> str | None:
    """Return how a number of C or Python is written: ``1.0f``, ``0x1F``, ``1_000``."""
    if suffix in _MEANT:
        return digits + _MEANT[suffix]
    if digits == "0" and re.fullmatch("[xX][0-9a-fA-F]{1,16}", suffix):
        return str(int(suffix[1:], 16))
    return digits + suffix.replace("_", "") if re.fullmatch("(_[0-9]+)+", suffix) else None


# The suffixes of C.
_MEANT = {"f": "f32", "F": "f32", "d": "f64", "l": "i64", "L": "i64", "LL": "i64", "u": "u32",
          "U": "u32", "UL": "u64", "ul": "u64", "h": "f16"}  # fmt: skip


def _float(text: str, digits: str, dtype: DType, span: Span) -> Number:
    """Return the float that *digits* denote, of *dtype*."""
    if not dtype.is_float:
        what = f"a number with a fraction or an exponent cannot be {dtype}"
        raise BAD_SUFFIX(None, span, text=shortened(text), what=what)
    value = float(digits)
    if math.isinf(value) or value >= _ROUNDS_TO_INF[dtype]:
        wider = "" if math.isinf(value) else f"give it a wider type, {digits}f64, or "
        advice = f"{wider}write inf if infinity is meant"
        known = dtypes.FLOAT64 if dtype == dtypes.WEAK else dtype
        raise BAD_NUMBER(None, span, text=shortened(text), dtype=known, advice=advice)
    return Number(from_decimal(digits), dtype, span)


def _integer(text: str, digits: str, dtype: DType | None, span: Span) -> Number:
    """Return the integer that *digits* denote; its type without suffix is int32, else int64."""
    digits = digits.lstrip("0") or "0"
    value = int(digits[:_MAX_DIGITS])  # exact, or far too large in any case
    if dtype is None:
        dtype = dtypes.INT32 if value <= largest(dtypes.INT32) else dtypes.INT64
    if value > largest(dtype) + (dtype.kind is Kind.SIGNED):
        raise _does_not_fit(text, dtype, value, span)
    return Number(value, dtype, span)


def _does_not_fit(
    text: str, dtype: DType, value: int, span: Span, source: Source | None = None
) -> TCError:
    """Return the error for an integer *value* outside *dtype*."""
    advice = "write it as a float, such as 1e30"
    for wider in (*(other for other in dtypes.ALL if other.kind is dtype.kind), dtypes.UINT64):
        if value <= largest(wider):
            advice = f"give it a wider type: {value}{_SUFFIX_OF[wider]}"
            break
    return BAD_NUMBER(source, span, text=shortened(text), dtype=dtype, advice=advice)


def largest(dtype: DType) -> int:
    """Return the largest value of an integer type."""
    return int(2 ** (8 * dtype.size_bytes - (dtype.kind is Kind.SIGNED)) - 1)


def negated(literal: Number, span: Span) -> Number | None:
    """Return ``-literal`` if that is the smallest value of its type, or None otherwise."""
    if literal.dtype.kind is not Kind.SIGNED or literal.value != largest(literal.dtype) + 1:
        return None
    return replace(literal, value=-literal.value, span=span)


def check(literal: Number, text: str, source: Source | None = None) -> None:
    """Raise BAD_NUMBER for an integer one past its type's largest, left without its ``-``."""
    if literal.dtype.is_integer and literal.value > largest(literal.dtype):
        value = int(literal.value)
        raise _does_not_fit(text, literal.dtype, value, literal.span, source)


def text_of(value: bool | int | float, dtype: DType) -> str:
    """Return the shortest literal that reads as *value* of *dtype* (a cast around inf and nan).

    A negative value has its ``-`` in front.
    """
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_text(value, dtype)
    implied = dtypes.INT32 if abs(value) <= largest(dtypes.INT32) else dtypes.INT64
    return f"{value}" if dtype == implied else f"{value}{_SUFFIX_OF[dtype]}"


def _float_text(value: float, dtype: DType) -> str:
    """Return the literal of a float, without a suffix if its type is to be found."""
    if math.isfinite(value):
        return f"{to_decimal(value)}{_SUFFIX_OF.get(dtype, '')}"
    text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return text if dtype == dtypes.WEAK else f"{dtype}({text})"
