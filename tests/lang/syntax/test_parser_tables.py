"""The parser's tables: those of this grammar, and never used for another one."""

from importlib import resources
from typing import Any

import lark
import pytest

from tcdsl.errors import ParseError
from tcdsl.lang.syntax import grammar_tables, parser, parser_tables
from tcdsl.lang.syntax.parser import build_parser, grammar_text, lark_parser, parse_program
from tcdsl.source import Source

PROGRAMS = [
    file.read_text(encoding="utf-8")
    for file in sorted(resources.files("tcdsl.library.programs").iterdir(), key=str)
    if file.name.endswith(".tc")
]
WRONG = [
    "def f(float(N) x) -> (y) { y(i) = x(i * 2 }",
    "def f(float(N) x) -> y { y(i) = x(i) }",
    "def f(x) -> (y) { y(i) = x(i) }",
    "def f(float(N) x) -> (y) { y(i) = x[i] }",
    "def f(float(N) x) -> (y) { y(i) -= x(i) }",
    "def f(float(N) in) -> (y) { y(i) = in(i) }",
    "f(float(N) x) -> (y) { y(i) = x(i) }",
    "",
]


@pytest.fixture(scope="module")
def made() -> tuple[Any, Any]:
    """The parser of the tables, if they fit, and that of the grammar."""
    return parser_tables.load(grammar_text(), parser._Builder()), build_parser()


def outcome(text: str) -> object:
    try:
        return parse_program(Source(text)).defs
    except ParseError as error:
        return str(error)


def test_they_are_up_to_date() -> None:
    hint = "the grammar was changed: run python -m tcdsl.lang.syntax.parser_tables"
    assert parser_tables.digest(grammar_text()) == grammar_tables.GRAMMAR_SHA256, hint


@pytest.mark.skipif(
    lark.__version__ != grammar_tables.LARK_VERSION, reason="made for another version of Lark"
)
def test_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "build_parser", lambda: pytest.fail("it was built"))
    lark_parser.cache_clear()
    assert lark_parser().source_path == "<deserialized>"


@pytest.mark.parametrize("text", PROGRAMS + WRONG)
def test_both_parsers_agree(
    text: str, made: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, built = made
    if loaded is None:
        pytest.skip("made for another version of Lark")
    monkeypatch.setattr(parser, "lark_parser", lambda: loaded)
    found = outcome(text)
    monkeypatch.setattr(parser, "lark_parser", lambda: built)
    assert found == outcome(text)
    assert (text in WRONG) == isinstance(found, str)


def test_another_grammar_or_another_lark_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = parser._Builder()
    assert parser_tables.load(grammar_text() + "\n", builder) is None
    monkeypatch.setattr(parser_tables, "__version__", "0.0")
    assert parser_tables.load(grammar_text(), builder) is None
    lark_parser.cache_clear()
    try:
        assert lark_parser().source_path != "<deserialized>"
        assert outcome(PROGRAMS[0]) == outcome(PROGRAMS[0])
    finally:
        lark_parser.cache_clear()


def test_what_is_written_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = parser_tables.module_text(build_parser(), grammar_text())
    module: dict[str, Any] = {}
    exec(compile(text, "grammar_tables.py", "exec"), module)
    expected = outcome(PROGRAMS[0])
    for name in ("TABLES", "LARK_VERSION", "GRAMMAR_SHA256"):
        monkeypatch.setattr(grammar_tables, name, module[name])
    loaded = parser_tables.load(grammar_text(), parser._Builder())
    assert loaded is not None
    monkeypatch.setattr(parser, "lark_parser", lambda: loaded)
    assert outcome(PROGRAMS[0]) == expected
    # Only what is longer than a line by itself is on a longer one.
    assert all(len(line) <= 100 or line.count("'") >= 2 for line in text.splitlines())
