"""Subscripts that are an index and a constant distance, and numbers."""

from collections.abc import Mapping

from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Index, Size, Unary
from tcdsl.lang.types.dtypes import INT32, INT64


def index_and_distance(expr: Expr, sizes: Mapping[str, int | None]) -> tuple[str, int] | None:
    """Return (i, c) if *expr* is ``i + c``, None otherwise."""
    found = _linear(expr, sizes)
    return None if found is None or not found[0] else found


def number_of(expr: Expr, sizes: Mapping[str, int | None]) -> int | None:
    """Return the number that *expr* is, None if it is none that is known."""
    found = _linear(expr, sizes)
    return None if found is None or found[0] else found[1]


def _linear(expr: Expr, sizes: Mapping[str, int | None]) -> tuple[str, int] | None:
    """Return the index and the number that *expr* is the sum of; an index of "" is none."""
    match expr:
        case Index(name=name):
            return name, 0
        case Const(value=int(value)):
            return "", int(value)
        case Size(name=name):
            known = sizes[name]
            return None if known is None else ("", known)
        case Cast(operand=operand, dtype=dtype) if (
            dtype in (INT32, INT64) and dtype.size_bytes >= operand.dtype.size_bytes >= 4
        ):
            return _linear(operand, sizes)
        case Unary(op="-", operand=operand):
            found = _linear(operand, sizes)
            return None if found is None or found[0] else ("", -found[1])
        case Binary(op="+" | "-" as op, left=left, right=right):
            one, other = _linear(left, sizes), _linear(right, sizes)
            if one is None or other is None or (other[0] and (one[0] or op == "-")):
                return None
            return one[0] or other[0], one[1] + (other[1] if op == "+" else -other[1])
        case _:
            return None
