"""Calls of libraries: conversions that change a value are no part of them."""

import warnings

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import TCError

LIBRARIES = [("blas", "cpu"), ("cublas", "emulate")]


@pytest.mark.parametrize(("library", "target"), LIBRARIES)
@pytest.mark.parametrize(
    ("dtype", "product"),
    [
        ("float", "float(int32(A(m,k))) * B(k,n)"),
        ("float", "float(half(A(m,k))) * B(k,n)"),
        ("double", "double(int32(A(m,k) * B(k,n)))"),
        ("double", "double(float(A(m,k)) * float(B(k,n)))"),
        ("half", "float(half(A(m,k) * B(k,n)))"),
    ],
)
def test_conversions_that_round_are_refused(
    dtype: str, product: str, library: str, target: str
) -> None:
    parameters = f"{dtype}(M,K) A, {dtype}(K,N) B"
    source = f"def f({parameters}) -> (C) {{ C(m,n) +=! {product} <=> {library}(A, B) }}"
    with pytest.raises(TCError, match="TC094"):
        tcdsl.define(source)


@pytest.mark.parametrize(("library", "target"), LIBRARIES)
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_a_result_of_which_not_all_is_written_is_refused(library: str, target: str) -> None:
    body = f"C(2*m,n) +=! A(m,k) * B(k,n) <=> {library}(A, B)"
    f = tcdsl.define(f"def f(float(M,K) A, float(K,N) B) -> (C) {{ {body} }}")["f"]
    with pytest.raises(TCError, match="what is set to 0 is more"):
        f(np.ones((5, 7), np.float32), np.ones((7, 3), np.float32), target=target)


@pytest.mark.parametrize(("library", "target"), LIBRARIES)
def test_numpy_warns_nobody_of_infinities(library: str, target: str) -> None:
    body = f"C(m,n) +=! A(m,k) * B(k,n) <=> {library}(A, B)"
    f = tcdsl.define(f"def f(float(M,K) A, float(K,N) B) -> (C) {{ {body} }}")["f"]
    A, B = np.full((2, 3), np.inf, np.float32), np.zeros((3, 2), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert np.isnan(f(A, B, target=target)).all()
