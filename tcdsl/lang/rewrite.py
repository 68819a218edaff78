"""Rewriting typed expressions: every node rebuilt over its rewritten operands."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IndexBounds,
    Let,
    Load,
    Select,
    Size,
    Statement,
    Unary,
    children,
    fold,
)
from tcdsl.lang.types.dtypes import FLOAT32, INT32, DType


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return *expr* with *change* applied to every node, operands first."""
    return fold(expr, lambda node, operands: change(with_operands(node, operands)))


def with_operands(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """Return *expr* over other operands of the same types."""
    if all(new is old for new, old in zip(operands, children(expr), strict=True)):
        return expr
    match expr:
        case Load():
            return replace(expr, subscripts=operands)
        case Call():
            return replace(expr, args=operands)
        case Unary() | Cast():
            return replace(expr, operand=operands[0])
        case Binary():
            return replace(expr, left=operands[0], right=operands[1])
        case Select():
            where, if_true, if_false = operands
            return replace(expr, condition=where, if_true=if_true, if_false=if_false)
        case _:
            return expr


def rewrite_statement(statement: Statement, change: Callable[[Expr], Expr]) -> Statement:
    """Return *statement* with *change* applied to every node of every expression of it."""

    def changed(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(rewrite(expr, change) for expr in exprs)

    return replace(
        statement,
        subscripts=changed(statement.subscripts),
        value=rewrite(statement.value, change),
        conditions=changed(statement.conditions),
        bounds=changed(statement.bounds),
        explicit=rewrite_ranges(statement.explicit, change),
        data_ranges=rewrite_ranges(statement.data_ranges, change),
        lets=tuple(Let(let.name, rewrite(let.value, change)) for let in statement.lets),
    )


def rewrite_ranges(
    ranges: tuple[IndexBounds, ...], change: Callable[[Expr], Expr]
) -> tuple[IndexBounds, ...]:
    """Return *ranges* with *change* applied to every node of their bounds."""
    return tuple(
        IndexBounds(b.index, rewrite(b.lower, change), rewrite(b.upper, change), b.span)
        for b in ranges
    )


def substitute_sizes(statement: Statement, values: Mapping[str, Expr]) -> Statement:
    """Return *statement* with every size symbol of *values* replaced by its expression."""
    if not values:
        return statement
    return rewrite_statement(statement, lambda expr: _with_value(expr, values))


def substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return *expr* with every size symbol of *values* replaced by its expression."""
    return rewrite(expr, lambda node: _with_value(node, values))


def _with_value(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return *expr* with a size's value; ``i + 0``, where what a box begins with is 0, as ``i``."""
    match expr:
        case Size(name=name):
            return values.get(name, expr)
        case Binary(op="+" | "-", left=left, right=Const(value=0)) if not left.dtype.is_float:
            return left
        case _:
            return expr


def stored_as(value: Expr, dtype: DType, op: str) -> Expr:
    """Return *value* such that ``t op value``, the first statement of an undeclared t, makes it
    a *dtype* when it is written as text, with its conversions.

    A sum of halves is computed in float32, and has the type of its operands: those conversions are
    left out.  Of an integer sum in a narrower type than its own there is no such text.
    """
    if value.dtype == dtype:
        return value
    if op.strip("=!") in ("", "min", "max"):  # to round before an extreme is found changes nothing
        return Cast(value, dtype, value.span)
    if dtype.is_narrow_float:
        return rewrite(value, _without_widening)
    is_wider = dtype.is_float and dtype.size_bytes >= value.dtype.size_bytes
    return Cast(value, dtype, value.span) if is_wider else value


def _without_widening(node: Expr) -> Expr:
    match node:
        case Cast(operand=operand, dtype=dtype) if dtype == FLOAT32:
            return operand if operand.dtype.is_narrow_float else node
        case _:
            return node


def plus(left: Expr, right: Expr) -> Expr:
    """Return ``left + right`` of int32 or wider integers, leaving out a zero."""
    if isinstance(right, Const) and right.value == 0:
        return left
    if isinstance(left, Const) and left.value == 0:
        return right
    return Binary("+", left, _as(right, left), left.dtype, left.span)


def minus(left: Expr, right: Expr) -> Expr:
    """Return ``left - right`` of int32 or wider integers, leaving out a zero."""
    if isinstance(right, Const) and right.value == 0:
        return left
    return Binary("-", left, _as(right, left), left.dtype, left.span)


def _as(offset: Expr, like: Expr) -> Expr:
    """Return the int32 *offset* as a value of the type of *like*."""
    return offset if like.dtype == INT32 else Cast(offset, like.dtype, like.span)
