"""Checks of what a loop gathers: recorded after it, where nothing in it changes what they read."""

import re

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.ast.build import ONE
from tcdsl.codegen.ast.loop_ast import Block, For, Leaf
from tcdsl.codegen.ast.nodes import Name
from tcdsl.codegen.cuda.late_checks import late_checks
from tcdsl.poly.loop_tree import Coordinate, Loop, LoopKind, Sequence
from tcdsl.poly.scop import Kind
from tests.codegen.written import code
from tests.emulated_programs import cuda_unit_of

ROWS = """
def f(int32(P) ptr, int64(E) col, float(E) val, float(C) x) -> (y) {
    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r + 1)
}
"""
CHANGED = """
def f(int64(N) col, float(N) x) -> (at, y) {
    at(i) = col(i)
    y(i) = x(at(i))
}
"""


def faults_in_loops(text: str) -> list[str]:
    """Return the lines in C loops that record a fault."""
    found, loops, depth = [], [], 0
    for line in text.split("\n"):
        if loops and "tc_fault(" in line:
            found.append(line)
        if line.lstrip().startswith("for ("):
            loops.append(depth)
        depth += line.count("{") - line.count("}")
        if loops and depth <= loops[-1]:
            loops.pop()
    return found


def test_no_fault_is_recorded_in_a_loop_over_rows() -> None:
    text = cuda_unit_of(ROWS, [(1001,), (30000,), (30000,), (1000,)]).source.text
    assert faults_in_loops(text) == [] and "w_wrong0 >= 0" in text
    # Short rows in batches, whose loads start together.
    assert re.search(
        r"w_turn0 < 4; w_turn0\+\+\) {\n *const int c2 = w_first0 \+ \d+ \* w_turn0", text
    )


def test_a_check_stays_in_a_loop_that_changes_what_it_reads() -> None:
    scop = cuda_unit_of(CHANGED, [(64,), (64,)]).done.plan.scop
    (check,) = (s.name for s in scop.statements if s.kind is Kind.CHECK)
    copy, gather = (s.name for s in scop.statements if s.kind is Kind.ASSIGN)

    def late(*names: str, init: str = "0", local: tuple[str, ...] = ()) -> list[str]:
        body = Block([Leaf(name, (Name("c0"),)) for name in names])
        node = For("c0", code(init), code("c0 < 64"), ONE, body)
        loop = Loop("L0", {name: Coordinate(0) for name in names}, LoopKind.SERIAL, Sequence(()))
        return [leaf.statement for leaf in late_checks(scop, node, loop, local)]

    assert late(check, gather) == [check]
    assert late(copy, check, gather) == []
    assert late(check, gather, init="-c1") == []  # -1 would be a value of the loop
    assert late(check, gather, local=("at",)) == []  # an array of the loop is gone after it


@pytest.mark.parametrize("wrong", [0, 7, 3999, 4000, 4700, 5019])
def test_the_entry_that_is_out_of_range_is_named(wrong: int) -> None:
    """In a short row, in a block of sums, in what is left after blocks, in the last row."""
    lengths = [9, 3991, 700, 0, *[8] * 40]
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rng = np.random.default_rng(0)
    col = rng.integers(0, 50, ptr[-1])
    values, x = rng.standard_normal((2, ptr[-1])).astype(np.float32), np.ones(50, np.float32)
    f = tcdsl.define(ROWS).f
    exe = f.compile(ptr, col, values[0], x, target="emulate")
    exe(ptr, col, values[0], x)
    col[wrong] = 50
    with pytest.raises(tcdsl.TCError, match=rf"col\({wrong}\)"):
        exe(ptr, col, values[0], x)


def test_of_several_one_that_is_out_of_range_is_named() -> None:
    ptr, col = np.array([0, 40, 80], np.int32), np.zeros(80, np.int64)
    col[[41, 42, 79]] = -1
    val, x = np.ones(80, np.float32), np.ones(50, np.float32)
    exe = tcdsl.define(ROWS).f.compile(ptr, col, val, x, target="emulate")
    with pytest.raises(tcdsl.TCError, match=r"col\((41|42|79)\)"):
        exe(ptr, col, val, x)
