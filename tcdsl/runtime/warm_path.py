"""The warm path of a call: which plan fits the arguments, and where their memory is.

What ``arrays.describe`` says of an argument, and the layout that ``arguments.as_input`` gives it,
depend on its :func:`signature` only.  So a plan is made once a signature, and knows whether all
its arguments :func:`is_direct`; if so, a later call needs only their :func:`pointers`, else
``as_input`` again.  Both take about 0.5 us for three NumPy arrays.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from tcdsl.runtime.arrays import NDArray, describe, is_addressable

Value = TypeVar("Value")


def signature(args: Sequence[object]) -> tuple[Hashable, ...]:
    """Return a key: equal for arguments of equal types, shapes, strides, alignment and devices.

    It is the key of a call's plan, not of the disk cache: it holds the libraries' own objects.
    """
    key: list[Hashable] = []
    for x in args:
        if type(x) is np.ndarray:
            key += (x.dtype, x.shape, x.strides, x.flags.aligned)
        else:
            key.append(_foreign_signature(x))
    return tuple(key)


def _foreign_signature(x: Any) -> Hashable:
    if isinstance(x, (bool, int, float)):
        return type(x).__name__
    if _is_dense_torch(x):
        return x.dtype, x.shape, x.stride(), x.device, x.is_neg(), x.data_ptr() % x.element_size()
    return describe(x)


def _is_dense_torch(x: Any) -> bool:
    if type(x).__module__ != "torch":
        return False
    # Not str(x.layout), which takes a microsecond.  Other tensors are left to describe.
    torch: Any = sys.modules["torch"]
    return type(x) is torch.Tensor and x.layout is torch.strided


_KEPT = 1024  # plans of one function; a program that meets ever new shapes must not leak


def remember(kept: dict[Any, Value], key: Hashable, value: Value) -> Value:
    """Return what *kept* has under *key*, at first *value*; of too many the oldest go.

    Needs no lock, which a forked child might find taken: each step is atomic.
    """
    value = kept.setdefault(key, value)
    if len(kept) > _KEPT:
        # RuntimeError: another thread changed the dictionary between the two steps.
        with suppress(RuntimeError):
            kept.pop(next(iter(kept)), None)
    return value


def chosen_target(target: str | None) -> str | None:
    """Return what decides about the target: the caller's choice, else that of the environment."""
    return os.environ.get("TCDSL_TARGET") if target is None else target


def is_direct(x: object) -> bool:
    """Whether :func:`pointers` may take *x*'s address; it depends on the signature only."""
    if type(x) is np.ndarray:
        return is_addressable(x)
    return _is_dense_torch(x) and _is_addressable_torch(x)


def _is_addressable_torch(x: Any) -> bool:
    return bool(x.is_cpu and not x.is_neg() and x.data_ptr() % x.element_size() == 0)


def pointers(args: Sequence[Any]) -> list[int]:
    """Return the data pointers of *args*, all of them direct (:func:`is_direct`)."""
    return [address(x) if type(x) is np.ndarray else x.data_ptr() for x in args]


def _address_by_interface(array: NDArray) -> int:
    """Return the data pointer of *array*, in the documented way (0.9 us)."""
    return int(array.__array_interface__["data"][0])


def _choose_address() -> Callable[[NDArray], int]:
    """Return the fastest way to read an array's data pointer that works in this interpreter.

    ``PyArrayObject_fields`` begins with the object's header and then ``char *data``; this is part
    of NumPy's binary interface since 1.7, and reading it takes 0.1 us.  It is only trusted after
    it has agreed with ``__array_interface__``, on CPython, where ``id`` is the address.
    """
    header_bytes = object.__basicsize__
    read = ctypes.c_size_t.from_address

    def address_by_layout(array: NDArray) -> int:
        return read(id(array) + header_bytes).value

    if sys.implementation.name != "cpython":
        return _address_by_interface
    base = np.zeros((3, 4), np.float32)
    samples = (base, base[1:, ::-1], base.T, np.zeros(()), np.zeros((0, 2)), base.view(np.int8))
    agree = all(address_by_layout(x) == _address_by_interface(x) for x in samples)
    return address_by_layout if agree else _address_by_interface


address: Callable[[NDArray], int] = _choose_address()
