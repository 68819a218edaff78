"""A GPU that is none: the driver's functions and PyCUDA's, over host memory.

It keeps the rules that matter: which context is current, what is allocated, what a stream that is
being captured forbids, errors that stay.  Kernels are Python functions of their parameters.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import driver
from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind
from tcdsl.executable import cuda as cuda_executable
from tcdsl.runtime.cuda import device, libcuda, libraries, memory, state

PRIMARY, OTHER = 1000, 2000  # handles of contexts: the primary ones are PRIMARY + ordinal
Kernel = Callable[[list[int]], None]


class FakeDriver:
    """``libcuda``: memory, contexts, streams; what is wrong with it is set by the test."""

    def __init__(self) -> None:
        self.n_devices = 2
        self.contexts: list[int] = []
        self.memory: dict[int, Any] = {}
        self.owners: dict[int, int] = {}
        self.pinned: list[Any] = []
        self.capacity = 1 << 30
        self.capturing: set[int] = set()
        self.relaxed = 0
        self.lost = 0
        self.kernels: dict[str, Kernel] = {}
        self.launched: list[tuple[str, int, int]] = []  # name, stream, context
        self.grids: list[tuple[int, int, int]] = []
        self.shared: list[int] = []  # bytes, as grids are
        self.early: list[str] = []  # those that began before the one before them had ended
        self.filled: list[tuple[int, int]] = []  # bytes, stream
        self.waited = 0
        self.is_dead = False
        self.names: dict[int, str] = {}
        self.attributes: list[tuple[str, int, int]] = []  # of functions: name, attribute, value

    def used(self) -> int:
        return sum(len(block) for block in self.memory.values())

    def allocate(self, size_bytes: int) -> int:
        """Return new memory, 256-byte aligned, full of 0xA5."""
        if self.used() + size_bytes > self.capacity:
            raise MemoryError
        raw = (ctypes.c_uint8 * (size_bytes + 256))(*(0xA5,) * 0)
        start = -ctypes.addressof(raw) % 256
        address = ctypes.addressof(raw) + start
        ctypes.memset(address, 0xA5, size_bytes)
        self.memory[address] = raw
        self.owners[address] = self.contexts[-1]
        return address

    def owner_of(self, pointer: int) -> int:
        for start, raw in self.memory.items():
            if start <= pointer < start + max(len(raw) - 256, 1):
                return self.owners[start]
        return 0

    def launch(self, name: str, values: list[int], stream: int) -> None:
        assert self.contexts, "a launch without a context"
        self.launched.append((name, stream, self.contexts[-1]))
        self.kernels[name](values)

    # --- the functions, as ctypes calls them: results through byref -----------------------------

    def cuInit(self, flags: int) -> int:
        if self.is_dead:
            return 3
        return 0 if self.n_devices else 100

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = 13000
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = self.n_devices
        return 0

    def cuCtxGetCurrent(self, out: Any) -> int:
        out._obj.value = self.contexts[-1] if self.contexts else None
        return 3 if self.is_dead else 0

    def cuCtxSetCurrent(self, handle: Any) -> int:
        del self.contexts[-1:]
        if handle:
            self.contexts.append(handle)
        return 0

    def cuCtxPushCurrent_v2(self, handle: int) -> int:
        self.contexts.append(handle)
        return 0

    def cuCtxPopCurrent_v2(self, out: Any) -> int:
        self.contexts.pop()
        return 0

    def cuCtxSynchronize(self) -> int:
        assert not self.capturing, "it waited while a graph was captured"
        self.waited += 1
        return self.lost

    def cuPointerGetAttribute(self, out: Any, attribute: int, pointer: int) -> int:
        owner = self.owner_of(pointer)
        if not owner:
            return 1
        out._obj.value = owner if attribute == 1 else owner % 10
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = self.capacity - self.used(), self.capacity
        return 0

    def cuMemAlloc_v2(self, out: Any, size_bytes: int) -> int:
        assert self.relaxed or not self.capturing, "it allocated while a graph was captured"
        try:
            out._obj.value = self.allocate(size_bytes)
        except MemoryError:
            return 2
        return 0

    def cuMemFree_v2(self, address: int) -> int:
        assert self.relaxed or not self.capturing, "it freed while a graph was captured"
        assert self.contexts and self.contexts[-1] == self.owners[address], "in another context"
        del self.memory[address]
        return 0

    def cuMemHostAlloc(self, out: Any, size_bytes: int, flags: int) -> int:
        raw = (ctypes.c_uint8 * size_bytes)()
        self.pinned.append(raw)
        out._obj.value = ctypes.addressof(raw)
        return 0

    def _copy(self, target: int, source: int, size_bytes: int, stream: Any) -> int:
        ctypes.memmove(target, source, size_bytes)
        return self.lost

    cuMemcpyHtoDAsync_v2 = cuMemcpyDtoHAsync_v2 = cuMemcpyDtoDAsync_v2 = _copy

    def _set(self, target: int, value: int, width: int, count: int, stream: Any) -> int:
        assert self.contexts, "a memset without a context"
        self.filled.append((width * count, stream))
        ctypes.memmove(target, value.to_bytes(width, "little") * count, width * count)
        return self.lost

    def cuMemsetD8Async(self, target: int, value: int, count: int, stream: Any) -> int:
        return self._set(target, value, 1, count, stream)

    def cuMemsetD16Async(self, target: int, value: int, count: int, stream: Any) -> int:
        return self._set(target, value, 2, count, stream)

    def cuMemsetD32Async(self, target: int, value: int, count: int, stream: Any) -> int:
        return self._set(target, value, 4, count, stream)

    def cuStreamSynchronize(self, stream: Any) -> int:
        assert not self.capturing, "it waited while a graph was captured"
        self.waited += 1
        return self.lost

    def cuStreamIsCapturing(self, stream: int, out: Any) -> int:
        out._obj.value = int(stream in self.capturing)
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.relaxed = 0 if self.relaxed else 1
        return 0

    def cuEventCreate(self, out: Any, flags: int) -> int:
        out._obj.value = 77
        return 0

    def _nothing(self, *args: Any) -> int:
        return 0

    cuEventRecord = cuEventSynchronize = cuEventDestroy_v2 = cuStreamWaitEvent = _nothing

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        self.attributes.append((self.names[function], attribute, value))
        return 0

    def cuModuleLoadData(self, out: Any, code: Any) -> int:
        assert self.relaxed or not self.capturing
        out._obj.value = 5
        return 0

    def cuModuleGetFunction(self, out: Any, handle: int, name: bytes) -> int:
        out._obj.value = 9000 + len(self.names)
        self.names[out._obj.value] = name.decode()
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        stream, extra = rest[7], rest[9]._obj
        self.grids.append(rest[:3])
        self.shared.append(rest[6])
        size = ctypes.c_size_t.from_address(extra[3]).value
        values = (ctypes.c_uint64 * (size // 8)).from_address(extra[1])
        self.launch(self.names[function.value], list(values), stream)
        return self.lost

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: None, extra: Any) -> int:
        c = config._obj
        if c.n_attributes:
            found = libcuda.LaunchAttribute.from_address(c.attributes)
            assert (c.n_attributes, found.id, found.value[0]) == (1, 6, 1)
            self.early.append(self.names[function.value])
        shape = (*c.grid, *c.block, c.shared_bytes)
        return self.cuLaunchKernel(function, *shape, c.stream, parameters, extra)

    def cuGetErrorString(self, status: int, out: Any) -> int:
        out._obj.value = {700: b"an illegal memory access was encountered"}.get(status, b"failed")
        return 0


class FakeContext:
    """PyCUDA's: pushes to the driver's stack and to a stack of its own."""

    stack: list["FakeContext"]

    def __init__(self, driver: FakeDriver, handle: int) -> None:
        self.driver, self.handle = driver, handle

    def push(self) -> None:
        if type(self).stack:
            self.driver.contexts.pop()
        self.driver.contexts.append(self.handle)
        type(self).stack.append(self)

    @classmethod
    def pop(cls) -> None:
        own = cls.stack.pop()
        own.driver.contexts.pop()
        if cls.stack:
            own.driver.contexts.append(cls.stack[-1].handle)

    @classmethod
    def get_current(cls) -> Any:
        return cls.stack[-1] if cls.stack else None


def _function_class(fake: FakeDriver, error: type[Exception]) -> type:
    """Return PyCUDA's class of kernels, whose launches *fake* runs."""

    class Function:
        def __init__(self, name: str) -> None:
            self.name = name

        def get_attribute(self, kind: str) -> int:
            return {"SHARED_SIZE_BYTES": 1 << 10, "MAX_THREADS_PER_BLOCK": 512}[kind]

        def set_attribute(self, kind: int, value: int) -> None:
            fake.attributes.append((self.name, kind, value))

        def _launch_kernel(
            self, grid: Any, block: Any, parameters: bytes, shared: int, stream: Any
        ) -> None:
            assert stream is None
            fake.grids.append(grid)
            fake.shared.append(shared)
            values = [
                int.from_bytes(parameters[n : n + 8], "little")
                for n in range(0, len(parameters), 8)
            ]
            fake.launch(self.name, values, 0)
            if fake.lost:
                raise error("cuLaunchKernel failed")

    return Function


