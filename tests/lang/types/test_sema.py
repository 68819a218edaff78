"""Names, types, operators, clauses, calls and headerless programs; every error with its place."""

import warnings

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import SemanticError, TCError
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Comprehension,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Size,
    Statement,
    walk,
)
from tcdsl.lang.ranges.range_inference import bind_sizes, specialise
from tcdsl.lang.ranges.size_functions import text
from tcdsl.lang.syntax.parser import parse_program, parse_statements
from tcdsl.lang.types import dtypes
from tcdsl.lang.types.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64, DType
from tcdsl.lang.types.sema import analyse, analyse_statements
from tcdsl.source import Source


def analysed(source: str) -> tuple[Comprehension, ...]:
    return analyse(parse_program(Source(source)))


def one(source: str) -> Comprehension:
    return analysed(source)[-1]


def error_of(source: str) -> TCError:
    try:
        analysed(source)
    except TCError as error:
        return error
    raise AssertionError("the program has no error")


def at(source: str, snippet: str) -> tuple[int, int]:
    return Source(source).position(source.index(snippet))


def check(source: str, code: str, snippet: str, message: str, hint: str) -> TCError:
    """Assert that *source* has the error *code* where *snippet* stands, and return it."""
    error = error_of(source)
    assert (error.code, error.line, error.column) == (code, *at(source, snippet)), error
    assert message in error.message, error.message
    assert error.hint is not None and hint in error.hint, error.hint
    return error


def value_of(expression: str, params: str = "") -> Expr:
    """Return the typed ``O(i) = expression``, over float A, half H, int J, bool P and more."""
    return statement_of(expression, params).value


def statement_of(expression: str, params: str = "") -> Statement:
    return _program(f"O(i) = {expression}", params).statements[0]


def dtype_of(expression: str) -> DType:
    return _program(f"O(i) = {expression}", "").tensors["O"].dtype


_PARAMS = (
    "float(N) A, float64(N) D, float16(N) H, bfloat16(N) B, int32(N) J, int64(N) L, uint8(N) U, "
    "int8(N) S, uint32(N) V, bool(N) P, float s"
)


def _program(statement: str, params: str) -> Comprehension:
    return one(f"def f({_PARAMS}{params}) -> (O) {{ {statement} where i in 0:N }}")


# --- names ---------------------------------------------------------------------------------
def test_names_resolve_to_indices_sizes_and_scalars() -> None:
    c = one("def f(float(N) A, float s) -> (O) { O(i) = A(i) * s / N + i }")
    nodes = list(walk(c.statements[0].value))
    assert any(isinstance(n, Size) and n.name == "N" for n in nodes)
    assert any(isinstance(n, Index) and n.name == "i" for n in nodes)
    assert any(isinstance(n, Load) and n.tensor == "s" and n.subscripts == () for n in nodes)


def test_indices_left_first_then_in_order_of_appearance() -> None:
    s = one("def f(float(N,K,M) A) -> (O) { O(j,i) +=! A(i,k,j) * l where l in 0:3 }").statements[0]
    assert s.indices == ("j", "i", "k", "l") and s.left == ("j", "i") and s.reduced == ("k", "l")


def test_index_only_in_a_clause_repeats_the_statement() -> None:
    s = one("def f(float(N) A) -> (O) { O(i) +=! A(i) where k in 0:5 }").statements[0]
    assert s.reduced == ("k",)


def test_unknown_tensor() -> None:
    source = "def f(float(N) A, float(N) temp) -> (O) { O(i) = tmep(i) + A(i) }"
    error = check(source, "TC020", "tmep", "unknown tensor or function 'tmep'", "'temp'")
    assert isinstance(error, SemanticError)
    check("def f(float(N) A) -> (O) { O(i) = sqtr(A(i)) }", "TC020", "sqtr", "sqtr", "'sqrt'")
    check("def f(float(N) A) -> (O) { O(i) = Q(i) }", "TC020", "Q(i)", "'Q'", "declare it")


def test_misspelt_index() -> None:
    source = "def f(float(M,N) A) -> (O) { O(row) = A(rwo, row) }"
    check(source, "TC025", "O(row)", "rwo is not on the left", "did you mean 'row'?")
    unbound = "def f(float(in_dim) A) -> (O) { O(i) +=! A(i) * in_dimm }"
    check(unbound, "TC040", "in_dimm", "in_dimm", "did you mean 'in_dim'?")


