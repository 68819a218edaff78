"""Remainders by an open size, as comparisons: a remainder by a parameter is no affine function.

    x((i + N - 1) % N)    0 <= i < N     --->     x(i - 1 < 0 ? i - 1 + N : i - 1)
    x((i + 1) % N)                       --->     x(i + 1 >= N ? i + 1 - N : i + 1)

For an index i and a constant c, (i + c) % N is one of i + c + N, i + c and i + c - N iff
-N <= i + c < 2 N.  Which of them occur is known from what i + c may be.
"""

from collections.abc import Mapping

from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Index, Select, Size, Unary
from tcdsl.lang.rewrite import plus
from tcdsl.lang.types.dtypes import BOOL, INT32, INT64, DType
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Around:
    """``(index + distance) % size``, of an open size."""

    index: str
    distance: int
    size: str


def remainder_of(expr: Expr, sizes: Mapping[str, int | None]) -> Around | None:
    """Return what *expr* is if it is the remainder of an index by an open size, as written."""
    match expr:
        case Binary(op="%", left=left, right=right):
            size, found = open_size(right, sizes), linear(left, sizes)
            if size is None or found is None:
                return None
            index, number, multiples = found
            return Around(index, number, size) if index and set(multiples) <= {size} else None
        case _:
            return None


def compared_of(expr: Expr, sizes: Mapping[str, int | None]) -> Around | None:
    """Return what *expr* is if :func:`compared` has made it."""
    match expr:
        case Select(condition=Binary(op="<" | ">=" as op, left=plain, right=end), if_true=moved):
            found, other = linear(plain, sizes), linear(moved, sizes)
            if found is None or other is None or not found[0] or found[2]:
                return None
            size = next(iter(other[2]), "")
            by = 1 if op == "<" else -1
            is_end = end == Const(0, end.dtype) if op == "<" else open_size(end, sizes) == size
            if not is_end or other != (*found[:2], {size: by}):
                return None
            own = Around(found[0], found[1], size)
            rest = expr.if_false
            return own if rest == plain or compared_of(rest, sizes) == own else None
        case _:
            return None


def compared(around: Around, dtype: DType, low: bool, high: bool) -> Expr:
    """Return the value of *around* by comparisons, with types *dtype*.

    :arg low, high: whether ``index + distance`` may be less than 0, and the size or more.
    """
    moved = plus(Index(around.index, dtype), Const(around.distance, INT32))
    size = Size(around.size, dtype)
    value = moved
    if high:
        value = Select(
            Binary(">=", moved, size, BOOL), Binary("-", moved, size, dtype), value, dtype
        )
    if low:
        where = Binary("<", moved, Const(0, dtype), BOOL)
        value = Select(where, Binary("+", moved, size, dtype), value, dtype)
    return value


def open_size(expr: Expr, sizes: Mapping[str, int | None]) -> str | None:
    """Return the open size that *expr* is, None if it is something else."""
    found = linear(expr, sizes)
    if found is None or found[0] or found[1] or list(found[2].values()) != [1]:
        return None
    return next(iter(found[2]))


Linear = tuple[str, int, dict[str, int]]


def linear(expr: Expr, sizes: Mapping[str, int | None]) -> Linear | None:
    """Return the index, the number and the { open size -> multiple } that *expr* is the sum of.

    An index of "" is none.  None: it is something else.
    """
    match expr:
        case Index(name=name):
            return name, 0, {}
        case Const(value=int(value)):
            return "", int(value), {}
        case Size(name=name):
            known = sizes[name]
            return ("", 0, {name: 1}) if known is None else ("", known, {})
        case Cast(operand=operand, dtype=dtype) if (
            dtype in (INT32, INT64) and dtype.size_bytes >= operand.dtype.size_bytes >= 4
        ):
            return linear(operand, sizes)
        case Unary(op="-", operand=operand):
            found = linear(operand, sizes)
            return None if found is None else _sum(("", 0, {}), found, -1)
        case Binary(op="+" | "-" as op, left=left, right=right):
            one, other = linear(left, sizes), linear(right, sizes)
            if one is None or other is None:
                return None
            return _sum(one, other, 1 if op == "+" else -1)
        case _:
            return None


def _sum(one: Linear, other: Linear, sign: int) -> Linear | None:
    """Return ``one + sign * other``, None if that is no index and something."""
    if other[0] and (one[0] or sign < 0):
        return None
    multiples = {
        name: one[2].get(name, 0) + sign * other[2].get(name, 0) for name in {**one[2], **other[2]}
    }
    left = {name: multiple for name, multiple in multiples.items() if multiple}
    return one[0] or other[0], one[1] + sign * other[1], left
