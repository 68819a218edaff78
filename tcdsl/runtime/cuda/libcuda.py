"""The functions of NVIDIA's driver library that PyCUDA does not wrap, through ctypes.

PyCUDA loads and launches.  It has no handle for a stream that another library made, does not
know what memory a pointer belongs to or whether a stream is being captured, and frees memory
only in the thread that made the context (elsewhere it leaks it silently).  For these there are
the driver's own functions; streams, contexts, events and memory are the integers that the driver
gives out.

Every call checks its result: a failure is a LaunchError, out of memory an
:class:`OutOfDeviceMemoryError`, which the caller explains.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from tcdsl.errors import CONTEXT_LOST, CUDA_FAILED, FORKED, TCError

DEFAULT_STREAM = 0  # the legacy default stream

_NOT_INITIALIZED, _OUT_OF_MEMORY, _NO_DEVICE, _NOT_READY = 3, 2, 100, 600
# Errors after which the context answers every call with the same error.
_STICKY = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})
_CAPTURE_RELAXED = 2
_POINTER_CONTEXT, _POINTER_DEVICE = 1, 9
_PORTABLE_AND_MAPPED = 1 | 2
_EVENT_NO_TIMING = 2

_HANDLE, _INT, _UINT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_ADDRESS, _OUT = ctypes.c_uint64, ctypes.c_void_p

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_UINT,),
    "cuDriverGetVersion": (_OUT,),
    "cuDeviceGetCount": (_OUT,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_OUT,),
    "cuCtxSynchronize": (),
    "cuCtxGetDevice": (_OUT,),
    "cuPointerGetAttribute": (_OUT, _INT, _ADDRESS),
    "cuMemGetInfo_v2": (_OUT, _OUT),
    "cuMemAlloc_v2": (_OUT, _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemHostAlloc": (_OUT, _SIZE, _UINT),
    "cuMemFreeHost": (_HANDLE,),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _HANDLE, _SIZE, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (_HANDLE, _ADDRESS, _SIZE, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _HANDLE),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _SIZE, _HANDLE),
    "cuMemsetD16Async": (_ADDRESS, ctypes.c_ushort, _SIZE, _HANDLE),
    "cuMemsetD32Async": (_ADDRESS, _UINT, _SIZE, _HANDLE),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamIsCapturing": (_HANDLE, _OUT),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, _UINT),
    "cuThreadExchangeStreamCaptureMode": (_OUT,),
    "cuEventCreate": (_OUT, _UINT),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventQuery": (_HANDLE,),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuModuleLoadData": (_OUT, _HANDLE),
    "cuModuleGetFunction": (_OUT, _HANDLE, ctypes.c_char_p),
    "cuFuncSetAttribute": (_HANDLE, _INT, _INT),
    "cuLaunchKernel": (_HANDLE, *(_UINT,) * 7, _HANDLE, _HANDLE, _HANDLE),
    "cuGetErrorString": (_INT, _OUT),
}  # fmt: skip


_ARRAY, _HOW = (_HANDLE, _INT, _UINT, _ADDRESS, _OUT, _OUT), (_OUT, _INT, _INT, _INT, _INT)
_ENCODERS = {
    "cuTensorMapEncodeTiled": (*_ARRAY, _OUT, *_HOW),
    "cuTensorMapEncodeIm2col": (*_ARRAY, _OUT, _OUT, _UINT, _UINT, *_HOW),
}


class OutOfDeviceMemoryError(Exception):
    """The device has no piece of memory of the size that was asked for."""


@lru_cache(maxsize=1)
def library() -> Any:
    """Return the driver's library, with the types of its functions declared.

    :raises OSError: there is none: no NVIDIA driver is installed.
    """
    loaded: Any = ctypes.CDLL("libcuda.so.1")
    for name, types in _SIGNATURES.items():
        function = loaded[name]
        function.argtypes, function.restype = types, ctypes.c_int
        setattr(loaded, name, function)
    elapsed = getattr(loaded, "cuEventElapsedTime_v2", None) or loaded.cuEventElapsedTime
    elapsed.argtypes, elapsed.restype = (_OUT, _HANDLE, _HANDLE), ctypes.c_int
    loaded.cuEventElapsedTime = elapsed
    # The two that a warm call calls.  Without declared types, which take half of the time: their
    # arguments are made ready before.  The first never waits, so it keeps the interpreter's lock.
    loaded.cuCtxGetCurrent = ctypes.PyDLL("libcuda.so.1").cuCtxGetCurrent
    with suppress(AttributeError):  # before CUDA 11.8
        loaded.cuLaunchKernelEx = loaded["cuLaunchKernelEx"]
        clusters = loaded.cuOccupancyMaxActiveClusters
        clusters.argtypes, clusters.restype = (_OUT, _HANDLE, _OUT), ctypes.c_int
    with suppress(AttributeError):  # before CUDA 12.0
        for name, types in _ENCODERS.items():
            encode = loaded[name]
            encode.argtypes, encode.restype = types, ctypes.c_int
            setattr(loaded, name, encode)
    return loaded


def call(name: str, *args: Any) -> None:
    """Call the driver's function *name*.

    :raises LaunchError: (TC085, TC088) it failed.
    :raises OutOfDeviceMemoryError: there is not enough memory.
    """
    status = getattr(library(), name)(*args)
    if status != 0:
        raise error_of(status, name)


def error_of(status: int, name: str) -> Exception:
    """Return the error for a function that returned *status*."""
    if status == _OUT_OF_MEMORY:
        return OutOfDeviceMemoryError(name)
    if status == _NOT_INITIALIZED:
        return FORKED()
    return sticky_error(status) or CUDA_FAILED(call=name, why=error_text(status))


def sticky_error(status: int) -> TCError | None:
    """Return the error for a lost context, or None where *status* is not that of one."""
    return CONTEXT_LOST(why=error_text(status)) if status in _STICKY else None


def error_text(status: int) -> str:
    """Return the driver's words for *status*."""
    text = ctypes.c_char_p()
    library().cuGetErrorString(status, ctypes.byref(text))
    return (text.value or b"an unknown error").decode(errors="replace") + f", error {status}"


