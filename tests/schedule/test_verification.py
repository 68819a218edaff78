"""One verifier for plans of both targets: what it asks of each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import Compiled
from tcdsl.poly.loop_tree import LoopKind, with_kind
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.verification import why_not_verified

ROWS = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"


def _with_kind(plan: Plan, old: LoopKind, new: LoopKind) -> Plan:
    kernels = tuple(replace(k, tree=with_kind(k.tree, old, new)) for k in plan.kernels)
    return replace(plan, kernels=kernels)


def test_loops_of_a_cpu_are_on_no_blocks(compiled: Callable[..., Compiled[Any]]) -> None:
    plan = compiled(ROWS, (300, 4000)).plan
    assert why_not_verified(plan) is None
    wrong = _with_kind(plan, LoopKind.VECTOR, LoopKind.THREAD)
    assert (why_not_verified(wrong) or "").startswith("a CPU has no level thread for the loop k")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (LoopKind.BLOCK, LoopKind.PARALLEL, "a GPU has no level parallel for the loop"),
        (LoopKind.LANES, LoopKind.VECTOR, "a GPU has no level vector for the loop"),
        (LoopKind.LANES, LoopKind.BLOCK, "that is not over blocks is outside one that is"),
    ],
)
def test_loops_of_a_gpu_are_on_its_levels(
    old: LoopKind, new: LoopKind, reason: str, cuda_unit: Callable[..., Any]
) -> None:
    plan, gpu = cuda_unit(ROWS, (300, 4000)).done.plan, load_chip("h200")
    assert why_not_verified(plan, gpu) is None
    assert reason in (why_not_verified(_with_kind(plan, old, new), gpu) or "")
