"""Index values that become int32: what a call requires of them.

    y(i) = int32(i * i)     at N = 50000: the value 2499950001 is no int32, a ShapeError

What the program converts, ``int32(...)``, must fit wherever it is evaluated.  So must an index
value that is stored in an int32, or meets one, if an index or a size in it does not fit itself;
where only the arithmetic leaves 32 bits, it wraps.  Only what is certain is an error: the value is
computed by every instance, and some instance has a value that does not fit.
"""

from collections.abc import Iterator

from tcdsl.errors import INDEX_TOO_LARGE, TCError
from tcdsl.lang.comprehension import (
    Binary,
    Cast,
    Comprehension,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Specialisation,
    Statement,
    children,
    walk,
)
from tcdsl.lang.ranges.preconditions import values_text
from tcdsl.lang.ranges.reads import index_names, size_names_in
from tcdsl.lang.types.dtypes import INT32
from tcdsl.lang.types.index_values import Leaves, index_values_in, leaves_in, part_of
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Narrowing:
    """*expr*, an index value of the statement at *position*, becomes an int32."""

    position: int
    expr: Expr
    is_explicit: bool


def narrowings(c: Comprehension) -> tuple[Narrowing, ...]:
    """Return the index values of *c* that become int32 in every instance."""
    return tuple(
        Narrowing(position, expr, is_explicit)
        for position, statement in enumerate(c.statements)
        if _runs_everywhere(statement)
        for expr, is_explicit in _narrowed(statement)
    )


def _runs_everywhere(statement: Statement) -> bool:
    """Return whether the instances of *statement* are all points of its ranges."""
    bounds = (bound for b in statement.explicit for bound in (b.lower, b.upper))
    return not (statement.conditions or statement.data_ranges or index_names(*bounds))


def _narrowed(statement: Statement) -> Iterator[tuple[Expr, bool]]:
    """Yield what is converted, and whether the program says so."""
    found = frozenset[int]().union(
        *(index_values_in(expr) for expr in (statement.value, *statement.subscripts))
    )
    pending = [statement.value, *(s for s in statement.subscripts if id(s) not in found)]
    while pending:
        node = pending.pop()
        if id(node) in found:
            yield node, False
            continue
        match node:
            case Cast(operand=operand) if id(operand) in found:
                if node.dtype == INT32:
                    yield operand, True
            case Select(condition=first) | Binary(op="&&" | "||", left=first):
                pending.append(first)
            case Load() | Binary(op="<" | "<=" | ">" | ">=" | "==" | "!="):
                # Subscripts and comparisons are exact.
                pending += [child for child in children(node) if id(child) not in found]
            case _:
                pending += children(node)


def require_fitting(
    c: Comprehension, found: tuple[Narrowing, ...], special: Specialisation
) -> None:
    """Raise INDEX_TOO_LARGE for the first of the narrowings *found* that does not fit."""
    for narrowing in found:
        ranges = special.ranges[narrowing.position]
        if not all(ranges.values()):
            continue  # no instance
        leaves = leaves_in(ranges, special, is_box=True)
        values = part_of(narrowing.expr, leaves).values
        if values.fits or not values.is_attained:
            continue
        if narrowing.is_explicit or not _leaves_fit(narrowing.expr, leaves):
            raise _too_large(
                c, narrowing, values.low if values.low < -(2**31) else values.high, special
            )


def _leaves_fit(expr: Expr, leaves: Leaves) -> bool:
    return all(leaves(node).fits for node in walk(expr) if isinstance(node, Index | Size))


def _too_large(
    c: Comprehension, narrowing: Narrowing, value: int, special: Specialisation
) -> TCError:
    span = narrowing.expr.span
    text = c.source.text[span.start : span.end]
    statement = c.statements[narrowing.position]
    advice = f"write int64({text})"
    if not narrowing.is_explicit:
        advice += f", and declare {statement.target} as int64 if it is stored there"
    names = size_names_in(narrowing.expr) or tuple(special.sizes)
    names = tuple(name for name in names if name != text)
    return INDEX_TOO_LARGE(
        c.source, span, text=text, value=value, where=values_text(names, special.sizes),
        advice=advice,
    )  # fmt: skip