# --- the driver ----------------------------------------------------------------------------


def why_no_gpu() -> str | None:
    """Return why the driver offers no GPU to this process, or None if it does."""
    try:
        driver = library()
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1 cannot be loaded)"
    status = driver.cuInit(0)
    if status == _NO_DEVICE:
        return "the NVIDIA driver shows no GPU to this process"
    if status != 0:
        return f"the NVIDIA driver does not start: {error_text(status)}"
    return None if device_count() else "the NVIDIA driver shows no GPU to this process"


def is_initialisable() -> bool:
    """Return False in a forked child of a process that used CUDA, where nothing works."""
    return bool(library().cuInit(0) != _NOT_INITIALIZED)


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA version that the driver serves."""
    number = ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(number))
    return number.value // 1000, number.value % 1000 // 10


def device_count() -> int:
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


@lru_cache(maxsize=1)
def has_several_devices() -> bool:
    return device_count() > 1


# --- contexts ------------------------------------------------------------------------------


# Places for the driver to write a handle to, and references to them: making them takes as long as
# the question.  Whoever asks takes one and gives it back, so that threads do not share one.
places: list[tuple[ctypes.c_void_p, Any]] = []


def new_place() -> tuple[ctypes.c_void_p, Any]:
    """Return a further one of :data:`places`."""
    place = ctypes.c_void_p()
    return place, ctypes.byref(place)


def current_context() -> int:
    """Return the handle of this thread's current context, 0 for none (0.3 us)."""
    try:
        place = places.pop()
    except IndexError:
        place = new_place()
    status = library().cuCtxGetCurrent(place[1])  # not through call: it takes half
    handle = place[0].value
    places.append(place)
    if status != 0:
        raise error_of(status, "cuCtxGetCurrent")
    return handle or 0


