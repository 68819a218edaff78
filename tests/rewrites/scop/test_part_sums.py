"""Sums over two indices, over one of them first."""

from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.part_sums import in_parts, why_not_in_parts

Lower = Callable[..., Scop]
CheckAll = Callable[..., None]

GROUPS = """def f({dtype}(N,P,G,D) x) -> (s, high, y) {{
    s(n,g) +=! x(n,p,g,d)
    high(n,g) max=! x(n,p,g,d) where d in 1:D
    y(n,p,g,d) = x(n,p,g,d) - s(n,g)
}}"""
REFUSED = {
    "def f(float(N,P,G,D) x) -> (y) { y(n,p,g) +=! x(n,p,g,d) }":
        "it reduces one index, or under a condition",
    "def f(float(N,P,G,D) x) -> (y) { y(n,g) +=! x(n,p,g,d) where d in 0:p+1 }":
        "its domain is no box of numbers",
    "def f(float(N,P,G,D) x) -> (y) { y(g) argmax=! x(0,0,g,d) }":
        "an argmin or argmax keeps pairs: it is split into lanes only",
}  # fmt: skip


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_refused(source: str, lower: Lower) -> None:
    scop = lower(source, (2, 9, 3, 12))
    update = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_in_parts(scop, update) == REFUSED[source]


def test_channels_last_are_summed_as_columns(lower: Lower) -> None:
    scop = lower(GROUPS.format(dtype="float"), (8, 4096, 32, 10))
    plan = plan_for_gpu(scop, Options(), load_chip("h200"))
    assert [tried.site for tried in plan.tried] == ["S0", "S1"]
    assert any(" us become " in tried.result for tried in plan.tried)
    assert any(kernel.template.startswith("column") for kernel in plan.kernels)


@pytest.mark.slow_but("float32")
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_results(dtype: str, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(scop: Scop) -> Scop:
        for statement in scop.statements:
            if why_not_in_parts(scop, statement) is None:
                scop = in_parts(scop, statement.name)
        return scop

    monkeypatch.setattr("tcdsl.plan.gpu_planner._with_long_rows", everywhere)
    rng = np.random.default_rng(2)
    check_emulated([
        (GROUPS.format(dtype=dtype), [rng.integers(-9, 9, shape).astype(dtype)])
        for shape in ((1, 1, 1, 2), (2, 5, 3, 7), (3, 70, 2, 10))
    ])  # fmt: skip
