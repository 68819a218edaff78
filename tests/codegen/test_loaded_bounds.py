"""What isl wrote of an index, as a sum: the loops that are given loaded bounds go by it."""

import pytest

from tcdsl.codegen.ast.build import ZERO
from tcdsl.codegen.passes.loaded_bounds import _sum, _terms
from tests.codegen.written import code


@pytest.mark.parametrize("text, found", [
    ("c1", {"c1": 1}),
    ("64 * c0 + c1 - 3", {"c0": 64, "c1": 1, "": -3}),
    ("-c0 + 7", {"c0": -1, "": 7}),
    ("5", {"": 5}),
    ("floord(c0, 2)", None),
    ("2 * (c0 + c1)", None),
    ("c0 + c0", None),
    ("min(c0, 3)", None),
])  # fmt: skip
def test_the_terms_of_a_text(text: str, found: dict[str, int] | None) -> None:
    assert _terms(code(text)) == found


def test_a_sum_of_terms() -> None:
    assert _sum({"c0": 64, "c1": 1, "": -3}) == code("64 * c0 + c1 + -3")
    assert _sum({}) == ZERO
