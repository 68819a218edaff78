"""Text to syntax tree: every construct of the grammar, spans, and what TC's lexer got wrong."""

import re
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tcdsl.errors import ParseError, TCError
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.ast import (
    Apply,
    Assign,
    Binary,
    Cast,
    Exists,
    InRange,
    Invoke,
    Let,
    Name,
    Number,
    Param,
    Select,
    Unary,
)
from tcdsl.lang.syntax.parser import grammar_text, lark_parser, parse_program, parse_statements
from tcdsl.lang.types import dtypes
from tcdsl.source import Source, Span

MATMUL = """\
# C = A B
def matmul(float(M, K) A, float(K, N) B) -> (C) {
    C(m, n) +=! A(m, k) * B(k, n)
}
"""
I, J, K = Name("i"), Name("j"), Name("k")  # noqa: E741 (an index)
ONE = Number(1, dtypes.INT32)


def statements(text: str) -> tuple[ast.Stmt, ...]:
    return parse_statements(Source(text))


def assignment(text: str) -> Assign:
    (statement,) = statements(text)
    assert isinstance(statement, Assign)
    return statement


def expr(text: str) -> ast.Expr:
    return assignment(f"O = {text}").value


def element(name: str, *args: ast.Expr) -> Apply:
    return Apply(name, args)


def test_a_def() -> None:
    source = Source(MATMUL)
    assert parse_program(source) == ast.Program(
        (
            ast.Def(
                "matmul",
                (
                    Param("A", dtypes.FLOAT32, ("M", "K")),
                    Param("B", dtypes.FLOAT32, ("K", "N")),
                ),
                (Param("C", None, ()),),
                (
                    Assign(
                        "C",
                        (Name("m"), Name("n")),
                        "+=!",
                        Binary("*", element("A", Name("m"), K), element("B", K, Name("n"))),
                    ),
                ),
            ),
        ),
        source,
    )


def test_several_defs_and_every_kind_of_parameter() -> None:
    text = """def f(float s, int8(3, N) x, bool() b) -> () {}
    def g() -> (A, half(N) B, double c) { A = 1 }"""
    first, second = parse_program(Source(text)).defs
    assert first.params == (
        Param("s", dtypes.FLOAT32, ()),
        Param("x", dtypes.INT8, (3, "N")),
        Param("b", dtypes.BOOL, ()),
    )
    assert (first.returns, first.body) == ((), ())
    assert second.params == ()
    assert second.returns == (
        Param("A", None, ()),
        Param("B", dtypes.FLOAT16, ("N",)),
        Param("c", dtypes.FLOAT64, ()),
    )


@pytest.mark.parametrize("name", sorted(dtypes.BY_NAME))
def test_every_type_is_a_parameter_type_and_a_cast(name: str) -> None:
    (definition,) = parse_program(Source(f"def f({name}(N) A) -> (B) {{ B(i) = {name}(i) }}")).defs
    assert definition.params[0].dtype == dtypes.BY_NAME[name]
    (statement,) = definition.body
    assert isinstance(statement, Assign)
    assert statement.value == Cast(dtypes.BY_NAME[name], I)


OPERATORS = ["=", "+=", "*=", "min=", "max=", "and=", "or=", "+=!", "*=!", "min=!", "max=!",
             "and=!", "or=!", "argmin=!", "argmax=!"]  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("space", ["", " ", "\n"])
def test_every_assignment(op: str, space: str) -> None:
    assert assignment(f"O(i){space}{op}{space}A(i)") == Assign("O", (I,), op, element("A", I))
    if op[0] in "=+*" or space:
        assert assignment(f"o{space}{op}{space}A(i)") == Assign("o", (), op, element("A", I))


@pytest.mark.parametrize("word", ["and", "or", "argmin", "argmax"])
def test_word_operators_are_names_elsewhere(word: str) -> None:
    assert statements(f"O = a {word}=!b {word}(i) = {word}") == (
        Assign("O", (), "=", Name("a")),
        Assign(word, (), "=", Unary("!", Name("b"))),
        Assign(word, (I,), "=", Name(word)),
    )


