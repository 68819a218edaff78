"""The caller's arrays, whatever library made them, without importing that library.

    numpy.ndarray              \\
    a Python number             \\      describe    ArraySpec: type, shape, strides, device
    torch, jax, ... (DLPack)     >--->  as_numpy    a view of the same memory
    __array_interface__         /
    __cuda_array_interface__   /

Nothing is converted silently.  Only what the hardware cannot address element by element is
copied: data that is not aligned to its element, or whose strides are no multiples of it.
What a call makes of this is in ``arguments.py``, its warm path in ``warm_path.py``.
"""

import math
import numbers
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from tcdsl.errors import NOT_AN_ARRAY, UNSUPPORTED_DTYPE, WRONG_DEVICE
from tcdsl.lang.types.dtypes import (
    ALL,
    BOOL,
    BY_NAME,
    FLOAT64,
    INT64,
    OF_ML_DTYPES,
    DType,
    from_numpy,
)
from tcdsl.records import dataclass
from tcdsl.runtime.cuda import libcuda

NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Number: TypeAlias = "bool | int | float | np.generic[Any]"

CPU = "cpu"
NUMPY = "numpy"
PYTHON = "python"  # the library of a Python number or a NumPy scalar

_MOST_BYTES = (1 << 63) - 1  # that an offset can reach
WIDEST_ACCESS = 16  # bytes: the widest load of a GPU

_OVERLAP_WORK = 10_000  # the most steps that the exact overlap test may take

_DLPACK_HOST = (1, 3, 11, 13)  # kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged
_DLPACK_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}

