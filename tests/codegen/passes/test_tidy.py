"""Braces that nobody needs go, and no name changes its meaning."""

import pytest

from tcdsl.codegen.ast.build import index, vector_type
from tcdsl.codegen.ast.nodes import Assign, Declare, Literal, Node, Type, Variable
from tcdsl.codegen.passes.tidy import without_idle_braces
from tests.codegen.written import let, loop, scope, when

INTEGER = Type("int64_t")


def store(array: str, at: str = "0") -> Node:
    return Assign(index(array, at), Literal("1"))


def test_a_block_that_declares_nothing_is_dissolved() -> None:
    nodes = [scope(store("x"), scope(store("y"))), store("z")]
    assert without_idle_braces(nodes) == (store("x"), store("y"), store("z"))


def test_names_that_end_with_their_parents_stay_apart_from_nobody() -> None:
    inside = let("c1", "2 * (c0 + 1)"), store("x", "c1")
    nodes = [loop("c0", "0", "c0 <= 3", scope(*inside))]
    assert without_idle_braces(nodes) == (loop("c0", "0", "c0 <= 3", *inside),)


@pytest.mark.parametrize(
    "declared",
    [
        let("c1", "0"),
        Declare(Type("float"), (Variable("s"),)),
        Declare(Type("float"), (Variable("s", size="4"),)),
        Declare(vector_type("float", 4), (Variable("v"),)),
        Declare(Type("tc_c32"), (Variable("s"),)),
        Declare(INTEGER, (Variable("a"), Variable("b"))),
        Declare(INTEGER, (Variable("p", pointer="*"),)),
    ],
)
def test_a_block_before_others_keeps_its_names_to_itself(declared: Node) -> None:
    nodes = (scope(declared), store("x"))
    assert without_idle_braces(nodes) == nodes


def test_a_name_of_the_parents_is_not_declared_twice() -> None:
    nodes: tuple[Node, ...] = (let("c1", "0"), scope(let("c1", "1"), store("x", "c1")))
    assert without_idle_braces(nodes) == nodes
    first, last = (
        Declare(INTEGER, (Variable(name, Literal("0")), Variable("j", Literal("1"))))
        for name in ("i", "k")
    )
    assert without_idle_braces((first, scope(last))) == (first, scope(last))


def test_names_of_a_dissolved_block_count_as_its_parents() -> None:
    nodes: tuple[Node, ...] = (
        let("c1", "0"),
        scope(store("x"), scope(let("c1", "1"), store("x", "c1"))),
    )
    inner = (store("x"), let("c1", "1"), store("x", "c1"))
    assert without_idle_braces(nodes) == (let("c1", "0"), scope(*inner))


def test_loops_conditions_and_else_keep_their_braces() -> None:
    nodes = (
        when("a", store("x"), otherwise=(scope(store("x", "2")),)),
        loop("c0", "0", "c0 < 4", scope(store("x", "c0"))),
    )
    assert without_idle_braces(nodes) == (
        when("a", store("x"), otherwise=(store("x", "2"),)),
        loop("c0", "0", "c0 < 4", store("x", "c0")),
    )
