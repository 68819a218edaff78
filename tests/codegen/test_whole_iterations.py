"""Iterations that isl prints in one place: what lives in one must not be in two scopes."""

from collections.abc import Callable

import pytest

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.opened_loops import unopened_loops
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, sequence
from tcdsl.poly.scop import Scop

Lower = Callable[..., Scop]

# What runs in one iteration alone, the first thing of the first or the last of the last.
FIRST = "def f(float(N) x) -> (z, y) { z(i) = x(i) where i in 0:1\n y(i) = x(i) }"
LAST = "def f(float(N) x) -> (y, s) { y(i) = x(i)\n s +=! y(i) where i in N-1:N }"


def tree_of(scop: Scop) -> Loop:
    names = [s.name for s in scop.statements if s.indices]
    leaves = sequence([Leaf(name) for name in names])
    return Loop("i", {name: Coordinate(0) for name in names}, LoopKind.PARALLEL, leaves)


@pytest.mark.parametrize("source", [FIRST, LAST])
def test_isl_prints_iterations_apart_without_frames(source: str, lower: Lower) -> None:
    scop = lower(source, (9,))
    assert unopened_loops(loop_ast.generate(scop, tree_of(scop), {})) == ["i"]


@pytest.mark.parametrize("source", [FIRST, LAST])
@pytest.mark.parametrize("size", [2, 3, 9])
def test_whole_iterations_are_in_one_loop(source: str, size: int, lower: Lower) -> None:
    scop = lower(source, (size,))
    ast = loop_ast.generate(scop, tree_of(scop), {}, whole=["i"])
    match ast:
        case loop_ast.Mark(name="i", body=loop_ast.For() as loop):
            statements = [leaf.statement for leaf in loop_ast.leaves(loop)]
            assert statements == [s.name for s in scop.statements if s.indices]
        case _:
            pytest.fail(f"not a loop: {ast}")


def test_one_iteration_is_no_loop(lower: Lower) -> None:
    scop = lower(FIRST, (1,))
    assert unopened_loops(loop_ast.generate(scop, tree_of(scop), {}, whole=["i"])) == ["i"]
