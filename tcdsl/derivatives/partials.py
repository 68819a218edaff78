"""Reverse mode through one expression.

    g * d(a(i) * sin(b(i)))     --->    a(i): g * sin(b(i)),  b(i): g * a(i) * cos(b(i))

The factor g is carried from the root to every read.  A branch of ``?:`` gives its reads the
factor where it is taken and 0 elsewhere, and what the derivative reads is guarded as the branch
is.  Integers, bools, conditions and subscripts have no derivative.
"""

from collections.abc import Callable, Iterable

from tcdsl.derivatives import terms
from tcdsl.derivatives.builtin_rules import derivative
from tcdsl.lang.comprehension import Binary, Call, Cast, Expr, Load, Select, Unary, walk
from tcdsl.lang.dtypes import arithmetic

Partials = dict[Load, Expr]  # the adjoint of each read that has one, in order of appearance
Undefined = Callable[[Call], Exception]


def partials(
    expr: Expr, factor: Expr, is_active: Callable[[Load], bool], undefined: Undefined
) -> Partials:
    """Return what each active read in *expr* gets of *factor*, the adjoint of *expr*.

    :arg undefined: makes the error for a builtin whose derivative the language cannot express.
    """
    if not (expr.dtype.is_float and _depends(expr, is_active)):
        return {}
    again: Callable[[Expr, Expr], Partials] = lambda e, f: partials(e, f, is_active, undefined)  # noqa: E731
    match expr:
        case Load():
            return {expr: factor}
        case Unary(operand=operand):
            return again(operand, terms.negative(factor))
        case Binary(left=left, right=right):
            return _merged(
                again(operand, by)
                for operand, by in zip((left, right), _binary(expr, factor), strict=True)
                if _depends(operand, is_active)
            )
        case Cast(operand=operand):
            return again(operand, terms.as_type(factor, arithmetic(operand.dtype)))
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            return _chosen(condition, again(if_true, factor), again(if_false, factor))
        case Call(args=args):
            found: list[Partials] = []
            for position, arg in enumerate(args):
                if not (arg.dtype.is_float and _depends(arg, is_active)):
                    continue
                try:
                    slope = derivative(expr, position)
                except KeyError:
                    raise undefined(expr) from None
                if slope is not None:
                    found.append(again(arg, terms.product(factor, slope)))
            return _merged(found)
        case _:
            return {}


def _depends(expr: Expr, is_active: Callable[[Load], bool]) -> bool:
    return any(isinstance(node, Load) and is_active(node) for node in walk(expr))


def _binary(expr: Binary, factor: Expr) -> tuple[Expr, Expr]:
    """Return the adjoints of both operands of *expr*."""
    left, right, dtype = expr.left, expr.right, expr.dtype
    match expr.op:
        case "+":
            return factor, factor
        case "-":
            return factor, terms.negative(factor)
        case "*":
            return terms.product(factor, right), terms.product(factor, left)
        case "/":
            # x / y again, and not y * y, which overflows sooner.
            by = Binary("/", terms.product(factor, expr), right, dtype)
            return Binary("/", factor, right, dtype), terms.negative(by)
        case _:  # %: x - y * floor(x / y)
            whole = Call("floor", (Binary("/", left, right, dtype),), dtype)
            return factor, terms.negative(terms.product(factor, whole))


def _merged(parts: Iterable[Partials]) -> Partials:
    result: Partials = {}
    for part in parts:
        for load, value in part.items():
            result[load] = terms.plus(result[load], value) if load in result else value
    return result


def _chosen(condition: Expr, if_true: Partials, if_false: Partials) -> Partials:
    result: Partials = {}
    for load in (*if_true, *if_false):
        dtype = arithmetic(load.dtype)
        zero = terms.number(0.0, dtype)
        branches = if_true.get(load, zero), if_false.get(load, zero)
        result[load] = Select(condition, *branches, dtype)
    return result