def test_wrong_rank() -> None:
    source = "def f(float(N) A) -> (O) { O(i) = A(i, i) }"
    message = "'A' has 1 dimension but is used with 2 subscripts"
    check(source, "TC022", "A(i, i)", message, "write A(i)")
    check("def f(float(N) A) -> (O) { O(i) = A }", "TC022", "A }", "0 subscripts", "A(i)")
    scalar = "def f(float(N) A, float s) -> (O) { O(i) = A(i) * s(i) }"
    check(scalar, "TC022", "s(i)", "has 0 dimensions", "without parentheses")
    twice = "def f(float(N) A) -> (O) { O(i) = A(i)  O(i,j) = A(i) + A(j) }"
    check(twice, "TC022", "O(i,j)", "used with 2 subscripts", "write O(i)")


def test_duplicates_and_clashes() -> None:
    check("def f(float(N) A, float(N) A) -> (O) { O(i) = A(i) }", "TC021", "float(N) A) -> ",
          "'A' is defined twice", "rename")  # fmt: skip
    check("def f(float(N) A) -> (O, O) { O(i) = A(i) }", "TC021", "O) {", "twice", "rename")
    check("def f(float(N) N) -> (O) { O(i) = N(i) }", "TC038", "float(N) N", "a size", "rename")
    check("def f(float(N) A) -> (O) { O(i) = A(i) where N in 0:3 }", "TC038", "N in", "a size",
          "rename")  # fmt: skip


def test_def_defined_twice() -> None:
    source = "def f(float(N) A) -> (O) { O(i) = A(i) }\ndef f(float(N) B) -> (O) { O(i) = B(i) }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC021", 2, 5)


def test_results_and_parameters() -> None:
    check("def f(float(N) A) -> (B) { C(i) = A(i) }", "TC026", "B)", "never assigned", "assign it")
    source = "def f(float(N) A) -> (O) { A(i) = 3.0  O(i) = A(i) }"
    check(source, "TC028", "A(i) = 3.0", "'A' is assigned but not returned", "results")
    source = "def f(float(N) A) -> (float64(N) A) { A(i) = 3.0 where i in 0:N }"
    check(source, "TC039", "float64", "float64(N) here and as float32(N)", "declare it once")
    source = "def f(float(N) A) -> (float(K) O) { O(i) = A(i) }"
    check(source, "TC036", "K", "'K' of 'O' is the size of no input", "leave the dimensions out")
    source = "def f(float(N) A) -> (O) { O(i) = A(i) + t  t = 3.0 }"
    check(source, "TC027", "t  t", "'t' is read before it is written", "assign t first")


def test_all_errors_are_reported_and_none_that_only_follow() -> None:
    source = "def f(float(N) A) -> (O, Q) {\n T(i) = B(i)\n O(i) = T(i) + 1.0\n Q(i) = A(i, i) }"
    error = error_of(source)
    assert [e.code for e in (error, *error.others)] == ["TC020", "TC022"]
    assert [(e.line, e.column) for e in (error, *error.others)] == [(2, 9), (4, 9)]
    assert "B(i)" in str(error) and "A(i, i)" in str(error)


def test_errors_of_a_called_def_are_reported_once() -> None:
    source = (
        "def g(float(N) A) -> (O) { O(i) = Bad(i) }\n"
        "def f(float(N) A) -> (Q) { Q = g(A) }\ndef h(float(N) A) -> (Q) { Q = f(A) }"
    )
    error = error_of(source)
    assert error.line == 1 and error.others == ()


