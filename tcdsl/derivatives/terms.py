"""Floating-point expressions built with the obvious simplifications: 1 * x is x, 0 + x is x.

What is dropped is exact: no product with a literal 0 is, unless all of a term is that literal.
"""

from collections.abc import Iterable
from functools import reduce

from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Load, Select, Unary
from tcdsl.lang.types.dtypes import BOOL, DType


def number(value: float, dtype: DType) -> Const:
    """Return the literal *value*."""
    return Const(value, dtype)


def is_number(expr: Expr, value: float) -> bool:
    """Return whether *expr* is the literal *value*."""
    return isinstance(expr, Const) and expr.value == value


def negative(expr: Expr) -> Expr:
    """Return ``-expr``."""
    match expr:
        case Unary(op="-", operand=operand):
            return operand
        case Const(value=value):
            return Const(-value, expr.dtype)
        case Select(condition=condition, if_true=if_true, if_false=if_false) if _is_zero(expr):
            return Select(condition, negative_or_zero(if_true), negative_or_zero(if_false),
                          expr.dtype)  # fmt: skip
        case _:
            return Unary("-", expr, expr.dtype)


def negative_or_zero(expr: Expr) -> Expr:
    """Return ``-expr``, but the literal 0 for it itself."""
    return expr if is_number(expr, 0) else negative(expr)


def _is_zero(expr: Select) -> bool:
    return is_number(expr.if_true, 0) or is_number(expr.if_false, 0)


def product(factor: Expr, by: Expr) -> Expr:
    """Return ``factor * by``, where *by* is a derivative: its choices and quotients go outwards."""
    match by:
        case Const(value=1.0):
            return factor
        case Const(value=-1.0):
            return negative(factor)
        case Unary(op="-", operand=operand):
            return negative(product(factor, operand))
        case Binary(op="/", left=Const(value=1.0), right=right):
            return Binary("/", factor, right, factor.dtype)
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            branches = _scaled(factor, if_true), _scaled(factor, if_false)
            return Select(condition, *branches, factor.dtype)
    if is_number(factor, 1.0):
        return by
    if isinstance(by, Binary) and by.op == "*" and isinstance(by.left, Const):
        first = Binary("*", factor, by.left, factor.dtype)
        return Binary("*", first, by.right, factor.dtype)
    if isinstance(factor, Unary) and factor.op == "-":
        return negative(product(factor.operand, by))
    return Binary("*", factor, by, factor.dtype)


def times_operand(factor: Expr, operand: Expr) -> Expr:
    """Return ``factor * operand``, an operand of the program: a guarded read stays what it is.

    ``factor * (c ? x(i) : 0)`` is not ``c ? factor * x(i) : 0`` where *factor* is infinite, and
    is a product of two operands still, as products on tensor cores take them.
    """
    if _is_guarded_read(operand) and not is_number(factor, 1.0) and not is_number(factor, -1.0):
        return Binary("*", factor, operand, factor.dtype)
    return product(factor, operand)


def _is_guarded_read(expr: Expr) -> bool:
    """Return whether *expr* is ``c ? x(i) : 0``."""
    if not isinstance(expr, Select) or not is_number(expr.if_false, 0):
        return False
    read = expr.if_true
    while isinstance(read, Cast):
        read = read.operand
    return isinstance(read, Load)


def _scaled(factor: Expr, by: Expr) -> Expr:
    return by if is_number(by, 0) else product(factor, by)


def total(terms: Iterable[Expr]) -> Expr:
    """Return the sum of *terms*, at least one."""
    return reduce(plus, terms)


def plus(left: Expr, right: Expr) -> Expr:
    """Return ``left + right``."""
    if is_number(right, 0):
        return left
    if is_number(left, 0):
        return right
    if left == right:
        return product(number(2.0, left.dtype), left)
    if isinstance(right, Unary) and right.op == "-":
        return Binary("-", left, right.operand, left.dtype)
    return Binary("+", left, right, left.dtype)


def conjunction(conditions: Iterable[Expr]) -> Expr:
    """Return ``a && b && ...`` of *conditions*, at least one."""
    return reduce(lambda a, b: Binary("&&", a, b, BOOL), conditions)


def conjuncts(condition: Expr) -> list[Expr]:
    """Return a, b, ... of ``a && b && ...``."""
    if isinstance(condition, Binary) and condition.op == "&&":
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]


def as_type(expr: Expr, dtype: DType) -> Expr:
    """Return *expr* converted to *dtype*."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const) and dtype.is_float:
        return Const(float(expr.value), dtype)
    return Cast(expr, dtype)
