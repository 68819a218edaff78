"""The single reductions by cuDNN: cudnnReduceTensor, which PyTorch's own cuDNN has.

A tensor of any of the cases has at most four axes; it is described as one of rank 4, with axes of
extent 1 before its own (with these behind, cuDNN 9.19 takes as long).  cuDNN reduces floats only,
no bfloat16, and computes float16 in float32.  Nothing is copied: any axes may be reduced.
"""

import ctypes
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import finalize

from tcdsl.library.case import Case
from tcdsl.library.peer_calls import Call
from tcdsl.library.single_reductions import SINGLE_REDUCTIONS, Operator, result_type

_RANK = 4
_SONAME = "libcudnn.so.9"
_PACKAGE = "nvidia/cudnn/lib"  # of nvidia-cudnn-cu12 and -cu13

# The enumerations of cudnn_ops.h.
_OPERATORS: Mapping[Operator, int] = {"sum": 0, "prod": 1, "min": 2, "max": 3}
_TYPES = {"float32": 0, "float64": 1, "float16": 2}
_NCHW = 0
_PROPAGATE_NAN = 1
_NO_INDICES, _INDICES_OF_32_BITS = 0, 0


class CudnnError(RuntimeError):
    """A function of cuDNN has failed."""


def why_missing() -> str | None:
    """Return why cuDNN cannot be timed here, or None if it can."""
    try:
        _library()
    except OSError as error:
        return f"{error}; a PyTorch for CUDA brings it"
    return None


def version_text() -> str:
    """Return the library's version."""
    number = _library().cudnnGetVersion()  # 91002: 9.10.2
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def offers(case: Case, dtype: str) -> bool:
    """Return whether cuDNN has *case* in *dtype*."""
    return case.name in SINGLE_REDUCTIONS and dtype in _TYPES


def call_on_tensors(case: Case, tensors: Mapping[str, Any]) -> Call:
    """Return the case's call on *tensors*; its output and workspace are made before.

    :raises CudnnError: cuDNN does not have it.
    """
    torch = import_module("torch")
    (x,) = tensors.values()
    single = SINGLE_REDUCTIONS[case.name]
    element = str(x.dtype).removeprefix("torch.")
    result = result_type(case.results, element)
    shape = tuple(x.shape[axis] for axis in single.kept_axes(x.ndim))
    out = torch.empty(shape, dtype=getattr(torch, result), device=x.device)
    reduced = [1 if axis in single.axes else extent for axis, extent in enumerate(x.shape)]
    reduction = _reduction(single.operator, element)
    source, target = _tensor(element, x.shape), _tensor(result, reduced)
    size = ctypes.c_size_t()
    _check(
        "cudnnGetReductionWorkspaceSize", _handle(), reduction.handle, source.handle,
        target.handle, ctypes.byref(size),
    )  # fmt: skip
    workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device=x.device)
    number = ctypes.c_double if element == "float64" else ctypes.c_float
    one, zero = number(1.0), number(0.0)

    def call() -> Any:
        _check(
            "cudnnReduceTensor", _handle(), reduction.handle,
            None, ctypes.c_size_t(0), _address(workspace), size,
            ctypes.byref(one), source.handle, _address(x),
            ctypes.byref(zero), target.handle, _address(out),
        )  # fmt: skip
        return out

    return call


class _Descriptor:
    """A descriptor of cuDNN, destroyed with this."""

    def __init__(self, kind: str) -> None:
        self.handle = ctypes.c_void_p()
        _check(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.handle))
        finalize(self, _check, f"cudnnDestroy{kind}Descriptor", self.handle)


def _tensor(dtype: str, shape: Sequence[int]) -> _Descriptor:
    found = _Descriptor("Tensor")
    extents = (1,) * (_RANK - len(shape)) + tuple(shape)
    _check("cudnnSetTensor4dDescriptor", found.handle, _NCHW, _TYPES[dtype], *extents)
    return found


def _reduction(operator: Operator, dtype: str) -> _Descriptor:
    found = _Descriptor("ReduceTensor")
    computed = _TYPES["float64" if dtype == "float64" else "float32"]
    _check(
        "cudnnSetReduceTensorDescriptor", found.handle, _OPERATORS[operator], computed,
        _PROPAGATE_NAN, _NO_INDICES, _INDICES_OF_32_BITS,
    )  # fmt: skip
    return found


def _address(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


# --- the library -----------------------------------------------------------------------------


@cache
def _library() -> Any:
    """Return cuDNN: PyTorch's, if that is loaded; else the one of a Python package.

    :raises OSError: there is none.
    """
    packaged = [Path(root, _PACKAGE, _SONAME) for root in sys.path]
    for name in (_SONAME, *(str(path) for path in packaged if path.is_file())):
        with suppress(OSError):
            library = ctypes.CDLL(name)
            library.cudnnGetErrorString.restype = ctypes.c_char_p
            library.cudnnGetVersion.restype = ctypes.c_size_t
            return library
    raise OSError(f"{_SONAME} is not there")


@cache
def _handle() -> ctypes.c_void_p:
    """Return this process's handle, on the default stream of the current device."""
    handle = ctypes.c_void_p()
    _check("cudnnCreate", ctypes.byref(handle))
    return handle


def _check(function: str, *arguments: Any) -> None:
    """Call *function*; integers are ints, as in all of these functions.

    :raises CudnnError: it reports a failure.
    """
    library = _library()
    if status := getattr(library, function)(*arguments):
        raise CudnnError(f"{function}: {library.cudnnGetErrorString(status).decode()}")
