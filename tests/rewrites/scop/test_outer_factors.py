"""Factors that all terms have: multiplied with the sum, and where not."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.outer_factors import why_not_outer, with_outer_factors
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

QUANTISED = """def f(bfloat16(M,K) x, int8(K,N) w, float(N) s) -> (y) {
    y(m,n) +=! 0.5 * x(m,k) * (float(w(k,n)) * s(n))
}"""
SHAPES = [(72, 136), (136, 104), (104,)]


@pytest.mark.parametrize("size", [(72, 136, 104), (3, 0, 5), (0, 4, 4)])
def test_results(
    size: tuple[int, int, int], cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    monkeypatch.setattr("tcdsl.rewrites.scop.computed_factors.LEAST_USES", 1)
    m, k, n = size
    unit = cuda_unit(QUANTISED, (m, k), (k, n), (n,))
    assert not unit.done.is_fallback
    if m * k:
        assert any(".part" in name for name in unit.done.plan.scop.arrays)
        assert any(".factor" in name for name in unit.done.plan.scop.arrays)
    c = unit.comprehension
    types = [c.tensors[name].dtype for name in c.inputs]
    pairs = zip(types, [(m, k), (k, n), (n,)], strict=True)
    (program,) = emulated([unit])
    check(program, *(values(*of, "real", number) for number, of in enumerate(pairs)))


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    golden("outer_factors", print_scop(with_outer_factors(lower(QUANTISED, *SHAPES), "S0")))


def test_options_keep_the_terms(cuda_unit: MakeUnit) -> None:
    large = [(2048, 1024), (1024, 1024), (1024,)]
    whole = Options(reassociate=False)
    plans = [cuda_unit(QUANTISED, *large, options=o).done.plan for o in (Options(), whole)]
    found = [{w.rewrite for w in plan.tried if w.result.count("become ")} for plan in plans]
    name = "factors of sums after these"
    assert name in found[0] and name not in found[1]


@pytest.mark.parametrize("option", [{"summation": "compensated"}, {"scheduler": "source_order"}])
def test_other_options_keep_the_terms(
    option: dict[str, Any], cuda_unit: MakeUnit, monkeypatch: Any
) -> None:
    """A compensated sum is a pair, which nothing multiplies."""
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    unit = cuda_unit(QUANTISED, *SHAPES, options=Options(**option))
    assert "factors of sums after these" not in {w.rewrite for w in unit.done.plan.tried}


TRIANGLE = """def f(half(M,K) x, half(K,N) w, float(M) s) -> (y) {
    y(m,n) +=! x(m,k) * w(k,n) * s(m) where k in 0:min(m, K)
}"""


def test_sums_of_no_terms_are_zero(cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any) -> None:
    """Whatever the factor is that they would have been multiplied by."""
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    unit = cuda_unit(TRIANGLE, (9, 8), (8, 5), (9,))
    types = [unit.comprehension.tensors[name].dtype for name in "xws"]
    shapes = [(9, 8), (8, 5), (9,)]
    inputs = [values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True))]
    inputs[2][0] = float("inf")
    (program,) = emulated([unit])
    check(program, *inputs)


REFUSED = {
    "y(m,n) +=! x(m,k) * float(w(k,n))": "all of its factors are summed over",
    "y(n) +=! s(n) where k in 0:9": "none of its factors is summed over",
    "y(m,n) max=! x(m,k) * s(n)": "it is no sum of floats",
    "y(m,n) +=! x(m,k) * s(n) where k in 0:min(m, K)": "some of its elements may have no terms",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(body: str, lower: Lower) -> None:
    scop = lower(QUANTISED.replace(QUANTISED.split("\n")[1], body), *SHAPES)
    statement = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_outer(scop, statement) == REFUSED[body]


def test_updates_are_refused(lower: Lower) -> None:
    source = "def f(float(N) y, float(M,N) x, float(N) s) -> (y) { y(n) += x(m,n) * s(n) }"
    scop = lower(source, (7,), (5, 7), (7,))
    assert why_not_outer(scop, scop.by_name["S0"]) == "it adds to what was there"
