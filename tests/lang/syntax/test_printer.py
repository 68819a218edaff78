"""Canonical text: parsing it gives the tree that was printed, for random trees too."""

import math
import re
from collections.abc import Iterator

import islpy as isl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tcdsl.lang import comprehension as typed
from tcdsl.lang.comprehension import Operator, Reduction, Statement, Tensor
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.limits import children
from tcdsl.lang.syntax.literals import SUFFIXES, largest
from tcdsl.lang.syntax.parser import parse_program, parse_statements
from tcdsl.lang.syntax.printer import (
    print_comprehension,
    print_expr,
    print_program,
    print_statement,
    print_typed_expr,
    untyped,
)
from tcdsl.lang.types import dtypes
from tcdsl.source import Source

PROGRAM = """\
def norm(float32(N) x, float32 eps) -> (y) {
    s +=! x(i) * x(i)
    y(i) = x(i) / sqrt(s + eps)
}

def f(float16(M, 3) A, bool b) -> (C, float64(M) D, int64 e) {
    C(m, n) +=! A(m, k) * (b ? 1.0 : -2.5e-08f64) <=> A(m, k) where t = k + 1, k in 0:2, exists b
    (p, q) = split(A, norm(b))
    D(2 * m) max= min(float64(A(m, 0)), inf)
    e argmin=! A(m, 0)
}

def empty() -> () {
}
"""

CANONICAL = [
    "a + b * c", "(a + b) * c", "a - (b - c)", "a - b - c", "a / (b * c)", "-a * b", "-(a * b)",
    "--a", "a - -b", "!(a && b) || c", "(a ? b : c) ? d : e", "a ? b ? c : d : e",
    "a ? b : c ? d : e", "(a ? b : c) + 1", "f(a ? b : c, -d)", "int8(a + b)", "a < b == c",
    "a < (b == c)", "a | b ^ c & d", "(a | b) & c", "a << b + c", "(a << b) + c", "a + b << c",
    "~(a | b)", "a % b * c", "min(a, b)", "1", "3i64", "3000000000", "1.0", "1.0f64", "0.5bf16",
    "1e+22", "-128i8", "--128i8", "a - -128i8", "-9223372036854775808", "-2147483648i32", "true",
    "nan", "-inf", "f()", "f(g(h(i)))",
]  # fmt: skip


def parsed_expr(text: str) -> ast.Expr:
    (statement,) = parse_statements(Source(f"O = {text}"))
    assert isinstance(statement, ast.Assign)
    return statement.value


def test_a_canonical_program_is_printed_as_it_stands() -> None:
    assert print_program(parse_program(Source(PROGRAM))) == PROGRAM


@pytest.mark.parametrize("text", CANONICAL)
def test_a_canonical_expression_is_printed_as_it_stands(text: str) -> None:
    assert print_expr(parsed_expr(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("((a))+(b*c)", "a + b * c"),
        ("(a+b)+c", "a + b + c"),
        ("((a)?(b):((c)?d:e))", "a ? b : c ? d : e"),
        ("f((a),(b))", "f(a, b)"),
        ("3E5", "300000.0"),
        ("007i32", "7"),
        ("float(double(half(int(x))))", "float32(float64(float16(int32(x))))"),
        ("-(a)", "-a"),
        ("a-(-b)", "a - -b"),
        (".5", "0.5"),
    ],
)
def test_what_is_redundant_goes(text: str, canonical: str) -> None:
    assert print_expr(parsed_expr(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "O = 1",
        "O(i, 2 * j) min=! A(i + k, j) where k in 0:5, t = A(i, 0), exists B(i)",
        "O(i) = A(i) <=> B(i)",
        "(P, Q, R) = f(A, g(B), 3)",
        "O = a ? b : c where i in x ? y : z:2",
    ],
)
def test_statements(text: str) -> None:
    (statement,) = parse_statements(Source(text))
    assert print_statement(statement) == text


