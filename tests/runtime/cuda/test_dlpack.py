"""Memory handed over: the receiver reads it, and it is freed when nobody does."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.runtime.cuda import dlpack
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.cuda.libraries import new_array
from tcdsl.runtime.cuda.memory import free_abandoned


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy takes arrays of the host only, which is where the memory really is."""
    monkeypatch.setattr(dlpack, "_KIND_CUDA", 1)


@pytest.mark.parametrize(
    "name", ["float32", "float64", "float16", "int8", "uint16", "int64", "bool"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_a_receiver_reads_it(
    fake: Any, at: Callable[..., Any], on_the_host: None, name: str, shape: tuple[int, ...]
) -> None:
    dtype = BY_NAME[name]
    array = new_array(shape, dtype, primary_context())
    values = np.arange(np.prod(shape, dtype=int)).astype(dtype.numpy)
    at(array.address, dtype.numpy, values.size)[:] = values
    received = np.from_dlpack(array)
    assert received.dtype == dtype.numpy and received.shape == shape
    del array
    gc.collect(1)  # what is new
    free_abandoned()
    np.testing.assert_array_equal(received.ravel(), values)
    assert fake.used() > 0
    del received
    gc.collect(1)  # what is new
    free_abandoned()
    assert fake.used() == 0 and fake.contexts == []


def test_the_interface(fake: Any) -> None:
    array = new_array((2, 3), BY_NAME["bfloat16"], primary_context())
    assert array.__cuda_array_interface__["shape"] == (2, 3)
    assert array.__cuda_array_interface__["data"] == (array.address, False)
    assert array.__dlpack_device__() == (2, 0)
