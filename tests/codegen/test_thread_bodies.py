"""Bodies of parallel loops as functions: what they are passed, and where they stay in the loop."""

import re
from collections.abc import Callable, Sequence

import pytest

from tcdsl.codegen.ast.build import binary, call, code, index
from tcdsl.codegen.ast.nodes import (
    Assign,
    Code,
    Declare,
    Evaluate,
    For,
    If,
    Name,
    Node,
    Scope,
    Type,
    Variable,
)
from tcdsl.codegen.c.thread_bodies import LEAST_STORES, with_thread_bodies
from tcdsl.driver import Compiled

Compile = Callable[..., Compiled]
CheckAll = Callable[..., None]

KNOWN = {"x": "const float *restrict x", "y": "float *restrict y", "N": "const int64_t N"}


def loop(name: str, end: int | str, *body: Node, collapsed: int = 0) -> For:
    condition = binary(name, "<", end)
    return For(Type("int64_t"), name, code(0), condition, code(1), body, collapsed=collapsed)


def store(target: str, at: str, value: Code | str) -> Assign:
    return Assign(index(target, at), code(value))


def long(*body: Node) -> For:
    """Return a loop that is long enough for a function."""
    return loop("c9", LEAST_STORES, *body)


ADDED = store("y", "c9", index("x", "c9"))


def calls(nodes: Sequence[Node]) -> list[str]:
    found, functions = with_thread_bodies(nodes, KNOWN)
    assert len(functions) == (0 if found == list(nodes) else 1)
    return [parameter for function in functions for parameter in function.parameters]


def test_the_body_is_a_function_of_what_it_mentions() -> None:
    parallel = loop("c0", 8, long(store("y", "c0", index("x", "c9"))), collapsed=1)
    (found,), (function,) = with_thread_bodies([parallel], KNOWN)
    assert isinstance(found, For)
    assert found.body == (Evaluate(call("tcdsl_thread0", "x", "y", "c0")),)
    assert function.parameters == (KNOWN["x"], KNOWN["y"], "const int64_t c0")
    assert function.body == parallel.body


def test_functions_have_numbers() -> None:
    nodes = [loop("c0", 8, long(ADDED), collapsed=1) for _ in range(2)]
    _, functions = with_thread_bodies(nodes, KNOWN)
    assert [function.name for function in functions] == ["tcdsl_thread0", "tcdsl_thread1"]


def test_loops_around_and_constants_are_passed() -> None:
    declared = Declare(Type("int64_t"), (Variable("w_range0", code(3)),), before="const ")
    inside = long(store("y", "w_range0", index("x", binary("c0", "+", "N"))))
    parallel = loop("c1", 8, inside, collapsed=1)
    parameters = calls([Scope((loop("c0", "N", declared, parallel),))])
    assert parameters == [*KNOWN.values(), "const int64_t c0", "const int64_t w_range0"]


def test_what_a_body_declares_is_not_passed() -> None:
    """Another loop before it may have one of that name."""
    declared = Declare(Type("int64_t"), (Variable("w_range0", code(3)),), before="const ")
    parallel = loop("c0", 8, declared, long(store("y", "c9", "w_range0")), collapsed=1)
    assert calls([declared, parallel]) == [KNOWN["y"]]


def test_local_arrays_are_passed_by_their_addresses() -> None:
    array = Declare(Type("float"), (Variable("t", size="64"),), after=" __attribute__((x))")
    pointer = Declare(Type("float"), (Variable("p", Name("w_p"), pointer="*restrict "),))
    inside = long(store("t", "c9", index("p", "c9")))
    parameters = calls([array, pointer, loop("c0", 8, inside, collapsed=1)])
    assert parameters == ["float *restrict t", "float *restrict p"]


def test_a_variable_of_the_code_around_keeps_the_body_in_the_loop() -> None:
    """A copy would not show what the loop stores in it."""
    variable = Declare(Type("float"), (Variable("s"),))
    assert not calls([variable, loop("c0", 8, long(Assign(Name("s"), code(1))), collapsed=1)])


def test_what_the_body_declares_is_not_passed() -> None:
    inside = long(Declare(Type("float"), (Variable("s"),)), store("y", "c9", "s"))
    assert calls([loop("c0", 8, inside, collapsed=1)]) == [KNOWN["y"]]


def test_short_bodies_stay() -> None:
    short = loop("c9", LEAST_STORES - 1, ADDED)
    assert not calls([loop("c0", 8, short, collapsed=1)])
    assert not calls([loop("c0", 8, If(code("x"), (ADDED,)), collapsed=1)])
    assert calls([loop("c0", 8, loop("c9", "N", ADDED), collapsed=1)])
    assert calls([loop("c0", 8, loop("c1", 64, loop("c9", 8, ADDED)), collapsed=1)])


def test_serial_loops_stay() -> None:
    assert not calls([loop("c0", 8, long(ADDED))])


def test_of_collapsed_loops_the_last_one_calls() -> None:
    parallel = loop("c0", 8, loop("c1", 8, long(store("y", "c1", "c0"))), collapsed=2)
    (found,), (function,) = with_thread_bodies([parallel], KNOWN)
    assert isinstance(found, For)
    (inner,) = found.body
    assert isinstance(inner, For) and inner.variable == "c1"
    assert inner.body == (Evaluate(call("tcdsl_thread0", "y", "c0", "c1")),)
    assert function.parameters[1:] == ("const int64_t c0", "const int64_t c1")


SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""


def test_rows_are_functions_on_threads_alone(compiled: Compile) -> None:
    body = compiled(SOFTMAX, (300, 600)).source.body
    assert re.search(r"omp parallel for.*\n.*\n *tcdsl_thread0\(x, y, c0\);\n *\}", body)
    assert "tcdsl_thread" not in compiled(SOFTMAX, (300, 600), threads=1).source.body
    assert "tcdsl_thread" not in compiled(SOFTMAX, (30000, 6)).source.body


@pytest.mark.parametrize("shape", [(300, 600), (67, 1031)])
def test_they_compute_what_loops_do(shape: tuple[int, int], check_all: CheckAll) -> None:
    check_all([(SOFTMAX, [shape])])
