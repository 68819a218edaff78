"""Typed expressions as isl objects, and functions of sizes as expressions and text."""

import islpy as isl
import pytest

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Unary,
)
from tcdsl.lang.ranges.affine import affine, condition, condition_hull
from tcdsl.lang.ranges.size_functions import SizeSpace, evaluate, holds_at, text, to_expr
from tcdsl.lang.types.dtypes import BOOL, FLOAT32, INT8, INT32, INT64

ROW, COL, N, M = Index("i"), Index("j"), Size("N"), Size("M")
SIZES = {"N": None, "M": 7}


def number(value: int) -> Const:
    return Const(value, INT32)


def of(op: str, left: Expr, right: Expr | int) -> Binary:
    dtype = BOOL if op in ("<", "<=", ">", ">=", "==", "!=", "&&", "||") else INT32
    return Binary(op, left, number(right) if isinstance(right, int) else right, dtype)


def function(expr: Expr) -> isl.PwAff | None:
    return affine(expr, ("i", "j"), "S0", SIZES)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (of("+", ROW, of("-", N, 1)), "i + N - 1"),
        (of("*", ROW, M), "7i"),
        (of("*", number(3), COL), "3j"),
        (of("/", ROW, 2), "floor(i/2)"),
        (of("/", ROW, -2), "floor(-i/2)"),
        (of("%", ROW, 3), "i - 3*floor(i/3)"),
        (of("%", ROW, -3), "i + 3*floor(-i/3)"),
        (of("/", ROW, 0), "0"),
        (of("%", ROW, 0), "0"),
        (of("<<", ROW, 2), "4i"),
        (of(">>", ROW, 1), "floor(i/2)"),
        (Unary("-", ROW, INT32), "-i"),
        (Unary("~", ROW, INT32), "-i - 1"),
        (Call("min", (ROW, COL), INT32), "min(i, j)"),
        (Call("max", (ROW, COL), INT32), "max(i, j)"),
        (Call("abs", (ROW,), INT32), "max(i, -i)"),
        (Cast(ROW, INT64), "i"),
    ],
)
def test_affine(expr: Expr, expected: str) -> None:
    found = function(expr)
    assert found is not None
    assert found.is_equal(isl.PwAff(f"[N] -> {{ S0[i, j] -> [({expected})] }}"))
    assert found.domain().is_equal(isl.Set("[N] -> { S0[i, j] }"))


@pytest.mark.parametrize(
    "expr",
    [
        of("*", ROW, COL), of("*", ROW, N), of("/", N, ROW), Load("A", (ROW,), INT32),
        Cast(ROW, FLOAT32),
        Cast(ROW, INT8), of("+", ROW, Load("A", (), INT32)), of("<", ROW, COL), Const(1.5, FLOAT32),
    ],
)  # fmt: skip
def test_not_affine(expr: Expr) -> None:
    assert function(expr) is None


def test_choice_is_piecewise() -> None:
    found = function(Select(of("<", ROW, COL), ROW, COL, INT32))
    assert found is not None and found.is_equal(isl.PwAff("[N]->{S0[i,j] -> [min(i,j)]}"))


def test_conditions() -> None:
    inside = of("&&", of("<=", number(0), ROW), of("<", ROW, N))
    exact = condition(inside, ("i",), "S0", SIZES)
    assert exact is not None and exact.is_equal(isl.Set("[N] -> { S0[i] : 0 <= i < N }"))
    outside = condition(Unary("!", inside, BOOL), ("i",), "S0", SIZES)
    assert outside is not None and outside.is_equal(exact.complement())
    data = of("&&", inside, of(">", Load("A", (ROW,), INT32), 0))
    assert condition(data, ("i",), "S0", SIZES) is None
    assert condition_hull(data, ("i",), "S0", SIZES).is_equal(exact)
    # not (affine and unknown) may hold anywhere; not (affine or unknown) only outside.
    whole = condition_hull(Unary("!", data, BOOL), ("i",), "S0", SIZES)
    assert whole.is_equal(isl.Set("[N] -> { S0[i] }"))
    either = of("||", inside, of(">", Load("A", (ROW,), INT32), 0))
    assert condition_hull(Unary("!", either, BOOL), ("i",), "S0", SIZES).is_equal(outside)


def test_deep_expressions_do_not_recurse() -> None:
    deep: Expr = ROW
    for _ in range(5000):
        deep = Unary("-", deep, INT32)
    found = function(deep)
    assert found is not None and found.is_equal(isl.PwAff("[N] -> { S0[i, j] -> [(i)] }"))


@pytest.mark.parametrize(
    "written",
    [
        "N - M + 1", "floor((N + 1)/2)", "min(N, M)", "max(N, M, 3)", "2N - 3*floor(M/3)",
        "7", "-N + 2", "floor((-1 - N)/3) + 1",
    ],
)  # fmt: skip
def test_size_functions_survive_as_expressions(written: str) -> None:
    sizes = SizeSpace(["N", "M"])
    given = isl.PwAff(f"[N, M] -> {{ [({written})] }}")
    back = sizes.builder.affine(to_expr(given))
    assert back is not None and back.is_equal(given)


def test_piecewise_size_function_survives() -> None:
    sizes = SizeSpace(["N", "M"])
    given = isl.PwAff("[N, M] -> { [(N)] : M > 2 and N mod 3 = 0; [(M)] : M <= 2; [5] : M > 2 and "
                      "N mod 3 > 0 }")  # fmt: skip
    back = sizes.builder.affine(to_expr(given))
    assert back is not None and back.is_equal(given)


def test_text_and_values() -> None:
    sizes = SizeSpace(["N", "M"])
    smaller = sizes.smallest([sizes.size("N"), sizes.size("M"), sizes.constant(9)])
    assert [evaluate(smaller, {"N": n, "M": 5}) for n in (3, 7)] == [3, 5]
    assert text(sizes.size("N").min(sizes.size("M"))) == "min(N, M)"
    assert text(sizes.size("M").sub(sizes.size("N"))) == "M - N"
    assert holds_at(sizes.sane, {"N": 0, "M": 0})
    assert not holds_at(sizes.size("N").ge_set(sizes.size("M")), {"N": 1, "M": 2})


def test_partial_functions_are_extended() -> None:
    sizes = SizeSpace(["N"])
    given = isl.PwAff("[N] -> { [(N - 1)] : N > 0 }")
    assert sizes.extended(given).is_equal(isl.PwAff("[N] -> { [(N - 1)] }"))
    split = isl.PwAff("[N] -> { [(2)] : N = 0; [(N + 2)] : N > 0 }")
    assert sizes.extended(split).is_equal(isl.PwAff("[N] -> { [(N + 2)] }"))
