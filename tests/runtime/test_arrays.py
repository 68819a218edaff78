"""What the caller's arrays are: NumPy, numbers, torch, DLPack and array interfaces."""

import gc
import subprocess
import sys
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcdsl.errors import ShapeError, TargetError, TCError
from tcdsl.lang.types.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    DType,
)
from tcdsl.runtime.arguments import as_input, as_output
from tcdsl.runtime.arrays import (
    ArraySpec,
    as_numpy,
    describe,
    library_of,
    overlaps,
    row_major,
    spec,
)

torch = pytest.importorskip("torch")


class ThroughDLPack:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device_pair = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_pair


class ThroughOldDLPack(ThroughDLPack):
    """As before version 1 of DLPack, which could not say whether memory may be written."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class ThroughInterface:
    """An array of a library that has ``__array_interface__`` and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class OnCuda:
    """What CuPy, Numba or PyCUDA show of memory on a GPU."""

    def __init__(self, shape: tuple[int, ...], typestr: str, strides: Any = None) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (4096, False), "strides": strides,
            "version": 3,
        }  # fmt: skip


def base() -> np.ndarray[Any, Any]:
    return np.arange(24, dtype=np.float32).reshape(4, 6)


def error_of(code: str, call: Any) -> TCError:
    with pytest.raises(TCError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# --- NumPy -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_type_of_the_language(dtype: DType) -> None:
    array = np.zeros((2, 3), dtype.numpy)
    assert describe(array) == ArraySpec(dtype, (2, 3), (3, 1))
    assert as_numpy(array) is array


@pytest.mark.parametrize(
    ("view", "shape", "strides"),
    [
        (lambda a: a.T, (6, 4), (1, 6)),
        (lambda a: a[::-1], (4, 6), (-6, 1)),
        (lambda a: a[::2, ::-3], (2, 2), (12, -3)),
        (lambda a: np.broadcast_to(a[0], (5, 6)), (5, 6), (0, 1)),
        (lambda a: a[2, 3], (), ()),
        (lambda a: a[2:3, 3:4].reshape(()), (), ()),
        (lambda a: a[:0], (0, 6), (6, 1)),
        (lambda a: a[None, :, None], (1, 4, 1, 6), (0, 6, 0, 1)),
    ],
)
def test_views(view: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    array = view(base())
    found = describe(array)
    assert found.shape == shape and found.strides == strides
    assert np.array_equal(as_numpy(array), array)
    if array.size and shape:
        assert np.shares_memory(as_numpy(array), array)


def test_read_only_arrays_say_so() -> None:
    array = base()
    array.flags.writeable = False
    assert not describe(array).writable
    assert np.shares_memory(as_numpy(array), array)


def test_misaligned_data_is_copied() -> None:
    raw = np.zeros(4 * 6 + 1, np.uint8)
    array = raw[1:].view(np.float32).reshape(2, 3)
    array[...] = [[1, 2, 3], [4, 5, 6]]
    copy = as_numpy(array)
    assert copy.flags.aligned and not np.shares_memory(copy, array)
    assert np.array_equal(copy, array)
    assert describe(array).strides == (3, 1)


def test_a_field_of_a_record_is_copied() -> None:
    records = np.zeros(4, [("a", "f4"), ("b", "i1"), ("c", "i1"), ("d", "i2"), ("e", "i2")])
    records["a"] = [1, 2, 3, 4]
    assert describe(records["a"]).strides == (1,)
    copy = as_numpy(records["a"])
    assert copy.strides == (4,) and copy.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "object", "U3", "S2", "M8[s]", "V4", "longdouble", "f4,i4"]
)
def test_other_types_are_refused_with_the_list_of_types(dtype: str) -> None:
    error = error_of("TC055", lambda: describe(np.zeros(2, dtype), "argument 'A'"))
    assert isinstance(error, ShapeError)
    assert "argument 'A'" in error.message
    for name in ("bool", "uint64", "bfloat16", "float64"):
        assert name in (error.hint or "")
    error_of("TC055", lambda: as_numpy(np.zeros(2, dtype)))


def test_the_other_byte_order_is_refused() -> None:
    swapped = base().astype(base().dtype.newbyteorder())
    error = error_of("TC055", lambda: describe(swapped))
    assert "newbyteorder" in (error.hint or "")


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_masked_array_is_refused_and_a_matrix_is_not() -> None:
    masked: Any = np.ma.masked_array(base(), base() > 3)
    assert "filled" in (error_of("TC056", lambda: as_numpy(masked)).hint or "")
    matrix = np.asmatrix(base())
    assert type(as_numpy(matrix)) is np.ndarray
    assert describe(matrix) == describe(base())


