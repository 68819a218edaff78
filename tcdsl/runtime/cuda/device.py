"""PyCUDA and the devices of this process, each with its primary context.

The primary context is the one that torch, CuPy, JAX and Numba use, so that memory is shared.  It is
current only for the time of a call; what was current before is so again afterwards.  Arrays that
PyCUDA made in a context of its own (``pycuda.autoinit``) are computed on there.

PyCUDA keeps a stack of contexts beside the driver's.  Whatever makes PyCUDA's own objects needs
:meth:`Context.pushed`; launches and the driver's functions only :meth:`Context.current`.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any

from tcdsl.costmodel.chip import Chip
from tcdsl.errors import (
    CUDA_FAILED,
    FORKED,
    LAUNCH_LIMITS,
    TARGET_MISSING,
    WRONG_DEVICE,
    TCError,
)
from tcdsl.runtime.calibrated import chip_of
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.imports import late_import

INSTALL_PYCUDA = f"{sys.executable} -m pip install pycuda"
REBUILD_PYCUDA = (
    f"LDFLAGS=-Wl,--no-as-needed {sys.executable} -m pip install --force-reinstall "
    "--no-binary pycuda pycuda"
)
INSTALL_DRIVER = "install NVIDIA's driver; nvidia-smi shows whether it works"

_used_in: int | None = None  # the process that started the driver
in_forked_child = False  # of a process that used CUDA


def _after_fork() -> None:
    global in_forked_child
    in_forked_child = _used_in is not None
    pycuda.cache_clear()
    _contexts.clear()
    _problem.cache_clear()


@lru_cache(maxsize=1)
def pycuda() -> Any:
    """Return the module ``pycuda.driver``, initialised.

    :raises TargetError: (TC067) there is no driver, no GPU or no PyCUDA, with what to type;
        (TC082) this is a forked child of a process that used CUDA.
    """
    global _used_in
    if in_forked_child:
        raise FORKED()
    problem = _problem()
    if problem is not None:
        why, remedy = problem
        hint = f"{remedy} ('tcdsl doctor' looks at all that is needed; target='cpu' works)"
        raise TARGET_MISSING(target="cuda", why=why, hint=hint)
    driver = import_pycuda()
    driver.init()
    _used_in = os.getpid()
    return driver


@lru_cache(maxsize=1)
def _problem() -> tuple[str, str] | None:
    """Return what is missing for CUDA, and what to type; None if nothing is."""
    if why := libcuda.why_no_gpu():
        if not _is_initialisable():
            raise FORKED()
        return why, INSTALL_DRIVER
    return pycuda_problem()


def _is_initialisable() -> bool:
    try:
        return libcuda.is_initialisable()
    except OSError:
        return True


def pycuda_problem() -> tuple[str, str] | None:
    """Return why PyCUDA cannot be imported, and what to type; None if it can."""
    if "pycuda" not in sys.modules and find_spec("pycuda") is None:
        return "PyCUDA is not installed", INSTALL_PYCUDA
    try:
        import_pycuda()
    except ModuleNotFoundError as error:
        package = (error.name or "pytools").partition(".")[0]
        return f"PyCUDA misses {package}", f"{sys.executable} -m pip install {package}"
    except ImportError as error:
        # Built where there was no driver, the linker drops libcuda and the import misses cuInit.
        return f"PyCUDA cannot be imported: {error}", REBUILD_PYCUDA
    return None


def import_pycuda() -> Any:
    """Return the module ``pycuda.driver``, not initialised; never ``pycuda.autoinit``."""
    with late_import():
        import pycuda.driver

    return pycuda.driver


def never_destroyed(x: Any) -> Any:
    """Return *x*, an object of PyCUDA's, which from now on outlives the interpreter.

    PyCUDA's destructors call the driver, and end the process where it refuses: in a forked child,
    or late on exit.  The system frees all of it with the process.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    return x


def why_not_available() -> str | None:
    """Return why no program can run on a GPU here, or None if one can."""
    try:
        pycuda()
    except TCError as error:
        return error.message
    return None


# --- contexts ------------------------------------------------------------------------------


