"""What stands for a window in its operand: a multiple of it, and what is added to it."""

import pytest

from tcdsl.lang.comprehension import Expr
from tcdsl.lang.linear_forms import linear, of_linear
from tcdsl.rewrites.scop.stored_operands import over_windows


def form(constant: int, **factors: int) -> Expr:
    return of_linear(factors, constant)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (form(-1, h=1, r=1), ({"w": 1}, 0)),
        (form(0, h=1, r=1), ({"w": 1}, 1)),  # a guard: h + r is one more than the window
        (form(3, h=2, r=2), ({"w": 2}, 5)),
        (form(0, h=2, r=1), ({"h": 2, "r": 1}, 0)),  # no multiple of the window
    ],
)
def test_a_window_with_an_offset(expr: Expr, expected: tuple[dict[str, int], int]) -> None:
    """The window w is h + r - 1."""
    assert linear(over_windows(expr, {form(-1, h=1, r=1): "w"})) == expected