# --- types ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("A(i) + A(i)", "float32"),
        ("A(i) + D(i)", "float64"),
        ("A(i) + J(i)", "float32"),
        ("L(i) * A(i)", "float32"),
        ("H(i) + H(i)", "float16"),
        ("H(i) + B(i)", "float32"),
        ("H(i) + A(i)", "float32"),
        ("H(i) * 2", "float16"),
        ("H(i) * 2.0f16", "float16"),
        ("J(i) + L(i)", "int64"),
        ("U(i) + S(i)", "int32"),
        ("U(i) + V(i)", "uint32"),
        ("V(i) + S(i)", "int32"),
        ("J(i) / 2", "int32"),
        ("J(i) < L(i)", "bool"),
        ("P(i) == P(i)", "bool"),
        ("P(i) & P(i)", "bool"),
        ("J(i) << 2", "int32"),
        ("exp(J(i))", "float32"),
        ("exp(H(i))", "float32"),
        ("exp(D(i))", "float64"),
        ("abs(J(i))", "int32"),
        ("abs(H(i))", "float16"),
        ("relu(S(i))", "int8"),
        ("max(J(i), L(i))", "int64"),
        ("min(H(i), 1)", "float16"),
        ("isnan(A(i))", "bool"),
        ("P(i) ? 1 : 2.5", "float32"),
        ("P(i) ? H(i) : D(i)", "float64"),
        ("int8(A(i))", "int8"),
        ("half(A(i))", "float16"),
        ("bool(A(i))", "bool"),
        ("!P(i)", "bool"),
        ("~P(i)", "bool"),
        ("-J(i)", "int32"),
        ("i", "int32"),
        ("N", "int32"),
        ("1.0f64 * A(i)", "float64"),
        ("fma(A(i), D(i), A(i))", "float64"),
    ],
)
def test_promotion(expression: str, expected: str) -> None:
    assert dtype_of(expression).name == expected


def test_half_arithmetic_runs_in_float32() -> None:
    value = value_of("H(i) * H(i)")
    assert value.dtype == FLOAT32 and isinstance(value, Binary)
    assert isinstance(value.left, Cast) and isinstance(value.left.operand, Load)
    assert value.left.operand.dtype == dtypes.FLOAT16
    rounds = value_of("half(A(i)) + A(i)")
    assert isinstance(rounds, Binary) and isinstance(rounds.left, Cast)
    assert isinstance(rounds.left.operand, Cast)
    assert rounds.left.operand.dtype == dtypes.FLOAT16


def test_operands_and_branches_have_one_type() -> None:
    for expression in ("A(i) + D(i) * J(i)", "P(i) ? J(i) : D(i)", "J(i) < 2.5", "max(J(i), 2.0)"):
        for node in walk(value_of(expression)):
            match node:
                case Binary(left=left, right=right):
                    assert left.dtype == right.dtype
                case Select(if_true=if_true, if_false=if_false, dtype=dtype):
                    assert if_true.dtype == if_false.dtype == dtype
                case Call(args=args):
                    assert len({arg.dtype for arg in args}) == 1


def test_literals_are_rounded_to_their_type() -> None:
    assert value_of("0.1") == Const(0.10000000149011612, FLOAT32)
    assert value_of("0.1f64") == Const(0.1, FLOAT64)
    assert value_of("0.1f16") == Const(0.0999755859375, FLOAT32)
    product = value_of("A(i) * 2")
    assert isinstance(product, Binary) and product.right == Const(2.0, FLOAT32)
    big = value_of("A(i) * 16777217")
    assert isinstance(big, Binary) and big.right == Const(16777216.0, FLOAT32)


def test_bool_of_a_number_compares_with_zero() -> None:
    assert value_of("bool(J(i))") == Binary(
        "!=", Load("J", (Index("i"),), INT32), Const(0, INT32), BOOL
    )


def test_annotation_converts() -> None:
    c = one("def f(float(N) A) -> (int32 O, float64(N) Q) { O(i) = A(i) * 2.0  Q(i) = A(i) }")
    assert c.tensors["O"].dtype == INT32 and c.statements[0].value.dtype == INT32
    assert c.tensors["Q"].dtype == FLOAT64 and c.statements[1].value.dtype == FLOAT64


def test_type_of_a_recurrence_without_annotation() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) = i == 0 ? 1 : O(i-1) * A(i) }")
    assert c.tensors["O"].dtype == FLOAT32
    source = "def f(float(N) A) -> (O) { O(i) = O(i) where i in 0:N }"
    check(source, "TC034", "O(i) = ", "type of 'O' cannot be inferred", "'float O'")


