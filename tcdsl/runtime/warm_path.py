"""The warm path of a call: which plan fits the arguments, and where their memory is.

What ``arrays.describe`` says of an argument, and the layout that ``arguments.as_input`` gives it,
depend on its :func:`signature` only.  So a plan is made once a signature, and knows whether all
its arguments :func:`is_direct`; if so, a later call needs only their :func:`pointers`, else
``as_input`` again.  Both take about 0.5 us for three NumPy arrays.
"""

import ctypes
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import numpy as np

from tcdsl.runtime.arrays import WIDEST_ACCESS, NDArray, describe, is_addressable, row_major
from tcdsl.runtime.cuda import libcuda
from tcdsl.settings import reader

Value = TypeVar("Value")
_PYCUDA = "pycuda"


def signature(args: Sequence[object]) -> tuple[Hashable, ...]:
    """Return a key: equal for arguments of equal types, shapes, strides, alignment and devices.

    Of each argument it has the shape and the form, which is what dense arrays of other extents
    have, too.  It is the key of a call's plan, not of the disk cache: it holds the libraries' own
    objects.
    """
    key: list[Hashable] = [
        (x.shape, (x.dtype, (flags := x.flags).c_contiguous or x.strides, flags.aligned))
        if type(x) is np.ndarray
        else _signers[type(x)](x)
        for x in args
    ]
    if _gpuarrays and not _gpuarrays.isdisjoint(map(type, args)):
        # The context that is current decides where they are computed on.
        key.append(((), libcuda.current_context()))
    return tuple(key)


def with_sizes(signed: tuple[Hashable, ...], sizes: Iterable[int]) -> tuple[Hashable, ...]:
    """Return the signature of a call with the *sizes* that it gives, like extents, at its end."""
    return (*signed, *[((size,), "size") for size in sizes])


def output_signature(x: object) -> Hashable:
    """Return a key of all that makes *x* fit for an output or not; None: it has to be looked at."""
    sign = _signers.get(type(x))
    if sign is None:
        return None
    return sign(x), getattr(x, "requires_grad", False)


def output_form(signed: Any) -> Hashable:
    """Return what is equal of :func:`output_signature` for dense arrays of other extents.

    None where they have to be looked at.
    """
    if signed is None or type(signed[0]) is not tuple:
        return None
    entry, records_gradient = signed
    return _asked_for_gaps(entry), records_gradient


def form_of(key: Sequence[Any]) -> tuple[Hashable, ...] | None:
    """Return what is equal of *key* for dense arrays of other extents.

    :arg key: a signature, and what else calls depend on.
    :return: None where an argument is of a library that is not known.
    """
    try:
        forms = [form for _, form in key[0]]
    except TypeError:  # it was described
        return None
    if _gpuarrays:
        forms = list(map(_asked_for_gaps, key[0]))
    return tuple(forms), *key[1:]


def is_dense(form: Sequence[Any]) -> bool:
    """Return whether *form*, of a key, is that of numbers and dense arrays alone."""
    return all(type(own) is not tuple or own[1] is True for own in form[0])


def shapes_of(key: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the extents of the arguments, of a *key* that has a form; sizes are the last."""
    return [shape for shape, _ in key[0]]


def _asked_for_gaps(entry: tuple[tuple[int, ...], Any]) -> Any:
    """Return the form of an argument, where it is of PyCUDA with whether it is dense."""
    shape, form = entry
    if type(form) is not tuple or form[-1] is not _PYCUDA:
        return form
    # Asked here: of every call's arrays it would take a microsecond.
    dtype, strides, *others = form
    is_plain = strides == tuple([dtype.itemsize * n for n in row_major(shape)])
    return dtype, is_plain or strides, *others


class _Signers(dict[type[Any], Callable[[Any], Hashable]]):
    """How to sign objects of the types that have been met; those of other types are described."""

    def __missing__(self, kind: type[Any]) -> Callable[[Any], Hashable]:
        """Return how to sign objects of the type *kind*, which is new, and learn it."""
        module = kind.__module__
        if module == "pycuda.gpuarray":
            _gpuarrays.add(kind)
            sign: Callable[[Any], Hashable] = _gpuarray_signature
        elif module == "cupy" or module.startswith("cupy."):
            sign = _cupy_signature
        # Subclasses may mean anything, but for torch.nn.Parameter, a tensor with a gradient.
        elif (module, kind.__name__) in (("torch", "Tensor"), ("torch.nn.parameter", "Parameter")):
            sign = _torch_signer()
        else:  # not learnt: a program may make ever new types
            return _described
        return self.setdefault(kind, sign)


_signers = _Signers(
    {
        bool: lambda x: ((), "bool"),
        int: lambda x: ((), "int"),
        float: lambda x: ((), "float"),
    }
)
_gpuarrays: set[type[Any]] = set()  # PyCUDA's types among them


def _described(x: object) -> Hashable:
    return ((), type(x).__name__) if isinstance(x, (bool, int, float)) else describe(x)


def _torch_signer() -> Callable[[Any], Hashable]:
    strided = sys.modules["torch"].strided  # whoever made a tensor has imported it

    def sign(x: Any) -> Hashable:
        # Contiguous tensors need no strides: those of extents of 1, which may be any, change
        # nothing.  Each attribute takes 0.04 us, or twice that on a slower processor.
        try:
            if x.is_cuda:
                return x.shape, (
                    x.dtype, x.is_contiguous() or x.stride(), x.get_device(), x.is_neg(),
                    x.data_ptr() % WIDEST_ACCESS,
                )  # fmt: skip
            if x.is_cpu and x.layout is strided:
                alignment = x.data_ptr() % x.element_size()
                return x.shape, (x.dtype, x.is_contiguous() or x.stride(), x.is_neg(), alignment)
        except RuntimeError:  # without strides, or without an address: it is sparse, for example
            pass
        return describe(x)

    return sign


def _cupy_signature(x: Any) -> Hashable:
    data = x.data
    is_dense = x.flags.c_contiguous
    alignment = data.ptr % WIDEST_ACCESS
    return x.shape, (x.dtype, is_dense or x.strides, data.device_id, alignment, "cupy")


def _gpuarray_signature(x: Any) -> Hashable:
    data = x.gpudata
    pointer = 0 if data is None else int(data)
    # They do not know their device.  One is asked for only where there is a choice: it takes time.
    device = libcuda.device_of(pointer) if pointer and libcuda.has_several_devices() else None
    return x.shape, (x.dtype, x.strides, pointer % WIDEST_ACCESS, device, _PYCUDA)


def _is_dense_torch(x: Any) -> bool:
    # Not str(x.layout), which takes a microsecond.  Other tensors are left to describe.
    if type(x).__module__ not in ("torch", "torch.nn.parameter"):
        return False
    torch: Any = sys.modules["torch"]
    return type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout is torch.strided


class WarmCall:
    """A call of one signature, whose ``run(args, out, addresses)`` checks nothing of *args*."""

    __slots__ = ()


MISSING: Final = object()  # what calls at new sizes return where one is to be made in full
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


target_setting = reader("TCDSL_TARGET")
# What code depends on besides the call; each takes 0.04 us of a warm one.  The other settings of
# compilers (TCDSL_CXX, TCDSL_NVRTC, TCDSL_ISL_OPERATIONS) count where something is compiled.
compiler_setting = reader("TCDSL_CC")
flags_setting = reader("TCDSL_CFLAGS")
threads_setting = reader("TCDSL_THREADS")


def chosen_target(target: str | None) -> Hashable:
    """Return what decides about the target: the caller's choice, else that of the environment."""
    return target_setting() if target is None else target


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
