"""How large a program may be, checked before it is parsed and again on its tree.

A text within these limits parses in about a second at most, and no expression is deeper than
:data:`MAX_DEPTH`, so that a later pass may recurse over it: with four Python frames a level it
stays well below Python's default limit of 1000 frames, a deep caller's own frames included.
"""

import re
from collections.abc import Iterable, Iterator

from tcdsl.errors import BAD_IDENTIFIER, TOO_DEEP, TOO_LARGE
from tcdsl.lang.syntax import ast
from tcdsl.source import Source, Span

MAX_CHARACTERS = 1_000_000
MAX_WORDS = 30_000  # names, numbers and keywords of a program
MAX_TERMS = 5_000  # those, and signs, between one assignment or brace and the next
MAX_DEPTH = 128  # nested parentheses, and levels of an expression's tree
MAX_IDENTIFIER = 256

# Enough of the lexical structure to count by; grammar/tc.lark decides what is well formed.
_PIECE = re.compile(
    r"#[^\r\n]*|(?P<number>[0-9][\w.]*)|(?P<word>\w+)"
    r"|(?P<open>[({])|(?P<close>[)}])|(?P<assign>(?<![<>=!])=(?!=))|(?P<sign>[-!~?])"
)
_DEPTH = {"(": 1, "{": 1, ")": -1, "}": -1, "=": 0}


def check_text(source: Source) -> None:
    """Raise a ParseError if *source* is too large, nests too deeply, or has a bad identifier."""
    if len(source.text) > MAX_CHARACTERS:
        # No span: it would put the line, perhaps all of the text, into the message.
        raise TOO_LARGE(source, what=f"{len(source.text)} characters", limit=MAX_CHARACTERS)
    words = terms = depth = 0
    for piece in _PIECE.finditer(source.text):
        kind = piece.lastgroup
        if kind is None:  # a comment
            continue
        if kind in ("word", "number", "sign"):
            words += kind != "sign"
            terms += 1
            _check_counts(source, piece, words, terms)
            if kind == "word":
                _check_identifier(source, piece)
            continue
        depth = max(0, depth + _DEPTH[piece[0]])
        if depth > MAX_DEPTH:
            raise TOO_DEEP(source, Span(*piece.span()), limit=MAX_DEPTH)
        if piece[0] not in "()":
            terms = 0


def _check_counts(source: Source, last: re.Match[str], words: int, terms: int) -> None:
    """Raise TOO_LARGE if the word or sign *last* is one too many."""
    if terms <= MAX_TERMS and words <= MAX_WORDS:
        return
    span = Span(*last.span())
    if terms > MAX_TERMS:
        raise TOO_LARGE(source, span, what="too many terms in one expression", limit=MAX_TERMS)
    raise TOO_LARGE(source, span, what="too many names and numbers", limit=MAX_WORDS)


def _check_identifier(source: Source, matched: re.Match[str]) -> None:
    """Raise BAD_IDENTIFIER unless the word is ASCII and no longer than an identifier may be."""
    word = matched[0]
    if word.isascii() and len(word) <= MAX_IDENTIFIER:
        return
    if not word.isascii():
        foreign = next(char for char in word if not char.isascii())
        what = f"the name {shortened(word)} has the character {foreign!r}"
        advice = "names are made of the letters a-z and A-Z, digits and _"
    else:
        what = f"the name {shortened(word)} has {len(word)} characters"
        advice = f"a name has at most {MAX_IDENTIFIER} characters"
    raise BAD_IDENTIFIER(source, Span(*matched.span()), what=what, advice=advice)


def shortened(text: str, width: int = 32) -> str:
    """Return *text* quoted, its middle left out where it is longer than *width*."""
    if len(text) <= width:
        return f"'{text}'"
    return f"'{text[: width - 10]}...{text[-7:]}'"


def children(expr: ast.Expr) -> tuple[ast.Expr, ...]:
    """Return the direct operands of *expr*, left to right."""
    match expr:
        case ast.Apply(args=args):
            return args
        case ast.Unary(operand=operand) | ast.Cast(operand=operand):
            return (operand,)
        case ast.Binary(left=left, right=right):
            return (left, right)
        case ast.Select(condition=condition, if_true=if_true, if_false=if_false):
            return (condition, if_true, if_false)
        case _:
            return ()


def expressions(statement: ast.Stmt) -> Iterator[ast.Expr]:
    """Yield the outermost expressions of *statement*, in the order written."""
    if isinstance(statement, ast.Invoke):
        yield from statement.args
        return
    yield from statement.subscripts
    yield statement.value
    if statement.size_select is not None:
        yield statement.size_select
    for clause in statement.clauses:
        match clause:
            case ast.Let(value=value):
                yield value
            case ast.InRange(lower=lower, upper=upper):
                yield lower
                yield upper
            case ast.Exists(expr=expr):
                yield expr


def walk_to_depth_limit(source: Source, roots: Iterable[ast.Expr]) -> Iterator[ast.Expr]:
    """Yield every expression in and below *roots*; raise TOO_DEEP at a level below MAX_DEPTH."""
    stack = [(root, 1) for root in roots]
    while stack:
        expr, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise TOO_DEEP(source, expr.span, limit=MAX_DEPTH)
        yield expr
        stack.extend((child, depth + 1) for child in children(expr))