@pytest.mark.parametrize(
    ("expression", "snippet", "message", "hint"),
    [
        ("P(i) + 1", "P(i) + 1", "'+' does not take bool", "int32(P(i))"),
        ("(A(i) > 1) + 1", "(A(i) > 1) + 1", "'+' does not take bool", ": int32(A(i) > 1) or"),
        ("(P(i)) + (P(i))", "(P(i)) + (P(i))", "'+' does not take bool", "int32(P(i))"),
        ("-P(i)", "-P(i)", "'-' does not take bool", "float32(P(i))"),
        ("!J(i)", "!J(i)", "'!' does not take int32", "J(i) == 0"),
        ("!(A(i) + s)", "!(A(i) + s)", "'!' does not take float32", "(A(i) + s) == 0.0"),
        ("A(i) && P(i)", "A(i) && P(i)", "'&&' does not take float32 and bool", "A(i) != 0"),
        ("A(i) & J(i)", "A(i) & J(i)", "'&' does not take", "integers and for bools"),
        ("A(i) << 1", "A(i) << 1", "'<<' does not take", "for integers"),
        ("~A(i)", "~A(i)", "'~' does not take float32", "integers"),
        ("J(i) ? 1 : 2", "J(i) ?", "condition of '?:' does not take int32", "J(i) != 0"),
        ("abs(P(i))", "abs(P(i))", "'abs' does not take bool", "int32(P(i))"),
    ],
)
def test_operand_errors(expression: str, snippet: str, message: str, hint: str) -> None:
    source = f"def f({_PARAMS}) -> (O) {{ O(i) = {expression} }}"
    check(source, "TC023", snippet, message, hint)


def test_arity() -> None:
    error = error_of("def f(float(N) A) -> (O) { O(i) = pow(A(i)) }")
    assert error.code == "TC024" and "'pow' takes 2 arguments, got 1" in error.message
    assert (error.line, error.column) == (1, 35)


def test_subscripts_and_bounds_are_integers() -> None:
    check("def f(float(N) A) -> (O) { O(i) = A(i / 2.0) }", "TC037", "i / 2.0", "float32", "int32(")
    check("def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:2.5 }", "TC031", "2.5", "integer",
          "int32(2.5)")  # fmt: skip


# --- operators -----------------------------------------------------------------------------
def test_two_values() -> None:
    source = "def f(float(N,M) A) -> (O) { O(i) = A(i,j) }"
    check(source, "TC025", "O(i) =", "two values for O(i): j is not on the left", "+=!")
    source = "def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:n }"
    check(source, "TC025", "O(i) =", "n is not on the left", "did you mean 'N'?")
    source = "def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:M }"
    check(
        source,
        "TC025",
        "O(i) =",
        "M is not on the left",
        "if M is a size (the sizes are N), declare",
    )
    source = "def f(float(N) A) -> (O) { O(i/2) = A(i) }"
    check(source, "TC025", "O(i/2)", "two values for O(i/2)", "one to one")
    assert one("def f(float(N) A) -> (O) { O(i/2) +=! A(i) }").statements[0].left == ("i",)
    assert one("def f(float(N,M) A) -> (O) { O(3*i + j) = A(i,j) where i in 0:4, j in 0:3 }")


def test_reductions() -> None:
    c = one(
        "def f(float16(N,M) A, bool(N,M) P) -> (S, X, Q, R, K) { S(i) +=! A(i,j)"
        " X(i) max=! A(i,j)  Q(i) and=! P(i,j)  R(i) or=! A(i,j) > 0  K(i) argmax=! A(i,j) }"
    )
    found = [(s.reduction.operator, s.reduction.dtype.name) for s in c.statements if s.reduction]
    assert found == [
        (Operator.ADD, "float32"), (Operator.MAX, "float32"), (Operator.AND, "bool"),
        (Operator.OR, "bool"), (Operator.ARGMAX, "float32"),
    ]  # fmt: skip
    assert [c.tensors[n].dtype.name for n in "SXQRK"] == [
        "float16", "float16", "bool", "bool", "int64",
    ]  # fmt: skip


def test_arg_reductions() -> None:
    c = one("def f(float(N,M) A) -> (int32 O) { O(i) argmin=! A(i,j) }")
    assert c.tensors["O"].dtype == INT32 and c.statements[0].value.dtype == FLOAT32
    assert one("def f(float(N,M) A) -> (O) { O(i) argmin=! A(i,j) }").tensors["O"].dtype == INT64
    two = "def f(float(N,M) A) -> (O) { O argmax=! A(i,j) }"
    check(two, "TC035", "O argmax", "exactly one reduced index, but there are 2: i, j", "one index")
    none = "def f(float(N) A) -> (O) { O(i) argmax=! A(i) }"
    check(none, "TC035", "O(i) argmax", "there is none", "exactly one")
    wrong = "def f(float(N,M) A) -> (float O) { O(i) argmax=! A(i,j) }"
    check(wrong, "TC032", "O(i) argmax", "'O', which is float32", "int64")


