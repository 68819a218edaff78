"""Warnings of integer quotients: those that have none, which random graphs found."""

import warnings

import pytest

import tcdsl
from tcdsl.errors import TCWarning


@pytest.mark.parametrize("narrow", ["float", "half", "bfloat16"])
@pytest.mark.parametrize(
    "value", ["x(i) / y(i)", "s + (x(i) / (1.0 + fabs(x(i))))", "i / (i + y(i))"]
)
def test_a_quotient_of_floats_that_becomes_a_double(narrow: str, value: str) -> None:
    parameters = f"{narrow}(I) x, {narrow}(I) y, double(I) w, double s"
    source = f"def f({parameters}) -> (r) {{ r(i) = w(i) * ({value}) }}"
    with warnings.catch_warnings():
        warnings.simplefilter("error", TCWarning)
        tcdsl.define(source)


def test_an_integer_quotient_beside_one_of_floats_is_told() -> None:
    source = (
        "def f(float(I) x, double(I) w, double(N) v) -> (r) { r(i) = w(i) * (x(i) / 2.0) + i / N }"
    )
    with pytest.warns(TCWarning, match="the quotient 'i / N' of integers"):
        tcdsl.define(source)
