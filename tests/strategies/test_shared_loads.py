"""Points of a thread that have loads in common: what is the same along the next axis."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.strategies.templates import elementwise
from tests.strategies.test_templates import problems_of

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

# Channels last: of the loads of y all but one are the same for all p.
APPLIED = """def f(float(N,P,C) x, float(N,C) m, float(N,C) r, float(C) g, float(C) b) -> (y) {
    y(n,p,c) = (x(n,p,c) - m(n,c)) * r(n,c) * g(c) + b(c)
}"""
TWO = """def f(float(N,P,C) x, float(N,C) m, float(N,C) r) -> (y) {
    y(n,p,c) = (x(n,p,c) - m(n,c)) * r(n,c)
}"""


def shapes_of(n: int, p: int, c: int) -> list[tuple[int, ...]]:
    return [(n, p, c), (n, c), (n, c), (c,), (c,)]


def in_points(points: int, **config: int) -> Options:
    choice = {"kernel": "S0", "template": "elementwise", "points": points, **config}
    choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [choice]}
    return Options(choices=json.dumps(choices))


def test_a_thread_loads_once_what_its_points_read_alike(cuda_unit: MakeUnit) -> None:
    """Of four points: one loop, unrolled, in which NVRTC finds the same addresses."""
    options = in_points(4, threads_x=80, threads_y=1, repeat=1, vector=4)
    unit = cuda_unit(APPLIED, *shapes_of(8, 4096, 320), options=options)
    (loop,) = re.findall(r"#pragma unroll\n +for \(int (c\d+) = 0; \1 < 4", unit.source.text)[:1]
    loads = re.findall(r"tc_vload<4>\(&(\w+)\[([^;]*)\]\)", unit.source.text)
    assert {array for array, place in loads if loop in place} == {"x"}
    assert len(loads) == 5


def test_few_loads_in_common_are_not_worth_it() -> None:
    (problem,) = problems_of(TWO, shapes_of(8, 4096, 320)[:3])
    assert {config.points for config in elementwise.space(problem)} == {1}


@pytest.mark.parametrize(("sizes", "points"), [((2, 8, 64), 2), ((1, 12, 96), 4), ((3, 14, 13), 7)])
def test_points_are_right(
    sizes: tuple[int, int, int],
    points: int,
    check_emulated: CheckAll,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elementwise, "LEAST_THREADS", 1e-9)  # small sizes have points, too
    shapes = shapes_of(*sizes)
    (problem,) = problems_of(APPLIED, shapes)
    found = [c for c in elementwise.space(problem) if c.points == points]
    config = {name: getattr(found[0], name) for name in found[0].__slots__}
    check_emulated([(APPLIED, shapes)], options=in_points(**config))


@pytest.mark.parametrize("sizes", [(0, 5, 3), (1, 1, 1), (2, 7, 13), (5, 1, 64)])
def test_small_ones_are_right(sizes: tuple[int, int, int], check_emulated: CheckAll) -> None:
    check_emulated([(APPLIED, shapes_of(*sizes))])
