"""The parser's tables, computed once from the grammar and kept in grammar_tables.py.

    grammar/tc.lark  --->  lark.Lark  --->  grammar_tables.py         when the grammar is changed
                                            grammar_tables.py  --->  lark.Lark     in each process

Computing them takes 60 ms, loading them 3.  After a change of the grammar, write them again:

    python -m tcdsl.lang.syntax.parser_tables

They are used only with the grammar and the version of Lark that they were made with; otherwise
:func:`load` returns None, and the tables are computed.  A test says so too.
"""

import hashlib
import io
import re
import tokenize
from functools import cache
from pathlib import Path

from lark import Lark, __version__
from lark.grammar import Rule
from lark.lexer import BasicLexer, ContextualLexer, Scanner, TerminalDef, _create_unless

_COLUMNS = 100
_HEADER = '''\
"""The parser's tables: written by "python -m tcdsl.lang.syntax.parser_tables", not by hand."""

# fmt: off
# ruff: noqa
from typing import Any

LARK_VERSION = "{version}"
GRAMMAR_SHA256 = "{digest}"
TABLES: Any = (
{tables}
)
'''


def digest(grammar: str) -> str:
    """Return the SHA-256 of the *grammar*'s text."""
    return hashlib.sha256(grammar.encode()).hexdigest()


def load(grammar: str, builder: object) -> Lark | None:
    """Return the parser from its tables, or None if they are not those of *grammar*.

    :arg builder: what Lark calls for each rule.
    """
    try:
        from tcdsl.lang.syntax import grammar_tables
    except ModuleNotFoundError:  # they are just being made
        return None
    if __version__ != grammar_tables.LARK_VERSION:
        return None
    if digest(grammar) != grammar_tables.GRAMMAR_SHA256:
        return None
    data, memo = grammar_tables.TABLES
    # What Lark's own stand-alone parsers are loaded by.
    parser: Lark = Lark._load_from_dict(  # type: ignore[no-untyped-call]
        data, memo, transformer=builder, _plugins={"ContextualLexer": _Lexer}
    )
    return parser


class _Scanner(Scanner):
    """Tries the terminals one after another, which is what their alternation means.

    Lark compiles an alternation for each set of terminals that may stand somewhere: a short program
    meets 20 of them, whose compilation took ten times as long as parsing it.
    """

    def _build_mres(self, terminals, max_size):  # type: ignore[no-untyped-def]
        return [_compiled(t.name, t.pattern.to_regexp(), self.g_regex_flags) for t in terminals]


@cache
def _compiled(name: str, regexp: str, flags: int) -> re.Pattern[str]:
    return re.compile(f"(?P<{name}>{regexp})", flags)


class _StateLexer(BasicLexer):
    """What may stand at one state of the parser."""

    def _build_scanner(self):  # type: ignore[no-untyped-def]
        assert not self.user_callbacks, "the builder's methods are called for rules alone"
        how = self.g_regex_flags, self.re, self.use_bytes
        terminals, self.callback = _create_unless(self.terminals, *how)  # type: ignore[no-untyped-call]
        return _Scanner(terminals, *how)  # type: ignore[no-untyped-call]


class _Lexer(ContextualLexer):
    BasicLexer = _StateLexer


def module_text(parser: Lark, grammar: str) -> str:
    """Return the text of grammar_tables.py for *parser*, which was built from *grammar*."""
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"]["transformer"] = None  # an object: given anew by load
    return _HEADER.format(
        version=__version__, digest=digest(grammar), tables=_wrapped(repr((data, memo))[1:-1])
    )


def _wrapped(literal: str) -> str:
    """Return the text of a *literal* in lines of at most 100 columns, broken between tokens."""
    lines, line = [], ""
    for token in tokenize.generate_tokens(io.StringIO(f"({literal})").readline):
        space = " " if line.endswith((",", ":")) else ""
        if len(line) + len(space) + len(token.string) >= _COLUMNS:
            lines.append(line)
            line = space = ""
        line += space + token.string
    return "\n".join([*lines, line.rstrip()])[1:-1]


def write() -> Path:
    """Write grammar_tables.py; return its path."""
    from tcdsl.lang.syntax.parser import build_parser, grammar_text

    path = Path(__file__).with_name("grammar_tables.py")
    path.write_text(module_text(build_parser(), grammar_text()), encoding="utf-8")
    return path


if __name__ == "__main__":
    print(write())
