"""isl's expressions become nodes that are written as isl writes them."""

import islpy as isl
import pytest

from tcdsl.codegen.ast.isl_code import CUDA, C, IslCode, code_of
from tcdsl.codegen.ast.nodes import Call, Literal, Name
from tcdsl.codegen.ast.text import text

BUILD = isl.AstBuild.from_context(isl.Set("[n, m] -> { : }"))


@pytest.mark.parametrize(
    "value",
    [
        "7", "-5", "n", "-n", "-(n + m)", "4n - 3m + 1", "n - (m + 3)", "floor(n/2) - floor(m/3)",
        "3 * floor((n + m)/4) + n mod 3", "-(n mod 5) - 2m", "floor((n - floor(m/2))/3)",
    ],
)  # fmt: skip
def test_sums_and_quotients(value: str) -> None:
    expr = BUILD.expr_from_pw_aff(isl.PwAff(f"[n, m] -> {{ [({value})] }}"))
    assert text(code_of(expr, C)) == expr.to_C_str()


@pytest.mark.parametrize("function", ["min", "max"])
def test_extremes_and_choices(function: str) -> None:
    first, second = (isl.PwAff(f"[n, m] -> {{ [({v})] }}") for v in ("n", "2m - floor(n/3)"))
    expr = BUILD.expr_from_pw_aff(getattr(first, function)(second).max(isl.PwAff("{ [(3)] }")))
    assert text(code_of(expr, C)) == expr.to_C_str()
    pieces = isl.PwAff("[n, m] -> { [(n)] : m > 3 and n mod 2 = 0; [(m + 1)] : m <= 3 or n > 7 }")
    expr = BUILD.expr_from_pw_aff(pieces.coalesce())
    assert text(code_of(expr, C)) == expr.to_C_str()


@pytest.mark.parametrize(
    "where",
    ["n > 0 and m > n", "n > 0 or (m > 3 and m < 7)", "(n > 5 or m > 3) and n < 9",
     "n mod 4 = 1 or m = 2"],
)  # fmt: skip
def test_conditions(where: str) -> None:
    expr = BUILD.expr_from_set(isl.Set(f"[n, m] -> {{ : {where} }}"))
    assert text(code_of(expr, C)) == expr.to_C_str()


def test_functions_have_the_names_of_the_target() -> None:
    expr = BUILD.expr_from_pw_aff(isl.PwAff("[n, m] -> { [(floor(n/32))] }"))
    assert code_of(expr, CUDA) == Call("tc_floordiv", (Name("n"), Literal("32")))
    converter = IslCode(CUDA)
    assert converter(expr) is converter(expr)