def _device_class(fake: FakeDriver, context: Any) -> type:
    """Return PyCUDA's class of devices, of H200s."""

    class Device:
        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        @staticmethod
        def count() -> int:
            return fake.n_devices

        def name(self) -> str:
            return "NVIDIA H200"

        def compute_capability(self) -> tuple[int, int]:
            return 9, 0

        def get_attribute(self, kind: str) -> int:
            return {
                "MULTIPROCESSOR_COUNT": 132, "MAX_THREADS_PER_BLOCK": 1024,
                "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
                "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MAX_GRID_DIM_X": 2**31 - 1,
                "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535, "MAX_BLOCK_DIM_X": 1024,
                "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64, "L2_CACHE_SIZE": 60 << 20,
                "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
                "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
            }[kind]  # fmt: skip

        def retain_primary_context(self) -> FakeContext:
            return context(fake, PRIMARY + self.ordinal)

    return Device


class _Names:
    def __getattr__(self, name: str) -> str:
        return name

    def __call__(self, number: int) -> int:
        return number


def _array_class(driver: ModuleType) -> type:
    """Return PyCUDA's class of arrays, in memory of *driver*."""

    class GPUArray:
        def __init__(
            self, shape: Any, dtype: Any, allocator: Any = None, strides: Any = None,
            gpudata: Any = None,
        ) -> None:  # fmt: skip
            self.shape, self.dtype = tuple(shape), np.dtype(dtype)
            dense = np.empty(self.shape, self.dtype)
            self.size, self.nbytes = dense.size, dense.nbytes
            self.strides = tuple(strides or dense.strides)
            self.allocator = allocator or driver.mem_alloc
            self.gpudata = gpudata
            if gpudata is None and self.size:
                self.gpudata = self.allocator(dense.nbytes)

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {
                "shape": self.shape, "strides": self.strides, "typestr": self.dtype.str,
                "data": (int(self.gpudata or 0), False), "stream": None, "version": 3,
            }  # fmt: skip

        def get(self) -> Any:
            result = np.empty(self.shape, self.dtype)
            if self.size:
                source = np.lib.stride_tricks.as_strided(
                    _at(self.gpudata, self.dtype, 1), self.shape, self.strides
                )
                result[...] = source
            return result

        def set(self, values: Any) -> Any:
            if self.size:
                np.lib.stride_tricks.as_strided(
                    _at(self.gpudata, self.dtype, 1), self.shape, self.strides
                )[...] = values
            return self

    GPUArray.__module__ = "pycuda.gpuarray"
    return GPUArray


