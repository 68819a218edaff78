"""Sums of several products: one after another, and where not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.options import Options
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.separate_sums import separate, why_not_separate
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

TWO = """def f(half(M,K) x, half(K,N) w, half(M,K) u, half(K,N) v) -> (y) {
    y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n)
}"""


def shapes_of(m: int, k: int, n: int) -> list[tuple[int, ...]]:
    return [(m, k), (k, n), (m, k), (k, n)]


@pytest.mark.parametrize("size", [(72, 136, 104), (1, 5, 3), (3, 0, 5)])
def test_results(
    size: tuple[int, int, int], cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    shapes = shapes_of(*size)
    unit = cuda_unit(TWO, *shapes)
    assert not unit.done.is_fallback
    tried = [t.rewrite for t in unit.done.plan.tried if "become" in t.result]
    assert "a sum for each product" in tried or not size[1]
    (program,) = emulated([unit])
    half = unit.comprehension.tensors["x"].dtype
    check(program, *(values(half, shape, "real", number) for number, shape in enumerate(shapes)))


def test_terms_that_nearly_cancel(cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any) -> None:
    """Errors are those of the products, of which the terms as written have one rounding each."""
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    source = """def f(float(M,K) x, float(K,N) w, float(K,N) v) -> (y) {
        y(m,n) +=! x(m,k) * w(k,n) + (-x(m,k)) * v(k,n)
    }"""
    unit = cuda_unit(source, (72, 40), (40, 24), (40, 24))
    rng = np.random.default_rng(0)
    x, w, off = (rng.random(s, np.float32) for s in ((72, 40), (40, 24), (40, 24)))
    inputs = x, w, w + off * np.float32(1e-5)
    (program,) = emulated([unit])
    check(program, *inputs)
    with pytest.raises(AssertionError, match="elements are wrong"):
        check(program, *inputs, options=Options(reassociate=False))


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    golden("separate_sums", print_scop(separate(lower(TWO, *shapes_of(72, 136, 104)), "S0")))


def test_large_ones_are_on_tensor_cores(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(TWO, *shapes_of(2048, 1024, 1024))
    assert [kernel.template for kernel in unit.done.plan.kernels] == ["tile_mma"]


REFUSED = {
    "y(m,n) +=! x(m,k) * w(k,n)": "its terms are no sums of products of floats",
    "y(m,n) +=! x(m,k) * w(k,n) + v(k,n)": "its terms are no sums of products of floats",
    "y(m,n) +=! x(m,k) * w(k,n) - u(m,k) * v(k,n)": "its terms are no sums of products of floats",
    "y(m,n) min=! x(m,k) * w(k,n) + u(m,k) * v(k,n)": "it is no sum",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(body: str, lower: Lower) -> None:
    scop = lower(TWO.replace(TWO.split("\n")[1], body), *shapes_of(72, 136, 104))
    statement = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_separate(scop, statement) == REFUSED[body]
