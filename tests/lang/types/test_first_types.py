"""Values that are narrowed to the type of a tensor's first value are a warning; others are not."""

import warnings

import pytest

import tcdsl
from tcdsl.errors import TCWarning


@pytest.mark.parametrize(
    ("types", "body", "said"),
    [
        ("float", "t(i) = 0 where i in 0:N  t(i) += x(i,j)", "float32 values become int32"),
        ("half", "t(i) = 0 where i in 0:N  t(i) = x(i,0)", "float32 values become int32"),
        ("double", "t(i) = 0.0 where i in 0:N  t(i) += x(i,j)", "float64 values become float32"),
        ("double", "t(i) = float(x(i,0))  t(i) max= x(i,j)", "float64 values become float32"),
        ("float", "t(i) = i where i in 0:N  t(i) = 0.5 * i where i in 0:N", "become int32"),
    ],
)
def test_a_warning(types: str, body: str, said: str) -> None:
    source = f"def f({types}(N,M) x) -> (t) {{ {body} }}"
    with pytest.warns(TCWarning, match=f"{said}, the type that its first statement gives 't'"):
        _ = tcdsl.define(source).f.comprehension


@pytest.mark.parametrize(
    ("types", "result", "body"),
    [
        ("float", "t", "t(i) = 0.0 where i in 0:N  t(i) += x(i,j)"),
        ("half", "t", "t(i) = 0.0 where i in 0:N  t(i) += x(i,j)"),
        ("double", "t", "t(i) = float64(0) where i in 0:N  t(i) += x(i,j)"),
        ("double", "float(N) t", "t(i) = 0.0  t(i) += x(i,j)"),
        ("float", "t", "t(i) = 0 where i in 0:N  t(i) += int32(x(i,j))"),
        ("int32", "t", "t(i) = 0.0 where i in 0:N  t(i) += x(i,j)"),
        ("float", "int64(N) t", "t(i) = 0  t(i) += x(i,j)"),
        ("double", "t", "t(i) = 1.0 * x(i,0)  t(i) *= 0.5 where i in 0:N"),
    ],
)
def test_no_warning(types: str, result: str, body: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = tcdsl.define(f"def f({types}(N,M) x) -> ({result}) {{ {body} }}").f.comprehension
