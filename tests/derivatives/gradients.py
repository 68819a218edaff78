"""Derivatives from outside: central differences of the NumPy reference in float64."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import tcdsl
from tcdsl import library
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library import Case
from tcdsl.library.draws import Sizes

STEP = 1e-6
ELEMENTS = 500.0  # of a library program's inputs, about


def tupled(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def float_parameters(f: tcdsl.Function) -> list[str]:
    c = f.comprehension
    return [name for name in c.inputs if c.tensors[name].dtype.is_float]


def cotangents(f: tcdsl.Function, inputs: Sequence[Any], seed: int = 1) -> list[Array]:
    """Return a random array for each floating-point result."""
    c, rng = f.comprehension, np.random.default_rng(seed)
    results = zip(c.outputs, tupled(f.reference(*inputs)), strict=True)
    return [
        np.asarray(rng.standard_normal(np.shape(y)), c.tensors[name].dtype.numpy)
        for name, y in results
        if c.tensors[name].dtype.is_float
    ]


def library_cases() -> list[Case]:
    """Return the cases whose elements may be floats of whatever type."""
    return [case for case in library.cases() if any(BY_NAME[t].is_float for t in case.dtypes)]


def sizes_of(case: Case) -> Sizes:
    """Return those small sizes, none of them 0, at which the inputs have nearest to ELEMENTS."""

    def away(sizes: Sizes) -> float:
        elements = sum(math.prod(shape) for shape in case.input_shapes(sizes).values())
        return abs(math.log(elements / ELEMENTS))

    return min((sizes for sizes in case.small_sizes if all(sizes.values())), key=away)


def in_float64(case: Case) -> tcdsl.Function:
    """Return the program of *case* with doubles for all its floats: differences need them.

    Its numbers too: what one without a type is first assigned to is a float32.
    """
    text = re.sub(r"\bfloat32\b", "float64", library.source_for(case, "float64"))
    text = re.sub(r"(?<![\w.])\d+\.\d+(?![\w.])", r"\g<0>f64", text)
    f = tcdsl.define(text)[case.def_name]
    floats = {t.dtype.name for t in f.comprehension.tensors.values() if t.dtype.is_float}
    assert floats == {"float64"}, f"{case.name} has {floats}"
    return f


def check_gradients(
    f: tcdsl.Function, *inputs: Any, wrt: Sequence[str] | None = None, tolerance: float = 1e-6
) -> tcdsl.Function:
    """Compare the vjp of *f* with differences along a random direction; return the vjp."""
    derivative = tcdsl.vjp(f, wrt)
    given = cotangents(f, inputs)
    found = tupled(derivative.reference(*inputs, *given))
    names = float_parameters(f) if wrt is None else wrt
    for name, gradient in zip(names, found, strict=True):
        direction = np.random.default_rng(2).standard_normal(np.shape(gradient))
        wanted = difference(f, inputs, given, name, direction)
        got = float(np.sum(np.asarray(gradient, np.float64) * direction))
        assert abs(got - wanted) <= tolerance * max(1.0, abs(wanted)), (
            f"d_{name}: {got}, by differences {wanted}\n{derivative.source}"
        )
    return derivative


def difference(
    f: tcdsl.Function, inputs: Sequence[Any], given: Sequence[Array], name: str, direction: Array
) -> float:
    """Return the derivative of the sum of results times *given*, as *name* moves."""
    c = f.comprehension
    position = c.parameters.index(name)
    floats = [i for i, result in enumerate(c.outputs) if c.tensors[result].dtype.is_float]

    def value(step: float) -> float:
        moved = [*inputs]
        moved[position] = np.asarray(np.asarray(inputs[position]) + step * direction)
        results = tupled(f.reference(*moved))
        return sum(float(np.sum(results[i] * d)) for i, d in zip(floats, given, strict=True))

    return (value(STEP) - value(-STEP)) / (2 * STEP)
