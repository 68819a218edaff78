"""Reverse mode through one expression.

    g * d(a(i) * sin(b(i)))     --->    a(i): g * sin(b(i)),  b(i): g * a(i) * cos(b(i))

The factor g is carried from the root to every read; what occurs several times gets the sum of its
factors first, and is passed once.  A branch of ``?:`` gives its reads the factor where it is taken
and 0 elsewhere, and what the derivative reads is guarded as the branch is.  Integers, bools,
conditions and subscripts have no derivative.
"""

from collections.abc import Callable, Iterator

from tcdsl.derivatives import terms
from tcdsl.derivatives.builtin_rules import derivative
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Expr,
    Load,
    Select,
    Unary,
    children,
    walk,
)
from tcdsl.lang.types.dtypes import arithmetic

Partials = dict[Load, Expr]  # the adjoint of each read that has one, in order of appearance
IsActive = Callable[[Load], bool]
Undefined = Callable[[Call], Exception]


def partials(expr: Expr, factor: Expr, is_active: IsActive, undefined: Undefined) -> Partials:
    """Return what each active read in *expr* gets of *factor*, the adjoint of *expr*.

    :arg undefined: makes the error for a builtin whose derivative the language cannot express.
    """
    adjoints: dict[Expr, Expr] = {expr: factor}
    for node in _uses_first(expr, is_active):
        if node in adjoints:
            for operand, by in _passed_on(node, adjoints[node], is_active, undefined):
                if _depends(operand, is_active):
                    known = adjoints.get(operand)
                    adjoints[operand] = by if known is None else terms.plus(known, by)
    loads = dict.fromkeys(n for n in walk(expr) if isinstance(n, Load) and is_active(n))
    return {load: adjoints[load] for load in loads if load in adjoints}


def _uses_first(expr: Expr, is_active: IsActive) -> list[Expr]:
    """Return the nodes of *expr* that have a derivative, each before its operands.

    The branches of a choice are looked at by themselves, under its condition.
    """
    done: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, operands_are_done = stack.pop()
        if operands_are_done:
            done.setdefault(node)
        elif node not in done and node.dtype.is_float and _depends(node, is_active):
            stack.append((node, True))
            if not isinstance(node, Load | Select):
                stack.extend((child, False) for child in reversed(children(node)))
    return list(done)[::-1]


def _passed_on(
    expr: Expr, factor: Expr, is_active: IsActive, undefined: Undefined
) -> Iterator[tuple[Expr, Expr]]:
    """Yield the operands of *expr*, or the reads in its branches, with what they get."""
    match expr:
        case Unary(operand=operand):
            yield operand, terms.negative(factor)
        case Binary(left=left, right=right, op="*") if left == right:
            twice = terms.product(factor, terms.number(2.0, expr.dtype))
            yield left, terms.product(twice, left)
        case Binary(left=left, right=right):
            yield from zip((left, right), _binary(expr, factor), strict=True)
        case Cast(operand=operand) if operand.dtype.is_float:
            yield operand, terms.as_type(factor, arithmetic(operand.dtype))
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            taken = (partials(e, factor, is_active, undefined) for e in (if_true, if_false))
            yield from _chosen(condition, *taken).items()
        case Call(args=args):
            for position, arg in enumerate(args):
                if arg.dtype.is_float and _depends(arg, is_active):
                    slope = _slope(expr, position, undefined)
                    if slope is not None:
                        yield arg, terms.product(factor, slope)


def _slope(call: Call, position: int, undefined: Undefined) -> Expr | None:
    try:
        return derivative(call, position)
    except KeyError:
        raise undefined(call) from None


def _depends(expr: Expr, is_active: IsActive) -> bool:
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
            return terms.times_operand(factor, right), terms.times_operand(factor, left)
        case "/":
            # x / y again, and not y * y, which overflows sooner.
            by = Binary("/", terms.product(factor, expr), right, dtype)
            return Binary("/", factor, right, dtype), terms.negative(by)
        case _:  # %: x - y * floor(x / y)
            whole = Call("floor", (Binary("/", left, right, dtype),), dtype)
            return factor, terms.negative(terms.product(factor, whole))


def _chosen(condition: Expr, if_true: Partials, if_false: Partials) -> Partials:
    result: Partials = {}
    for load in (*if_true, *if_false):
        dtype = arithmetic(load.dtype)
        zero = terms.number(0.0, dtype)
        branches = if_true.get(load, zero), if_false.get(load, zero)
        result[load] = Select(condition, *branches, dtype)
    return result