# --- random trees ------------------------------------------------------------------------------

DRAWN = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine
)
WORDS = ["A", "B2", "i", "_", "__global__", "and", "or", "argmax", "inner", "information", "nano",
         "float_x", "e5", "i64", "f32"]  # fmt: skip
RESERVED = {"def", "where", "in", "exists", "min", "max", "true", "false", "inf", "nan",
            *dtypes.BY_NAME}  # fmt: skip
names = st.sampled_from(WORDS) | st.from_regex(
    r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True
).filter(lambda name: name not in RESERVED)
any_dtype = st.sampled_from(dtypes.ALL)
LARGEST_FLOAT = {
    dtypes.FLOAT8_E4M3: 448.0,
    dtypes.FLOAT8_E5M2: 57344.0,
    dtypes.FLOAT16: 65504.0,
    dtypes.BFLOAT16: 3.38e38,
    dtypes.FLOAT32: 3.4e38,
    dtypes.FLOAT64: 1.7976931348623157e308,
    dtypes.WEAK: 1.7976931348623157e308,
}


@st.composite
def numbers(draw: st.DrawFn) -> ast.Number:
    dtype = draw(st.sampled_from([*SUFFIXES.values(), dtypes.BOOL, dtypes.WEAK]))
    if dtype == dtypes.BOOL:
        return ast.Number(draw(st.booleans()), dtype)
    if dtype.is_float:
        special = [math.inf, math.nan] if dtype == dtypes.WEAK else [0.0]
        finite = st.floats(0.0, LARGEST_FLOAT[dtype])
        return ast.Number(draw(finite | st.sampled_from(special)), dtype)
    smallest = [-largest(dtype) - 1] if dtype.kind is dtypes.Kind.SIGNED else [0]
    edges = st.sampled_from([*smallest, largest(dtype)])
    return ast.Number(draw(st.integers(0, largest(dtype)) | edges), dtype)


