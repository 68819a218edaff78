"""From text to syntax tree, by the grammar of grammar/tc.lark.

    "C(i) = A(i)"   --->   Assign("C", (Name("i"),), "=", Apply("A", (Name("i"),)))

The text is first measured (:mod:`tcdsl.lang.syntax.limits`), then parsed in one pass without
recursion: Lark calls a method of :class:`_Builder` for every rule it reduces, so there is no
parse tree in between.  An error is a ParseError with the offending token's span; none of Lark's
gets out.

The first call makes the parser, from tables that are part of the package
(:mod:`tcdsl.lang.syntax.parser_tables`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tcdsl.errors import EMPTY_PROGRAM, ParseError
from tcdsl.lang.syntax import ast, literals
from tcdsl.lang.syntax.limits import check_text, expressions, walk_to_depth_limit
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.lang.types.head import product_of
from tcdsl.source import Source, Span

if TYPE_CHECKING:
    from lark import Lark, Token

PROGRAM = "program"
STATEMENTS = "statements"


def parse_program(source: Source) -> ast.Program:
    """Return the defs of *source*.

    :raises ParseError: *source* is not in the language, defines nothing, or exceeds a limit.
    """
    definitions = cast(tuple[ast.Def, ...], _parsed(source, PROGRAM))
    if not definitions:
        raise EMPTY_PROGRAM(source, _end_of(source))
    for definition in definitions:
        _check_tree(source, definition.body)
    return ast.Program(definitions, source)


def parse_statements(source: Source) -> tuple[ast.Stmt, ...]:
    """Return the statements of *source*, which has no def around them.

    :raises ParseError: as :func:`parse_program`.
    """
    statements = cast(tuple[ast.Stmt, ...], _parsed(source, STATEMENTS))
    if not statements:
        raise EMPTY_PROGRAM(
            source, _end_of(source), hint="write a statement, such as C(i) = A(i) + B(i)"
        )
    _check_tree(source, statements)
    return statements


@cache
def grammar_text() -> str:
    """Return the text of grammar/tc.lark: of the installed package, else of the checkout."""
    # Not by importlib.resources, whose import takes longer than the parser's.
    package = Path(__file__).parents[2]
    installed = package / "grammar" / "tc.lark"
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    # Only an installation maps the checkout's grammar/ to tcdsl.grammar.
    return (package.parent / "grammar" / "tc.lark").read_text(encoding="utf-8")


@cache
def lark_parser() -> "Lark":
    """Return the LALR(1) parser of the language, made at the first call."""
    from tcdsl.lang.syntax.parser_tables import (
        load,  # imports Lark, which "import tcdsl" shall not pay
    )

    return load(grammar_text(), _Builder()) or build_parser()


def build_parser() -> "Lark":
    """Return the parser, built from the grammar without its tables."""
    from lark import Lark

    return Lark(
        grammar_text(),
        parser="lalr",
        lexer="contextual",
        start=[PROGRAM, STATEMENTS],
        transformer=cast(Any, _Builder()),
        keep_all_tokens=True,  # spans reach from a rule's first token to its last
        maybe_placeholders=False,
    )


def _parsed(source: Source, start: str) -> object:
    """Return what the builder makes of *source*, read as the grammar's rule *start*."""
    check_text(source)
    parser = lark_parser()
    from lark.exceptions import UnexpectedInput

    # A byte order mark is no part of the program; a space in its place keeps every offset.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    try:
        return parser.parse(text, start=start)
    except UnexpectedInput as problem:
        from tcdsl.lang.syntax.parse_errors import diagnosis  # only a wrong program needs it

        raise diagnosis(problem, source, parser, start) from None
    except ParseError as error:  # of a literal: the builder does not know the source
        error.source = source
        raise


def _check_tree(source: Source, statements: Sequence[ast.Stmt]) -> None:
    """Raise a ParseError for an expression that is too deep or a literal that does not fit."""
    for statement in statements:
        for expr in walk_to_depth_limit(source, expressions(statement)):
            if isinstance(expr, ast.Number):
                literals.check(expr, source.text[expr.span.start : expr.span.end], source)


def _end_of(source: Source) -> Span:
    """Return the empty span behind the last character of *source* that is no white space."""
    end = len(source.text.rstrip())
    return Span(end, end)


class _Items(NamedTuple):
    """What stands between parentheses, and the span of all of it."""

    items: tuple[Any, ...]
    span: Span


class _Product(NamedTuple):
    extent: str | int
    span: Span


class _Target(NamedTuple):
    name: "Token"
    subscripts: _Items | None


def _span(first: Any, last: Any = None) -> Span:
    """Return the span from *first* to *last*, each a token or something with a span."""
    begin = _whole_span(first)
    return begin if last is None else Span(begin.start, _whole_span(last).end)


def _whole_span(part: Any) -> Span:
    if isinstance(part, str):
        token = cast("Token", part)
        return Span(token.start_pos or 0, token.end_pos or 0)
    return cast(Span, part.span)


