import numpy as np
import pytest

import tcdsl
from tcdsl.cli.random_inputs import random_inputs
from tcdsl.lang.comprehension import Comprehension
from tcdsl.testing.parameters import shapes_of


def comprehension(text: str) -> Comprehension:
    program = tcdsl.define(text)
    return program[program.names[-1]].comprehension


MANY = """
def many(float(M, 3) a, int8(M) b, bool(M) c, float16(M) h, float s) -> (y) {
    y(m) +=! a(m, k) * float(b(m)) * s + float(h(m)) where exists c(m)
}
"""


def test_shapes_follow_sizes_and_literals() -> None:
    assert shapes_of(comprehension(MANY), {"M": 5}) == {
        "a": (5, 3), "b": (5,), "c": (5,), "h": (5,), "s": (),
    }  # fmt: skip


def test_types_are_the_declared_ones() -> None:
    arrays = random_inputs(comprehension(MANY), {"M": 5}, seed=0)
    assert [array.dtype.name for array in arrays.values()] == [
        "float32", "int8", "bool", "float16", "float32",
    ]  # fmt: skip


def test_the_seed_decides() -> None:
    first, again, other = (
        random_inputs(comprehension(MANY), {"M": 50}, seed=seed)["a"] for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(E, D) t, int32(N) i) -> (y) { y(n, d) = t(i(n), d) }",
        "def f(float(E, D) y, int32(N) i) -> (y) { y(i(n), d) += 1.0 where d in 0:D }",
    ],
)
def test_subscripts_stay_within_what_they_subscript(text: str) -> None:
    for extent in (1, 40):
        sizes = {"E": extent, "D": 2, "N": 500}
        index = random_inputs(comprehension(text), sizes, seed=0)["i"]
        assert index.min() == 0
        assert index.max() == extent - 1


def test_zero_sizes_give_empty_arrays() -> None:
    assert random_inputs(comprehension(MANY), {"M": 0}, seed=0)["a"].shape == (0, 3)