def composed(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    args = st.lists(inner, max_size=3).map(tuple)
    binary = ["||", "&&", "==", "!=", "<", "<=", ">", ">=", "|", "^", "&", "<<", ">>", "+", "-",
              "*", "/", "%"]  # fmt: skip
    return st.one_of(
        st.builds(ast.Binary, st.sampled_from(binary), inner, inner),
        st.builds(ast.Unary, st.sampled_from("-!~"), inner),
        st.builds(ast.Select, inner, inner, inner),
        st.builds(ast.Cast, any_dtype, inner),
        st.builds(ast.Apply, names, args),
        st.builds(ast.Apply, st.sampled_from(["min", "max"]), st.tuples(inner, inner)),
    )


exprs: st.SearchStrategy[ast.Expr] = st.recursive(
    numbers() | st.builds(ast.Name, names), composed, max_leaves=20
)
args = st.lists(exprs, max_size=3).map(tuple)
applications = st.builds(ast.Apply, names, args)
clauses = st.one_of(
    st.builds(ast.Let, names, exprs),
    st.builds(ast.InRange, names, exprs, exprs),
    st.builds(ast.Exists, exprs),
)
ops = ["=", "+=", "*=", "min=", "max=", "and=", "or=", "+=!", "*=!", "min=!", "max=!", "and=!",
       "or=!", "argmin=!", "argmax=!"]  # fmt: skip
assigns = st.builds(
    ast.Assign,
    names,
    args,
    st.sampled_from(ops),
    exprs,
    st.lists(clauses, max_size=3).map(tuple),
    size_select=st.none() | applications,
)
invokes = st.builds(ast.Invoke, st.lists(names, min_size=2, max_size=3).map(tuple), names, args)
dims = st.lists(names | st.integers(0, 2**31 - 1), max_size=3).map(tuple)
params = st.builds(ast.Param, names, any_dtype, dims)
returns = params | st.builds(ast.Param, names, st.none(), st.just(()))
defs = st.builds(
    ast.Def,
    names,
    st.lists(params, max_size=3).map(tuple),
    st.lists(returns, max_size=3).map(tuple),
    st.lists(assigns | invokes, max_size=4).map(tuple),
)


@settings(DRAWN, max_examples=100)
@given(exprs)
def test_parsing_a_printed_expression_gives_it_back(expr: ast.Expr) -> None:
    assert parsed_expr(print_expr(expr)) == expr


@settings(DRAWN, max_examples=60)
@given(st.lists(defs, min_size=1, max_size=2).map(tuple))
def test_parsing_a_printed_program_gives_it_back(definitions: tuple[ast.Def, ...]) -> None:
    text = print_program(ast.Program(definitions, Source("")))
    assert parse_program(Source(text)).defs == definitions
    # White space and comments mean nothing, wherever they stand.
    broken = re.sub(r"[ \n]", "\r\n # (x, y) = \n\t", text)
    if len(broken) < 50_000:
        assert parse_program(Source(broken)).defs == definitions


@settings(DRAWN, max_examples=60)
@given(exprs)
def test_no_pair_of_parentheses_is_redundant(expr: ast.Expr) -> None:
    """Without any one pair that is not a list of arguments, the text means something else.

    But for those of a chain of comparisons, ``(a < b) < c``: without them it is warned of.
    """
    text = print_expr(expr)
    chained = {f"({print_expr(node.left)})" for node in nodes(expr) if ast.is_chain(node)}
    for opened, closed in pairs(text):
        if opened and (text[opened - 1].isalnum() or text[opened - 1] == "_"):
            continue
        if text[opened : closed + 1] in chained:
            continue
        without = f"{text[:opened]}{text[opened + 1 : closed]}{text[closed + 1 :]}"
        assert parsed_expr(without) != expr


def nodes(expr: ast.Expr) -> Iterator[ast.Binary]:
    if isinstance(expr, ast.Binary):
        yield expr
    for child in children(expr):
        yield from nodes(child)


def pairs(text: str) -> list[tuple[int, int]]:
    found, opened = [], []
    for place, char in enumerate(text):
        if char == "(":
            opened.append(place)
        elif char == ")":
            found.append((opened.pop(), place))
    return found


# --- typed comprehensions ----------------------------------------------------------------------

F32 = dtypes.FLOAT32


def load(name: str, *subscripts: typed.Expr, dtype: dtypes.DType = F32) -> typed.Load:
    return typed.Load(name, subscripts, dtype)


I, N = typed.Index("i"), typed.Size("N")  # noqa: E741 (an index)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (I, "i"),
        (N, "N"),
        (load("s"), "s"),
        (load("A", I, N), "A(i, N)"),
        (typed.Const(0.10000000149011612, F32), "0.1"),
        (typed.Const(0.0999755859375, dtypes.FLOAT16), "0.1f16"),
        (typed.Const(0.10009765625, dtypes.BFLOAT16), "0.1bf16"),
        (typed.Const(0.1015625, dtypes.FLOAT8_E4M3), "0.1f8e4m3"),
        (typed.Const(0.1, dtypes.FLOAT64), "0.1f64"),
        (typed.Const(-math.inf, F32), "-inf"),
        (typed.Const(-3, dtypes.INT32), "-3"),
        (typed.Const(3, dtypes.INT64), "3i64"),
        (typed.Const(True, dtypes.BOOL), "true"),
        (typed.Cast(load("H", I, dtype=dtypes.FLOAT16), F32), "float32(H(i))"),
        (typed.Unary("-", typed.Binary("+", I, N, dtypes.INT32), dtypes.INT32), "-(i + N)"),
        (typed.Call("min", (I, N), dtypes.INT32), "min(i, N)"),
        (typed.Call("exp", (load("A", I),), F32), "exp(A(i))"),
        (
            typed.Select(typed.Binary(">=", I, N, dtypes.BOOL), load("A", I), load("s"), F32),
            "i >= N ? A(i) : s",
        ),
    ],
)
def test_typed_expressions(expr: typed.Expr, text: str) -> None:
    assert print_typed_expr(expr) == text
    if not text.startswith("-"):
        assert parsed_expr(text) == untyped(expr)


