"""The arguments and results of a call: declared types, numbers, outputs."""

import math
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcdsl.errors import LaunchError, ShapeError, TCError
from tcdsl.lang.types import dtypes
from tcdsl.lang.types.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    DType,
)
from tcdsl.runtime.arguments import ALIGNMENT, allocate, as_input, as_output, deliver, host_scalar
from tcdsl.runtime.arrays import describe
from tcdsl.runtime.warm_path import address

torch = pytest.importorskip("torch")
TORCH_TYPES = [t for t in ALL if hasattr(torch, t.name)]


class ThroughDLPack:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device_pair = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_pair


def base() -> np.ndarray[Any, Any]:
    return np.arange(24, dtype=np.float32).reshape(4, 6)


def error_of(code: str, call: Any) -> TCError:
    with pytest.raises(TCError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# --- numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "result"),
    [
        (2, FLOAT32, 2.0),
        (0.1, FLOAT32, float(np.float32(0.1))),
        (0.1, BFLOAT16, 0.10009765625),
        (True, INT32, 1),
        (True, FLOAT64, 1.0),
        (255, UINT8, 255),
        (-128, INT8, -128),
        (math.inf, FLOAT16, math.inf),
        (65504, FLOAT16, 65504.0),
        (np.int64(7), INT32, 7),
        (np.float64(0.5), FLOAT16, 0.5),
        (ml_dtypes.bfloat16(0.5), FLOAT32, 0.5),
        (False, BOOL, False),
        (np.True_, BOOL, True),
        (2**64 - 1, dtypes.UINT64, 2**64 - 1),
    ],
)
def test_a_number_takes_the_declared_type(value: Any, dtype: DType, result: Any) -> None:
    array = as_input(value, dtype)
    assert array.dtype == dtype.numpy and array.shape == () and array.item() == result


def test_nan_and_the_sign_of_zero_survive() -> None:
    assert math.isnan(host_scalar(math.nan, FLOAT32).item())
    assert math.copysign(1, host_scalar(-0.0, FLOAT16).item()) == -1


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        (256, UINT8, "outside 0 to 255"),
        (-1, UINT8, "outside"),
        (2**31, INT32, "outside"),
        (2**63, INT64, "outside"),
        (1.0, INT32, "is a float"),
        (1, BOOL, "is not a bool"),
        (0.0, BOOL, "is not a bool"),
        (70000.0, FLOAT16, "too large"),
        (70000, FLOAT16, "too large"),
        (1e39, FLOAT32, "too large"),
        (1e39, BFLOAT16, "too large"),
        (10**400, FLOAT64, "too large"),
        (np.float64(1e39), FLOAT32, "too large"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(value: Any, dtype: DType, why: str) -> None:
    error = error_of("TC059", lambda: as_input(value, dtype, "argument 's'"))
    assert why in error.message and "argument 's'" in error.message and dtype.name in error.message


# --- arrays ------------------------------------------------------------------------------


def test_no_array_is_converted_silently() -> None:
    error = error_of("TC057", lambda: as_input(base().astype(np.float64), FLOAT32, "argument 'A'"))
    assert "argument 'A'" in error.message
    assert "float32" in error.message and "float64" in error.message
    error_of("TC057", lambda: as_input(np.zeros((), np.float64), FLOAT32))
    array = base()
    assert as_input(array, FLOAT32) is array


def test_outputs_are_views() -> None:
    array = base()
    assert as_output(array, FLOAT32, (4, 6)) is array
    as_output(array.T[::-1], FLOAT32, (6, 4))[0, 0] = 77
    assert array[0, 5] == 77
    tensor = torch.zeros(2, 3)
    as_output(tensor, FLOAT32, (2, 3))[1, 2] = 5
    assert tensor[1, 2] == 5


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: base().view()[:3], "its shape is (3, 6), the output's is (4, 6)"),
        (lambda: np.broadcast_to(np.float32(0), (4, 6)), "read-only"),
        (lambda: np.lib.stride_tricks.as_strided(base(), (4, 6), (0, 4)), "share memory"),
        (
            lambda: np.zeros(97, np.uint8)[1:].view(np.float32).reshape(4, 6),
            "not aligned to its element type",
        ),
        (lambda: ThroughDLPack(np.broadcast_to(np.float32(0), (4, 6))), "read-only"),
    ],
)
def test_what_cannot_be_written_is_refused(make: Any, why: str) -> None:
    error = error_of("TC058", lambda: as_output(make(), FLOAT32, (4, 6), "out 'C'"))
    assert isinstance(error, ShapeError)
    assert why in error.message and "out 'C'" in error.message and error.hint


def test_a_number_or_another_type_is_no_output() -> None:
    assert "number" in error_of("TC058", lambda: as_output(1.0, FLOAT64, ())).message
    error_of("TC057", lambda: as_output(base(), FLOAT64, (4, 6)))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5, 7), (64, 1024)])
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, BOOL, FLOAT64], ids=str)
def test_allocate(shape: tuple[int, ...], dtype: DType) -> None:
    array = allocate(shape, dtype)
    assert array.shape == shape and array.dtype == dtype.numpy
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    if array.nbytes >= 1 << 14:
        assert address(array) % ALIGNMENT == 0


def test_allocating_too_much_names_the_bytes() -> None:
    error = error_of("TC083", lambda: allocate((1 << 30, 1 << 30), FLOAT32, "output 'C'"))
    assert isinstance(error, LaunchError)
    assert str(1 << 62) in error.message and "output 'C'" in error.message


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_torch_in_torch_out(dtype: DType, shape: tuple[int, ...]) -> None:
    array = allocate(shape, dtype)
    array[...] = 1
    tensor = deliver(array, "torch")
    assert isinstance(tensor, torch.Tensor) and tuple(tensor.shape) == shape
    assert describe(tensor).dtype == dtype
    assert bool((tensor == 1).all())
    array[...] = 0
    assert bool((tensor == 0).all())  # the same memory


def test_delivering_to_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        @staticmethod
        def from_dlpack(x: Any) -> ThroughDLPack:
            return ThroughDLPack(x)

    array = base()
    assert deliver(array, "numpy") is array and deliver(array, "python") is array
    assert deliver(array, "not_imported") is array
    monkeypatch.setitem(sys.modules, "some_library", Library)
    result = deliver(array, "some_library")
    assert isinstance(result, ThroughDLPack) and result.array is array
    monkeypatch.setitem(sys.modules, "some_library", object())
    assert deliver(array, "some_library") is array
