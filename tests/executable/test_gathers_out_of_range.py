"""TC080 points at the access, and says which element of the index tensor is wrong."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.executable.faults import position_of

F4, I4 = np.float32, np.int32
TARGETS = ("cpu", "emulate", "reference")


def bad(shape: tuple[int, ...], where: tuple[int, ...], value: int = 99) -> Any:
    indices = np.zeros(shape, I4)
    indices[where] = value
    return indices


# name: (program, inputs, the access, the tensor, where the index is from)
GATHERS: dict[str, tuple[str, list[Any], str, str]] = {
    "one dimension": (
        "def f(float(E) table, int32(N) at) -> (y) { y(i) = 2.0 * table(at(i)) }",
        [np.ones(4, F4), bad((5,), (3,))], "table(at(i))", "at(3)",
    ),
    "several dimensions": (
        "def f(float(E, D) t, int32(B, L) at) -> (y) {\n  y(b, l, d) = t(at(b, l), d) + 1.0 }",
        [np.ones((4, 3), F4), bad((2, 6), (1, 4))], "t(at(b, l), d)", "at(1, 4)",
    ),
    "a transposed index tensor": (
        "def f(float(E) t, int32(B, L) at) -> (y) { y(b, l) = t(at(b, l)) }",
        [np.ones(4, F4), bad((6, 2), (4, 1)).T], "t(at(b, l))", "at(1, 4)",
    ),
    "every second element": (
        "def f(float(E) t, int32(N) at) -> (y) { y(i) = t(at(i)) }",
        [np.ones(4, F4), bad((10,), (6,))[::2]], "t(at(i))", "at(3)",
    ),
    "an expression": (
        "def f(float(E) t, int32(N) at) -> (y) { y(i) = t(2 * at(i + 1) - 1) where i in 0:3 }",
        [np.ones(4, F4), bad((5,), (2,)) + 1], "t(2 * at(i + 1) - 1)", "at(2)",
    ),
    "reduced": (
        "def f(float(E) t, int32(N, K) at) -> (y) { y(i) +=! t(at(i, k)) }",
        [np.ones(4, F4), bad((3, 40), (2, 33))], "t(at(i, k))", "at(2, 33)",
    ),
    "the second of two": (
        "def f(float(E) t, int32(N) a, int32(N) b) -> (y) { y(i) = t(a(i)) + t(b(i)) }",
        [np.ones(4, F4), bad((5,), (0,), 1), bad((5,), (2,))], "t(b(i))", "b(2)",
    ),
    "nested": (
        "def f(float(E) t, int32(M) a, int32(N) b) -> (y) { y(i) = t(a(b(i))) }",
        [np.ones(4, F4), bad((7,), (6,)), bad((5,), (2,), 6)], "t(a(b(i)))", "a(6)",
    ),
    "scattered": (
        "def f(float(N) x, int32(N) at, float(E) y) -> (y) { y(at(i)) += x(i) }",
        [np.ones(5, F4), bad((5,), (4,)), np.ones(3, F4)], "y(at(i))", "at(4)",
    ),
    "a scalar": (
        "def f(float(E) t, int32 n) -> (y) { y = t(n) }", [np.ones(4, F4), 99], "t(n)", "n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GATHERS)
def test_the_access_and_the_position_are_named(name: str, target: str) -> None:
    source, inputs, access, element = GATHERS[name]
    with pytest.raises(tcdsl.LaunchError) as caught:
        tcdsl.define(source).f(*inputs, target=target)
    error = caught.value
    assert error.code == "TC080" and error.span is not None
    assert source[error.span.start : error.span.end] == access
    assert error.message.endswith(f"(the index is from {element})"), error.message


def test_code_with_open_sizes_knows_the_position() -> None:
    f = tcdsl.define("def f(float(E) t, int32(B, L) at) -> (y) { y(b, l) = t(at(b, l)) }").f
    table = np.ones(4, F4)
    for shape in ((3, 5), (4, 5), (4, 9)):
        f(table, np.zeros(shape, I4), target="cpu")
    with pytest.raises(tcdsl.LaunchError, match=r"the index is from at\(5, 8\)"):
        f(table, bad((7, 11), (5, 8)), target="cpu")


def test_an_index_that_was_computed_has_the_access_alone() -> None:
    source = "def f(float(E) t, int32(N) a) -> (y) { b(i) = a(i) * 2  y(i) = t(b(i)) }"
    for target in TARGETS:
        with pytest.raises(tcdsl.LaunchError, match="index 198 of 't'") as caught:
            tcdsl.define(source).f(np.ones(4, F4), bad((5,), (2,)), target=target)
        span = caught.value.span
        assert caught.value.message.endswith("the extent is 4")
        assert span is not None and source[span.start : span.end] == "t(b(i))"


@pytest.mark.parametrize(("array", "offset", "position"), [
    (np.zeros((3, 4)), 7, (1, 3)), (np.zeros((4, 3)).T, 7, (1, 2)),
    (np.zeros((3, 1, 4)), 7, (1, 0, 3)),
    (np.zeros((3, 8))[:, ::2], 10, (1, 1)), (np.zeros((3, 8))[:, ::2], 9, None),
    (np.zeros(()), 0, ()), (np.zeros(4)[::-1], -2, None), (np.zeros((3, 4)), 12, None),
    (np.broadcast_to(np.zeros(4), (3, 4)), 2, None), (np.zeros((3, 4)), -1, None),
])  # fmt: skip
def test_positions_of_elements(array: Any, offset: int, position: tuple[int, ...] | None) -> None:
    steps = tuple(stride // array.itemsize for stride in array.strides)
    spec = tcdsl.spec(array.shape, "float64")
    spec = type(spec)(spec.dtype, spec.shape, steps)
    assert position_of(spec, offset) == position