def set_current_context(handle: int) -> None:
    call("cuCtxSetCurrent", handle or None)


@contextmanager
def current(handle: int) -> Iterator[None]:
    """Make the context *handle* current, and then again what was."""
    if current_context() == handle:
        yield
        return
    call("cuCtxPushCurrent_v2", handle)
    try:
        yield
    finally:
        popped = ctypes.c_void_p()
        library().cuCtxPopCurrent_v2(ctypes.byref(popped))


def context_status() -> int:
    """Return what waiting for the current context gives: 0, or the error that it is lost by."""
    return int(library().cuCtxSynchronize())


def synchronize_context() -> None:
    call("cuCtxSynchronize")


def context_of(pointer: int) -> int:
    """Return the context that device memory was allocated in, 0 where it belongs to none."""
    handle = ctypes.c_void_p()
    # Memory of pools and virtual ranges belongs to no context: that is an error of the function.
    library().cuPointerGetAttribute(ctypes.byref(handle), _POINTER_CONTEXT, pointer)
    return handle.value or 0


def device_of(pointer: int) -> int | None:
    """Return the number of the device that *pointer* lies on, or None for the host's memory."""
    number = ctypes.c_int(-1)
    try:
        driver = library()
    except OSError:  # whatever it is then, it is no GPU's of ours
        return None
    status = driver.cuPointerGetAttribute(ctypes.byref(number), _POINTER_DEVICE, pointer)
    return None if status != 0 or number.value < 0 else number.value


# --- memory --------------------------------------------------------------------------------


def free_memory() -> tuple[int, int]:
    """Return the bytes of the current device that are free, and all of them."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def allocate(size_bytes: int) -> int:
    """Return the address of new device memory."""
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), size_bytes)
    return address.value


def free(address: int) -> None:
    """Free device memory, after the launches that use it (the driver waits)."""
    call("cuMemFree_v2", address)


def allocate_pinned(size_bytes: int) -> int:
    """Return the address, on the host and on all devices, of pinned host memory."""
    address = ctypes.c_void_p()
    call("cuMemHostAlloc", ctypes.byref(address), size_bytes, _PORTABLE_AND_MAPPED)
    assert address.value is not None
    return address.value


def copy_to_device(target: int, source: int, size_bytes: int, stream: int) -> None:
    call("cuMemcpyHtoDAsync_v2", target, source, size_bytes, stream)


def copy_to_host(target: int, source: int, size_bytes: int, stream: int) -> None:
    call("cuMemcpyDtoHAsync_v2", target, source, size_bytes, stream)


def copy_on_device(target: int, source: int, size_bytes: int, stream: int) -> None:
    call("cuMemcpyDtoDAsync_v2", target, source, size_bytes, stream)


def write_value(target: int, value: bytes, stream: int) -> None:
    """Write 1, 2, 4 or 8 bytes: the value travels in the command, also into a captured graph."""
    for start in range(0, len(value), 4):
        piece = value[start : start + 4]
        number = int.from_bytes(piece, "little")
        call(f"cuMemsetD{8 * len(piece)}Async", target + start, number, 1, stream)


def fill(target: int, byte: int, size_bytes: int, stream: int) -> None:
    call("cuMemsetD8Async", target, byte, size_bytes, stream)


# --- streams and events --------------------------------------------------------------------


def synchronize(stream: int) -> None:
    call("cuStreamSynchronize", stream)


def is_capturing(stream: int) -> bool:
    """Return whether *stream* is being captured into a graph; the default stream never is."""
    if stream == DEFAULT_STREAM:
        return False
    status = ctypes.c_int()
    call("cuStreamIsCapturing", stream, ctypes.byref(status))
    return status.value != 0


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread load code while some stream is being captured."""
    mode = ctypes.c_int(_CAPTURE_RELAXED)
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def wait_for(stream: int, other: int) -> None:
    """Let *stream* wait for what *other* has been given so far."""
    event = new_event(is_timed=False)
    call("cuEventRecord", event, other)
    call("cuStreamWaitEvent", stream, event, 0)
    call("cuEventDestroy_v2", event)


