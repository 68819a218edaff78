"""Vectors beside a read that is the same for several neighbours: groups' scales, larger images."""

from collections.abc import Callable
from typing import Any

import pytest

CheckAll = Callable[..., None]

SCALED = "def f(float(N,K) x, float(N,G) s) -> (y) {{ y(n,k) = x(n,k) * s(n, {}) where k in 0:K }}"
# The program, its shapes, and how many neighbours a thread may have.
CASES = {
    "groups": (SCALED.format("k / 32"), [(5, 96), (5, 3)], 4),
    "part of a group": (SCALED.format("(k + 2) / 8"), [(5, 64), (5, 9)], 2),
    "no multiple": (SCALED.format("(k + 1) / 8"), [(5, 64), (5, 9)], 1),
    "odd rows": (SCALED.format("k / 4"), [(3, 37), (3, 10)], 1),
    "enlarged": (
        "def f(float(N,M) x) -> (y) { y(n,k) = x(n / 2, k / 2) where k in 0:64, n in 0:6 }",
        [(3, 32)], 2,
    ),
    "sums": (SCALED.replace("y(n,k) =", "y(n) +=!").format("k / 16"), [(5, 256), (5, 16)], 4),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lanes(name: str, cuda_unit: Callable[..., Any]) -> None:
    source, shapes, width = CASES[name]
    (chosen,) = cuda_unit(source, *shapes).done.plan.weighed
    configs = (one.get("config", {}) for one in chosen.candidates())
    assert max(config.get("vector", 1) for config in configs) == width


def test_right(check_emulated: CheckAll, check_all: CheckAll) -> None:
    cases = [(source, shapes) for source, shapes, _ in CASES.values()]
    check_emulated(cases)
    check_all(cases)