def fake_pycuda(fake: FakeDriver) -> dict[str, ModuleType]:
    """Return the modules of a PyCUDA on *fake*."""
    package, driver, arrays = (
        ModuleType(name) for name in ("pycuda", "pycuda.driver", "pycuda.gpuarray")
    )
    context = type("Context", (FakeContext,), {"stack": []})
    error = type("Error", (Exception,), {})
    function = _function_class(fake, error)

    def mem_alloc(size_bytes: int) -> int:
        assert context.stack, "no currently active context?"
        try:
            return fake.allocate(size_bytes)
        except MemoryError:
            raise driver.MemoryError from None

    driver.__dict__.update(
        init=lambda: None, Device=_device_class(fake, context), Context=context, Error=error,
        MemoryError=type("MemoryError", (error,), {}), mem_alloc=mem_alloc,
        device_attribute=_Names(), function_attribute=_Names(),
        module_from_buffer=lambda code: SimpleNamespace(get_function=function),
    )  # fmt: skip
    arrays.GPUArray = _array_class(driver)  # type: ignore[attr-defined]
    package.driver, package.gpuarray = driver, arrays  # type: ignore[attr-defined]
    return {"pycuda": package, "pycuda.driver": driver, "pycuda.gpuarray": arrays}


def _at(pointer: Any, dtype: Any, count: int) -> Any:
    dtype = np.dtype(dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(int(pointer))
    return np.frombuffer(memory, dtype)


@pytest.fixture
def at() -> Callable[[Any, Any, int], Any]:
    """``at(pointer, dtype, count)``: the device memory there as an array."""
    return _at


def forget() -> None:
    """Forget every context and library, as a new process."""
    device._after_fork()
    device._used_in, device.in_forked_child = None, False
    state._states.clear()
    libraries._known.clear()
    libcuda.has_several_devices.cache_clear()
    memory._abandoned.clear()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    driver = FakeDriver()
    monkeypatch.delenv("TCDSL_TARGET", raising=False)
    monkeypatch.setattr(libcuda, "library", lambda: driver)
    for name, each in fake_pycuda(driver).items():
        monkeypatch.setitem(sys.modules, name, each)
    forget()
    yield driver
    forget()


@pytest.fixture
def gpuarray(fake: FakeDriver) -> Callable[..., Any]:
    """``gpuarray(values)``: a GPUArray of them, as a user with the primary context makes it."""
    driver, arrays = sys.modules["pycuda.driver"], sys.modules["pycuda.gpuarray"]

    def make(values: Any) -> Any:
        values = np.asarray(values)
        if not driver.Context.stack:
            driver.Device(0).retain_primary_context().push()
        return arrays.GPUArray(values.shape, values.dtype).set(values)

    return make


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch, fake: Any, tmp_path: Any) -> Callable[..., None]:
    """``compiles(source, kernel)``: what every program is compiled to."""
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCDSL_DEBUG", raising=False)
    cuda_executable.forget_programs()

    def set_up(source: CudaSource, kernel: Callable[[list[int]], None]) -> None:
        # What is not planned here has weighed nothing.
        stages = {"code": "text", "candidates": ""}
        compiled = SimpleNamespace(source=source, stages=stages, is_fallback=False)

        def compile_to_cuda(*args: Any) -> Any:
            args[2](source)  # it is compiled while it is verified
            return compiled

        monkeypatch.setattr(driver, "compile_to_cuda", compile_to_cuda)
        monkeypatch.setattr(driver, "with_decisions", lambda compiled, *_: compiled)
        monkeypatch.setattr(cuda_executable, "begin_cuda", lambda *args, **more: lambda: b"code")
        monkeypatch.setattr(cuda_executable, "start_nvrtc", lambda *args: None)
        for launch in source.launches:
            fake.kernels[launch.name] = kernel

    return set_up


@pytest.fixture
def program(compiles: Callable[..., None]) -> Callable[..., Any]:
    """``program(text, kernel, *names)``: the last def, as one kernel of the arrays *names*.

    Of the names, "fault" is the record, and "t@8" a pointer eight bytes into the workspace.
    """

    def make(text: str, kernel: Kernel, *names: str, **changes: Any) -> Any:
        launch = Launch("tc_k0", (1, 1, 1), (32, 1, 1), 0, tuple(map(_parameter, names)), "S0")
        known = {"workspace_bytes": 0, "sites": ()} | changes
        compiles(CudaSource("", frozenset(), (launch,), **known), kernel)
        defs = tcdsl.define(text)
        return defs[defs.names[-1]]

    return make


def _parameter(name: str) -> Parameter:
    if name == "fault":
        return Parameter("int64_t *fault", ParameterKind.FAULT)
    name, _, offset = name.partition("@")
    kind = ParameterKind.SCRATCH if offset else ParameterKind.ARRAY
    return Parameter(f"float *{name}", kind, name, int(offset or 0))
