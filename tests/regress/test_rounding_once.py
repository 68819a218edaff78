"""A double becomes a narrow float in one rounding: the reference rounded twice, by way of float32.

Compiled code was right, and ``testing.check`` said that it was wrong.
"""

from collections.abc import Callable

import numpy as np
import pytest

import tcdsl
from tcdsl.interp.arithmetic import to_narrow
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, DType

CheckAll = Callable[..., None]
TYPES = [BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E5M2]
SOURCE = "def f(double(N) x) -> (double(N) y) {{ y(i) = {dtype}(x(i)) }}"


def near_ties(dtype: DType) -> np.ndarray:
    """Return numbers just below, at and above the middle of neighbours of *dtype*."""
    low = np.arange(1, 60, dtype=np.float32).astype(dtype.numpy)
    bits = low.view(f"u{dtype.size_bytes}")
    high = (bits + 1).astype(bits.dtype).view(dtype.numpy)
    middle = (low.astype(np.float64) + high.astype(np.float64)) / 2
    return np.concatenate([middle + off for off in (-1e-9, 0.0, 1e-9)])


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_nearest_number(dtype: DType) -> None:
    bits = np.arange(1 << 8 * dtype.size_bytes, dtype=f"u{dtype.size_bytes}")
    every = bits.view(dtype.numpy).astype(np.longdouble)
    every = every[np.isfinite(every)]
    x = near_ties(dtype)
    x = np.concatenate([x, -x, [0.0, 1e-300]])
    found = to_narrow(x, dtype).astype(np.longdouble)
    for value, near in zip(x.astype(np.longdouble), found, strict=True):
        assert abs(near - value) == np.min(np.abs(every - value))
    single = x.astype(np.float32)
    np.testing.assert_array_equal(to_narrow(single, dtype), single.astype(dtype.numpy))


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16, FLOAT8_E5M2], ids=str)
def test_infinities(dtype: DType) -> None:
    x = np.array([np.inf, -np.inf, 1e300, -1e300, np.nan])
    np.testing.assert_array_equal(
        to_narrow(x, dtype).astype(float), [np.inf, -np.inf, np.inf, -np.inf, np.nan]
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
def test_compiled_code_agrees(dtype: str, check_all: CheckAll) -> None:
    narrow = {"bfloat16": BFLOAT16, "half": FLOAT16}[dtype]
    check_all([(SOURCE.format(dtype=dtype), [near_ties(narrow)])])


def test_a_rounded_activation() -> None:
    """The program that a hunt drew, at a value that float32 takes to the middle."""
    f = tcdsl.define("""def f(double(N) x) -> (double(N) y) {
        y(i) = bfloat16(0.5 * x(i) * (1.0 + erf(0.7 * x(i))))
    }""").f
    tcdsl.testing.check(f, np.linspace(-10, 10, 20001), targets=("cpu",))
