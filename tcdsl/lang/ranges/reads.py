"""The reads of a statement, each with the conditions under which it happens.

    i > 0 ? A(i - 1) : B(i)     --->    A(i - 1) if i > 0;  B(i) if not i > 0

``?:``, ``&&`` and ``||`` are lazy, and an instance runs only where the statement's conditions hold;
so a read needs to be in bounds only where all its guards hold.
"""

from collections.abc import Iterator

from tcdsl.lang.comprehension import (
    Binary,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Statement,
    children,
    walk,
)
from tcdsl.records import dataclass
from tcdsl.source import Span


@dataclass(frozen=True, slots=True)
class Guard:
    """A bool expression that holds, or does not, where a read happens."""

    condition: Expr
    holds: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A load under *guards*; *happens* is False in an ``exists`` that only bounds."""

    load: Load
    guards: tuple[Guard, ...]
    happens: bool = True


def reads(statement: Statement) -> Iterator[Read]:
    """Yield every read of *statement*; the read of the target that ``op=`` implies is none."""
    for bounds in (*statement.explicit, *statement.data_ranges):
        yield from guarded_loads(bounds.lower, ())
        yield from guarded_loads(bounds.upper, ())
    guards: tuple[Guard, ...] = ()
    for condition in statement.conditions:
        yield from guarded_loads(condition, guards)
        guards = (*guards, Guard(condition, True))
    for expr in (*statement.subscripts, statement.value):
        yield from guarded_loads(expr, guards)
    for expr in statement.bounds:
        for read in guarded_loads(expr, ()):
            yield Read(read.load, read.guards, happens=False)


def guarded_loads(expr: Expr, guards: tuple[Guard, ...]) -> Iterator[Read]:
    """Yield the loads in *expr*, itself evaluated under *guards*, in order of evaluation."""
    stack = [(expr, guards)]
    while stack:
        node, under = stack.pop()
        match node:
            case Load():
                yield Read(node, under)
                operands = [(s, under) for s in node.subscripts]
            case Select(condition=condition, if_true=if_true, if_false=if_false):
                then, otherwise = Guard(condition, True), Guard(condition, False)
                operands = [
                    (condition, under),
                    (if_true, (*under, then)),
                    (if_false, (*under, otherwise)),
                ]
            case Binary(op="&&" | "||" as op, left=left, right=right):
                operands = [(left, under), (right, (*under, Guard(left, op == "&&")))]
            case _:
                operands = [(child, under) for child in children(node)]
        stack.extend(reversed(operands))


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """Return the outermost expressions of *statement*, the left side first."""
    clauses = (*statement.explicit, *statement.data_ranges)
    ranges = (bound for bounds in clauses for bound in (bounds.lower, bounds.upper))
    return (
        *statement.subscripts,
        statement.value,
        *statement.conditions,
        *statement.bounds,
        *ranges,
    )


def nodes(statement: Statement) -> Iterator[Expr]:
    """Yield every node of every expression of *statement*."""
    for expr in expressions(statement):
        yield from walk(expr)


def size_names_in(*exprs: Expr) -> tuple[str, ...]:
    """Return the size symbols in *exprs*, in order of first appearance."""
    names = (node.name for expr in exprs for node in walk(expr) if isinstance(node, Size))
    return tuple(dict.fromkeys(names))


def first_use(statement: Statement, index: str) -> Span:
    """Return where *index* is written first, or the statement if it is only in a clause."""
    for node in nodes(statement):
        if isinstance(node, Index) and node.name == index:
            return node.span
    return statement.span


def index_names(*exprs: Expr) -> tuple[str, ...]:
    """Return the indices in *exprs*, in order of first appearance."""
    found: dict[str, None] = {}
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Index):
                found[node.name] = None
    return tuple(found)
