"""Sums of runs by columns: which programs have them, and that they mean the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import grouped_columns as costs
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.grouped_columns import Runs, why_in_columns
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.options import Options
from tcdsl.rewrites.comprehension.coalescing import coalesce
from tcdsl.rewrites.comprehension.grouped_columns import in_columns
from tcdsl.testing.random_inputs import values
from tests.rewrites.comprehension.test_coalescing import Shapes, analysed, indices

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

NORM = """def f(float(N,P,G,D) x, float(G,D) gamma, float(N,G) scale, float eps) -> (y) {
    mean(n,g) +=! float(x(n,p,g,d))
    mean(n,g) = mean(n,g) / (D * P)
    var(n,g) +=! (x(n,p,g,d) - mean(n,g)) * (x(n,p,g,d) - mean(n,g))
    y(n,p,g,d) = (x(n,p,g,d) - mean(n,g)) * rsqrt(var(n,g) / (D * P) + eps) * gamma(g,d)
               + scale(n,g)
}"""
EXTREMES = """def f(float(P,G,D) x) -> (low, y) {
    low(g) min=! x(p,g,d)
    y(p,g,d) = x(p,g,d) > low(g) + 1 ? x(p,g,d) - low(g) : 0
    low(g) = low(g) * 2
    z(p,g,d) = y(p,g,d) + low(g)
    y(p,g,d) = z(p,g,d)
}"""
PIXELS = """def f(float(N,H,W,G,D) x) -> (s, c) {
    s(g,n) +=! x(n,h,w,g,d)
    c(n,h,w,g,d) = x(n,h,w,g,d) - s(g,n)
}"""
TOTALS = """def f(float(P,G,D) x) -> (s, c, t, a) {
    s(g) +=! x(p,g,d)
    c(p) min=! x(p,g,d) - s(g)
    t max=! x(p,g,d)
    a(p) +=! x(p,g,d)
}"""
RUNS: dict[str, tuple[str, Shapes, list[str]]] = {
    "a norm of groups": (
        NORM, [(2, 5, 3, 2), (3, 2), (2, 3), ()],
        ["S0_part", "S0", "S1", "S2_run", "S2_part", "S2", "S3_run", "S3_run_", "S3"],
    ),
    "copies of what changes": (
        EXTREMES, [(5, 3, 4)], ["S0_part", "S0", "S1_run", "S1", "S2", "S3_run", "S3", "S4"],
    ),
    "several axes of pixels": (PIXELS, [(2, 3, 4, 3, 2)], ["S0_part", "S0", "S1_run", "S1"]),
    "reductions of both axes": (
        TOTALS, [(5, 3, 4)], ["S0_part", "S0", "S1_run", "S1", "S2", "S3"],
    ),
}  # fmt: skip


def by_columns(
    source: str, shapes: Shapes, **strides: tuple[int, ...]
) -> tuple[Comprehension, Specialisation]:
    c, special = in_columns(*analysed(source, shapes), strides, lambda _: "it is a test")
    assert isinstance(special, Specialisation)
    return c, special


@pytest.mark.parametrize("name", RUNS)
def test_sums_of_runs_have_parts(name: str) -> None:
    source, shapes, expected = RUNS[name]
    c, _ = by_columns(source, shapes)
    names = [s.name for s in c.statements]
    assert [n for n in names if n in expected] == names and set(expected) >= set(names)
    assert names == list(dict.fromkeys(names)) and any(n.endswith("_part") for n in names)


def test_both_axes_merge_in_all_that_goes_over_them() -> None:
    source, shapes, _ = RUNS["a norm of groups"]
    done = coalesce(*by_columns(source, shapes), {})
    found = {s.name: indices(done, k) for k, s in enumerate(done.comprehension.statements)}
    assert found["S0_part"] == "n g_d p" and found["S0"] == "n g d" and found["S3"] == "n p g_d"
    assert found["S2_part"] == "n g_d p"
    assert found["S2_run"] == "n g d", "along what makes the sums whole"


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("is_merged", [False, True])
def test_they_mean_the_same(name: str, is_merged: bool) -> None:
    source, shapes, _ = RUNS[name]
    c, special = analysed(source, shapes)
    new, own = by_columns(source, shapes)
    inputs: dict[str, Any] = {
        n: values(c.tensors[n].dtype, shape, "whole", 7)
        for n, shape in zip(c.inputs, shapes, strict=True)
    }
    before = evaluate(c, special, inputs)
    if is_merged:
        done = coalesce(new, own, {})
        assert isinstance(done.special, Specialisation)
        new, own = done.comprehension, done.special
    after = evaluate(new, own, {n: a.reshape(own.shapes[n]) for n, a in inputs.items()})
    for n in c.outputs:
        np.testing.assert_allclose(before[n].ravel(), after[n].ravel(), rtol=1e-6)


KEPT: dict[str, tuple[str, Shapes]] = {
    "rows": ("def f(float(G,D) x) -> (y) { y(g) +=! x(g,d) }", [(3, 4)]),
    "a part of a run": (
        "def f(float(P,G,D) x) -> (y) { y(g) +=! x(p,g,d) where d in 0:D-1 }", [(5, 3, 4)],
    ),
    "an index of a run alone": (
        "def f(float(P,G,D) x, float(D) w) -> (y) { y(g) +=! x(p,g,d) * w(d) }", [(5, 3, 4), (4,)],
    ),
    "a group's number": (
        "def f(float(P,G,D) x) -> (y) { y(g) +=! x(p,g,d) * g }", [(5, 3, 4)],
    ),
    "what is there already": (
        "def f(float(P,G,D) x, float(G) y) -> (y) { y(g) += x(p,g,d) }", [(5, 3, 4), (3,)],
    ),
    "another statement's objection": (
        "def f(float(P,G,D) x) -> (y, z) { y(g) +=! x(p,g,d)\n z(p,d) +=! x(p,g,d) }",
        [(5, 3, 4)],
    ),
    "a recurrence": (
        "def f(float(P,G,D) x) -> (s, y) { s(g) +=! x(p,g,d)\n y(p,g,d) = x(p,g,d)"
        " where p in 0:1\n y(p,g,d) = y(p-1,g,d) + x(p,g,d) where p in 1:P }", [(5, 3, 4)],
    ),
    "a copy of integers": (
        "def f(float(P,G,D) x, int32(G) k) -> (y) { y(g) +=! x(p,g,d) * k(g) }", [(5, 3, 4), (3,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_as_they_are(name: str) -> None:
    c, _ = by_columns(*KEPT[name])
    assert not any("_part" in s.name or "_run" in s.name for s in c.statements)


def test_axes_that_are_no_neighbours_stay() -> None:
    source, shapes, _ = RUNS["several axes of pixels"]
    assert len(by_columns(source, shapes, x=(96, 32, 8, 2, 1))[0].statements) == 4
    assert len(by_columns(source, shapes, x=(96, 32, 8, 4, 1))[0].statements) == 2


def test_only_many_short_runs_are_worth_it() -> None:
    chip = load_chip("h200")
    assert why_in_columns(chip, Runs(1 << 20, 10, 4)) == "1048576 runs of 40 bytes"
    assert why_in_columns(chip, Runs(1 << 20, 16, 4)) is None  # two sectors
    assert why_in_columns(chip, Runs(1 << 16, 10, 4)) is None  # launches take longer


@pytest.fixture
def every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take columns whatever the launches cost."""
    monkeypatch.setattr(costs, "LAUNCHES", -1)


