"""Barriers that not all threads of a block meet are found in the nodes of a kernel."""

from collections.abc import Sequence

import pytest

from tcdsl.codegen.ast.nodes import Assign, Call, Declare, Evaluate, Literal, Node, Type, Variable
from tcdsl.codegen.passes.uniformity import why_not_uniform
from tests.codegen.written import code, let, loop, when

BARRIER = Evaluate(code("__syncthreads()"))


def store(text: str) -> Node:
    return Assign(code(text), Literal("1"))


def fold(text: str) -> Node:
    return let("w_fold", text, "float")


def why_not(nodes: Sequence[Node], block: tuple[int, ...] = (64, 4, 1)) -> str | None:
    return why_not_uniform(nodes, block, uniform=["n", "tickets"])


UNIFORM: dict[str, list[Node]] = {
    "no condition": [BARRIER],
    "blocks": [let("c0", "blockIdx.x"), when("c0 == 3", BARRIER)],
    "a loop above the threads": [
        loop(
            "c0", "tcdsl_first(3, blockIdx.x, 7)", "c0 <= tc_imin(n, 4 * c0)",
            let("c1", "threadIdx.x"), store("x[c1]"), BARRIER,
        )
    ],
    "what is beside a guard": [
        let("c1", "threadIdx.x"),
        when("c1 < n", store("x[c1]"), otherwise=(store("y[c1]"),)),
        BARRIER,
    ],
    "a predicate inside the call": [
        let("w_active0", "threadIdx.x < n", "bool"),
        fold("fold_xy(t if w_active0 else 0)"),
    ],
    "a guard in one line": [when("blockIdx.y == 1", BARRIER)],
    "the last block": [
        let("c0", "blockIdx.x"), when("tc_last_block(tickets + c0, 7)", BARRIER),
    ],
    "a name that hides another": [
        loop("c1", "threadIdx.x", "c1 < n", store("x[c1]")),
        loop("c1", "0", "c1 < n", BARRIER),
    ],
    "an unrolled loop": [loop("c2", "0", "c2 < 4", when("c2 >= n", BARRIER))],
    "a conversion": [let("i", "tc_cast_i32_i64(n)", "int64_t"), when("i > 3", BARRIER)],
}  # fmt: skip

DIVERGENT: dict[str, list[Node]] = {
    "a guard": [let("c1", "threadIdx.x"), when("c1 < n", BARRIER)],
    "its else": [when("threadIdx.y < n", store("x[0]"), otherwise=(BARRIER,))],
    "another conjunct": [when("threadIdx.x == 0 and tc_last_block(tickets, 7)", store("x[0]"))],
    "an arm of a choice": [fold("fold_xy(t) if threadIdx.x < n else 0")],
    "a bound": [
        let("c1", "threadIdx.x"),
        Declare(
            Type("int"), (Variable("i", code("4 * c1")), Variable("j", code("2"))), before="const "
        ),
        loop("c2", "0", "c2 <= tc_imin(i, n)", BARRIER),
    ],
    "iterations": [loop("c1", "threadIdx.x", "c1 < n", BARRIER)],
    "a guard some levels above": [
        let("w_active0", "threadIdx.x < n", "bool"),
        when("w_active0", loop("c2", "0", "c2 < n", when("c2 > 1", fold("fold_xy(t)")))),
    ],
    "the last block, asked by some": [
        when("threadIdx.y == 0", when("tc_last_block(tickets, 7)", store("x[0]")))
    ],
    "what is read": [when("x[blockIdx.x] > 0", BARRIER)],
    "an index that is read": [let("w_index0", "I[0]", "int64_t"), when("w_index0 < n", BARRIER)],
    "what an unknown function says": [when("tc_exp_f32(n) > 1", BARRIER)],
}


@pytest.mark.parametrize("name", UNIFORM)
def test_what_all_threads_meet(name: str) -> None:
    assert why_not(UNIFORM[name]) is None


@pytest.mark.parametrize("name", DIVERGENT)
def test_what_some_threads_miss(name: str) -> None:
    reason = why_not(DIVERGENT[name])
    assert reason is not None and reason.startswith("not all threads of a block meet ")


def test_the_reason_names_call_and_condition() -> None:
    assert why_not(DIVERGENT["iterations"]) == (
        "not all threads of a block meet __syncthreads in"
        " 'for (int c1 = threadIdx.x; c1 < n; c1++) {'"
    )


def test_an_axis_with_one_thread_tells_nothing_apart() -> None:
    assert why_not(DIVERGENT["its else"], (64, 1, 1)) is None
    assert why_not(DIVERGENT["what is read"], (1, 1, 1)) is None


@pytest.mark.parametrize(("axis", "is_met"), [("x", False), ("y", True)])
def test_a_fold_within_a_warp_needs_its_own_row(axis: str, is_met: bool) -> None:
    nodes = [when(f"threadIdx.{axis} < n", fold("fold_x(t)"))]
    assert (why_not(nodes, (8, 8, 1)) is None) == is_met


def test_blocks_of_a_cluster_differ_in_their_rank() -> None:
    nodes = [when("blockIdx.z == 0", BARRIER)]
    assert why_not(nodes, (64, 4, 1, 8)) is None
    wide = Evaluate(Call("tc_cluster_sync", participants="xyzc"))
    assert why_not([when("blockIdx.z == 0", wide)], (64, 4, 1, 8)) is not None
