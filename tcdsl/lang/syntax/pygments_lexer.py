"""The language for Pygments, made from the terminals of grammar/tc.lark.

    terminal of the grammar  --->  (its regular expression, a token type of Pygments)

What a name is called here decides only its colour; what it matches is the grammar's.  Signs that
the grammar writes out, such as ``"->"``, need no line below.  Pygments finds the lexer as ``tc``,
for Markdown's and Sphinx's fences, ``pygmentize`` and IPython.
"""

import re
from collections.abc import Iterator
from typing import Any

from lark.lexer import PatternStr, TerminalDef
from pygments.lexer import RegexLexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    Whitespace,
    _TokenType,
)

from tcdsl.lang.syntax.parser import lark_parser
from tcdsl.lang.types.builtins import BUILTINS

# In the order in which they are tried: "min=" before "min", "and=" before a name.
TOKENS: dict[str, _TokenType] = {
    "SPACE": Whitespace,
    "COMMENT": Comment.Single,
    "REDUCE": Operator,
    "ASSIGN": Operator,
    "TARGETS_OPEN": Punctuation,
    "DEF": Keyword.Declaration,
    "WHERE": Keyword,
    "IN": Operator.Word,
    "EXISTS": Keyword,
    "CONSTANT": Keyword.Constant,
    "DTYPE": Keyword.Type,
    "SIZE": Keyword.Type,
    "EXTREMUM": Name.Builtin,
    "NAME": Name,
    "INT": Number.Integer,
    "FLOAT": Number.Float,
}
_PUNCTUATION = frozenset("(){},:")


def rules() -> list[tuple[str, _TokenType]]:
    """Return (regular expression, token type) of every terminal, in the order to be tried.

    A terminal that :data:`TOKENS` does not name is tried late, as an operator: a text of the
    language never has an error token, whatever has been added to the grammar.
    """
    terminals = {terminal.name: terminal for terminal in lark_parser().terminals}
    named = [(pattern(terminals.pop(name)), token) for name, token in TOKENS.items()]
    # Of signs the longer first: "<=>" before "<=" before "<".
    rest = sorted(terminals.values(), key=lambda found: -len(found.pattern.value))
    return named + [(pattern(terminal), _sign(terminal)) for terminal in rest]


def pattern(terminal: TerminalDef) -> str:
    """Return the regular expression of *terminal*, complete with its flags."""
    text: str = terminal.pattern.to_regexp()
    return text


def _sign(terminal: TerminalDef) -> _TokenType:
    is_plain = isinstance(terminal.pattern, PatternStr)
    is_punctuation = is_plain and terminal.pattern.value in _PUNCTUATION
    return Punctuation if is_punctuation else Operator


class TcLexer(RegexLexer):
    """Tensor comprehensions: ``def mm(float(M,K) A, ...) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }``"""

    name = "Tensor comprehensions"
    url = ""
    aliases = ("tc", "tcdsl")
    filenames = ("*.tc",)
    mimetypes = ("text/x-tensor-comprehensions",)
    flags = re.NOFLAG  # each rule has its own
    tokens = {"root": rules()}  # noqa: RUF012 (so Pygments will have it)

    def get_tokens_unprocessed(
        self, text: str, stack: Any = ("root",)
    ) -> Iterator[tuple[int, _TokenType, str]]:
        """Yield (offset, token type, text); names of defs and of builtins are told apart."""
        before: _TokenType | None = None
        for offset, token, value in super().get_tokens_unprocessed(text, stack):
            if token is Name:
                token = _kind_of_name(value, before, text[offset + len(value) :])
            yield offset, token, value
            if token not in (Whitespace, Comment.Single):
                before = token


def _kind_of_name(name: str, before: _TokenType | None, rest: str) -> _TokenType:
    """Return the token type of *name*, after a token of type *before* and in front of *rest*."""
    if before is Keyword.Declaration:
        return Name.Function
    is_applied = re.match(r"\s*\(", rest) is not None
    return Name.Builtin if is_applied and name in BUILTINS else Name
