"""Which arguments fit compiled code, and what becomes of those that lie elsewhere in memory."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import LaunchError, ShapeError, TCError
from tcdsl.interp.arithmetic import Array
from tcdsl.runtime.arrays import describe
from tcdsl.runtime.fitting import Fitting, require_count

C = tcdsl.define("def f(float(M,N) A, float s) -> (B) { B(m,n) = A(m,n) * s }").f.comprehension
A = np.arange(6, dtype=np.float32).reshape(2, 3)
S = np.array(2, np.float32)


def fitting(array: Array) -> Fitting:
    return Fitting(C, {"A": describe(array), "s": describe(S)})


def test_what_can_be_read_directly_is_left_alone() -> None:
    other = A + 1
    assert fitting(A).fitted((other, S))[0] is other


def test_a_number_becomes_an_array_of_the_declared_type() -> None:
    array, number = fitting(A).fitted((A, 2))
    assert array is A and number.dtype == np.float32 and number == 2


@pytest.mark.parametrize("layout", [
    A, A.copy("F"), A[::-1].copy()[::-1], A[:, ::-1].copy()[:, ::-1], np.repeat(A, 2, 1)[:, ::2],
])  # fmt: skip
def test_copies_have_the_strides_of_the_code(layout: Array) -> None:
    for given in (A, A.copy("F"), A[::-1].copy()[::-1]):
        (copy, _) = fitting(layout).fitted((given, S))
        assert copy.strides == layout.strides
        np.testing.assert_array_equal(copy, A)


def test_a_broadcast_layout_holds_no_other_array() -> None:
    broadcast = np.broadcast_to(A[:1], (2, 3))
    assert fitting(broadcast).fitted((broadcast, S))[0] is broadcast
    with pytest.raises(LaunchError) as caught:
        fitting(broadcast).fitted((A, S))
    assert caught.value.code == "TC081" and "'A'" in caught.value.message


@pytest.mark.parametrize(("args", "code"), [
    ((A,), "TC048"), ((A, S, S), "TC048"), ((A.astype(np.float64), S), "TC057"),
    ((A[:1], S), "TC052"), ((A[0], S), "TC051"), ((A, "2"), "TC056"), ((A, S[None]), "TC051"),
])  # fmt: skip
def test_what_does_not_fit(args: tuple[Any, ...], code: str) -> None:
    for _ in range(2):  # nothing wrong is remembered as right
        with pytest.raises(TCError) as caught:
            fitting(A).fitted(args)
        assert caught.value.code == code


def test_a_wrong_number_of_arguments_shows_the_signature() -> None:
    with pytest.raises(ShapeError, match="takes 2 arguments, got 0") as caught:
        require_count(C, ())
    assert caught.value.hint == "it is f(float32(M, N) A, float32 s) -> (float32(M, N) B)"
