"""The arguments and results of one call: arrays checked against what the program declares.

argument    as_input     a view of the declared type, or an error that names both types
out=        as_output    a view that may be written, or an error that says why not
result      allocate     memory, written by the kernel through its address
            deliver      the same memory as an array of the caller's library
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcdsl.errors import BAD_OUT, BAD_SCALAR, OUT_OF_MEMORY, WRONG_DTYPE
from tcdsl.lang.types.dtypes import BOOL, DType
from tcdsl.runtime.arrays import (
    CPU,
    NUMPY,
    PYTHON,
    ArraySpec,
    NDArray,
    Number,
    as_numpy,
    describe,
    dtype_of,
    is_addressable,
    number_dtype,
    require_cpu,
)
from tcdsl.runtime.warm_path import address

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
_NUMPY_TYPES = 24  # of NumPy's own; those of ml_dtypes have larger numbers
_ALIGNED_FROM = 1 << 14  # bytes: below this the allocation itself costs more than it gains


def as_input(x: object, dtype: DType, what: str = "the argument") -> NDArray:
    """Return *x* as a NumPy array of *dtype*: a view, or for a number a new 0-D array.

    :raises ShapeError: if the types differ, or a number does not fit *dtype*.
    """
    if isinstance(x, (bool, int, float, np.generic)):
        return host_scalar(x, dtype, what)
    array = as_numpy(x, what)
    _require_dtype(dtype_of(array.dtype), dtype, what)
    return array


def as_output(x: object, dtype: DType, shape: Sequence[int], what: str = "out") -> NDArray:
    """Return a view of *x* that may be written, for an output of *dtype* and *shape*.

    :raises ShapeError: with the reason given by :func:`why_not_output`, or if types differ.
    """
    spec = describe(x, what)
    require_cpu(spec, what)
    if not spec.is_number:  # it cannot be written, of whatever type it is
        _require_dtype(spec.dtype, dtype, what)
    reason = why_not_output(x, spec, tuple(shape))
    if reason is not None:
        why, advice = reason
        raise BAD_OUT(what=what, why=why, advice=advice)
    return as_numpy(x, what)


def why_not_output(
    x: object, spec: ArraySpec, shape: tuple[int, ...] | None = None
) -> tuple[str, str] | None:
    """Return why *x*, described by *spec*, cannot hold an output, and what to do; None if it can.

    With *shape*, an array of another shape is refused too.
    """
    if spec.is_number:
        return "it is a number, which cannot change", "give a 0-D array"
    if shape is not None and spec.shape != shape:
        return f"its shape is {spec.shape}, the output's is {shape}", "allocate it with that shape"
    if getattr(x, "requires_grad", False):
        return "it requires a gradient, which this call would not record", "give out=x.detach()"
    if not spec.writable:
        return "it is read-only", "give a copy of it"
    if spec.may_overlap_itself:
        return "several of its elements share memory", "give a copy of it"
    if isinstance(x, np.ndarray) and not is_addressable(x):
        return "its data is not aligned to its element type", "give a copy of it"
    return None


def _require_dtype(found: DType | None, declared: DType, what: str) -> None:
    if found != declared:
        raise WRONG_DTYPE(what=what, declared=declared, found=found)


def host_scalar(value: Number, dtype: DType, what: str = "the argument") -> NDArray:
    """Return the number *value* as a 0-D array of *dtype*.

    Integers fit any wide enough integer, and every number fits a float that is wide enough
    (floats round).  A float never becomes an integer, nor a number a bool.

    :raises ShapeError: if *value* is of another kind than *dtype*, or out of its range.
    """
    plain: Any = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (bool, int, float)):
        plain = float(plain) if number_dtype(value, what).is_float else plain  # bfloat16's item
    if why := _why_not_convertible(plain, dtype):
        raise BAD_SCALAR(
            what=what, declared=dtype, why=why, advice="convert it yourself, or widen the type"
        )
    with np.errstate(over="ignore"):
        return np.asarray(plain, dtype.numpy)


def _why_not_convertible(value: bool | int | float, dtype: DType) -> str | None:
    if dtype == BOOL:
        return None if isinstance(value, bool) else f"{shown_number(value)} is not a bool"
    if dtype.is_integer:
        if isinstance(value, float):
            return f"{value!r} is a float"
        bounds = np.iinfo(dtype.numpy)
        inside = int(bounds.min) <= value <= int(bounds.max)
        return None if inside else f"{shown_number(value)} is outside {bounds.min} to {bounds.max}"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if _is_finite_as(value, dtype):
        return None
    return f"{shown_number(value)} is too large for it"


def shown_number(value: bool | int | float) -> str:
    """Return *value* as text; of long integers, which Python may not print, the length."""
    if isinstance(value, float) or (bits := value.bit_length()) <= 128:
        return repr(value)
    return f"an integer of {bits} bits"


def _is_finite_as(value: int | float, dtype: DType) -> bool:
    try:
        with np.errstate(over="ignore"):
            return bool(np.isfinite(np.asarray(float(value), dtype.numpy)))
    except OverflowError:  # an int beyond float64
        return False


# --- outputs -----------------------------------------------------------------------------


def allocate(shape: Sequence[int], dtype: DType, what: str = "an output") -> NDArray:
    """Return new dense memory, with undefined contents; large arrays start on a cache line.

    :raises LaunchError: (TC083) if there is not enough memory.
    """
    size_bytes = dtype.size_bytes * math.prod(shape)
    try:
        if size_bytes < _ALIGNED_FROM:
            return np.empty(tuple(shape), dtype.numpy)
        raw = np.empty(size_bytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise OUT_OF_MEMORY(what=what, size_bytes=size_bytes) from None
    start = -address(raw) % ALIGNMENT
    return raw[start : start + size_bytes].view(dtype.numpy).reshape(tuple(shape))


def deliver(array: NDArray, library: str) -> Any:
    """Return *array* as an array of *library*, sharing its memory where the library can.

    Libraries that are not NumPy, torch or jax are asked for ``from_dlpack``; where there is none
    the result is a NumPy array.  Immutable (jax) arrays must be delivered after they are written;
    jax without its 64-bit mode narrows 64-bit types, as it does with every array it is given.
    """
    if library in (NUMPY, PYTHON) or library not in sys.modules:
        return array
    module: Any = sys.modules[library]
    if library == "torch":
        return _to_torch(array, module)
    if library == "jax":
        return module.device_put(array, module.devices(CPU)[0])
    from_dlpack = getattr(module, "from_dlpack", None)
    return array if from_dlpack is None else from_dlpack(array)


def _to_torch(array: NDArray, torch: Any) -> Any:
    if array.dtype.num not in range(_NUMPY_TYPES):  # not dtype.name, which takes a microsecond
        bits = torch.from_numpy(array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8))
        return bits.view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)
