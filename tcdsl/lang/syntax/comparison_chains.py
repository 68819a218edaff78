"""Warnings of comparisons of comparisons: ``a < b < c`` compares the bool ``a < b`` with c.

In Python it compares twice.  Parentheses say that the first result is meant: ``(a < b) < c``.
"""

from collections.abc import Iterator

from tcdsl.lang.comprehension import Binary, Cast, Expr, Statement, walk
from tcdsl.lang.ranges.reads import expressions
from tcdsl.source import Source

_ORDERINGS = frozenset(("<", "<=", ">", ">="))


def chained_comparisons(statement: Statement, source: Source) -> Iterator[str]:
    """Yield a warning for each ``a < b < c`` in *statement*."""
    seen: set[tuple[int, int]] = set()
    for node in (node for expr in expressions(statement) for node in walk(expr)):
        first = _unconverted(node.left) if isinstance(node, Binary) else None
        if not isinstance(first, Binary) or not isinstance(node, Binary):
            continue
        place = node.span.start, node.span.end
        if {node.op, first.op} <= _ORDERINGS and place not in seen:
            seen.add(place)
            if not source.text[first.span.start : first.span.end].startswith("("):
                yield _text(node, first, source)


def _unconverted(expr: Expr) -> Expr:
    """Return *expr* without the conversions that promotion puts around it."""
    while isinstance(expr, Cast):
        expr = expr.operand
    return expr


def _text(node: Binary, first: Binary, source: Source) -> str:
    line, column = source.position(node.span.start)
    whole, left, middle, last = (
        source.text[part.span.start : part.span.end]
        for part in (node, first, first.right, node.right)
    )
    return (
        f"{source.name}:{line}:{column}: '{whole}' compares the bool '{left}' with {last}: write "
        f"{left} && {middle} {node.op} {last} for both comparisons, or ({left}) {node.op} {last} "
        "if that is meant"
    )
