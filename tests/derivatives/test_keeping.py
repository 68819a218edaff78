"""Two passes of a derivative: which values the first keeps, and that nothing else changes."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.frontends.derivatives import Passes, passes
from tcdsl.library import Case
from tests.derivatives.gradients import cotangents, float_parameters, sizes_of, tupled

SOFTMAX = """def f(float(M,N) x) -> (y) {
    top(m) max=! x(m,n)
    power(m,n) = exp(x(m,n) - top(m))
    total(m) +=! power(m,n)
    y(m,n) = power(m,n) / total(m)
}"""
LAYER = """def f(float(B,N) x, float(O,N) V, float(P,O) W) -> (y) {
    h(b,o) +=! x(b,n) * V(o,n)
    g(b,o) = tanh(h(b,o))
    y(b,p) +=! g(b,o) * W(p,o)
}"""
SCAN = "def f(float(N) x) -> (y) { y(i) = i == 0 ? x(i) : y(i-1) * x(i) where i in 0:N }"
BLUR = """def f(float(N) x) -> (y) {
    t(i) +=! x(i+k) where k in 0:3
    y(i) = t(i) * t(i)
}"""
SHIFTED = "def f(float(N,M) x) -> (y) { t(i) +=! x(i,j) where i in 1:N  y(i) = t(i) * t(i) }"
UPDATED = "def f(float(N) x, float(N,N) A) -> (x) { t(i) +=! A(i,j) * x(j)  x(i) = t(i) * t(i) }"
SQUARES = "def f(float(M,N) x) -> (s) { s(m) +=! x(m,n) * x(m,n) }"
CONVOLUTION = """def f(float(H,W) image, float(K,L) w) -> (o) {
    t(h,v) +=! image(h+k,v+l) * w(k,l)
    o(h,v) = t(h,v) * t(h,v)
}"""


def passes_of(source: str) -> Passes | None:
    f = tcdsl.define(source)["f"]
    return passes(f, float_parameters(f))


def kept_of(source: str) -> list[str]:
    found = passes_of(source)
    assert found is not None
    outputs = found.forward.comprehension.outputs
    return [outputs[position] for position in found.kept]


def test_sums_are_kept_and_elements_computed_again() -> None:
    assert kept_of(SOFTMAX) == ["top", "total"]
    assert kept_of(LAYER) == ["h"]
    assert kept_of(SCAN) == ["y"], "a result is kept as it is"
    assert kept_of(CONVOLUTION) == ["t"], "a filter's extent is not known"


@pytest.mark.parametrize("source", [BLUR, SHIFTED, UPDATED, SQUARES])
def test_nothing_is_kept_that_costs_little_or_cannot_be_passed_on(source: str) -> None:
    assert passes_of(source) is None


def test_the_second_pass_has_no_sum_of_the_first() -> None:
    found = passes_of(LAYER)
    assert found is not None
    assert found.forward.comprehension.outputs == ("y", "h")
    assert found.backward.comprehension.parameters == ("x", "V", "W", "h", "d_y")
    assert "h(b, o) +=!" in found.forward.source and "h(b, o) +=!" not in found.backward.source


def test_a_kept_value_has_the_extents_of_its_tensor() -> None:
    found = passes_of(CONVOLUTION)
    assert found is not None
    image, w, t = (np.ones(shape, np.float32) for shape in ((6, 7), (3, 2), (4, 6)))
    found.backward.output_shapes(image, w, t, t)
    with pytest.raises(tcdsl.ShapeError, match="pass t in the shape of t"):
        found.backward.output_shapes(image, w, t[1:], t)


def check_passes(f: tcdsl.Function, inputs: list[Any]) -> None:
    """Compare both passes with the function and its vjp, to the last bit."""
    names = float_parameters(f)
    found = passes(f, names)
    if found is None:
        return
    given = cotangents(f, inputs)
    first = tupled(found.forward.reference(*inputs))
    for value, wanted in zip(first, tupled(f.reference(*inputs)), strict=False):
        np.testing.assert_array_equal(value, wanted)
    kept = [first[position] for position in found.kept]
    gradients = tupled(found.backward.reference(*inputs, *kept, *given))
    wanted = tupled(tcdsl.vjp(f, names).reference(*inputs, *given))
    for gradient, own in zip(gradients, wanted, strict=True):
        np.testing.assert_array_equal(gradient, own)


@pytest.mark.one_in(2)
@pytest.mark.slow_but("softmax", "layernorm", "cross_entropy", "mlp3")
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in library.cases()])
def test_programs_of_the_library(case: Case) -> None:
    dtype = "float64" if "float64" in case.dtypes else case.dtypes[0]
    f = tcdsl.define(library.source_for(case, dtype))[case.def_name]
    if not float_parameters(f) or any(n in f.comprehension.inputs for n in f.comprehension.outputs):
        return
    inputs = case.make_inputs(sizes_of(case), np.random.default_rng(4), dtype)
    try:
        check_passes(f, list(inputs.values()))
    except tcdsl.SemanticError as error:
        assert error.code == "TC093", "a program that has no derivative"