def test_reduction_types() -> None:
    source = "def f(bool(N) P) -> (O) { O +=! P(i) }"
    check(source, "TC032", "O +=!", "'+=!' cannot reduce into 'O', which is bool", "or=")
    source = "def f(float(N) A) -> (O) { O and=! A(i) }"
    check(source, "TC032", "O and=!", "'and=!' cannot reduce", "compare the value")


def test_own_element_in_a_reduction() -> None:
    source = "def f(float(N,M) A, float(N) C) -> (C) { C(i) += C(i) * A(i,j) }"
    check(source, "TC033", "C(i) * A", "reduction over j is still changing", "temporary")
    source = "def f(float(N,N) A, float(N) C) -> (C) { C(i) += C(j) * A(i,j) }"
    check(source, "TC033", "C(j)", "over j", "copy")
    below = one("def f(float(N,N) A, float(N) C) -> (C) { C(i) += C(j) * A(i,j) where j in 0:i }")
    assert below.statements[0].reduced == ("j",)


def test_scatter_updates_combine() -> None:
    c = one("def f(float(N) X, int32(N) I, float(E) G) -> (G) { G(I(n)) += X(n) }")
    s = c.statements[0]
    assert s.left == ("n",) and s.reduced == () and isinstance(s.subscripts[0], Load)


# --- clauses -------------------------------------------------------------------------------
def test_let_is_substituted() -> None:
    s = one(
        "def f(float(N) A) -> (O) { O(i) = y * y where y = x + 1.0, x = A(k), k = i }"
    ).statements[0]
    assert s.indices == ("i",)
    assert isinstance(s.value, Binary) and s.value.left == s.value.right
    assert s.value.left == Binary(
        "+", Load("A", (Index("i"),), FLOAT32), Const(1.0, FLOAT32), FLOAT32
    )


def test_let_errors() -> None:
    source = "def f(float(N) A) -> (O) { O(i) = x where x = y + 1, y = x * 2, i in 0:N }"
    error = error_of(source)
    assert error.code == "TC029" and error.line == 1
    assert "x -> y -> x" in error.message or "y -> x -> y" in error.message
    check("def f(float(N) A) -> (O) { O(i) = A(i) where A = i }", "TC038", "A = i", "let", "rename")
    check("def f(float(N) A) -> (O) { O(i) = A(x) where x = i, x = 3 }", "TC021", "x = 3", "x",
          "rename")  # fmt: skip


def test_let_cannot_blow_up() -> None:
    lets = ", ".join(f"x{k} = x{k + 1} + x{k + 1}" for k in range(40))
    error = error_of(f"def f(float(N) A) -> (O) {{ O(i) = x0 where {lets}, x40 = A(i) }}")
    assert error.code == "TC013" and "let clauses" in error.message
    chain = ", ".join(f"y{k} = y{k + 1} + 1.0" for k in range(400))
    error = error_of(f"def f(float(N) A) -> (O) {{ O(i) = y0 where {chain}, y400 = A(i) }}")
    assert error.code == "TC014"


def test_clause_errors() -> None:
    source = "def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:i+1 }"
    check(source, "TC031", "i in 0", "depends on itself", "other indices")
    source = "def f(float(N) A) -> (O) { O(i) = A(i) <=> Z(N) }"
    check(source, "TC020", "Z(N)", "unknown tensor or library 'Z'", "name the target")


# --- calls ---------------------------------------------------------------------------------
NORM = "def norm(float(N) X) -> (Y) { s +=! X(i) * X(i)  Y(i) = X(i) / s * N }\n"


def test_call_is_inlined() -> None:
    c = one(NORM + "def f(float(M,K) A) -> (Q) { T(i) +=! A(i,j)  Q = norm(T) }")
    assert [s.target for s in c.statements] == ["T", "norm.s", "Q"]
    assert [s.name for s in c.statements] == ["S0", "S1", "S2"]
    assert c.sizes == ("M", "K") and not c.tensors["norm.s"].is_output
    # The size of norm's parameter is the extent of T, which is M.
    assert any(isinstance(n, Size) and n.name == "M" for n in walk(c.statements[2].value))


def test_call_before_its_def_and_twice() -> None:
    c = analysed("def f(float(M) A) -> (P, Q) { P = norm(A)  Q = norm(P) }\n" + NORM)[0]
    assert [s.target for s in c.statements] == ["norm.s", "P", "norm.s.1", "Q"]