def test_size_select_and_where() -> None:
    text = """O(i, j) = A(i) <=> B(i, 2) where t = A(i) + 1, i in 0:N, j in i + 1 : 2 * i,
              exists A(i + j)"""
    assert assignment(text) == Assign(
        "O",
        (I, J),
        "=",
        element("A", I),
        (
            Let("t", Binary("+", element("A", I), ONE)),
            InRange("i", Number(0, dtypes.INT32), Name("N")),
            InRange("j", Binary("+", I, ONE), Binary("*", Number(2, dtypes.INT32), I)),
            Exists(element("A", Binary("+", I, J))),
        ),
        size_select=element("B", I, Number(2, dtypes.INT32)),
    )


def test_scatter_affine_left_sides_and_scalars() -> None:
    assert statements("G(I(n), d) += 1 O(2*i) = 1 m() = 1 m = f()") == (
        Assign("G", (element("I", Name("n")), Name("d")), "+=", ONE),
        Assign("O", (Binary("*", Number(2, dtypes.INT32), I),), "=", ONE),
        Assign("m", (), "=", ONE),
        Assign("m", (), "=", element("f")),
    )


SPLIT = Invoke(("P", "Q"), "split", (Name("A"), Name("B")))


@pytest.mark.parametrize(
    "before",
    ["", "O = x", "O = -x", "O = x(i)", "O = (x)", "O = 1", "O = a ? b : x", "O = x where i in 0:x",
     "O = x where exists x", "O = x <=> y(i)", "O = 1 O = x"],
)  # fmt: skip
@pytest.mark.parametrize(
    "call",
    [
        "(P, Q) = split(A, B)",
        "(P,Q)=split(A,B)",
        "( # one\nP # two\n, Q )\n # three = (\n= split(A,B)",
    ],
)
def test_a_call_with_several_targets_after_any_statement(before: str, call: str) -> None:
    *rest, last = statements(f"{before} {call}")
    assert last == SPLIT
    assert all(isinstance(statement, Assign) for statement in rest)


@pytest.mark.parametrize(
    "text",
    ["O = a x(P, Q) = 3", "O = a(i) x(P, Q) = 3", "O = 1 x(P, Q) = 3", "O = a x\n(P, Q) = 3"],
)
def test_a_target_with_subscripts_is_no_list_of_targets(text: str) -> None:
    assert statements(text)[-1] == Assign("x", (Name("P"), Name("Q")), "=", Number(3, dtypes.INT32))


def test_a_comparison_of_an_element_is_no_list_of_targets() -> None:
    assert expr("x(P, Q) == y") == Binary("==", element("x", Name("P"), Name("Q")), Name("y"))


# Loosest first; each level binds tighter than the one before.
LEVELS = [["||"], ["&&"], ["==", "!=", "<", "<=", ">", ">="], ["|"], ["^"], ["&"], ["<<", ">>"],
          ["+", "-"], ["*", "/", "%"]]  # fmt: skip
BINARY = [op for ops in LEVELS for op in ops]


@pytest.mark.parametrize("op", BINARY)
def test_binary_operators_associate_to_the_left(op: str) -> None:
    expected = Binary(op, Binary(op, I, J), K)
    assert expr(f"i {op} j {op} k") == expected
    assert expr(f"i{op}j{op}k") == expected
    assert expr(f"i {op} (j {op} k)") == Binary(op, I, Binary(op, J, K))


@pytest.mark.parametrize("loose", range(len(LEVELS)))
@pytest.mark.parametrize("tight", range(len(LEVELS)))
def test_precedence(loose: int, tight: int) -> None:
    a, b = LEVELS[loose][0], LEVELS[tight][-1]
    left_first = Binary(b, Binary(a, I, J), K)
    right_first = Binary(a, I, Binary(b, J, K))
    assert expr(f"i {a} j {b} k") == (right_first if tight > loose else left_first)