@pytest.mark.parametrize("x", [[1, 2], None, "abc", {}, object()])
def test_what_is_no_array_is_refused(x: object) -> None:
    error = error_of("TC056", lambda: describe(x, "argument 'A'"))
    assert type(x).__name__ in error.message and "numpy.asarray" in (error.hint or "")
    error_of("TC056", lambda: as_numpy(x))


# --- specs -------------------------------------------------------------------------------


def test_placeholders() -> None:
    found = spec((64, 32), "float32")
    assert found == describe(np.zeros((64, 32), np.float32)) == describe(found)
    assert spec([3], "double").dtype == FLOAT64 and spec((), BFLOAT16).shape == ()
    numpy_extent: Any = np.int64(3)
    assert spec((2, numpy_extent), "int").shape == (2, 3)


def test_bad_placeholders() -> None:
    assert "float32" in (error_of("TC055", lambda: spec((2,), "float31")).hint or "")
    error_of("TC056", lambda: spec((2, -1), "float32"))
    error_of("TC056", lambda: spec((2.5,), "float32"))  # type: ignore[arg-type]
    assert "placeholder" in error_of("TC056", lambda: as_numpy(spec((2,), "float32"))).message


def test_properties_of_specs() -> None:
    array = base()
    assert describe(array).is_contiguous and describe(array[:1]).is_contiguous
    assert not describe(array.T).is_contiguous and describe(array[:0, ::2]).is_contiguous
    assert describe(array).size_bytes == 96
    assert row_major((2, 0, 3)) == (3, 3, 1) and row_major(()) == ()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a, lambda a: a.T, lambda a: a[::-1, ::-1], lambda a: a[1::2, ::-2],
        lambda a: a[:0], lambda a: a[2, 3:4], lambda a: np.broadcast_to(a[:, :1], (4, 9)),
    ],
)  # fmt: skip
def test_reach_covers_every_element(view: Any) -> None:
    array = view(base())
    offsets = [
        sum(i * stride for i, stride in zip(index, array.strides, strict=True)) // 4
        for index in np.ndindex(array.shape)
    ]
    expected = (min(offsets), max(offsets) + 1) if offsets else (0, 0)
    assert describe(array).reach == expected


def test_self_overlap() -> None:
    array = base()
    strided = np.lib.stride_tricks.as_strided
    assert not any(describe(a).may_overlap_itself for a in (array, array.T, array[::-1, ::2]))
    assert describe(np.broadcast_to(array[0], (2, 6))).may_overlap_itself
    assert describe(strided(array, (5, 3), (8, 4))).may_overlap_itself
    assert not describe(strided(array, (0, 3), (0, 4))).may_overlap_itself
    assert not describe(strided(array, (1, 3), (0, 4))).may_overlap_itself


# --- other libraries ---------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [ThroughDLPack, ThroughOldDLPack, ThroughInterface])
def test_protocols_give_views(wrap: Any) -> None:
    array = base()[::-1, ::2]
    wrapped = wrap(array)
    view = as_numpy(wrapped)
    assert np.shares_memory(view, array) and np.array_equal(view, array)
    found = describe(wrapped)
    assert (found.dtype, found.shape, found.strides) == (FLOAT32, (4, 3), (-6, 2))
    assert found.library == __name__.partition(".")[0] and found.device == "cpu"


@pytest.mark.slow_but("ThroughDLPack")
@pytest.mark.parametrize("wrap", [ThroughDLPack, ThroughInterface])
def test_a_view_keeps_the_memory_alive(wrap: Any) -> None:
    array = base()
    watched = weakref.ref(array)
    view = as_numpy(wrap(array))
    del array
    gc.collect()
    assert watched() is not None or view.base is not None
    assert view[3, 5] == 23
    del view
    gc.collect()
    assert watched() is None


def test_read_only_through_protocols() -> None:
    array = base()
    array.flags.writeable = False
    for wrapped in (ThroughDLPack(array), ThroughInterface(array)):
        assert not describe(wrapped).writable


@pytest.mark.parametrize(
    ("pair", "device"), [((2, 1), "cuda:1"), ((10, 0), "rocm:0"), ((99, 2), "device kind 99:2")]
)
def test_dlpack_from_another_device_is_refused(pair: tuple[int, int], device: str) -> None:
    error = error_of("TC066", lambda: as_numpy(ThroughDLPack(base(), pair), "argument 'A'"))
    assert isinstance(error, TargetError)
    assert f"argument 'A' is on {device}" in error.message


