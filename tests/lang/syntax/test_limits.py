"""Programs beyond a limit: an error that names it, quickly, and without deep recursion."""

import copy
import time
from collections.abc import Callable

import pytest

from tcdsl.errors import ParseError
from tcdsl.lang.syntax.limits import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_IDENTIFIER,
    MAX_TERMS,
    MAX_WORDS,
    children,
    expressions,
    shortened,
)  # fmt: skip
from tcdsl.lang.syntax.parser import parse_program, parse_statements
from tcdsl.lang.syntax.printer import print_expr
from tcdsl.source import Source

HEAD = "def f(float(N) A) -> (B) { B(i) = "

TOO_MUCH: dict[str, tuple[Callable[[], str], str, int]] = {
    "ten megabytes": (lambda: "x" * 10_000_000, "TC013", MAX_CHARACTERS),
    "ten megabytes of lines": (lambda: "x = 1\n" * 1_700_000, "TC013", MAX_CHARACTERS),
    "20,000 terms": (lambda: HEAD + " + ".join(["A(i)"] * 20_000) + "}", "TC013", MAX_TERMS),
    "20,000 arguments": (lambda: HEAD + f"f({'a,' * 20_000} a) }}", "TC013", MAX_TERMS),
    "many statements": (lambda: HEAD + "y x = " * 100_000, "TC013", MAX_WORDS),
    "many defs": (lambda: "def f() -> () {}" * 20_000, "TC013", MAX_WORDS),
    "1,000 terms": (lambda: HEAD + " - ".join(["a"] * 1_000) + "}", "TC014", MAX_DEPTH),
    "parentheses": (lambda: HEAD + "(" * 10_000 + "a" + ")" * 10_000, "TC014", MAX_DEPTH),
    "open parentheses": (lambda: "(" * 900_000, "TC014", MAX_DEPTH),
    "braces": (lambda: "{" * 10_000, "TC014", MAX_DEPTH),
    "calls": (lambda: HEAD + "f(" * 10_000 + "a" + ")" * 10_000, "TC014", MAX_DEPTH),
    "minus signs": (lambda: HEAD + "-" * 900_000 + "a }", "TC013", MAX_TERMS),
    "some minus signs": (lambda: HEAD + "-" * 1_000 + "a }", "TC014", MAX_DEPTH),
    "selects": (lambda: HEAD + "a ? b : " * 1_000 + "c }", "TC014", MAX_DEPTH),
    "selects inside": (lambda: HEAD + "a ? " * 500 + "c" + ": b" * 500 + "}", "TC014", MAX_DEPTH),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_large_or_too_deep(name: str) -> None:
    text, code, limit = TOO_MUCH[name]
    source_text = text()
    parse_statements(Source("a = 1"))  # the parser is built
    start = time.process_time()
    with pytest.raises(ParseError, match=f"limit {limit}") as caught:
        parse_program(Source(source_text))
    assert len(str(caught.value)) < 1_000
    assert time.process_time() - start < 1
    assert caught.value.code == code


def test_a_clause_and_a_subscript_are_limited_too() -> None:
    deep = " + ".join(["a"] * (MAX_DEPTH + 1))
    texts = ("B({}) = 1", "B = 1 where t = {}", "B = 1 where i in 0:{}", "B = 1 where i in {}:1",
             "B = 1 where exists {}", "B = 1 <=> C({})", "(P, Q) = f({})")  # fmt: skip
    for text in (text.format(deep) for text in texts):
        with pytest.raises(ParseError, match=f"limit {MAX_DEPTH}") as caught:
            parse_statements(Source(text))
        assert caught.value.hint is not None and "several statements" in caught.value.hint


def test_the_deepest_expression_can_be_recursed_over() -> None:
    """What dataclasses do by recursion works at the limit, with much of the stack to spare."""
    text = f"B = {'(' * 64}{' + '.join(['a'] * MAX_DEPTH)}{')' * 64}"
    (first,), (second,) = parse_statements(Source(text)), parse_statements(Source(text))
    assert first == second and hash(first) == hash(second) and repr(first) == repr(second)
    assert copy.deepcopy(first) == second


def test_everything_within_the_limits_parses() -> None:
    wide = f"B = f({', '.join(['a'] * (MAX_TERMS - 2))})"
    (statement,) = parse_statements(Source(wide))
    (value,) = expressions(statement)
    assert len(children(value)) == MAX_TERMS - 2
    assert len(print_expr(value)) > 3 * (MAX_TERMS - 2)
    parse_statements(Source(f"B = {'-' * (MAX_DEPTH - 1)}a"))
    parse_statements(Source("x" * MAX_IDENTIFIER + " = 1"))
    parse_statements(Source("# " + "(" * 10_000 + "é" * 1_000 + "\nB = 1"))


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("B = " + "x" * 257, "has 257 characters", 5),
        ("B = é", "the name 'é' has the character 'é'", 5),
        ("B = naïve + 1", "the name 'naïve' has the character 'ï'", 5),
        ("变量 = 1", "has the character", 1),
    ],
)
def test_bad_identifiers(text: str, message: str, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_statements(Source(text))
    error = caught.value
    assert (error.code, error.line, error.column) == ("TC016", 1, column)
    assert message in error.message and error.hint is not None


@pytest.mark.parametrize("digit", ["\u0663", "x\u00b2", "\uff11"])
def test_only_ascii_digits_count(digit: str) -> None:
    with pytest.raises(ParseError):
        parse_statements(Source(f"B = {digit}"))


def test_shortened() -> None:
    assert shortened("abc") == "'abc'"
    assert shortened("a" * 40 + "b") == f"'{'a' * 22}...{'a' * 6}b'"
