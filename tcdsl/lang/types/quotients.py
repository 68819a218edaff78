"""Warnings of integer quotients that become floats: ``x(i) * (i / N)`` has lost the fraction.

The quotient of integers is rounded down.  Where the program itself converts it, ``float(i / N)``,
that is meant; where only promotion does, ``float(i) / N`` probably was.
"""

from collections.abc import Iterator

from tcdsl.lang.comprehension import Binary, Call, Cast, Expr, Select, Statement, Unary, walk
from tcdsl.lang.ranges.reads import expressions
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.source import Source


def floored_quotients(statement: Statement, source: Source) -> Iterator[str]:
    """Yield a warning for each integer quotient in *statement* that promotion makes a float."""
    seen: set[tuple[int, int]] = set()
    for expr in expressions(statement):
        for node in walk(expr):
            if not isinstance(node, Cast) or not node.dtype.is_float:
                continue
            # A conversion that is written stands around what it converts.
            if node.span != node.operand.span:
                continue
            for quotient in _quotients(node.operand):
                place = quotient.span.start, quotient.span.end
                if place not in seen:
                    seen.add(place)
                    yield _text(quotient, "float" if node.dtype == FLOAT32 else "double", source)


def _quotients(expr: Expr) -> Iterator[Binary]:
    """Yield the integer quotients of which *expr* is a sum, a product or a choice.

    A float becomes a double by promotion too, and its quotients are exact enough.
    """
    pending = [expr]
    while pending:
        node = pending.pop()
        match node:
            case Binary(op="/", dtype=dtype) if dtype.is_integer:
                yield node
            case Binary(op="+" | "-" | "*", left=left, right=right):
                pending += (right, left)
            case Unary(op="-", operand=operand):
                pending.append(operand)
            case Select(if_true=if_true, if_false=if_false):
                pending += (if_false, if_true)
            case Call(args=args):
                pending += reversed(args)


def _text(quotient: Binary, name: str, source: Source) -> str:
    line, column = source.position(quotient.span.start)
    whole, left, right = (
        _without_parentheses(source.text[node.span.start : node.span.end])
        for node in (quotient, quotient.left, quotient.right)
    )
    divisor = right if right.isalnum() else f"({right})"
    return (
        f"{source.name}:{line}:{column}: the quotient '{whole}' of integers is rounded down before "
        f"it becomes a {name}: write {name}({left}) / {divisor} to keep the fraction, or "
        f"{name}({whole}) if rounding down is meant"
    )


def _without_parentheses(text: str) -> str:
    """Return *text* without the parentheses around all of it."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for position, character in enumerate(text):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth == 0 and position < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text