dtype_of = lru_cache(maxsize=256)(from_numpy)  # dtype.name takes a microsecond
_SUPPORTED = ", ".join(dtype.name for dtype in ALL)


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """What compilation needs to know of an array: everything but its data.

    *strides* count elements, and may be zero or negative.  *alignment* is of a device array only:
    the bytes, up to :data:`WIDEST_ACCESS`, of which its address is known to be a multiple.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str = CPU  # "cpu", "cuda:0", ...
    writable: bool = True
    library: str = NUMPY
    alignment: int = WIDEST_ACCESS

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.size_bytes

    @property
    def is_number(self) -> bool:
        """Whether this is a host scalar without memory of its own, of no definite type."""
        return self.library == PYTHON

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.size == 0 or all(
            extent == 1 or stride == dense
            for extent, stride, dense in zip(
                self.shape, self.strides, row_major(self.shape), strict=True
            )
        )

    @property
    def reach(self) -> tuple[int, int]:
        """The half-open range of elements, relative to the data pointer, that the array touches."""
        if self.size == 0:
            return 0, 0
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + 1

    @property
    def may_overlap_itself(self) -> bool:
        """Whether two elements may share memory (exact for strides that nest)."""
        pairs = zip(self.strides, self.shape, strict=True)
        within = 0
        for stride, extent in sorted((abs(s), n) for s, n in pairs if n > 1):
            if stride <= within:
                return self.size > 0
            within += stride * (extent - 1)
        return False


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major array of *shape*."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        strides[dim - 1] = strides[dim] * (shape[dim] or 1)
    return tuple(strides)


def is_plain_array(x: Any) -> TypeGuard[NDArray]:
    """Return whether *x* is an array of NumPy, dense, aligned and writable."""
    return type(x) is np.ndarray and x.flags.carray


def spec(shape: int | Sequence[int], dtype: Any) -> ArraySpec:
    """Return a placeholder for a dense array of *shape*, to compile for without data.

    :arg shape: the extent of each dimension, or one integer for one dimension.
    :arg dtype: an element type: its name in the language ("float32", "half"), what NumPy takes for
        one (``np.float32``, ``A.dtype``, ``float``), or PyTorch's (``torch.bfloat16``).
    :raises ShapeError: (TC055) *dtype* is not a type of the language; (TC056) *shape* is invalid.
    """
    extents = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    for extent in extents:
        if not isinstance(extent, numbers.Integral) or extent < 0:
            raise _no_shape(shape, "give a sequence of integers that are at least 0")
    plain = tuple(int(extent) for extent in extents)
    kind = named_dtype(dtype, "the placeholder")
    if math.prod(max(extent, 1) for extent in plain) * kind.size_bytes > _MOST_BYTES:
        raise _no_shape(plain, "give a shape that can be addressed: of less than 2^63 bytes")
    return ArraySpec(kind, plain, row_major(plain))


def _no_shape(shape: object, advice: str) -> Exception:
    return NOT_AN_ARRAY(what="the placeholder", found=f"of shape {shape!r}", advice=advice)


def named_dtype(dtype: Any, what: str) -> DType:
    """Return the element type *dtype* of *what*, by whichever of its names.

    :raises ShapeError: (TC055) it is not a type of the language.
    """
    if isinstance(dtype, DType):
        return dtype
    # NumPy reads None as float64: nobody who leaves out a type means that.
    known = None  # NumPy's own float8_e4m3, of ml_dtypes, is another type
    if dtype is not None and not isinstance(dtype, np.dtype):
        known = BY_NAME.get(str(dtype).removeprefix("torch."))
    if known is None and dtype is not None:
        with suppress(TypeError):
            known = from_numpy(np.dtype(dtype))
    if known is None:
        raise _unsupported(what, str(dtype))
    return known


def _unsupported(what: str, dtype: str, advice: str = f"use one of {_SUPPORTED}") -> Exception:
    return UNSUPPORTED_DTYPE(what=what, dtype=dtype, advice=advice)


# --- describing --------------------------------------------------------------------------


def describe(x: object, what: str = "the argument") -> ArraySpec:
    """Return the type, shape, strides and place of *x*; *what* is its name in errors.

    A Python number or NumPy scalar is a 0-D array of library "python" and of the widest type of
    its kind; ``arguments.host_scalar`` gives it the declared type.

    :raises ShapeError: if *x* is no array, or its type is not in the language.
    """
    if isinstance(x, ArraySpec):
        return x
    if isinstance(x, np.ndarray):
        return _describe_numpy(_plain(x, what), what, NUMPY)
    if isinstance(x, (bool, int, float, np.generic)):
        return ArraySpec(number_dtype(x, what), (), (), CPU, False, PYTHON)
    if _is_torch(x):
        return _describe_torch(x, what)
    if _is_jax_on_device(x):
        return _describe_jax(x, what)
    if _cuda_interface(x) is not None:
        return _describe_cuda(x, what)
    return _describe_numpy(as_numpy(x, what), what, library_of(x))


def library_of(x: object) -> str:
    """Return the name of the library whose array *x* is: "numpy", "torch", "jax", ..."""
    if isinstance(x, ArraySpec):
        return x.library
    if isinstance(x, np.ndarray):
        return NUMPY
    if isinstance(x, (bool, int, float, np.generic)):
        return PYTHON
    if _is_torch(x):
        return "torch"
    package = type(x).__module__.partition(".")[0]
    return "jax" if package == "jaxlib" else package


def _describe_numpy(array: NDArray, what: str, library: str) -> ArraySpec:
    dtype = element_dtype(array.dtype, what)
    return ArraySpec(
        dtype, array.shape, _element_strides(array), CPU, array.flags.writeable, library
    )


def element_dtype(dtype: np.dtype[Any], what: str) -> DType:
    known = dtype_of(dtype)
    if known is not None:
        return known
    if not dtype.isnative and dtype_of(dtype.newbyteorder("=")) is not None:
        advice = "its bytes are in the other order: use x.astype(x.dtype.newbyteorder('='))"
        raise _unsupported(what, dtype.str, advice)
    raise _unsupported(what, str(dtype))


def _element_strides(array: NDArray) -> tuple[int, ...]:
    """Return the strides in elements of *array*, or of the copy that :func:`as_numpy` makes."""
    size_bytes = array.dtype.itemsize
    if not is_addressable(array):
        return row_major(array.shape)
    return tuple(stride // size_bytes for stride in array.strides)


def is_addressable(array: NDArray) -> bool:
    """Whether every element is at an aligned address, a whole number of elements from the first."""
    size_bytes = array.dtype.itemsize
    return array.flags.aligned and not any(stride % size_bytes for stride in array.strides)


def number_dtype(x: object, what: str) -> DType:
    if isinstance(x, np.generic):
        return element_dtype(x.dtype, what)
    if isinstance(x, bool):
        return BOOL
    return INT64 if isinstance(x, int) else FLOAT64


def _is_torch(x: object) -> bool:
    # Whoever made a tensor has imported its library, so looking is enough.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, getattr(torch, "Tensor", ()))


def _describe_torch(x: Any, what: str) -> ArraySpec:
    name = str(x.dtype).removeprefix("torch.")
    if x.is_quantized:
        advice = "use x.dequantize(), or x.int_repr() for its integers"
        raise NOT_AN_ARRAY(what=what, found="a quantised tensor", advice=advice)
    if name not in BY_NAME:
        raise _unsupported(what, name)
    if x.is_nested:
        raise NOT_AN_ARRAY(
            what=what, found="a nested tensor", advice="use torch.nested.to_padded_tensor(x, 0.0)"
        )
    if str(x.layout) != "torch.strided":
        raise NOT_AN_ARRAY(
            what=what, found=f"a tensor of layout {x.layout}", advice="use x.to_dense()"
        )
    # What as_numpy makes of a lazily negated tensor, and of one that is not aligned, is a copy.
    strides = tuple(x.resolve_neg().stride())
    is_aligned = _torch_address(x, what) % x.element_size() == 0
    return ArraySpec(
        BY_NAME[name], tuple(x.shape), strides if is_aligned else row_major(x.shape),
        str(x.device), is_aligned and not (x.requires_grad or x.is_neg()), "torch",
        alignment_of(x.data_ptr()) if x.is_cuda and not x.is_neg() else WIDEST_ACCESS,
    )  # fmt: skip


def _torch_address(x: Any, what: str) -> int:
    try:
        pointer: int = x.data_ptr()
    except RuntimeError:
        found = "a tensor without memory, as in torch.vmap, torch.func and torch.compile"
        advice = 'call an operator there: tcdsl.torch.op(f, name="mylib::f")'
        raise NOT_AN_ARRAY(what=what, found=found, advice=advice) from None
    return pointer


def alignment_of(pointer: int) -> int:
    """Return the largest power of two, up to WIDEST_ACCESS, that divides *pointer*."""
    return min(pointer & -pointer, WIDEST_ACCESS) if pointer else WIDEST_ACCESS


def _cuda_interface(x: object) -> dict[str, Any] | None:
    interface = getattr(x, "__cuda_array_interface__", None)
    return interface if isinstance(interface, dict) else None


def _describe_cuda(x: object, what: str) -> ArraySpec:
    interface = _cuda_interface(x)
    assert interface is not None
    dtype = element_dtype(np.dtype(getattr(x, "dtype", interface["typestr"])), what)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    dense = row_major(shape)
    elements = tuple(s // dtype.size_bytes for s in strides) if strides is not None else dense
    pointer, read_only = interface["data"]
    return ArraySpec(
        dtype, shape, elements, _cuda_device(x, pointer), not read_only, library_of(x),
        alignment_of(pointer),
    )  # fmt: skip


def _cuda_device(x: object, pointer: int) -> str:
    device = getattr(x, "__dlpack_device__", None)
    if device is not None:
        return _device_name(*device())
    number = libcuda.device_of(pointer) if pointer else None
    return "cuda" if number is None else f"cuda:{number}"


def _is_jax_on_device(x: object) -> bool:
    if library_of(x) != "jax" or not hasattr(x, "__dlpack_device__"):
        return False
    return _device_name(*x.__dlpack_device__()) != CPU


def _describe_jax(x: Any, what: str) -> ArraySpec:
    # Its interface knows no bfloat16 and no float8; its arrays are dense, immutable, and aligned.
    dtype = element_dtype(np.dtype(x.dtype), what)
    shape = tuple(x.shape)
    device = _device_name(*x.__dlpack_device__())
    return ArraySpec(dtype, shape, row_major(shape), device, False, "jax")


def _device_name(kind: int, number: int) -> str:
    if kind in _DLPACK_HOST:
        return CPU
    return f"{_DLPACK_NAMES.get(int(kind), f'device kind {int(kind)}')}:{number}"


# --- reading -----------------------------------------------------------------------------


def as_numpy(x: object, what: str = "the argument") -> NDArray:
    """Return a NumPy array of *x*'s memory, which it keeps alive.

    It is a view, except for a number, for data that is not aligned to its element, and for
    strides that are no multiples of it: these are copied.

    :raises TargetError: if *x* is on another device.
    :raises ShapeError: if *x* is no array, or of a type that the language does not have.
    """
    if isinstance(x, ArraySpec):
        raise NOT_AN_ARRAY(
            what=what, found="a placeholder, which has no data",
            advice="placeholders compile; give an array to run",
        )  # fmt: skip
    array = _view(x, what)
    element_dtype(array.dtype, what)
    return array if is_addressable(array) else np.array(array, order="C", subok=False)


def _view(x: object, what: str) -> NDArray:
    if isinstance(x, np.ndarray):
        return _plain(x, what)
    if isinstance(x, (bool, int, float, np.generic)):
        return np.asarray(x, number_dtype(x, what).numpy)
    if _is_torch(x):
        return _view_torch(x, what)
    return _view_foreign(x, what)


def _plain(array: NDArray, what: str) -> NDArray:
    """Return *array* as a plain ndarray; masks and the like carry meaning that would be lost."""
    if isinstance(array, np.ma.MaskedArray):
        raise NOT_AN_ARRAY(what=what, found="a masked array", advice="use x.filled(value)")
    return array if type(array) is np.ndarray else array.view(np.ndarray)


def _view_torch(x: Any, what: str) -> NDArray:
    spec = _describe_torch(x, what)
    require_cpu(spec, what)
    # A gradient does not flow through this call; resolve_neg copies only lazily negated tensors.
    plain = x.detach().resolve_neg()
    if spec.dtype.name not in OF_ML_DTYPES:
        return plain.numpy()  # type: ignore[no-any-return]
    # NumPy's own protocols have no such type, so its bits travel as integers of the same width.
    torch = sys.modules["torch"]
    bits = plain.view(torch.int16 if spec.dtype.is_half else torch.uint8).numpy()
    return bits.view(spec.dtype.numpy)  # type: ignore[no-any-return]


def _view_foreign(x: object, what: str) -> NDArray:
    """Return a view through DLPack, or through ``__array_interface__``."""
    if _cuda_interface(x) is not None:
        require_cpu(_describe_cuda(x, what), what)
    if hasattr(x, "__dlpack_device__") and hasattr(x, "__dlpack__"):
        device = _device_name(*x.__dlpack_device__())
        if device != CPU:
            raise WRONG_DEVICE(what=what, device=device, target=CPU)
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as error:
            return _view_without_dlpack(x, what, error)
    return _view_without_dlpack(x, what, None)


def _view_without_dlpack(x: object, what: str, error: Exception | None) -> NDArray:
    """Return a view through ``__array_interface__``, or, where DLPack failed, ``__array__``.

    DLPack fails for types that NumPy's half of it lacks; jax's bfloat16 comes through the latter.
    """
    if hasattr(x, "__array_interface__") or (error is not None and hasattr(x, "__array__")):
        return np.asarray(x)
    if error is not None:
        dtype = str(getattr(x, "dtype", "of an unknown kind"))
        raise _unsupported(what, dtype, f"DLPack gave: {error}") from None
    raise NOT_AN_ARRAY(
        what=what, found=f"of type {type(x).__name__}",
        advice="use numpy.asarray(x), or an array of any library that speaks DLPack",
    )  # fmt: skip


def require_cpu(spec: ArraySpec, what: str) -> None:
    if spec.device == "meta":
        advice = "ask output_shapes(...) for shapes, or call an operator of tcdsl.torch.op"
        raise NOT_AN_ARRAY(what=what, found="on meta: a tensor without values", advice=advice)
    if spec.device != CPU:
        raise WRONG_DEVICE(what=what, device=spec.device, target=CPU)


def overlaps(a: NDArray, b: NDArray) -> bool:
    """Return whether *a* and *b* share an element's memory; True where finding out is too hard."""
    if not np.may_share_memory(a, b):  # compares the outermost bounds only
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