def new_event(*, is_timed: bool = True) -> int:
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), 0 if is_timed else _EVENT_NO_TIMING)
    assert event.value is not None
    return event.value


def record(event: int, stream: int) -> None:
    call("cuEventRecord", event, stream)


def wait(event: int) -> None:
    """Wait on the host for *event*."""
    call("cuEventSynchronize", event)


def has_happened(event: int) -> bool:
    """Return whether the device has come to *event*, without waiting for it."""
    status = library().cuEventQuery(event)
    if status not in (0, _NOT_READY):
        raise error_of(status, "cuEventQuery")
    return bool(status == 0)


def elapsed_us(start: int, end: int) -> float:
    """Return the time between two events that have happened."""
    time_ms = ctypes.c_float()
    call("cuEventElapsedTime", ctypes.byref(time_ms), start, end)
    return time_ms.value * 1e3


def destroy_event(event: int) -> None:
    call("cuEventDestroy_v2", event)


# --- code, for streams that PyCUDA cannot launch on --------------------------------------------


def load_module(code: bytes) -> int:
    module = ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), ctypes.cast(ctypes.c_char_p(code), _HANDLE))
    assert module.value is not None
    return module.value


def function_of(module: int, name: str) -> int:
    function = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    assert function.value is not None
    return function.value


# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED
DYNAMIC_SHARED, ANY_CLUSTER = 8, 14


def set_function_attribute(function: int, attribute: int, value: int) -> None:
    call("cuFuncSetAttribute", function, attribute, value)


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16))


# CU_LAUNCH_ATTRIBUTE_COOPERATIVE: all blocks are there at once, or the launch fails;
# _CLUSTER_DIMENSION; _PROGRAMMATIC_STREAM_SERIALIZATION: begin before the kernel before has ended.
_COOPERATIVE, _CLUSTER_DIMENSION, _PROGRAMMATIC = 2, 4, 6
COOPERATIVE = LaunchAttribute(_COOPERATIVE, 0, (ctypes.c_int * 16)(1))
BEGINS_EARLY = LaunchAttribute(_PROGRAMMATIC, 0, (ctypes.c_int * 16)(1))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("n_attributes", ctypes.c_uint),
    )


def clusters_at_once(function: int, cluster: int, threads: int, shared_bytes: int) -> int:
    """Return how many clusters of *cluster* blocks of *function* the device runs at once.

    0 if none fits.
    """
    for attribute, value in ((DYNAMIC_SHARED, shared_bytes), (ANY_CLUSTER, 1)):
        set_function_attribute(function, attribute, value)
    attributes = (LaunchAttribute * 1)(
        LaunchAttribute(_CLUSTER_DIMENSION, 0, (ctypes.c_int * 16)(cluster, 1, 1))
    )
    config = LaunchConfig(
        (cluster, 1, 1), (threads, 1, 1), shared_bytes, DEFAULT_STREAM,
        ctypes.addressof(attributes), len(attributes),
    )  # fmt: skip
    found = ctypes.c_int()
    call("cuOccupancyMaxActiveClusters", ctypes.byref(found), function, ctypes.byref(config))
    return found.value


def launcher() -> Callable[[Any, Any, None, Any], int]:
    """Return ``cuLaunchKernelEx(config, function, None, extra)``, which returns the status.

    The arguments are a reference to a :class:`LaunchConfig`, a ``c_void_p``, and a reference to an
    array of CU_LAUNCH_PARAM values: nothing is left to be converted.
    """
    driver = library()
    newer = getattr(driver, "cuLaunchKernelEx", None)
    if newer is not None:
        return newer  # type: ignore[no-any-return]

    def launch(config: Any, function: Any, parameters: None, extra: Any) -> int:
        c = config._obj
        return driver.cuLaunchKernel(  # type: ignore[no-any-return]
            function, *c.grid, *c.block, c.shared_bytes, c.stream, parameters, extra
        )

    return launch