def _nodes(parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return what the builder made among *parts*: everything but the tokens, which are strings."""
    return tuple(part for part in parts if not isinstance(part, str))


class _Builder:
    """The tree's nodes, bottom up: one method a rule of the grammar, given its parts in order.

    Every token is among the parts.  A token is a ``str`` with ``start_pos`` and ``end_pos``.
    """

    # --- programs -------------------------------------------------------------------------

    def program(self, definitions: list[ast.Def]) -> tuple[ast.Def, ...]:
        return tuple(definitions)

    def statements(self, statements: list[ast.Stmt]) -> tuple[ast.Stmt, ...]:
        return tuple(statements)

    def definition(self, parts: list[Any]) -> ast.Def:
        def_, name, _, inputs, _, _, _, outputs, _, _, *body, close = parts
        return ast.Def(name.value, inputs, outputs, tuple(body), _span(def_, close), _span(name))

    def inputs(self, parts: list[Any]) -> tuple[ast.Param, ...]:
        return _nodes(parts)

    outputs = inputs

    def scalar(self, parts: "list[Token]") -> ast.Param:
        dtype, name = parts
        return ast.Param(name.value, BY_NAME[dtype.value], (), _span(dtype, name))

    def tensor(self, parts: list[Any]) -> ast.Param:
        dtype, (dims, spans), name = parts
        return ast.Param(name.value, BY_NAME[dtype.value], dims, _span(dtype, name), spans)

    def size_parameter(self, parts: "list[Token]") -> ast.Param:
        word, name = parts
        return ast.Param(name.value, None, (), _span(word, name), is_size=True)

    def untyped(self, parts: "list[Token]") -> ast.Param:
        (name,) = parts
        return ast.Param(name.value, None, (), _span(name))

    def dims(self, parts: list[Any]) -> tuple[tuple[str | int, ...], tuple[Span, ...]]:
        dims = parts[1:-1:2]  # without parentheses and commas
        extents = (dim.extent if isinstance(dim, _Product) else _dim(dim) for dim in dims)
        return tuple(extents), tuple(_span(dim) for dim in dims)

    def product(self, parts: "list[Token]") -> _Product:
        extent = product_of([_dim(factor) for factor in parts[::2]])
        return _Product(extent, _span(parts[0], parts[-1]))

    # --- statements -----------------------------------------------------------------------

    def assign(self, parts: list[Any]) -> ast.Assign:
        (name, subscripts), op, value, select, clauses = parts
        last = clauses[-1] if clauses else select or value
        return ast.Assign(
            name.value,
            subscripts.items if subscripts else (),
            op,
            value,
            clauses,
            _span(name, last),
            _span(name, subscripts),
            select,
        )

    def invoke(self, parts: list[Any]) -> ast.Invoke:
        *targets, _, _, callee, args = parts
        names = tuple(target.value for target in targets[1::2])
        span = _span(targets[0], args)
        return ast.Invoke(names, callee.value, args.items, span, _span(callee))

    def target(self, parts: list[Any]) -> _Target:
        return _Target(parts[0], parts[1] if len(parts) == 2 else None)

    def assign_op(self, parts: "list[Token]") -> str:
        return str(parts[0].value)

    def size_select(self, parts: list[Any]) -> ast.Apply | None:
        return self.apply(parts[1:]) if parts else None

    def where(self, parts: list[Any]) -> tuple[ast.Clause, ...]:
        return _nodes(parts)

    def let(self, parts: list[Any]) -> ast.Let:
        name, _, value = parts
        return ast.Let(name.value, value, _span(name, value))

    def in_range(self, parts: list[Any]) -> ast.InRange:
        index, _, lower, _, upper = parts
        return ast.InRange(index.value, lower, upper, _span(index, upper), _span(index))

    def exists(self, parts: list[Any]) -> ast.Exists:
        exists, expr = parts
        return ast.Exists(expr, _span(exists, expr))

    # --- expressions ----------------------------------------------------------------------

    def select(self, parts: list[Any]) -> ast.Select:
        condition, _, if_true, _, if_false = parts
        return ast.Select(condition, if_true, if_false, _span(condition, if_false))

    def binary(self, parts: list[Any]) -> ast.Binary:
        left, op, right = parts
        return ast.Binary(op.value, left, right, _span(left, right))

    def unary(self, parts: list[Any]) -> ast.Expr:
        op, operand = parts
        span = _span(op, operand)
        if op == "-" and isinstance(operand, ast.Number):
            smallest = literals.negated(operand, span)
            if smallest is not None:
                return smallest
        return ast.Unary(op.value, operand, span)

    def integer(self, parts: "list[Token]") -> ast.Number:
        (text,) = parts
        return literals.number(text.value, _span(text))

    floating = integer

    def constant(self, parts: "list[Token]") -> ast.Number:
        (word,) = parts
        return literals.constant(word.value, _span(word))

    def name(self, parts: "list[Token]") -> ast.Name:
        (name,) = parts
        return ast.Name(name.value, _span(name))

    def apply(self, parts: list[Any]) -> ast.Apply:
        name, args = parts
        return ast.Apply(name.value, args.items, _span(name, args), _span(name))

    def extremum(self, parts: list[Any]) -> ast.Apply:
        name, _, left, _, right, close = parts
        return ast.Apply(name.value, (left, right), _span(name, close), _span(name))

    def cast(self, parts: list[Any]) -> ast.Cast:
        dtype, _, operand, close = parts
        return ast.Cast(BY_NAME[dtype.value], operand, _span(dtype, close))

    def group(self, parts: list[Any]) -> ast.Expr:
        open_, inner, close = parts
        return replace(cast(ast.Expr, inner), span=_span(open_, close))

    def arguments(self, parts: list[Any]) -> _Items:
        return _Items(_nodes(parts), _span(parts[0], parts[-1]))

    subscripts = arguments


def _dim(token: "Token") -> str | int:
    """Return the extent that *token* names or denotes."""
    if not token[0].isdigit():
        return str(token.value)
    literal = literals.number(token.value, _span(token))
    literals.check(literal, token.value)
    return int(literal.value)
