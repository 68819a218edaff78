"""Every program of the library means what its reference says.

The front end and the oracle run each program at sizes 0, 1, primes and others that no tile
divides; the reference is plain NumPy that knows nothing of the program's text.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcdsl import library
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.range_inference import bind_sizes, specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.library import Case, source_for
from tcdsl.library.draws import Sizes
from tcdsl.source import Source

# What the roundings of a short program in that type add up to, of the largest value.
TOLERANCE = {"float64": 1e-9, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}

# The last and, by turns, one of the others; the rest in the slow run.
IN_FLOAT32 = [
    pytest.param(
        case, sizes, case.dtypes[0], id=f"{case.name}-{'x'.join(map(str, sizes.values()))}",
        marks=pytest.mark.slow if (turn + number) % 3 and sizes != case.small_sizes[-1] else (),
    )
    for turn, case in enumerate(library.cases())
    for number, sizes in enumerate(case.small_sizes)
]  # fmt: skip
# Every fourth of them, the others in the slow run: what types mean is tested in tests/interp.
IN_OTHER_TYPES = [
    pytest.param(
        case, case.small_sizes[-1], dtype, id=f"{case.name}-{dtype}",
        marks=pytest.mark.slow if number % 4 else (),
    )
    for number, (case, dtype) in enumerate(
        (case, dtype) for case in library.cases() for dtype in case.dtypes[1:]
    )
]  # fmt: skip


def comprehension(case: Case, dtype: str) -> Comprehension:
    """Return the case's own def, the last of its program."""
    typed = analyse(parse_program(Source(source_for(case, dtype), case.name)))[-1]
    assert typed.name == case.def_name
    return typed


def assert_close(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    """Assert equal shapes, types and values; floats up to the tolerance of their type."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    tolerance = TOLERANCE.get(expected.dtype.name, 0.0)
    wide = expected.astype(np.float64 if tolerance else expected.dtype)
    finite = np.abs(wide[np.isfinite(wide)])
    np.testing.assert_allclose(
        actual.astype(wide.dtype),
        wide,
        rtol=tolerance,
        atol=tolerance * finite.max(initial=0.0),
    )


@pytest.mark.parametrize(("case", "sizes", "dtype"), IN_FLOAT32 + IN_OTHER_TYPES)
def test_the_oracle_agrees_with_the_reference(case: Case, sizes: Sizes, dtype: str) -> None:
    inputs = case.make_inputs(sizes, np.random.default_rng(5), dtype)
    typed = comprehension(case, dtype)
    bound = bind_sizes(typed, {name: array.shape for name, array in inputs.items()})
    assert bound == sizes
    outputs = evaluate(typed, specialise(typed, bound), inputs)
    expected = case.reference(inputs)
    assert tuple(outputs) == typed.outputs
    for actual, wanted in zip(outputs.values(), expected, strict=True):
        assert_close(actual, wanted)


def test_the_comparison_can_fail() -> None:
    case = library.case("row_sum")
    inputs = case.make_inputs({"M": 7, "N": 13}, np.random.default_rng(5))
    (expected,) = case.reference(inputs)
    with pytest.raises(AssertionError):
        assert_close(expected + np.float32(1e-3), expected)
    with pytest.raises(AssertionError):
        assert_close(expected.astype(np.float64), expected)