def test_call_with_two_results() -> None:
    c = one(
        "def split(float(N) A) -> (L, H) { L(i) = A(i) - 1.0  H(i) = A(i) + 1.0 }\n"
        "def f(float(M) X) -> (P, Q) { (P, Q) = split(X) }"
    )
    assert [s.target for s in c.statements] == ["P", "Q"]


def test_call_shifts_origins() -> None:
    shifted = "def sh(float(N) X) -> (Y) { Y(i) = X(i-1) }\n"
    c = one(shifted + "def f(float(M) A) -> (Q) { T(i) = A(i+2)  Q = sh(T) }")
    special = specialise(c, {"M": 5})
    assert special.origins["T"] == (-2,) and special.origins["Q"] == (0,)
    assert special.shapes["Q"] == (5,)
    assert special.ranges[1] == {"i": range(1, 6)}  # as in sh itself
    target, read = c.statements[1].subscripts[0], c.statements[1].value
    assert isinstance(target, Binary) and target.op == "-" and target.right == Const(1, INT32)
    assert isinstance(read, Load)


def test_call_whose_target_is_an_argument_goes_through_a_temporary() -> None:
    blur = "def blur(float(N) X) -> (Y) { Y(i) = X(i) + (i > 0 ? X(i-1) : 0.0) where i in 0:N }\n"
    c = one(blur + "def f(float(M) A) -> (A) { A = blur(A) }")
    assert [s.target for s in c.statements] == ["blur.Y", "A"]


def test_call_of_an_in_place_def() -> None:
    twice = "def twice(float(N) X) -> (X) { X(i) = X(i) * 2.0 }\n"
    in_place = one(twice + "def f(float(M) A) -> (A) { A = twice(A) }")
    assert [s.target for s in in_place.statements] == ["A"]
    copied = one(twice + "def f(float(M) A) -> (B) { B = twice(A) }")
    assert [s.target for s in copied.statements] == ["twice.X", "twice.X", "B"]


def test_call_with_a_number_for_a_scalar() -> None:
    scale = "def scale(float(N) A, float s) -> (O) { O(i) = A(i) * s }\n"
    c = one(scale + "def f(float(M) X) -> (Y) { Y = scale(X, 2) }")
    value = c.statements[0].value
    assert isinstance(value, Binary) and value.right == Const(2.0, FLOAT32)


def test_sizes_of_a_call_must_agree() -> None:
    add = "def add(float(N) A, float(N) B) -> (O) { O(i) = A(i) + B(i) }\n"
    c = one(add + "def f(float(M) X, float(K) Z) -> (Y) { Y = add(X, Z) }")
    assert specialise(c, {"M": 3, "K": 3}).shapes["Y"] == (3,)
    with pytest.raises(TCError, match="must be equal for K = 4, M = 3"):
        specialise(c, {"M": 3, "K": 4})


def test_recursion_names_the_cycle() -> None:
    source = "def a(float(N) A) -> (B) { B = b(A) }\ndef b(float(N) A) -> (B) { B = a(A) }"
    check(source, "TC029", "a(A) }", "a -> b -> a", "must not call itself")
    own = "def a(float(N) A) -> (B) { B = a(A) }"
    check(own, "TC029", "a(A) }", "a -> a", "must not call itself")


def test_call_errors() -> None:
    f = "def f(float(M) A, float64(M) D, float(M,M) E, float u) -> (Q) { "
    error = error_of(NORM + f + "Q = norm(A, A) }")
    assert error.code == "TC024" and "'norm' takes 1 argument (X), got 2" in error.message
    check(NORM + f + "Q = norm(A + 1) }", "TC030", "A + 1", "not a whole tensor", "temporary")
    check(NORM + f + "Q = norm(D) }", "TC030", "D) }", "'D' is float64", "float32(D(...))")
    check(NORM + f + "Q = norm(E) }", "TC022", "E) }", "2 dimensions", "write E(i, j)")
    check(NORM + f + "Q = norm(Zz) }", "TC020", "Zz", "unknown tensor", "assign it")
    check(NORM + f + "(Q, R) = norm(A) }", "TC030", "(Q, R)", "1 tensor, but", "write Y = norm")
    check(NORM + f + "(Q, R) = nrom(A) }", "TC020", "nrom", "unknown", "norm")
    check(NORM + f + "Q += norm(A) }", "TC030", "Q += norm", "whole tensors", "without clauses")
    check(NORM + f + "Q(i) = norm(A) }", "TC020", "norm(A)", "unknown", "with whole tensors")


