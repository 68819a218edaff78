"""Names of C's own types, as names of a program."""

from collections.abc import Callable

import numpy as np
import pytest

FORMS = (
    "def f(float(NN) {0}) -> (yy) {{ yy(i) = {0}(i) + 1.0 }}",
    "def f(float(NN) xx) -> (yy) {{ {0} +=! xx(i) yy(i) = xx(i) * {0} }}",
    "def f(float(NN) xx) -> (yy) {{ yy({0}) = xx({0}) + float({0}) }}",
)


@pytest.mark.parametrize("name", ["int32_t", "int64_t"])
def test_integer_types_of_c(name: str, check_all: Callable[..., None]) -> None:
    check_all([(form.format(name), [np.arange(5, dtype=np.float32)]) for form in FORMS])
