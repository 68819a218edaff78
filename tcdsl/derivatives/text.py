"""Lines as text: a ``where`` clause for each range that inference would not find by itself.

An index needs no clause if it is the plain subscript of a dimension that has just its range, and of
no other: then inference gives it that range (docs/semantics.md, section 4).  In a statement that
runs on part of its box only, every index gets its clause.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tcdsl.derivatives.lines import Box, Line, Range, is_same_range
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    IndexBounds,
    Load,
    Select,
    Unary,
    children,
    fold,
)
from tcdsl.lang.ranges.reads import guarded_loads
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.lang.rewrite import with_operands
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.printer import INDENT, print_statement, untyped
from tcdsl.lang.types.dtypes import FLOAT64, WEAK

_WIDTH = 100

Boxes = Mapping[str, Box | None]  # of the tensors of the text, where inference is sure to find it


def line_text(line: Line, boxes: Boxes) -> str:
    """Return *line* as a statement."""
    clauses: list[ast.Clause] = []
    dependent = {bounds.index for bounds in line.instances.dependent}
    for index, run in line.instances.ranges.items():
        if run is not None and index not in dependent and not _is_inferred(line, index, run, boxes):
            lower, upper = run
            clauses.append(ast.InRange(index, _syntax(to_expr(lower)), _syntax(to_expr(upper))))
    clauses += [_clause(b) for b in (*line.instances.dependent, *line.instances.data_ranges)]
    clauses += [ast.Exists(_syntax(condition)) for condition in line.instances.conditions]
    clauses += [ast.Exists(_syntax(bound)) for bound in line.instances.bounds
                if not _is_read(line, bound)]  # fmt: skip
    subscripts = tuple(map(_syntax, line.subscripts))
    return print_statement(
        ast.Assign(line.target, subscripts, line.op, _syntax(line.value), tuple(clauses))
    )


def _clause(bounds: IndexBounds) -> ast.InRange:
    return ast.InRange(bounds.index, _syntax(bounds.lower), _syntax(bounds.upper))


def _is_read(line: Line, load: Expr) -> bool:
    """Return whether the value of *line* has the read *load*, unguarded."""
    return any(not read.guards and read.load == load for read in guarded_loads(line.value, ()))


def _is_inferred(line: Line, index: str, run: Range, boxes: Boxes) -> bool:
    """Return whether the reads of *line* give *index* its range."""
    if line.instances.dependent or line.instances.conditions:
        return False
    found = False
    for node in line.nodes():
        if not isinstance(node, Load):
            continue
        box = boxes.get(node.tensor)
        for position, subscript in enumerate(node.subscripts):
            if isinstance(subscript, Index) and subscript.name == index:
                dim = None if box is None or node.tensor == line.target else box[position]
                if dim is None or not is_same_range(dim, run):
                    return False
                found = True
    return found


def _syntax(expr: Expr) -> ast.Expr:
    """Return the syntax tree of *expr*, without suffixes of literals that need none.

    A float64 beside an operand that is one may be written without: it takes that type.
    """
    syntax, is_float64 = fold(expr, _weakened)
    return syntax if is_float64 else untyped(expr)


def _weakened(expr: Expr, operands: tuple[tuple[ast.Expr, bool], ...]) -> tuple[ast.Expr, bool]:
    """Return the syntax of *expr*, and whether its type is known without suffixes."""
    if isinstance(expr, Const):
        written = untyped(expr)
        if expr.dtype == FLOAT64 and isinstance(written, ast.Number):
            return replace(written, dtype=WEAK), False
        return written, True
    exprs = children(expr)
    known = [is_known for _, is_known in operands]
    floats = [is_known for e, is_known in zip(exprs, known, strict=True) if e.dtype == FLOAT64]
    settled = [
        syntax if is_known or (any(floats) and not isinstance(expr, Cast)) else untyped(operand)
        for operand, (syntax, is_known) in zip(exprs, operands, strict=True)
    ]
    is_weak = expr.dtype == FLOAT64 and floats and not any(floats)
    if is_weak and isinstance(expr, Binary | Unary | Call | Select):
        weak = [syntax for syntax, _ in operands]
        return with_syntax(expr, weak), False
    return with_syntax(expr, settled), True


def with_syntax(expr: Expr, operands: Sequence[ast.Expr]) -> ast.Expr:
    """Return the syntax of *expr* over that of its operands."""
    node = untyped(with_operands(expr, tuple(_leaf(child) for child in children(expr))))
    match node:
        case ast.Apply():
            return replace(node, args=tuple(operands))
        case ast.Unary() | ast.Cast():
            return replace(node, operand=operands[0])
        case ast.Binary():
            return replace(node, left=operands[0], right=operands[1])
        case ast.Select():
            condition, if_true, if_false = operands
            return replace(node, condition=condition, if_true=if_true, if_false=if_false)
        case _:
            return node


def _leaf(expr: Expr) -> Expr:
    """Return something small of the type of *expr*: its own syntax is known already."""
    return Index("i", expr.dtype)


def parameter(name: str, dtype: object, dims: Sequence[object]) -> str:
    """Return ``float32(M, N) name``."""
    return f"{dtype}({', '.join(map(str, dims))}) {name}" if dims else f"{dtype} {name}"


def definition_text(
    name: str, parameters: Iterable[str], results: Iterable[str], body: Iterable[str]
) -> str:
    """Return the text of a def, long lines broken."""
    head = f"def {name}({_whole(parameters)})", f"-> ({_whole(results)}) {{"
    lines = [_broken(head, ""), *(_broken(_halves(line), INDENT) for line in body), "}"]
    return "\n".join(lines).replace(_BLANK, " ") + "\n"


_BLANK = "\0"  # one that no line is broken at


def _whole(parameters: Iterable[str]) -> str:
    return ", ".join(parameter.replace(" ", _BLANK) for parameter in parameters)


def _halves(line: str) -> tuple[str, ...]:
    """Return *line* as a statement and its clauses."""
    statement, where, clauses = line.partition(" where ")
    statement = statement.replace(", ", f",{_BLANK}")
    return (statement, f"where {clauses}") if where else (statement,)


def _broken(parts: tuple[str, ...], indent: str) -> str:
    """Return *parts* on one line, or on several of at most 100 characters."""
    if len(indent) + len(" ".join(parts)) <= _WIDTH:
        return indent + " ".join(parts)
    deeper = indent + 2 * INDENT
    lines: list[str] = []
    for part in parts:
        lines += textwrap.wrap(
            part, _WIDTH, initial_indent=deeper if lines else indent, subsequent_indent=deeper,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)