def test_a_deep_typed_expression_needs_no_stack() -> None:
    deep: typed.Expr = load("A", I)
    for _ in range(5_000):
        deep = typed.Binary("+", typed.Cast(deep, F32), load("s"), F32)
    text = print_typed_expr(deep)
    assert text.count(" + s") == 5_000


def comprehension() -> typed.Comprehension:
    k = typed.Index("k")
    product = typed.Binary("*", load("A", I, k), load("A", I, k), F32)
    body = (
        Statement(
            "S0", "s", (I,), ("i", "k"), 1, Reduction(Operator.ADD, True, F32), product,
            explicit=(typed.IndexBounds("k", typed.Const(0, dtypes.INT32), N),),
            domain=isl.Set("[M, N] -> { S0[i, k] : 0 <= i < M and 0 <= k < N }"),
        ),
        Statement(
            "S1", "C", (I,), ("i",), 1, None, load("s", I),
            conditions=(typed.Binary(">", load("s", I), load("t"), dtypes.BOOL),),
            bounds=(load("A", I, I),),
        ),
        Statement(
            "S2", "C", (I,), ("i",), 1, Reduction(Operator.MAX, False, F32), load("t"),
        ),
        Statement(
            "S3", "m", (), ("i",), 0, Reduction(Operator.ARGMAX, True, F32), load("s", I),
        ),
    )  # fmt: skip
    tensors = (
        Tensor("A", F32, ("M", "N"), is_input=True, is_output=False),
        Tensor("t", F32, (), is_input=True, is_output=False),
        Tensor(
            "s", F32, (None,), is_input=False, is_output=False,
            origin=(isl.PwAff("[M] -> { [(0)] }"),), extents=(isl.PwAff("[M] -> { [(M)] }"),),
        ),
        Tensor(
            "C", F32, (None,), is_input=False, is_output=True,
            origin=(isl.PwAff("[M] -> { [(1)] }"),),
            extents=(isl.PwAff("[M] -> { [(floor((M + 1)/2))] }"),),
        ),
        Tensor("m", dtypes.INT64, (), is_input=False, is_output=True),
        Tensor("u", F32, (None, 3), is_input=False, is_output=False),
    )  # fmt: skip
    return typed.Comprehension(
        "f", Source(""), ("M", "N"), ("A", "t"), ("C", "m"), {t.name: t for t in tensors}, body
    )


def test_a_comprehension() -> None:
    text = print_comprehension(comprehension())
    assert (
        text
        == """\
def f(float32(M, N) A, float32 t) -> (C, int64 m) {
    # s: float32(M)
    # C: float32(floor((1 + M)/2)) from (1)
    # m: int64
    # u: float32(?, 3)
    # S0: { S0[i, k] : 0 <= i < M and 0 <= k < N }
    s(i) +=! A(i, k) * A(i, k) where k in 0:N
    C(i) = s(i) where exists s(i) > t, exists A(i, i)
    C(i) max= t
    m argmax=! s(i)
}
"""
    )
    program = parse_program(Source(text))
    assert "\n".join(line for line in text.splitlines() if "#" not in line) + "\n" == print_program(
        program
    )


def test_extents_in_several_pieces_stay_readable() -> None:
    pieces = isl.PwAff("[M, N] -> { [(M)] : M <= N; [(N)] : M > N }")
    origin = isl.PwAff("[M, N] -> { [(0)] }")
    tensor = Tensor("T", F32, (None,), is_input=False, is_output=True,
                    origin=(origin,), extents=(pieces,))  # fmt: skip
    made = typed.Comprehension("g", Source(""), ("M", "N"), (), ("T",), {"T": tensor}, ())
    assert "# T: float32(M : N >= M; N : N < M)" in print_comprehension(made)