def test_select_associates_to_the_right_and_is_loosest() -> None:
    assert expr("i ? j : k ? i : j || k") == Select(I, J, Select(K, I, Binary("||", J, K)))
    assert expr("i ? j ? k : i : j") == Select(I, Select(J, K, I), J)
    assert expr("i || j ? k : i").__class__ is Select


def test_unary_operators_bind_tightest() -> None:
    assert expr("-i * !j") == Binary("*", Unary("-", I), Unary("!", J))
    assert expr("--~!i") == Unary("-", Unary("-", Unary("~", Unary("!", I))))
    assert expr("i - -j") == Binary("-", I, Unary("-", J))
    assert expr("-i(j)") == Unary("-", element("i", J))


def test_min_and_max() -> None:
    assert expr("min(i, max(j, k))") == element("min", I, element("max", J, K))


@pytest.mark.parametrize(
    "name",
    ["information", "infinity", "nano", "nan_", "inner", "in_", "index", "whereas", "define",
     "minimum", "max_", "exists2", "float_x", "floats", "int3", "uint128", "boolean", "trueish",
     "threadIdx", "__global__", "e5", "_", "halfway", "bfloat", "float8", "x" * 256],
)  # fmt: skip
def test_names_that_begin_with_a_word(name: str) -> None:
    assert assignment(f"{name} = {name} + {name}({name})") == Assign(
        name, (), "=", Binary("+", Name(name), element(name, Name(name)))
    )


def test_reserved_words_stand_twice_in_the_grammar() -> None:
    """NAME refuses exactly the words that the other terminals match."""
    reserved = ["def", "where", "in", "exists", "min", "max", "true", "false", "inf", "nan"]
    for word in [*reserved, *dtypes.BY_NAME]:
        with pytest.raises(ParseError):
            statements(f"{word} = 1")
    patterns = {terminal.name: terminal.pattern.value for terminal in lark_parser().terminals}
    matched = {word for word in [*reserved, *dtypes.BY_NAME]
               for name in ("DEF", "WHERE", "IN", "EXISTS", "EXTREMUM", "CONSTANT", "DTYPE")
               if re.fullmatch(patterns[name], word)}  # fmt: skip
    assert matched == {*reserved, *dtypes.BY_NAME}


def test_new_lines_and_comments_mean_nothing() -> None:
    text = "O\n(i\n)\r\n+=!\tA(\fi) # C(i) = */ \\ #include é ??/\r\n\v+ 1#"
    assert assignment(text) == Assign("O", (I,), "+=!", Binary("+", element("A", I), ONE))


def test_a_comment_ends_at_a_lone_carriage_return() -> None:
    assert statements("a = 1 # one\rb = 1") == (
        Assign("a", (), "=", ONE),
        Assign("b", (), "=", ONE),
    )


def test_byte_order_mark_crlf_and_tabs() -> None:
    text = "\ufeff" + MATMUL.replace("\n", "\r\n").replace("    ", "\t")
    plain = parse_program(Source(MATMUL)).defs
    assert parse_program(Source(text)).defs == plain


def spanned(source: Source, node: object) -> str:
    span = getattr(node, "span", node)
    assert isinstance(span, Span)
    return source.text[span.start : span.end]


def test_spans_cover_what_was_written() -> None:
    source = Source(MATMUL)
    (definition,) = parse_program(source).defs
    assert spanned(source, definition) == MATMUL[MATMUL.index("def") :].rstrip()
    assert spanned(source, definition.name_span) == "matmul"
    first, second = definition.params
    assert spanned(source, second) == "float(K, N) B"
    assert [spanned(source, span) for span in first.dim_spans] == ["M", "K"]
    (statement,) = definition.body
    assert isinstance(statement, Assign)
    assert spanned(source, statement) == "C(m, n) +=! A(m, k) * B(k, n)"
    assert spanned(source, statement.target_span) == "C(m, n)"
    assert isinstance(statement.value, Binary)
    assert spanned(source, statement.value.right) == "B(k, n)"
    assert isinstance(statement.value.right, Apply)
    assert spanned(source, statement.value.right.id_span) == "B"
    assert source.position(statement.value.right.span.start) == (3, 27)