def test_calls_compute_what_the_defs_compute() -> None:
    c = one(
        NORM + "def blur(float(N) X) -> (Y) { Y(i) = X(i+1) + X(i) }\n"
        "def back(float(N) X) -> (Y) { Y(i) = i > 0 ? X(i) + X(i-1) : X(i) where i in 0:N }\n"
        "def f(float(M) A) -> (A, Q, R) { T(i) = A(i+1)  Q = blur(T)  R = norm(Q)  A = back(A) }"
    )
    a = np.arange(1, 8, dtype=np.float32)
    result = evaluate(c, specialise(c, {"M": 7}), {"A": a})
    q = a[1:] + a[:-1]
    assert np.array_equal(result["Q"], q)
    assert np.allclose(result["R"], q / (q * q).sum() * 6)
    assert np.array_equal(result["A"], a + np.concatenate(([0], a[:-1])))


# --- headerless programs -------------------------------------------------------------------
def headerless(source: str, **ranks: int) -> Comprehension:
    inputs = {name: (FLOAT32, rank) for name, rank in ranks.items()}
    return analyse_statements(parse_statements(Source(source)), Source(source), inputs)


def test_headerless_matmul() -> None:
    c = headerless("C(i,k) +=! A(i,j) * B(j,k)", A=2, B=2)
    assert c.sizes == ("A_0", "A_1", "B_0", "B_1")
    assert c.inputs == ("A", "B") and c.outputs == ("C",)
    assert [text(e) for e in c.tensors["C"].extents] == ["A_0", "B_1"]
    assert bind_sizes(c, {"A": (2, 3), "B": (3, 4)})["B_1"] == 4


def test_headerless_results() -> None:
    assert headerless("T(i) = A(i) * 2.0  O(i) = T(i) + 1.0  P(i) = T(i)", A=1).outputs == (
        "O",
        "P",
    )
    assert headerless("A(i) = A(i) + 1.0  C +=! A(i)", A=1).outputs == ("A", "C")
    assert headerless("O(i) = A(i)  O(i) = O(i) * 2.0", A=1).outputs == ("O",)
    both = headerless("P(i) = A(i)  Q(i) = P(i)  P(i) = Q(i)", A=1)
    assert both.outputs == ("P",)


def test_headerless_sizes_do_not_clash() -> None:
    c = headerless("O(A_0) = A(A_0)", A=1)
    assert c.sizes == ("A_0_",) and c.statements[0].indices == ("A_0",)


# --- updates without a first value ---------------------------------------------------------------


@pytest.mark.parametrize(("source", "parts"), [
    ("def f(float(M,N) x) -> (y) { y(i) += x(i,j) }",
     [":1:30: 'y(i) += ...'", "write '+=!'", "declare the result, float32(M) y"]),
    ("def f(float(M,N) x) -> (s) { s max= x(i,j) }",
     [":1:30: 's max= ...'", "write 'max=!'", "float32 s, and give every call out="]),
    ("def f(float(N) x, float(K) w) -> (y) { y(i) += x(i+k)*w(k) }", ["make y a parameter too"]),
])  # fmt: skip
def test_an_update_without_a_first_value_is_a_warning_of_define(
    source: str, parts: list[str]
) -> None:
    for _ in range(2):  # also where the head comes from the cache
        with pytest.warns(tcdsl.TCWarning) as caught:
            tcdsl.define(source)
        assert len(caught) == 1
        assert all(part in str(caught[0].message) for part in parts), caught[0].message


@pytest.mark.parametrize("source", [
    "def f(float(M,N) x) -> (float(M) y) { y(i) += x(i,j) }",
    "def f(float(M,N) x) -> (float s) { s += x(i,j) }",
    "def f(float(M,N) x, float(M) y) -> (y) { y(i) += x(i,j) }",
    "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j)  y(i) += x(i,j) }",
    "def f(float(M,N) x) -> (y) { y(i) = 0.0 where i in 0:M  y(i) += x(i,j) }",
])  # fmt: skip
def test_what_has_a_first_value_is_no_warning(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tcdsl.define(source)
