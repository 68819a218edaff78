"""Syntax errors: where the caret stands, what was expected, and the hint."""

import pytest

from tcdsl.errors import ParseError
from tcdsl.lang.syntax.parse_errors import innermost
from tcdsl.lang.syntax.parser import parse_program, parse_statements
from tcdsl.source import Source

BODY = "def f(float(N) A) -> (B) {{ {} }}"
OFFSET = len("def f(float(N) A) -> (B) { ")


def error_of(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_program(Source(text, "f.tc"))
    return caught.value


# (text, column, part of the message, part of the hint)
HEADERS = [
    ("def f(float(N) A) => (B) { }", 19, "expected '->', found '='", "the returns follow '->'"),
    ("def f(float(N) A) = (B) { }", 19, "expected '->', found '='", "the returns follow '->'"),
    ("def f(float(N) A) (B) { }", 19, "expected '->', found '('", "the returns follow '->'"),
    ("def 2f(float(N) A) -> (B) { }", 5, "expected a name, found '2f'", "begins with a letter"),
    ("def f(float(N, 3.5) A) -> (B) { }", 16, "found '3.5'", "name each dimension"),
    ("def f(float(N, -1) A) -> (B) { }", 16, "found '-'", "name each dimension"),
    ("def f(float(N) A) -> B { }", 22, "expected '(', found 'B'", "stand in parentheses"),
    ("def f(float(N) A) -> (B) B = 1 }", 26, "expected '{', found 'B'", None),
    ("def f(float(N A) -> (B) { }", 15, "expected ',', ')' or '*', found 'A'",
     "the '(' in line 1, column 12 is never closed"),
    ("def f(float(N) A -> (B) { }", 18, "expected ',' or ')', found '->'",
     "the '(' in line 1, column 6 is never closed"),
    ("def f(float(N + 1) A) -> (B) { }", 15, "expected ',', ')' or '*', found '+'",
     "a product of these"),
    ("def f(float(N**2) A) -> (B) { }", 15, "found '*'", "write N * N"),
    ("def f(float(:, :) A) -> (B) { }", 13, "found ':'", "name each dimension"),
    ("def f(A) -> (B) { }", 7, "expected a type or ')', found 'A'", "float(N) A for a tensor"),
    ("def f(float(3.5) A) -> (B) { }", 13, "a name, an integer or ')', found '3.5'",
     "name each dimension"),
    ("def float(float A) -> (B) { }", 5, "expected a name, found 'float'",
     "'float' is a word of the language"),
    ("f(float(N) A) -> (B) { }", 1, "expected 'def'", "begins with 'def'"),
    ("C(i) = A(i)", 1, "expected 'def'", "begins with 'def'"),
    ("def", 4, "expected a name, found the end of the text", None),
    ("def f(float(N) A) -> (B) { } }", 30, "found '}'", "no '{' is open here"),
    ("def f(float(N) A) -> (B) { B(i) = A(i)", 39, "'}', found the end of the text",
     "the '{' in line 1, column 26 is never closed"),
    ("def f(float(N) A) -> (B) { B(i) = A(i) def g() -> () {}", 40, "found 'def'",
     "the '{' in line 1, column 26 is never closed"),
    ("def f(float(N) A) -> (B) { }\0", 29, r"'\x00' has no meaning", "zero byte"),
]  # fmt: skip

STATEMENTS = [
    ("B(i) := A(i)", 6, "expected an assignment such as '=' or '+=!', found ':'", "'=' instead"),
    ("B(i) == A(i)", 6, "expected an assignment", "write '=' to assign"),
    ("B(i) = A(i) ** 2", 14, "expected an expression, found '*'", "use pow"),
    ("B(i) = A(i) // 2", 14, "expected an expression, found '/'", "floors already"),
    ("B[i] = A(i)", 2, "'[' has no meaning", "subscripts stand in parentheses: A(i, j)"),
    ("B(i) = A[i]", 9, "'[' has no meaning", "subscripts stand in parentheses: A(i, j)"),
    ("B(i) = A(i);", 12, "';' has no meaning", "needs no terminator"),
    ("B(i) = A(i", 12, "expected an operator, ',' or ')', found '}'",
     f"the '(' in line 1, column {OFFSET + 9} is never closed"),
    ("B(i = A(i)", 5, "expected an operator, ',' or ')', found '='",
     f"the '(' in line 1, column {OFFSET + 2} is never closed"),
    ("B(i) = (A(i) + 1", 18, "expected an operator or ')', found '}'",
     f"the '(' in line 1, column {OFFSET + 8} is never closed"),
    ("B(i) = A(i))", 12, "an operator, 'where', the next statement or '}', found ')'",
     "no '(' is open here"),
    ("B(i) -= A(i)", 6, "expected an assignment", "there is no '-='"),
    ("B(i) ++", 6, "expected an assignment", "write += 1"),
    ("m argmin= A(i)", 3, "found 'argmin'", "write argmin=!"),
    ("B(i) = A(i) and A(i)", 17, "expected '(' or an assignment", "write && for 'and'"),
    ("B(i) = (A(i) and A(i))", 14, "an operator or ')', found 'and'", "write && for 'and'"),
    ("B(i) = (not A(i))", 13, "found 'A'", "write ! for 'not'"),
    ("B(i) = A(i j)", 12, "expected an operator, ',' or ')', found 'j'", None),
    ("B(i) = min(A(i))", 16, "expected an operator or ',', found ')'", "m min=! A(i)"),
    ("B(i) = max(1, 2, 3)", 16, "expected an operator or ')', found ','", "max(a, max(b, c))"),
    ("B(i) = A(i) where", 19, "expected a name or 'exists', found '}'", "a clause is i in 0:N"),
    ("B(i) = A.shape(0)", 9, "'.' has no meaning", "in the declaration"),
    ("B(i) = A(i) <> 0 ? 1 : 2", 14, "expected an expression, found '>'", "write '!='"),
    ("B(i) = A(i) where i in 0", 26, "expected an operator or ':', found '}'", "in 0:N"),
    ("B(i) = A(i) where i = 0:3", 24, "found ':'", "where i in 0:N"),
    ("B(i) = A(i) where i in 0:N:2", 27, "found ':'", "write 2*i in subscripts"),
    ("B(i) = A(i) = 2 ? 1 : 0", 13, "found '='", "write '==' to compare"),
    ("B(i)", 6, "expected an assignment such as '=' or '+=!', found '}'", None),
    ("B(i) =", 8, "expected an expression, found '}'", None),
    ("B = c ? 1", 11, "expected an operator or ':', found '}'", "either case: c ? a : b"),
    ("B(i) = A(i) > 0 ? A(i)", 24, "expected an operator or ':', found '}'", "c ? a : b"),
    ("B(i) = A(i) A(i)", 18, "expected an assignment", "'A(i)' begins a statement"),
    ("B = sum_i A(i)", 16, "expected an assignment", "an operator is missing"),
    ("B(i) = A(i) where i in 0..N", 26, "'.' has no meaning", "in 0:N"),
    ("float B(i) = A(i)", 1, "expected a statement", "a statement names no type"),
    ("in(i) = 3", 1, "expected a statement or '}', found 'in'", "choose another name"),
    ("B(where) = 3", 3, "found 'where'", "choose another name"),
    ("(P) = f(A)", 1, "expected a statement or '}', found '('", "(P, Q) = f(A)"),
    ("B = x.y", 6, "'.' has no meaning", "a name has no parts"),
    ("B(i) = A(i) \u2212 1", 13, "'\u2212' has no meaning", "write -"),
    ("B(i) =\u00a01", 7, "has no meaning", "plain space"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message", "hint"), HEADERS)
def test_headers(text: str, column: int, message: str, hint: str | None) -> None:
    check(error_of(text), column, message, hint)


@pytest.mark.parametrize(("text", "column", "message", "hint"), STATEMENTS)
def test_statements(text: str, column: int, message: str, hint: str | None) -> None:
    check(error_of(BODY.format(text)), OFFSET + column, message, hint)


def check(error: ParseError, column: int, message: str, hint: str | None) -> None:
    assert message in error.message
    assert (error.line, error.column) == (1, column)
    if hint is None:
        assert error.hint is None
    else:
        assert error.hint is not None and hint in error.hint


def test_the_whole_message() -> None:
    text = "def f(float(N) A) -> (B) {\n\tB(i) = A(i * 2\n}\n"
    assert str(error_of(text)) == (
        "f.tc:3:1: error[TC010]: expected an operator, ',' or ')', found '}'\n"
        "}\n"
        "^\n"
        "hint: the '(' in line 2, column 10 is never closed"
    )


def test_statements_alone_refuse_a_def() -> None:
    with pytest.raises(ParseError, match="expected a statement") as caught:
        parse_statements(Source("def f() -> () {}"))
    assert caught.value.hint == "give the statements alone, without a def around them"


def test_a_long_token_is_shortened() -> None:
    error = error_of(BODY.format("B = 1 " + "9" * 200))
    assert len(error.message) < 200


def test_a_long_line_is_cut() -> None:
    error = error_of(BODY.format("B = " + "a, " * 2000))
    line, carets = str(error).splitlines()[1:3]
    assert len(line) <= 160
    assert line[carets.index("^")] == ","


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("f(a)", 2, (1, True)),
        ("f(a", 2, (1, False)),
        ("{ f(a }", 6, (3, False)),
        ("{ f(a) ", 7, (0, False)),
        ("{ ( # )\n }", 8, (2, False)),
        ("a) b", 3, (None, True)),
        ("f(g {", 4, (1, False)),
    ],
)
def test_innermost(text: str, offset: int, expected: tuple[int | None, bool]) -> None:
    assert innermost(text, offset) == expected