class Context:
    """A context of a device, and what the device can do."""

    def __init__(self, ordinal: int, handle: int, own: Any) -> None:
        """Take PyCUDA's context *own*, which is that of *handle*."""
        self.ordinal = ordinal
        self.handle = handle
        self._own = own
        self.lock = threading.Lock()

    def current(self) -> AbstractContextManager[None]:
        """Make this the driver's current context."""
        return libcuda.current(self.handle)

    @contextmanager
    def pushed(self) -> Iterator[None]:
        """Make this also PyCUDA's current context."""
        before = libcuda.current_context()
        self._own.push()
        try:
            yield
        finally:
            pycuda().Context.pop()
            # PyCUDA restores what it believes was current, which others may have changed.
            if libcuda.current_context() != before:
                libcuda.set_current_context(before)

    @property
    def name(self) -> str:
        return f"cuda:{self.ordinal}"

    @cached_property
    def gpu(self) -> Chip:
        """What the cost model knows of the device: the driver's numbers, and its file's."""
        driver = pycuda()
        device = driver.Device(self.ordinal)
        kind = driver.device_attribute
        major, minor = device.compute_capability()
        arch = f"sm_{major}{minor}"
        return replace(
            chip_of(device.name(), arch),
            arch=arch,
            multiprocessors=device.get_attribute(kind.MULTIPROCESSOR_COUNT),
            threads_per_block=device.get_attribute(kind.MAX_THREADS_PER_BLOCK),
            threads_per_multiprocessor=device.get_attribute(kind.MAX_THREADS_PER_MULTIPROCESSOR),
            static_shared_bytes_per_block=device.get_attribute(kind.MAX_SHARED_MEMORY_PER_BLOCK),
            shared_bytes_per_block=device.get_attribute(kind.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            shared_bytes_per_multiprocessor=device.get_attribute(
                kind.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            ),
            registers_per_multiprocessor=device.get_attribute(
                kind.MAX_REGISTERS_PER_MULTIPROCESSOR
            ),
            grid_x_blocks=device.get_attribute(kind.MAX_GRID_DIM_X),
            grid_y_blocks=device.get_attribute(kind.MAX_GRID_DIM_Y),
            grid_z_blocks=device.get_attribute(kind.MAX_GRID_DIM_Z),
            l2_bytes=self.l2_bytes,
        )

    @cached_property
    def limits(self) -> "Limits":
        driver = pycuda()
        device, kind = driver.Device(self.ordinal), driver.device_attribute
        return Limits(
            self.gpu.grid,
            (
                device.get_attribute(kind.MAX_BLOCK_DIM_X),
                device.get_attribute(kind.MAX_BLOCK_DIM_Y),
                device.get_attribute(kind.MAX_BLOCK_DIM_Z),
            ),
            self.gpu.threads_per_block,
            device.get_attribute(kind.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        )

    @cached_property
    def l2_bytes(self) -> int:
        driver = pycuda()
        device = driver.Device(self.ordinal)
        return int(device.get_attribute(driver.device_attribute.L2_CACHE_SIZE))


class Limits:
    """What one launch may ask of a device."""

    def __init__(
        self, grid: tuple[int, ...], block: tuple[int, ...], threads: int, shared_bytes: int
    ) -> None:
        self.grid, self.block, self.threads, self.shared_bytes = grid, block, threads, shared_bytes

    def why_not(self, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int) -> str:
        """Return why a launch would be refused, or "" if it would not."""
        for axis, size, limit in zip("xyz", grid, self.grid, strict=True):
            if size > limit:
                return f"its grid has {size} blocks in {axis}, of {limit} at most"
        for axis, size, limit in zip("xyz", block, self.block, strict=True):
            if size > limit:
                return f"its blocks have {size} threads in {axis}, of {limit} at most"
        threads = block[0] * block[1] * block[2]
        if threads > self.threads:
            return f"its blocks have {threads} threads, of {self.threads} at most"
        if shared_bytes > self.shared_bytes:
            return f"a block needs {shared_bytes} bytes of shared memory, of {self.shared_bytes}"
        return ""

    def require(
        self, kernel: str, device: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int
    ) -> None:
        """Raise LAUNCH_LIMITS unless the launch would be accepted."""
        if why := self.why_not(grid, block, shared):
            raise LAUNCH_LIMITS(
                kernel=kernel, device=device, why=why, advice="compile it for this device"
            )


_contexts: dict[int, Context] = {}  # by handle; primary contexts also by -1 - ordinal
_lock = threading.Lock()
# A fork waits for a thread that is making a context: its child would find the lock taken.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
os.register_at_fork(after_in_child=_after_fork)


def primary_context(ordinal: int = 0) -> Context:
    """Return the primary context of device *ordinal*.

    :raises TargetError: CUDA cannot be used here, or there is no such device.
    """
    context = _contexts.get(-1 - ordinal)
    if context is None:
        if in_forked_child:
            raise FORKED()
        with _lock:
            context = _contexts.get(-1 - ordinal) or _new_primary(ordinal)
    return context


def _new_primary(ordinal: int) -> Context:
    driver = pycuda()
    count = driver.Device.count()
    if ordinal >= count:
        raise WRONG_DEVICE(what="an argument", device=f"cuda:{ordinal}", target="cuda")
    try:
        own = never_destroyed(driver.Device(ordinal).retain_primary_context())
    except driver.Error as error:
        raise CUDA_FAILED(call="cuDevicePrimaryCtxRetain", why=str(error)) from None
    context = Context(ordinal, _handle_of(own), own)
    _contexts[-1 - ordinal] = _contexts[context.handle] = context
    return context


def _handle_of(own: Any) -> int:
    """Return the driver's handle of PyCUDA's context *own*."""
    before = libcuda.current_context()
    own.push()
    try:
        return libcuda.current_context()
    finally:
        pycuda().Context.pop()
        libcuda.set_current_context(before)


def context_for(pointer: int, ordinal: int) -> Context:
    """Return the context to compute in on the memory at *pointer* of device *ordinal*.

    It is the primary one, except for memory that PyCUDA allocated in another.
    """
    primary = primary_context(ordinal)
    handle = libcuda.context_of(pointer) if pointer else 0
    if handle in (0, primary.handle):
        return primary
    known = _contexts.get(handle)
    if known is not None:
        return known
    own = pycuda().Context.get_current()
    if own is None or _handle_of(own) != handle:
        return primary
    with _lock:
        return _contexts.setdefault(handle, Context(ordinal, handle, own))


def translated(error: Exception, call: str) -> TCError:
    """Return the TCError for an *error* of PyCUDA's, in the context that is current."""
    status = libcuda.context_status()
    return libcuda.sticky_error(status) or CUDA_FAILED(call=call, why=str(error))
