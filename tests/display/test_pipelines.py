"""Pipelines over time: what waits for what, and that the picture shows it."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import tcdsl
from tcdsl.display.pipelines import (
    Timeline,
    Use,
    caption,
    drawn_steps,
    pipeline,
    pipeline_rows,
    timelines,
    uses,
)

SLOW_COPIES = Timeline("S0", 3, 64, 32768, 1, latency_s=6e-7, copy_s=6e-7, product_s=3e-7)
SLOW_PRODUCTS = replace(SLOW_COPIES, copy_s=2e-7, product_s=7e-7)


def require_order(of: Timeline, found: list[Use]) -> None:
    """Require what barriers promise, of every step."""
    for use in found:
        assert use.stage == use.step % of.stages and use.phase == use.step // of.stages % 2
        assert use.asked + of.latency_s + of.copy_s <= use.arrived + 1e-15
        assert use.arrived <= use.began and use.ended <= use.released
    for one, next_ in pairwise(found):
        assert one.arrived < next_.arrived and one.ended <= next_.began
    for before, after in zip(found, found[of.stages :], strict=False):
        assert after.asked == before.released, "a stage is filled as soon as it has been read"


@pytest.mark.parametrize("of", [SLOW_COPIES, SLOW_PRODUCTS])
@pytest.mark.parametrize("stages", [2, 3, 6])
@pytest.mark.parametrize("lag", [0, 1])
def test_stages_are_filled_after_they_were_read(of: Timeline, stages: int, lag: int) -> None:
    own = replace(of, stages=stages, lag=lag)
    require_order(own, uses(own, 20))


def test_a_stage_filled_too_early_is_noticed() -> None:
    found = uses(SLOW_COPIES, 8)
    found[4] = replace(found[4], asked=found[1].began)
    with pytest.raises(AssertionError, match="as soon as"):
        require_order(SLOW_COPIES, found)


def test_the_longer_of_copies_and_products_counts() -> None:
    def rate(of: Timeline) -> float:
        found = uses(of, 40)
        return (found[-1].ended - found[10].ended) / 29

    assert rate(SLOW_PRODUCTS) == pytest.approx(SLOW_PRODUCTS.product_s)
    assert rate(SLOW_COPIES) == pytest.approx(SLOW_COPIES.copy_s, rel=0.1)
    # One stage: copies and products take turns.
    alone = replace(SLOW_COPIES, stages=1, lag=0)
    assert rate(alone) == pytest.approx(alone.latency_s + alone.copy_s + alone.product_s)


def test_a_lag_keeps_a_stage_until_the_next_step_is_there() -> None:
    late, soon = (uses(replace(SLOW_COPIES, lag=lag), 8) for lag in (1, 0))
    assert late[0].released == late[1].arrived > late[0].ended == soon[0].released


def test_the_picture_has_a_bar_for_every_copy_and_product(checked: Any) -> None:
    svg = pipeline(SLOW_COPIES)
    page = checked(svg)
    steps = drawn_steps(SLOW_COPIES)
    assert steps == 8
    assert svg.count("<rect") == 3 * steps + 2  # copies, products, tensor cores; the legend
    assert svg.count('class="arrow"') == steps + (steps - SLOW_COPIES.stages) + 2
    assert "stage 2" in page.text and "step 7 in stage 1 copied from" in svg
    assert drawn_steps(replace(SLOW_COPIES, steps=3)) == 3
    assert "3 stages of 32,768 bytes, the first 8 of 64 steps" in caption(SLOW_COPIES)


def test_the_table_says_the_same() -> None:
    first, *_ = rows = pipeline_rows(uses(SLOW_COPIES, 4))
    assert first == ("0", "0", "0", "0 - 1200", "1200 - 1500", "1800")
    assert [row[:3] for row in rows[1:]] == [("1", "1", "0"), ("2", "2", "0"), ("3", "0", "1")]


MATMUL = "def f({0}(M, K) A, {0}(K, N) B) -> (C) {{ C(m, n) +=! A(m, k) * B(k, n) }}"


@pytest.mark.slow
def test_the_schedule_of_a_product_has_its_pipeline() -> None:
    f = tcdsl.define(MATMUL.format("bfloat16")).f
    exe = f.compile(*(tcdsl.spec((1024, 1024), "bfloat16"),) * 2, target="emulate")
    (of,) = timelines(exe.compilation.plan.value)
    (chosen,) = exe.choices["kernels"]
    assert (of.stages, of.steps * chosen["step"]) == (chosen["stages"], 1024)
    assert f"tc_acquire<{of.stages}, {of.stage_bytes}>" in exe.source
    require_order(of, uses(of, drawn_steps(of)))
    shown = exe.compilation.schedule._repr_mimebundle_()["text/html"]
    assert "tensor cores" in shown and caption(of) in shown


@pytest.mark.slow
def test_kernels_without_roles_have_none() -> None:
    f = tcdsl.define(MATMUL.format("float")).f
    exe = f.compile(*(tcdsl.spec((64, 64), "float32"),) * 2, target="emulate")
    assert list(timelines(exe.compilation.plan.value)) == []
    assert "tensor cores" not in exe.compilation.schedule._repr_mimebundle_()["text/html"]