@pytest.mark.slow
@pytest.mark.usefixtures("every_run")
@pytest.mark.parametrize("dtype", ["float", "bfloat16", "double"])
def test_the_results_are_right(dtype: str, check_emulated: CheckAll) -> None:
    source = NORM.replace("scale(n,g)", "scale(n,g)" if dtype != "bfloat16" else "eps")
    source = source.replace("float(N,P,G,D)", f"{dtype}(N,P,G,D)")
    sizes = [(1, 2, 3, 2), (2, 131, 5, 3), (3, 64, 8, 4), (2, 7, 1, 6), (2, 0, 3, 2)]
    check_emulated([(source, [s, s[2:], (s[0], s[2]), ()]) for s in sizes if s[1]])
    check_emulated([(EXTREMES.replace("float(", f"{dtype}("), [s[1:]]) for s in sizes if s[1]])
    check_emulated([(PIXELS.replace("float(", f"{dtype}("), [(2, 3, 37, 3, 2)])])


@pytest.mark.usefixtures("every_run")
def test_it_is_part_of_the_pipeline_for_a_gpu(cuda_unit: MakeUnit) -> None:
    shapes = [(8, 4096, 32, 10), (32, 10), (8, 32), ()]
    unit = cuda_unit(NORM, *shapes)
    assert "S0_part before" in unit.done.stages["coalesced"]
    assert "tc_vload<4>(&x[" in unit.source.text
    as_written = cuda_unit(NORM, *shapes, options=Options(coalesce=False))
    assert "_part before" not in as_written.done.stages["coalesced"]
