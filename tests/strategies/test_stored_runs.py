"""What the second-level cache takes for results: whole sectors, or parts of them."""

from collections.abc import Callable

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.poly.scop import Scop
from tcdsl.strategies.gpu_grouping import group_for_gpu
from tcdsl.strategies.implicit_product import classes_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.stored_runs import PART_COST, stored_bytes

H200 = load_chip("h200")
LAST = """def f({t}(N,H,W,C) I, {t}(F,3,C) K) -> (O) {{
    O(n,h,w,f) +=! (w + r >= 1 && w + r <= W ? I(n,h,w+r-1,c) : 0) * K(f,r,c) where w in 0:W
}}"""
SECOND = """def f({t}(N,C,H,W) I, {t}(F,C,3) K) -> (O) {{
    O(n,f,h,w) +=! (w + r >= 1 && w + r <= W ? I(n,c,h,w+r-1) : 0) * K(f,c,r) where w in 0:W
}}"""


@pytest.mark.parametrize(
    ("source", "dtype", "width", "cost"),
    [
        (LAST, "bfloat16", 8, 1.0),  # 64 bytes of a row
        (SECOND, "bfloat16", 8, 2 * PART_COST),  # pairs: half a sector
        (SECOND, "bfloat16", 7, 4 * PART_COST),  # elements: a quarter
        (SECOND, "float", 8, 1.0),  # pairs are eight bytes
        (SECOND, "float", 7, 2 * PART_COST),
    ],
)
def test_sectors(
    source: str, dtype: str, width: int, cost: float, lower: Callable[..., Scop]
) -> None:
    shapes = [(2, 9, width, 64), (64, 3, 64)]
    if source is SECOND:
        shapes = [(2, 64, 9, width), (64, 64, 3)]
    problem = _problem(lower(source.format(t=dtype), *shapes))
    classes = classes_of(problem)
    assert classes is not None
    size = 2 * 9 * width * 64 * (4 if dtype == "float" else 2)
    assert stored_bytes(problem, classes) == pytest.approx(cost * size)


def _problem(scop: Scop) -> Problem:
    grouped = group_for_gpu(scop, Options(), H200)
    (group,) = grouped.groups
    return Problem(grouped.scop, group, grouped.shapes, H200)
