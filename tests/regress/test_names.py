"""Names of C's own types, and words of C++ alone, as names of a program."""

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


WORDS = (
    "and_eq", "catch", "co_await", "co_return", "co_yield", "concept", "const_cast", "consteval",
    "constinit", "decltype", "dynamic_cast", "explicit", "export", "friend", "mutable",
    "noexcept", "not_eq", "or_eq", "protected", "reinterpret_cast", "requires", "static_cast",
    "throw", "try", "typeid", "typename", "typeof_unqual", "using", "virtual", "xor_eq",
)  # fmt: skip


def test_words_of_cxx(check_emulated: Callable[..., None]) -> None:
    arrays = ", ".join(f"float(NN) {word}" for word in WORDS)
    summed = " + ".join(f"{word}(i)" for word in WORDS)
    shapes = [(5,)] * len(WORDS)
    check_emulated([(f"def f({arrays}) -> (yy) {{ yy(i) = {summed} }}", shapes)])
