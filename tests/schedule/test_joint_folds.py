"""Folds side by side: which are one call, and that results are right."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.schedule.joint_folds import joint_folds, why_not_joint
from tcdsl.schedule.mapping import Mapped

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]

SUMS = """def f(float(M,N) x, float(M,N) d) -> (e) {
    r(i) +=! x(i,j) * x(i,j)
    q(i) +=! d(i,j) * x(i,j)
    e(i,j) = d(i,j) * r(i) + x(i,j) * q(i)
}"""
FOUR = """def f(float(M,N) x, float(M,N) d) -> (a, b, c, e) {
    a(i) +=! x(i,j)
    b(i) +=! d(i,j)
    c(i) +=! x(i,j) * d(i,j)
    e(i) +=! x(i,j) * x(i,j)
}"""
WAITING = """def f(float(M,N) x) -> (y) {
    r(i) +=! x(i,j)
    q(i) +=! x(i,j) * r(i)
    y(i,j) = x(i,j) * q(i)
}"""
OTHER_OPERATORS = SUMS.replace("q(i) +=!", "q(i) max=!")
INDICES = SUMS.replace("q(i) +=!", "q(i) argmax=!").replace("* q(i)", "* float(q(i))")


def joint(unit: Any) -> list[tuple[str, str]]:
    plan = unit.done.plan
    kernels = [Mapped(plan.scop, kernel.tree) for kernel in plan.kernels]
    return [pair for k in kernels for pair in joint_folds(k, plan.placements, {}).items()]


def calls(unit: Any) -> list[str]:
    """Return what is folded, a vector or a value, in the order of the text."""
    return re.findall(r"= tc_fold_\w+<[^>]*>\((tc_vec<float, 2>|\w)", unit.source.text)


@pytest.mark.parametrize(("source", "count"), [(SUMS, 1), (FOUR, 2)])
def test_sums_of_a_row_are_folded_two_at_once(source: str, count: int, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source, (4096, 4096), (4096, 4096))
    assert len(joint(unit)) == count
    assert calls(unit) == ["tc_vec<float, 2>"] * count


@pytest.mark.parametrize(
    ("source", "columns", "reason"),
    [
        (OTHER_OPERATORS, 4096, "other operators or types"),
        (INDICES, 4096, "other operators or types"),
        (SUMS, 96, "without waiting"),
    ],
)
def test_what_is_folded_alone(source: str, columns: int, reason: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source, (4096, columns), (4096, columns))
    assert joint(unit) == [] and "tc_vec<float, 2>" not in calls(unit)
    plan = unit.done.plan
    (kernel,) = [Mapped(plan.scop, k.tree) for k in plan.kernels]
    one, other = [n for n in kernel.paths if n.endswith("_fold")]
    assert reason in (why_not_joint(kernel, plan.placements, one, other) or "")


def test_a_sum_that_waits_for_another_is_folded_after_it(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(WAITING, (4096, 4096))
    assert joint(unit) == [] and len(calls(unit)) == 2


@pytest.mark.slow
def test_right_at_all_sizes(check_emulated: CheckAll) -> None:
    sizes = [(0, 300), (3, 0), (1, 1), (5, 257), (3, 1024), (2, 4099), (7, 2048)]
    check_emulated([
        (source.replace("float", dtype), [size] * 2)
        for source in (SUMS, FOUR, OTHER_OPERATORS) for dtype in ("float", "half")
        for size in sizes
    ])  # fmt: skip
