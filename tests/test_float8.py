"""float8_e4m3 and float8_e5m2 as storage types: conversions, reductions, arrays of libraries."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT64,
    DType,
    from_numpy,
    promote,
)
from tcdsl.testing import check

TYPES = [FLOAT8_E4M3, FLOAT8_E5M2]
TARGETS = ("cpu", "emulate")

by_type = pytest.mark.parametrize("dtype", TYPES, ids=str)
by_target = pytest.mark.parametrize("target", TARGETS)


def equal(got: Any, want: Any) -> bool:
    """Return whether two arrays are of one type and hold the same numbers, NaN where NaN is."""
    same = np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True)
    return bool(got.dtype == want.dtype and same)


def edges(dtype: DType) -> Any:
    """Return all numbers of *dtype*, what lies half-way between two, and its neighbours."""
    exact = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    finite = np.unique(exact[np.isfinite(exact)])
    middles = (finite[1:] + finite[:-1]) / 2
    beyond = np.array([464, 464.1, 480, 61439, 61440, 1e30, 1e300, np.inf, np.nan])
    steps = np.concatenate([np.nextafter(middles, way) for way in (np.inf, -np.inf)])
    return np.concatenate([exact, middles, steps, beyond, -beyond])


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (FLOAT8_E4M3, FLOAT8_E4M3, FLOAT8_E4M3), (FLOAT8_E4M3, FLOAT8_E5M2, FLOAT32),
        (FLOAT8_E5M2, FLOAT16, FLOAT16), (FLOAT8_E4M3, BFLOAT16, BFLOAT16),
        (INT64, FLOAT8_E5M2, FLOAT8_E5M2),
    ],
)  # fmt: skip
def test_promotion(a: DType, b: DType, result: DType) -> None:
    assert promote(a, b) == result == promote(b, a)


def test_another_type_of_the_same_name_is_refused() -> None:
    assert from_numpy(ml_dtypes.float8_e4m3fn) == FLOAT8_E4M3
    assert from_numpy(ml_dtypes.float8_e4m3) is None  # it has infinities
    assert tcdsl.spec((2,), "float8_e4m3").dtype == FLOAT8_E4M3
    with pytest.raises(tcdsl.ShapeError):
        tcdsl.spec((2,), np.dtype(ml_dtypes.float8_e4m3))


@pytest.mark.parametrize("name", ["fp8", "e4m3", "float8"])
def test_other_names_are_recognised(name: str) -> None:
    with pytest.raises(tcdsl.TCError, match="float8_e4m3"):
        tcdsl.define(f"def f({name}(N) x) -> (y) {{ y(i) = x(i) }}")


@pytest.mark.slow_but("float8_e4m3-cpu", "float8_e5m2-emulate")
@by_target
@by_type
def test_conversions_are_those_of_ml_dtypes(dtype: DType, target: str) -> None:
    narrow = tcdsl.define(f"def f(double(N) x) -> ({dtype}(N) y) {{ y(i) = x(i) }}").f
    wide = tcdsl.define(f"def f({dtype}(N) x) -> (float(N) y) {{ y(i) = x(i) }}").f
    values = edges(dtype)
    with np.errstate(all="ignore"):
        want = values.astype(dtype.numpy)
    assert equal(narrow(values, target=target), want)
    assert equal(wide(want, target=target), want.astype(np.float32))


@pytest.mark.slow_but("float8_e4m3-emulate", "float8_e5m2-cpu")
@by_target
@by_type
def test_arithmetic_and_sums_are_of_float32(dtype: DType, target: str) -> None:
    f = tcdsl.define(f"""
        def f({dtype}(M, K) A, {dtype}(K, N) B, float s) -> (float(M, N) C, t, float(M) r, q) {{
            C(m, n) +=! A(m, k) * B(k, n)
            t(m, k) = A(m, k) * 2.0 + 0.125
            r(m) +=! A(m, k)
            q(m) = {dtype}(r(m) * s)
        }}""").f
    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=shape).astype(dtype.numpy) for shape in ((37, 65), (65, 40)))
    check(f, A, B, 3.5, targets=(target,))
    C, t, _, q = f(A, B, 3.5, target=target)
    assert np.allclose(C, A.astype(np.float32) @ B.astype(np.float32), atol=1e-4)
    assert t.dtype == q.dtype == dtype.numpy


@pytest.mark.slow_but("float8_e4m3-emulate", "float8_e5m2-cpu")
@by_target
@by_type
def test_extremes_start_from_infinities_that_the_type_may_lack(dtype: DType, target: str) -> None:
    f = tcdsl.define(f"""
        def f({dtype}(M, N) x, int32(M, N) at) -> ({dtype} top, {dtype}(M) low, {dtype}(5) s, a) {{
            top max=! x(i, j)
            low(i) min=! x(i, j)
            s(at(i, j)) max=! x(i, j)
            a(i) argmax=! x(i, j)
        }}""").f
    rng = np.random.default_rng(1)
    x = rng.normal(size=(7, 33)).astype(dtype.numpy)
    at = rng.integers(0, 4, x.shape).astype(np.int32)  # nothing is in the last place
    got = f(x, at, target=target)
    for one, want in zip(got, f.reference(x, at), strict=True):
        assert equal(one, want)
    assert float(got[0]) == x.astype(float).max()
    empty = got[2].astype(float)[4]
    assert np.isnan(empty) if dtype == FLOAT8_E4M3 else empty == -np.inf


@by_type
def test_atomic_updates(dtype: DType) -> None:
    f = tcdsl.define(f"""
        def f({dtype}(N) x, int32(N) at, {dtype}(K) y) -> (y) {{ y(at(i)) max= x(i) }}""").f
    x = np.arange(-8, 8).astype(dtype.numpy)
    at = (np.arange(16) % 3).astype(np.int32)
    y = np.array([0, -3, 100], dtype.numpy)
    assert equal(f(x, at, y.copy(), target="emulate"), f.reference(x, at, y))


@by_type
def test_tensors_of_torch(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    f = tcdsl.define(f"def f({dtype}(M, N) x) -> (y) {{ y(j, i) = x(i, j) }}").f
    kind = getattr(torch, dtype.library_name)
    x = torch.arange(6.0).reshape(2, 3).to(kind)
    y = f(x)
    assert y.dtype == kind and torch.equal(y.float(), x.float().T)
    out = torch.empty((3, 2), dtype=kind)
    assert f(x, out=out) is out and torch.equal(out.float(), x.float().T)
