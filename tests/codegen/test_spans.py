"""Spans of isl's bounds, and the guards that are numbers by them."""

import ast
from itertools import product

import pytest

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ONE, ZERO
from tcdsl.codegen.ast.nodes import Code
from tcdsl.codegen.ast.text import text
from tcdsl.codegen.cuda.spans import guard_of_last, span_of
from tests.codegen.written import code

MACROS = {"min": "tc_imin", "max": "tc_imax", "floord": "tc_floordiv"}
SPANS = {"a": (0, 15), "b": (-3, 4), "c": (2, 5)}


def in_cuda(value: str) -> Code:
    """Return isl's expression *value*."""
    for name, function in MACROS.items():
        value = value.replace(f"{name}(", f"{function}(")
    return code(value)


def c_value(text: str, values: dict[str, int]) -> int:
    """Evaluate *text* as C does: quotients round to 0, remainders have the dividend's sign."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right):
                x, y = value(left), value(right)
                quotient = abs(x) // abs(y) * (1 if x * y >= 0 else -1) if y else 0
                return {"Add": x + y, "Sub": x - y, "Mult": x * y, "Div": quotient,
                        "Mod": x - quotient * y}[type(op).__name__]  # fmt: skip
            case ast.Call(func=ast.Name(id=name), args=[one, other]):
                x, y = value(one), value(other)
                return min(x, y) if name == "min" else max(x, y) if name == "max" else x // y
        raise AssertionError(ast.dump(node))

    return value(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-((a + 8) / 16) + 6", (5, 6)),
        ("(b - 4) / 3", (-2, 0)),
        ("floord(b - 4, 3)", (-3, 0)),
        ("min(a, 3 * b + 1)", (-8, 13)),
        ("max(7, -2 * c)", (7, 7)),
        ("a % 4", (0, 3)),
        ("b * c - a", (-30, 20)),
    ],
)
def test_all_values_are_in_the_span_and_its_ends_are_met(
    value: str, expected: tuple[int, int]
) -> None:
    found = {
        c_value(value, dict(zip(SPANS, values, strict=True)))
        for values in product(*(range(low, high + 1) for low, high in SPANS.values()))
    }
    assert span_of(in_cuda(value), SPANS) == expected == (min(found), max(found))


@pytest.mark.parametrize(
    "value",
    ["n - 1", "b % 3", "a / b", "a / (c - 2)", "floord(a, b)", "1 if a > 3 else 2"],
)
def test_what_cannot_be_told(value: str) -> None:
    assert span_of(in_cuda(value), SPANS) is None


@pytest.mark.parametrize(
    ("last", "guard"),
    [
        ("-((a + 8) / 16) + 6", "u <= 5 || u <= 6 && u <= -((a + 8) / 16) + 6"),
        ("a - 1", "u <= a - 1"),  # 0 may be beyond it, and 7 may not
        ("a - 9", "u <= 6 && u <= a - 9"),
        ("a + 3", "u <= 3 || u <= a + 3"),
        ("min(n, 5)", "u <= tc_imin(n, 5)"),  # nothing is known of n
        ("6", "u <= 6"),
    ],
)
def test_guards_of_an_unrolled_loop_are_numbers_where_they_may_be(last: str, guard: str) -> None:
    node = loop_ast.For("u", ZERO, in_cuda(f"u <= {last}"), ONE, loop_ast.Block([]))
    assert text(guard_of_last(node, 8, SPANS)) == guard