def test_cuda_interface_is_described_but_not_read() -> None:
    on_gpu = OnCuda((4, 6), "<f4", (48, 8))
    assert describe(on_gpu) == ArraySpec(
        FLOAT32, (4, 6), (12, 2), "cuda", True, __name__.partition(".")[0]
    )
    assert describe(OnCuda((4, 6), "<i8")).strides == (6, 1)
    assert "is on cuda" in error_of("TC066", lambda: as_numpy(on_gpu)).message
    error_of("TC066", lambda: as_input(on_gpu, FLOAT32))
    error_of("TC066", lambda: as_output(on_gpu, FLOAT32, (4, 6)))
    error_of("TC055", lambda: describe(OnCuda((2,), "<c8")))


# --- torch -------------------------------------------------------------------------------

TORCH_TYPES = [t for t in ALL if hasattr(torch, t.name)]


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
def test_every_torch_type(dtype: DType) -> None:
    tensor = torch.zeros((2, 3), dtype=getattr(torch, dtype.name))
    assert describe(tensor) == ArraySpec(dtype, (2, 3), (3, 1), "cpu", True, "torch")
    view = as_numpy(tensor)
    assert view.dtype == dtype.numpy
    view[1, 2] = 1
    assert tensor[1, 2].item() == 1


def test_bfloat16_values_and_strides() -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T
    view = as_numpy(tensor)
    assert view.dtype == ml_dtypes.bfloat16 and view.astype(np.float32).tolist() == [
        [0, 3], [1, 4], [2, 5],
    ]  # fmt: skip
    assert view.ctypes.data == tensor.data_ptr()
    scalar = torch.tensor(2.5, dtype=torch.bfloat16)
    assert as_numpy(scalar).shape == () and float(as_numpy(scalar)) == 2.5
    assert as_numpy(tensor.expand(5, 3, 2)).strides[0] == 0


def test_a_tensor_that_requires_grad_is_an_input_but_no_output() -> None:
    tensor = torch.ones(3, requires_grad=True)
    assert as_numpy(tensor).tolist() == [1, 1, 1]
    assert not describe(tensor).writable
    error = error_of("TC058", lambda: as_output(tensor, FLOAT32, (3,)))
    assert "requires a gradient" in error.message and "detach" in (error.hint or "")
    parameter = torch.nn.Parameter(torch.ones(3))
    assert describe(parameter).library == "torch" and as_numpy(parameter).tolist() == [1, 1, 1]


def test_a_lazily_negated_tensor_is_resolved() -> None:
    tensor = torch.complex(torch.ones(2), torch.ones(2)).conj().imag
    assert tensor.is_neg()
    assert as_numpy(tensor).tolist() == [-1, -1]
    assert not describe(tensor).writable
    error_of("TC058", lambda: as_output(tensor, FLOAT32, (2,)))


def test_other_tensors_are_refused() -> None:
    error_of("TC055", lambda: describe(torch.zeros(2, dtype=torch.complex64)))
    error = error_of("TC056", lambda: as_numpy(torch.zeros(2, 2).to_sparse()))
    assert "to_dense" in (error.hint or "")
    error = error_of("TC056", lambda: as_numpy(torch.zeros(2, device="meta")))
    assert "on meta" in error.message
    assert describe(torch.zeros(2, device="meta")).device == "meta"


def test_importing_arrays_imports_no_library() -> None:
    code = (
        "import sys, tcdsl.runtime.arrays as a; a.describe(a.spec((2,), 'float32'));"
        "bad = {'torch', 'jax', 'cupy', 'pycuda', 'ml_dtypes'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, BOOL), (3, INT64), (2.5, FLOAT64), (np.float32(1), FLOAT32), (np.int8(1), INT8)],
)
def test_numbers_are_described(value: Any, dtype: DType) -> None:
    found = describe(value)
    assert found.is_number and found.dtype == dtype and found.shape == () and not found.writable
    assert library_of(value) == "python"
    assert as_numpy(value).shape == () and as_numpy(value).item() == value


def test_a_complex_scalar_is_refused() -> None:
    error_of("TC055", lambda: describe(np.complex64(1)))
    error_of("TC056", lambda: describe(1j))


# --- together ----------------------------------------------------------------------------


def test_overlaps() -> None:
    array = base()
    assert overlaps(array, array) and overlaps(array[:2], array[1:3]) and overlaps(array, array.T)
    assert not overlaps(array[:2], array[2:]) and not overlaps(array, array.copy())
    assert not overlaps(array[:, ::2], array[:, 1::2])
    assert not overlaps(array[:0], array)


def test_overlap_that_is_too_hard_counts_as_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_hard(*_: Any, **__: Any) -> bool:
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    array = base()
    assert overlaps(array[:, ::2], array[:, 1::2])
    assert not overlaps(array[:2], array[2:])
