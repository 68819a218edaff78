"""Device memory of ours, handed to another library through DLPack or the CUDA array interface.

The receiver calls the capsule's deleter when it is done, from whatever thread and at whatever
time: memory is then only put on a list (``memory.abandon``), and freed by the next allocation.
"""

import ctypes
from typing import Any

from tcdsl.lang.types.dtypes import DType, Kind
from tcdsl.runtime.arrays import row_major
from tcdsl.runtime.cuda.memory import abandon

_KIND_CUDA = 2
_CODES = {Kind.SIGNED: 0, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.BOOL: 6}
_CODES_OF = {"bfloat16": 4, "float8_e4m3": 10, "float8_e5m2": 12}  # DLPack 1.1
_NAME = b"dltensor"


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_new_capsule: Any = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

# What receivers still use, by the address of its _Managed.
_given: dict[int, tuple[Any, ...]] = {}


class DeviceArray:
    """A dense array in device memory of ours."""

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: DType, ordinal: int, context: int
    ) -> None:
        self.address = address
        self.shape = shape
        self.dtype = dtype.numpy
        self._type = dtype
        self._ordinal = ordinal
        self._context = context

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "strides": None, "typestr": self.dtype.str,
            "data": (self.address, False), "stream": None, "version": 3,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return _KIND_CUDA, self._ordinal

    def __dlpack__(self, **wishes: Any) -> Any:
        """Return a capsule; what computes the array must have been waited for."""
        del wishes  # the stream: there is nothing to wait for; versions: any reader knows 0
        rank = len(self.shape)
        extents = (ctypes.c_int64 * max(rank, 1))(*self.shape)
        steps = (ctypes.c_int64 * max(rank, 1))(*row_major(self.shape))
        tensor = _Tensor(
            self.address, _Device(_KIND_CUDA, self._ordinal), rank, _type_of(self._type),
            ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)),
            ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)), 0,
        )  # fmt: skip
        managed = _Managed(tensor, None, _release)
        address = ctypes.addressof(managed)
        _given[address] = managed, extents, steps, self  # the array lives as long as the capsule
        return _new_capsule(address, _NAME, None)

    def __del__(self) -> None:
        abandon(self._context, self.address)


def _type_of(dtype: DType) -> _Type:
    code = _CODES_OF.get(dtype.name, _CODES[dtype.kind])
    return _Type(code, 8 * dtype.size_bytes, 1)


def _forget(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


_release = _Deleter(_forget)
