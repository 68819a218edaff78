"""The Pygments lexer covers the grammar, and reads every text of the library without errors."""

import re
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    Whitespace,
)

from tcdsl.lang.syntax.parser import lark_parser
from tcdsl.lang.syntax.pygments_lexer import TOKENS, TcLexer, pattern, rules
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import BY_NAME

ROOT = Path(__file__).parents[3]
LIBRARY = sorted((ROOT / "tcdsl/library/programs").glob("*.tc"))


def kinds(text: str) -> dict[str, object]:
    """Return the token type of each word and sign of *text*."""
    return {value: token for token, value in TcLexer().get_tokens(text) if value.strip()}


def test_every_terminal_of_the_grammar_has_a_rule() -> None:
    terminals = {terminal.name: terminal for terminal in lark_parser().terminals}
    known = [expression for expression, _ in rules()]
    assert sorted(known) == sorted(pattern(terminal) for terminal in terminals.values())
    # Those that match many texts have a colour of their own; the others are signs.
    assert {name for name, t in terminals.items() if re.search(r"\w", t.pattern.value)} <= set(
        TOKENS
    )
    assert set(TOKENS) <= set(terminals)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_library_has_no_error_tokens(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tokens = list(TcLexer(stripnl=False, ensurenl=False).get_tokens(text))
    assert not [value for token, value in tokens if token in Error]
    assert "".join(value for _, value in tokens) == text
    defs = [value for token, value in tokens if token is Name.Function]
    assert defs == re.findall(r"^def\s+(\w+)", text, re.MULTILINE)


def test_the_tokens_are_the_parsers() -> None:
    """Where no word has two meanings, both lexers cut a text at the same places."""
    text = LIBRARY[0].read_text(encoding="utf-8")
    state = lark_parser().parse_interactive(text, "program")
    expected = [(str(token), token.start_pos) for token in state.exhaust_lexer()]
    found = [
        (value, offset)
        for offset, token, value in TcLexer().get_tokens_unprocessed(text)
        if token not in (Whitespace, Comment.Single)
    ]
    assert found == expected


def test_what_a_word_is() -> None:
    found = kinds(
        "def f(float(N) x, int32(N) q) -> (y) { # why\n"
        " y(i) min=! exp(x(i)) + min(inf, 2.5) * 3 <= 1 where i in 0:N, exists q(i) }"
    )
    assert found["def"] is Keyword.Declaration
    assert found["f"] is Name.Function
    assert found["float"] is Keyword.Type
    assert found["x"] is Name
    assert found["# why"] is Comment.Single
    assert found["min=!"] is Operator
    assert found["exp"] is Name.Builtin
    assert found["min"] is Name.Builtin
    assert found["inf"] is Keyword.Constant
    assert found["2.5"] is Number.Float
    assert found["3"] is Number.Integer
    assert found["<="] is Operator
    assert found["where"] is Keyword
    assert found["in"] is Operator.Word
    assert found["->"] is Operator
    assert found["{"] is Punctuation


@pytest.mark.parametrize("name", [*BY_NAME, "information", "exp", "exp2"])
def test_words_within_words_do_not_count(name: str) -> None:
    assert kinds(f"{name}_x")[f"{name}_x"] is Name


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_type_is_one(name: str) -> None:
    assert kinds(f"{name}(N) x")[name] is Keyword.Type


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_every_builtin_is_one_where_it_is_applied(name: str) -> None:
    assert kinds(f"y = {name}(x)")[name] is Name.Builtin


def test_a_tensor_may_have_a_builtins_name() -> None:
    assert kinds("y(i) = exp + 1")["exp"] is Name


def test_characters_without_meaning_are_errors() -> None:
    found = kinds("def f() -> (y) { y = $ }")
    assert found["$"] is Error
    assert found["}"] is Punctuation


def test_pygments_finds_it() -> None:
    """By the entry point of setup.cfg, so that fences ```tc are coloured."""
    assert isinstance(get_lexer_by_name("tc"), TcLexer)
