"""The hunt for derivatives: random programs in float64, their vjps against central differences.

    pytest -m fuzz tests/derivatives/test_random_derivatives.py        2,000 programs

A difference counts where the function is smooth: where the differences to both sides, and those of
half the step, agree.  Where a builtin is at the end of its domain (``sqrt(fabs(t))`` of a t that is
0 for all inputs that are floats), differences do not see it, and the derivative is NaN or infinite,
as docs/derivatives.md has it.  An element of a gradient may be so if its input reaches such a place
(``ends_of_domains``): the others are compared.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import NOT_DIFFERENTIABLE, SemanticError, TCError
from tcdsl.lang.types.dtypes import FLOAT64
from tcdsl.testing import programs
from tests.derivatives.ends_of_domains import reaches_an_end
from tests.derivatives.gradients import cotangents, float_parameters, tupled
from tests.hunts import Hunt, for_each

pytest.importorskip("hypothesis")

ORDINARY = 20
PROGRAMS = 2000
STEPS = (1e-6, -1e-6, 5e-7)
_FLOATS = re.compile(r"\b(?:float8_\w+|float16|bfloat16|float32|float|half|double)\b(?=[ (])")
_LITERALS = re.compile(r"(?<![\w.])\d+\.\d+(?:[eE][-+]?\d+)?(?![\w.])")
_SUFFIXES = re.compile(r"(?<=\d)(?:f16|bf16|f32|f8e4m3|f8e5m2)\b")


def in_float64(source: str, inputs: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the program with all floats as float64, at points of no ties."""
    rng = np.random.default_rng(len(source))
    text = _SUFFIXES.sub("f64", _FLOATS.sub("float64", source))
    text = _LITERALS.sub(r"\g<0>f64", text)
    moved = []
    for value in inputs.values():
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            moved.append(value)
            continue
        wide = np.nan_to_num(array.astype(np.float64), nan=1.0, posinf=2.0, neginf=-2.0)
        wide = np.clip(wide, -4, 4) + rng.uniform(0.01, 0.3, wide.shape)
        moved.append(wide if wide.ndim else float(wide))
    return text, moved


def check_derivatives(source: str, inputs: list[Any], refused: list[str]) -> None:
    """Compare the vjp of *source* with differences by all inputs; note what is refused."""
    f = tcdsl.define(source)["f"]
    names, c = float_parameters(f), f.comprehension
    if not names or not any(c.tensors[n].dtype.is_float for n in c.outputs):
        return
    if any(t.dtype.is_float and t.dtype != FLOAT64 for t in c.tensors.values()):
        return  # of integers' functions: steps are less than what such a type tells apart
    try:
        derivative = tcdsl.vjp(f)
    except SemanticError as error:
        if error.code != NOT_DIFFERENTIABLE.code:
            raise
        refused.append(error.message)
        return
    with np.errstate(all="ignore"):
        given = cotangents(f, inputs)
        found = tupled(derivative.reference(*inputs, *given))
        for name, gradient in zip(names, found, strict=True):
            compare(f, derivative, inputs, given, name, gradient)


def compare(
    f: tcdsl.Function, derivative: tcdsl.Function, inputs: list[Any], given: list[Any],
    name: str, gradient: Any,
) -> None:  # fmt: skip
    """Compare *gradient*, of the input *name*, with differences.

    :raises AssertionError: it is another, or not finite where no builtin is at an end.
    """
    position = f.comprehension.parameters.index(name)
    direction = np.random.default_rng(5).uniform(0.5, 1.0, np.shape(gradient))
    found = slope(f, inputs, given, position, direction)
    if found is None:
        return
    is_finite = np.isfinite(gradient)
    for element in map(tuple, np.argwhere(~is_finite)):
        assert reaches_an_end(f, inputs, position, element), (
            f"d_{name}{list(map(int, element))}: {np.asarray(gradient)[element]}, but no builtin is"
            f" at the end of its domain\n{derivative.source}"
        )
    if not is_finite.all():
        direction = np.where(is_finite, direction, 0.0)
        if (found := slope(f, inputs, given, position, direction)) is None:
            return
    wanted, size = found
    got = float(np.sum(np.where(is_finite, gradient, 0.0) * direction))
    assert abs(got - wanted) <= 1e-3 * (1 + size), (
        f"d_{name}: {got}, by differences {wanted}\n{derivative.source}"
    )


