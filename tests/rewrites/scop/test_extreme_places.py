"""The place of an extreme value, found after the value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.extreme_places import place_after, why_not_after

Lower = Callable[..., Scop]
CheckAll = Callable[..., None]

COLUMNS = """def f({dtype}(M,N) x) -> (a, b, m) {{
    a(j) argmax=! x(i,j)
    b(j) argmin=! x(i,j) where i in {start}:M
    m(j) max=! x(i,j)
}}"""
REFUSED = {
    "def f(float(M,N) x) -> (y) { y(j) max=! x(i,j) }": "it finds no place",
    "def f(float(M,N) x) -> (y) { y(j) argmax=! x(i,j) * x(i,j) }": "its terms are computed",
    "def f(float(M,N) x, float(M) w) -> (y) { y(j) argmax=! x(i,j) where exists w(i) > 0.0 }":
        "it is not along one index, for all of it",
}  # fmt: skip


def arg_reductions(scop: Scop) -> list[str]:
    return [s.name for s in scop.statements if why_not_after(scop, s) is None]


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_refused(source: str, lower: Lower) -> None:
    scop = lower(source, *([(9, 5)] + [(9,)] * source.count("float(M)")))
    update = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_after(scop, update) == REFUSED[source]


def test_long_columns_are_shared_by_blocks(lower: Lower) -> None:
    scop = lower(COLUMNS.format(dtype="float", start=0), (262144, 96))
    plan = plan_for_gpu(scop, Options(), load_chip("h200"))
    assert [tried.site for tried in plan.tried] == ["S0", "S1"]
    assert all(" us become " in tried.result for tried in plan.tried)
    assert not any(s.companion for s in plan.scop.statements)


def test_rows_that_blocks_have_alone_stay_as_they_are(lower: Lower) -> None:
    # Of doubles, whose loads take longer than the comparison of pairs.
    scop = lower("def f(double(M,N) x) -> (y) { y(i) argmax=! x(i,j) }", (8192, 512))
    (tried,) = plan_for_gpu(scop, Options(), load_chip("h200")).tried
    assert " us would become " in tried.result


def special(dtype: str, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return values of which many are equal; of floats, columns with NaN, -inf and -0."""
    values = np.random.default_rng(3).integers(-4, 5, shape).astype(dtype)
    if dtype.startswith("float"):
        values[shape[0] // 2 :, 0] = np.nan
        values[:, 1 % shape[1]] = -np.inf
        values[::2, 2 % shape[1]] = -0.0
    return values


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.slow
def test_results(dtype: str, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(scop: Scop) -> Scop:
        for name in arg_reductions(scop):
            scop = place_after(scop, name)
        return scop

    monkeypatch.setattr("tcdsl.plan.gpu_planner._with_long_rows", everywhere)
    check_emulated([
        (COLUMNS.format(dtype=dtype, start=min(2, shape[0] - 1)), [special(dtype, shape)])
        for shape in ((1, 1), (7, 3), (300, 70), (5000, 3))
    ])  # fmt: skip
    # Of nothing there is no place: rows 0 and 1.
    triangle = f"""def f({dtype}(M,N) x) -> (y) {{
        y(i) argmax=! x(i,j) where i in 0:M, j in 0:N, exists j <= i, exists i >= 2
    }}"""
    check_emulated([(triangle, [special(dtype, shape)]) for shape in ((7, 4099), (9, 5), (2, 3))])


def test_a_maximum_that_is_there_is_read(lower: Lower) -> None:
    text = "def f({t}(M,N) x) -> (m, y) {{ m(i) {op}=! x(i,j)\n y(i) argmax=! x(i,k) }}"
    for t, op, is_read in (("half", "max", True), ("float", "max", True), ("float", "min", False)):
        scop = place_after(lower(text.format(t=t, op=op), (9, 70)), "S1")
        assert ("S1.top" not in scop.arrays) == is_read
        assert scop.arrays["S1.place"].dtype.size_bytes == 4
    other = (
        "def f(float(M,N) x) -> (m, y) { m(i) max=! x(i,j) where j in 1:N\n y(i) argmax=! x(i,j) }"
    )
    assert "S1.top" in place_after(lower(other, (9, 70)), "S1").arrays


@pytest.mark.slow_but("float")
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "float", "int32"])
def test_results_beside_the_maximum(
    dtype: str, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    text = f"def f({dtype}(M,N) x) -> (m, y) {{ m(i) max=! x(i,j)\n y(i) argmax=! x(i,k) }}"
    given: list[Any] = [(1, 1), (3, 70), (1000, 9), (4, 5000)]
    if dtype != "bfloat16":
        numpy_type = {"half": "float16", "float": "float32"}.get(dtype, dtype)
        given += [special(numpy_type, (5, 70)), special(numpy_type, (300, 9))]
    check_emulated([(text, [x]) for x in given])
