"""Sums of products with guards, in tiles: results without terms, and what is 0 without a mask.

Tiles are of all results: what is outside of the instances was added to those that have no terms.
Steps were left out where a condition of the program itself made a factor 0, or another number.
"""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from tests.programs import arrays_for, comprehension_of
from tests.rewrites.scop.test_masked_sums import FEW, always

__all__ = ["always"]

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

PLAIN = "y(m,n) +=! float(x(m,k)) * w(k,n) where m in 0:96"
ROWS = {
    "first": (f"bfloat16(96,70) x, bfloat16(70,64) w) -> (y) {{ {PLAIN}, exists m < 66 }}", 0),
    "last": (f"bfloat16(96,70) x, bfloat16(70,64) w) -> (y) {{ {PLAIN}, exists m >= 30 }}", 0),
    "of a window": (
        """float(2,18,32) x, float(3,32,64) w) -> (y) {
        y(i,h,n) +=! x(i,h+r,k) * w(r,k,n) where h in 0:24, r in 0:3, exists h < 16 }""",
        1,
    ),
    "of a triangle": (
        """bfloat16(96,70) x, bfloat16(70,64) w) -> (y) {
        y(m,n) +=! relu(x(m,k)) * w(k,n) where m in 0:96, k in 0:62, exists k >= m - 4 }""",
        0,
    ),
}
SHAPES: list[list[Any]] = [[(96, 70), (70, 64)], [(2, 18, 32), (3, 32, 64)]]


@pytest.mark.slow_but("first", "of a window")
@pytest.mark.parametrize("rows", ROWS)
def test_they_stay_zero(rows: str, check_emulated: CheckAll, always: None) -> None:
    text, number = ROWS[rows]
    check_emulated([with_infinities(f"def f({text}", SHAPES[number])], gpu=FEW)


def test_they_stay_zero_without_masks(
    check_emulated: CheckAll, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles are refused where no rewrite gives every result its terms."""
    monkeypatch.setattr("tcdsl.plan.search.OF_FACTORS", ())
    check_emulated([with_infinities(f"def f({ROWS['first'][0]}", SHAPES[0])], gpu=FEW)


def test_terms_that_are_counted_from_below_0_are_summed_up_again(
    check_emulated: CheckAll, always: None
) -> None:
    """argmax counts its index from 0: all indices stay where they are."""
    source = """def f(float(70,70) x, float(70,53) w) -> (y, p) {
        y(m,n) +=! x(m+3,k+3) * w(k+3,n) where m in -3:60, k in -3:m+1
        p(m) argmax=! x(m,j) }"""
    check_emulated([with_infinities(source, [(70, 70), (70, 53)])], gpu=FEW)


OWN = [  # another number; 0 times NaN, which integers have not
    ("int8", "int32(m < 20 ? x(m,k) : 1)"),
    ("bfloat16", "(m < 20 ? x(m,k) * 2 : 0)"),
]


def test_conditions_of_the_program_are_no_masks(check_emulated: CheckAll, always: None) -> None:
    cases: list[tuple[str, list[Any]]] = []
    for dtype, own in OWN:
        source = f"""def f({dtype}(96,192) x, {dtype}(192,96) w) -> (y) {{
            y(m,n) +=! {own} * w(k,n)
                where m in 0:96, k in 0:192, n in 0:96, exists k >= n + 4 }}"""
        shapes: list[Any] = [(96, 192), (192, 96)]
        cases.append((source, shapes) if dtype == "int8" else with_infinities(source, shapes))
    check_emulated(cases, gpu=FEW)


def test_steps_of_one_column_of_blocks_are_in_turn(check_emulated: CheckAll, always: None) -> None:
    """Blocks of the second have none: their coordinate is a constant, as the only step's is."""
    source = """def f(bfloat16(2,96,64) x, bfloat16(64,96) w) -> (y) {
        y(b,m,n) +=! x(b,m,k) * w(k,n) where k in 0:64, exists k >= n + 4 }"""
    check_emulated([(source, [(2, 96, 64), (64, 96)])], gpu=FEW)


def with_infinities(source: str, shapes: list[Any]) -> tuple[str, list[Any]]:
    inputs = arrays_for(comprehension_of(source), shapes, 7)
    flat = inputs[1].reshape(-1)
    flat[5], flat[-3] = nan, inf
    return source, inputs


FEW_RESULTS = {
    "rows of seven": (
        """def f(bfloat16(7,64) x, bfloat16(69,12) w) -> (y) {
        y(m,n) +=! float(x(m-(-3),k)) * w(k,n-(-3))
            where m in -3:4, n in -3:4, k in 0:64, exists 2*k <= m + 30, exists k >= n }""",
        [(7, 64), (69, 12)],
    ),
    "rows of one": (
        """def f(uint8(70,96) x, float8_e5m2(1,96) w) -> (y) {
        y(m,n) +=! x(m,k) * (n <= k ? w(n,k) : 0)
            where m in 0:70, n in 0:1, k in 0:96, exists k >= m - 4, exists k <= n }""",
        [(70, 96), (1, 96)],
    ),
}


@pytest.mark.parametrize("name", FEW_RESULTS)
def test_few_results_a_row(name: str, check_emulated: CheckAll, always: None) -> None:
    """Flags of rows that have a NaN were tried: parts of sums were read that nobody had begun."""
    source, shapes = FEW_RESULTS[name]
    inputs = arrays_for(comprehension_of(source), shapes, 3)
    check_emulated([(source, inputs)], gpu=FEW)


def test_threads_without_a_row_load_no_bounds(check_emulated: CheckAll, always: None) -> None:
    """Eight rows a block, 33 rows: others read a result of the last while its thread stored it."""
    source = """def f(double(64,33) x, double(33,33) w) -> (y) {
        y(n,m) +=! x(m,k) * w(k,n) where m in 0:64, n in 0:33, k in 0:33, exists m + k <= 30 }"""
    inputs = arrays_for(comprehension_of(source), [(64, 33), (33, 33)], 7)
    inputs[1][30, 32] = inf  # of the last row, whose threads have seven without one beside them
    check_emulated([(source, inputs)], gpu=FEW)