@pytest.mark.parametrize(
    "text",
    ["(a + b)", "-(a)", "a ? b : (c)", "(a) * (b)", "float ( a )", "min( a , b )", "f ( )",
     "1.5f64", "true", "- 128i8", "x"],
)  # fmt: skip
def test_spans_of_expressions(text: str) -> None:
    source = Source(f"O = {text} P = 1")
    first, _ = parse_statements(source)
    assert isinstance(first, Assign)
    assert spanned(source, first.value) == text
    assert spanned(source, first) == f"O = {text}"


def test_spans_of_clauses_and_calls() -> None:
    source = Source("O = a where t = 1 , i in 0 : (N), exists a (P, Q) = f( a )")
    first, second = parse_statements(source)
    assert isinstance(first, Assign) and isinstance(second, Invoke)
    assert [spanned(source, c) for c in first.clauses] == ["t = 1", "i in 0 : (N)", "exists a"]
    assert isinstance(first.clauses[1], InRange)
    assert spanned(source, first.clauses[1].index_span) == "i"
    assert spanned(source, second) == "(P, Q) = f( a )"
    assert spanned(source, second.callee_span) == "f"
    select = Source("O = a <=> B ( i )")
    (statement,) = parse_statements(select)
    assert isinstance(statement, Assign)
    assert spanned(select, statement.size_select) == "B ( i )"


@pytest.mark.parametrize("text", ["", " \n\t", "# nothing", "\ufeff", "\ufeff# x\r\n"])
def test_an_empty_text_is_an_error(text: str) -> None:
    with pytest.raises(ParseError, match="defines nothing") as program:
        parse_program(Source(text))
    assert program.value.hint is not None and "def name(...) -> (...) { ... }" in program.value.hint
    with pytest.raises(ParseError, match="defines nothing"):
        statements(text)


def test_the_grammar_is_a_small_readable_file() -> None:
    text = grammar_text()
    assert text.startswith("// The syntax of tensor comprehensions")
    assert all(len(line) <= 100 for line in text.splitlines())


def test_importing_the_parser_does_not_import_lark() -> None:
    code = "import sys, tcdsl.lang.syntax.parser; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_program_of_thirty_lines_parses_quickly() -> None:
    body = "\n".join(f"    C{n}(m, n) +=! A(m, k) * B(k, n) where k in 0:K" for n in range(28))
    source = Source(f"def f(float(M, K) A, float(K, N) B) -> (C0) {{\n{body}\n}}")
    parse_program(source)
    times = []
    for _ in range(5):
        start = time.process_time()
        parse_program(source)
        times.append(time.process_time() - start)
    assert min(times) < 0.05  # 7 ms on an idle machine


FRAGMENTS = [
    "def", "f", "(", ")", "{", "}", "->", ",", "=", "==", "+=", "+=!", "min=", "argmax=!", "where",
    "in", "exists", ":", "?", "<=>", "||", "&&", "<", "<=", ">>", "<<", "+", "-", "*", "/", "%",
    "!", "~", "&", "|", "^", "min", "max", "float", "int8", "A", "B", "i", "j", "1", "2.5", "3i64",
    "300u8", "1e999", "1e5", "true", "inf", "nan", "9i", "[", "]", ";", "\xe9", ".", "@", "'", '"',
    "#", "\n", "\\", "\t", "\x00", "\u2212", "float(N)", "A(i)", "and", "argmin",
]  # fmt: skip


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30), st.sampled_from(["", " "]))
def test_no_text_makes_anything_but_a_parse_error(parts: list[str], space: str) -> None:
    inside = space.join(parts)
    for text in (inside, f"def f(float(N) A) -> (B) {{ B(i) = {inside} }}"):
        for parse in (parse_program, parse_statements):
            try:
                parse(Source(text))
            except TCError as error:
                assert isinstance(error, ParseError)
                assert re.fullmatch("TC01[0-9]", error.code)
                ours = re.sub(r"'[^']*'", "", error.message)  # without what it quotes of the text
                assert not re.search(r"\b[A-Z]{4,}\b|lark|Token|__ANON", ours)
                assert str(error)
