"""Integers as multiples of indices and a constant: ``2*i - k + 3``  --->  ``{i: 2, k: -1}, 3``.

:mod:`tcdsl.lang.ranges.linear` has the same with functions of open sizes for the constant.
"""

from collections.abc import Mapping
from functools import reduce

from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Index, Size, Unary, fold
from tcdsl.lang.ranges.affine import is_exact_cast
from tcdsl.lang.types.dtypes import INT32

Linear = tuple[dict[str, int], int]  # coefficients of the indices, none 0, and the constant
Sizes = Mapping[str, int | None]


def linear(expr: Expr, sizes: Sizes | None = None) -> Linear | None:
    """Return the integer *expr* as coefficients and a constant, None if it is not linear.

    :arg sizes: if given, those that are known are numbers, and exact conversions change nothing.
    """

    def combined(node: Expr, operands: tuple[Linear | None, ...]) -> Linear | None:
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands) or not node.dtype.is_integer:
            return None
        match node:
            case Const(value=value):
                return {}, int(value)
            case Index(name=name):
                return {name: 1}, 0
            case Size(name=name):
                size = None if sizes is None else sizes.get(name)
                return None if size is None else ({}, size)
            case Cast(operand=operand, dtype=dtype) if sizes is not None:
                return known[0] if is_exact_cast(operand.dtype, dtype) else None
            case Unary(op="-"):
                return _sum(({}, 0), known[0], -1)
            case Binary(op="+" | "-" as op):
                return _sum(known[0], known[1], 1 if op == "+" else -1)
            case Binary(op="*"):
                one, other = known if not known[1][0] else known[::-1]
                return None if other[0] else _sum(({}, 0), one, other[1])
            case _:
                return None

    return fold(expr, combined)


def _sum(one: Linear, other: Linear, times: int) -> Linear:
    """Return ``one + times * other``."""
    coefficients = dict(one[0])
    for name, value in other[0].items():
        coefficients[name] = coefficients.get(name, 0) + times * value
    return {n: v for n, v in coefficients.items() if v}, one[1] + times * other[1]


def of_linear(coefficients: Mapping[str, int], constant: int) -> Expr:
    """Return the sum of multiples of indices and *constant*."""
    terms: list[Expr] = [
        Index(i) if n == 1 else Binary("*", Const(n, INT32), Index(i), INT32)
        for i, n in coefficients.items()
    ]
    if constant or not terms:
        terms.append(Const(constant, INT32))
    return reduce(lambda one, other: Binary("+", one, other, INT32), terms)


def index_and_distance(expr: Expr, sizes: Sizes) -> tuple[str, int] | None:
    """Return (i, c) if *expr* is ``i + c``, None otherwise."""
    found = linear(expr, sizes)
    if found is None or list(found[0].values()) != [1]:
        return None
    return next(iter(found[0])), found[1]


def number_of(expr: Expr, sizes: Sizes) -> int | None:
    """Return the number that *expr* is, None if it is none that is known."""
    found = linear(expr, sizes)
    return None if found is None or found[0] else found[1]