def slope(
    f: tcdsl.Function, inputs: list[Any], given: list[Any], position: int, direction: Any
) -> tuple[float, float] | None:
    """Return the sum of results' derivatives along *direction* times *given*, and of their sizes.

    None where *f* is not smooth there, or its results are large.
    """
    outputs = f.comprehension.outputs
    floats = [i for i, n in enumerate(outputs) if f.comprehension.tensors[n].dtype.is_float]

    def results(step: float) -> list[Any]:
        moved = [*inputs]
        moved[position] = np.asarray(np.asarray(inputs[position]) + step * direction)
        values = tupled(f.reference(*moved))
        return [values[i] for i in floats]

    start = results(0.0)
    slopes = []
    for step in STEPS:
        differences = [(a - b) / step for a, b in zip(results(step), start, strict=True)]
        slopes.append(differences)
    scale = max((float(np.max(np.abs(y), initial=0)) for y in start), default=0.0)
    steep = max((float(np.max(np.abs(d), initial=0)) for d in slopes[0]), default=0.0)
    if not np.isfinite(scale + steep) or scale > 1e4 or steep > 1e4:
        return None
    tolerance = 1e-4 * (1 + steep)
    for others in slopes[1:]:
        for one, other in zip(slopes[0], others, strict=True):
            if not np.allclose(one, other, rtol=0, atol=tolerance):
                return None
    products = [d * g for d, g in zip(slopes[0], given, strict=True)]
    return sum(float(np.sum(p)) for p in products), sum(float(np.sum(np.abs(p))) for p in products)


def hunt(number: int, count: int) -> list[str]:
    """Check *count* programs, and return what was refused."""
    refused: list[str] = []
    with Hunt() as found:

        def visit(source: str, inputs: Mapping[str, Any]) -> None:
            text, values = in_float64(source, inputs)
            try:
                tcdsl.define(text)["f"].reference(*values)
            except TCError:
                return  # the program relies on its types
            found.run(text, check_derivatives, text, values, refused)

        for_each(number, count, programs(), visit)
    return refused


@pytest.mark.filterwarnings("ignore::tcdsl.errors.TCWarning")
def test_some_random_programs() -> None:
    assert len(hunt(181, ORDINARY)) <= ORDINARY // 10


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::tcdsl.errors.TCWarning")
def test_random_programs() -> None:
    assert len(hunt(182, PROGRAMS)) <= PROGRAMS // 10


@pytest.mark.parametrize(
    ("value", "at_ends"),
    [("sqrt(x(i)) * x(2)", 0),
     ("sqrt(fabs(i < 2 ? x(i) * z(i) - x(i) * z(i) : x(i)))", 2)],
    ids=["no end", "two ends"],
)  # fmt: skip
def test_a_wrong_nan_is_found_beside_ends_of_domains(value: str, at_ends: int) -> None:
    f = tcdsl.define(f"def f(double(N) x, double(N) z) -> (y) {{ y(i) = {value} + z(i) }}").f
    derivative, inputs = tcdsl.vjp(f), [np.arange(1.0, 5.0), np.ones(4)]
    given = cotangents(f, inputs)
    with np.errstate(all="ignore"):
        right = np.asarray(tupled(derivative.reference(*inputs, *given))[0])
        assert np.isnan(right).sum() == at_ends
        compare(f, derivative, inputs, given, "x", right)
        for wrong in (np.nan, np.inf, right[3] + 0.1):
            with pytest.raises(AssertionError, match=r"no builtin is|by differences"):
                compare(
                    f, derivative, inputs, given, "x", np.where(np.arange(4) == 3, wrong, right)
                )
