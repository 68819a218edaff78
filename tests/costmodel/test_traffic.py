"""Bytes between memory and a kernel."""

from math import prod
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.traffic import Traffic, traffic_of
from tcdsl.driver import compile_to_c, compile_to_cuda
from tcdsl.lang.request import Request
from tcdsl.schedule.mapping import Mapped

MATMUL = "def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
SOFTMAX = """def softmax(float(M, N) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
"""


def planned(source: str, *shapes: tuple[int, ...], gpu: bool = False) -> Any:
    program = tcdsl.define(source)
    function = program[program.names[0]]
    special = function.specialise(*(tcdsl.spec(shape, "float32") for shape in shapes))
    if gpu:
        return compile_to_cuda(Request(function.comprehension, special), load_chip("h200")).plan
    return compile_to_c(Request(function.comprehension, special), Cpu(2)).plan


def found(plan: Any) -> list[dict[tuple[str, bool], Traffic]]:
    return [
        {(t.array, t.is_write): t for t in traffic_of(plan.scop, k.tree, plan.placements)}
        for k in plan.kernels
    ]


def test_a_product_reads_each_operand_and_writes_the_result() -> None:
    (traffic,) = found(planned(MATMUL, (64, 48), (48, 40)))
    assert traffic["A", False].once_bytes == 64 * 48 * 4
    assert traffic["B", False].once_bytes == 48 * 40 * 4
    assert traffic["C", True].once_bytes == 64 * 40 * 4
    assert ("C", False) not in traffic  # its sums are in registers
    assert traffic["A", False].all_bytes == 64 * 48 * 40 * 4
    assert traffic["A", False].blocks_bytes is None


def test_blocks_ask_for_their_tiles() -> None:
    plan = planned(MATMUL, (2048, 64), (64, 1024), gpu=True)
    (traffic,) = found(plan)
    blocks = prod(Mapped(plan.scop, plan.kernels[0].tree).grid)
    of_c = traffic["C", True]
    assert of_c.blocks_bytes == of_c.once_bytes == 2048 * 1024 * 4
    # A block has all of k: its rows of A, its columns of B.
    a, b = (traffic[name, False].blocks_bytes for name in "AB")
    assert a is not None and b is not None
    assert a * b == (64 * 4) ** 2 * 2048 * 1024 * blocks


@pytest.mark.parametrize("gpu", [False, True])
def test_local_arrays_move_nothing(gpu: bool) -> None:
    plan = planned(SOFTMAX, (64, 1000), gpu=gpu)
    for traffic in found(plan):
        assert not {array for array, _ in traffic} & set(plan.placements)
    total = [t for traffic in found(plan) for t in traffic.values()]
    assert all(t.once_bytes is not None and t.all_bytes is not None for t in total)
    assert all(t.once_bytes <= t.all_bytes for t in total if t.once_bytes and t.all_bytes)


def test_open_sizes_are_not_counted() -> None:
    function = tcdsl.define(SOFTMAX).softmax
    special = function.specialise(tcdsl.spec((64, 1000), "float32"))
    request = Request(function.comprehension, special, opened={"M": None})
    made = compile_to_c(request, Cpu(2))
    for traffic in found(made.plan):
        assert traffic["x", False].once_bytes is None
