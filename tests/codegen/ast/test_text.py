"""Nodes as text, and what is asked of them."""

import pytest

from tcdsl.codegen.ast.build import (
    address,
    as_factor,
    binary,
    call,
    cast,
    choice,
    index,
    member,
    paren,
    substituted,
    template,
    vector_type,
)
from tcdsl.codegen.ast.nodes import (
    Assign,
    Code,
    Comment,
    Declare,
    Evaluate,
    For,
    If,
    Literal,
    Name,
    Node,
    Scope,
    Shared,
    Type,
    Unary,
    Variable,
    Vector,
)
from tcdsl.codegen.ast.text import Line, lines, text
from tcdsl.codegen.ast.walk import library_names, mentioned, names, of_statement
from tests.codegen.written import code, loop

ZERO = Literal("0")


@pytest.mark.parametrize(("value", "expected"), [
    (binary("a", "+", binary("b", "*", 2)), "a + b * 2"),
    (cast("int", member("threadIdx", "x")), "(int)threadIdx.x"),
    (choice(binary("a", "<", 1), "b", paren(Unary("-", Name("c")))), "a < 1 ? b : (-c)"),
    (template("tc_vload", [4], address(index("x", "i"))), "tc_vload<4>(&x[i])"),
    (Vector(vector_type("float", 2), (Name("a"), Name("b"))), "tc_vec<float, 2>{{a, b}}"),
])  # fmt: skip
def test_expressions(value: Code, expected: str) -> None:
    assert text(value) == expected


@pytest.mark.parametrize(("node", "expected"), [
    (Declare(Type("int"), (Variable("i", ZERO), Variable("j", Name("c1"))), "const "),
     "const int i = 0, j = c1;"),
    (Declare(Type("float"), (Variable("x", size="4"),)), "float x[4];"),
    (Shared(Type("float"), "x", "4", 16), "__shared__ TC_VARIABLE(float, x, [4], 16);"),
    (Shared(Type("double"), "x", None, 8), "__shared__ TC_VARIABLE(double, x, , 8);"),
    (Shared(Type("float"), "x", "", 16), "extern __shared__ TC_DYNAMIC(float, x, 16);"),
    (Declare(Type("float"), (Variable("x", Name("p"), pointer="*const "),)), "float *const x = p;"),
    (Assign(index("y", 0), Name("s")), "y[0] = s;"),
    (Evaluate(call("tc_copy_wait")), "tc_copy_wait();"),
    (Comment("S0"), "// S0"),
    (If(Name("a"), (Assign(Name("b"), ZERO),), is_short=True), "if (a) b = 0;"),
    (For(Type("int"), "i", ZERO, code("i < 4"), Literal("2"), (), "#pragma unroll"),
     "#pragma unroll\nfor (int i = 0; i < 4; i += 2) {\n}"),
    (Scope((If(Name("a"), (), (Comment("b"),), comment="why"),)),
     "{\n  // why\n  if (a) {\n  } else {\n    // b\n  }\n}"),
])  # fmt: skip
def test_statements(node: Node, expected: str) -> None:
    assert "\n".join(line.text for line in lines([node])) == expected


def test_lines_know_their_statements() -> None:
    (node,) = of_statement([Scope((Comment("a"),))], "S0")
    found = list(lines([node, Comment("b")], 1))
    assert found == [Line("  {", "S0"), Line("    // a", "S0"), Line("  }", "S0"), Line("  // b")]


def test_what_nodes_mention() -> None:
    read = Assign(index("y", "i"), template("tc_fold_x", ["tc_op_add_f32", 32], index("x", "j")))
    nodes = [loop("i", "0", "i < n", Declare(Type("tc_c32"), (Variable("s", Name("t")),)), read)]
    assert mentioned(nodes) == {"i", "n", "t", "y", "x", "j"}
    assert {"tc_fold_x", "tc_op_add_f32", "tc_c32"} <= library_names(nodes)
    assert names(index("x", binary("i", "+", "j"))) == {"x", "i", "j"}


def test_a_name_is_replaced_by_a_value() -> None:
    value = code("4 * c0 + min(c1, 7)")
    assert substituted(value, {"c1": Literal("3")}) == code("4 * c0 + min(3, 7)")


@pytest.mark.parametrize(("value", "expected"), [
    (Name("c0"), "c0"), (Literal("12"), "12"), (Literal("-1"), "(-1)"), (paren("c0"), "(c0)"),
    (code("c0 + 1"), "(c0 + 1)"), (paren(code("c0 + 1")), "((c0 + 1))"),
])  # fmt: skip
def test_factors_have_the_parentheses_that_they_need(value: Code, expected: str) -> None:
    assert text(as_factor(value)) == expected
