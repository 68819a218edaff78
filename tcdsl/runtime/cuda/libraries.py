"""Device arrays of other libraries: where their memory is, on which stream, and new ones.

            pointer                    stream                       new arrays
    torch   data_ptr()                 torch's current stream        torch.empty
    cupy    data.ptr                   CuPy's current stream         cupy.empty
    pycuda  gpudata                    the default stream            GPUArray, from our pool
    numba   __cuda_array_interface__   the interface's "stream"      numba.cuda.device_array
    jax     unsafe_buffer_pointer()    the default stream            our memory, through DLPack
    others  __cuda_array_interface__   the interface's "stream"      our memory, through DLPack

Whoever made an array has imported its library, so it is looked up and never imported.
"""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter, methodcaller
from typing import Any, Protocol, TypeAlias

from tcdsl.errors import NO_DEVICE_MEMORY, TCError
from tcdsl.lang.types.dtypes import DType
from tcdsl.runtime.arrays import ArraySpec, row_major
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import Context
from tcdsl.runtime.cuda.dlpack import DeviceArray
from tcdsl.runtime.cuda.state import state_of

_KEPT_MAKERS = 64
_PER_THREAD = 2  # CU_STREAM_PER_THREAD; 1 and None stand for the default stream


Maker: TypeAlias = Callable[[Any], Any]
MakerOf: TypeAlias = Callable[[tuple[int, ...]], Maker]
Allocator: TypeAlias = Callable[[int], Any]  # of PyCUDA: from bytes to memory


class Library(Protocol):
    """What tcdsl needs of a library of device arrays."""

    waits: bool  # whether the caller must find results finished
    makes_immutable: bool  # whether arrays never change, so that each call returns new ones

    def pointer(self, x: Any) -> int:
        """Return the address of *x*'s first element, 0 if it may have none."""

    def pointers(self, arrays: Sequence[Any]) -> list[int]:
        """Return the address of each array's first element."""

    def stream(self, ordinal: int, arrays: Sequence[Any]) -> int:
        """Return the stream to run on."""

    def stream_source(self, ordinal: int) -> Callable[[], int] | None:
        """Return a function for the library's current stream; None where the arrays decide."""

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        """Return { shape -> what makes new dense arrays of it, given the first of the call }.

        Calls of code with open sizes wait for the latter to be made.
        """

    def memory(self, size_bytes: int, context: Context) -> tuple[Any, int] | None:
        """Return memory that may be taken while a graph is captured, and its address."""


class _Torch:
    waits = makes_immutable = False

    def __init__(self) -> None:
        self._torch: Any = sys.modules["torch"]
        # What torch.cuda.current_stream asks, without making an object of it (1 us).
        self._raw = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)

    pointer = staticmethod(methodcaller("data_ptr"))

    def pointers(self, arrays: Sequence[Any]) -> list[int]:
        return [x.data_ptr() for x in arrays]

    def stream(self, ordinal: int, arrays: Sequence[Any]) -> int:
        return self.stream_source(ordinal)()

    def stream_source(self, ordinal: int) -> Callable[[], int]:
        if self._raw is not None:
            return partial(self._raw, ordinal)
        current = self._torch.cuda.current_stream
        return lambda: int(current(ordinal).cuda_stream)

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        allocation, error = self._allocation(dtype, context), self._torch.OutOfMemoryError

        def maker(shape: tuple[int, ...]) -> Maker:
            new = allocation(shape)

            def make(like: Any) -> Any:
                try:
                    return new()
                except error:
                    raise _out_of_memory(shape, dtype, context) from None

            return make

        return maker

    def _allocation(
        self, dtype: DType, context: Context
    ) -> Callable[[tuple[int, ...]], Callable[[], Any]]:
        torch, kind = self._torch, getattr(self._torch, dtype.library_name)
        # What torch's compiled code allocates by, in half of the time, on the current device only.
        quick = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        quick = getattr(quick, "_empty_strided_cuda", None)
        if quick is not None and not libcuda.has_several_devices():
            return lambda shape: partial(quick, shape, row_major(shape), kind)
        empty = partial(torch.empty, dtype=kind, device=torch.device("cuda", context.ordinal))
        # Extents one by one are read faster than a tuple of them.
        return lambda shape: partial(empty, *(shape or (shape,)))

    def memory(self, size_bytes: int, context: Context) -> tuple[Any, int] | None:
        torch = self._torch
        block = torch.empty(
            size_bytes, dtype=torch.uint8, device=torch.device("cuda", context.ordinal)
        )
        return block, block.data_ptr()


class _Cupy:
    waits = makes_immutable = False

    def __init__(self) -> None:
        self._cupy: Any = sys.modules["cupy"]

    pointer = staticmethod(attrgetter("data.ptr"))

    def pointers(self, arrays: Sequence[Any]) -> list[int]:
        return [x.data.ptr for x in arrays]

    def stream(self, ordinal: int, arrays: Sequence[Any]) -> int:
        return self.stream_source(ordinal)()

    def stream_source(self, ordinal: int) -> Callable[[], int]:
        current = self._cupy.cuda.get_current_stream
        return lambda: _plain(current(ordinal).ptr)

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        cupy, kind = self._cupy, dtype.numpy

        empty, error = cupy.empty, cupy.cuda.memory.OutOfMemoryError
        current_device = cupy.cuda.runtime.getDevice

        def make(shape: tuple[int, ...], like: Any) -> Any:
            try:
                # It nearly always is, since the call has made the device's context current.
                if current_device() == context.ordinal:
                    return empty(shape, kind)
                with cupy.cuda.Device(context.ordinal):
                    return empty(shape, kind)
            except error:
                raise _out_of_memory(shape, dtype, context) from None

        return lambda shape: partial(make, shape)

    def memory(self, size_bytes: int, context: Context) -> tuple[Any, int] | None:
        with self._cupy.cuda.Device(context.ordinal):
            block = self._cupy.empty(size_bytes, "uint8")
        return block, block.data.ptr


class _Pycuda:
    waits = makes_immutable = False

    def __init__(self) -> None:
        self._gpuarray: Any = sys.modules["pycuda.gpuarray"]
        self._driver: Any = sys.modules["pycuda.driver"]

    def pointer(self, x: Any) -> int:
        data = x.gpudata
        return 0 if data is None else int(data)

    def pointers(self, arrays: Sequence[Any]) -> list[int]:
        return [0 if x.gpudata is None else int(x.gpudata) for x in arrays]

    def stream(self, ordinal: int, arrays: Sequence[Any]) -> int:
        return libcuda.DEFAULT_STREAM

    def stream_source(self, ordinal: int) -> Callable[[], int]:
        return _default_stream

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        # The last ones are kept: each begins with the constructor, which takes as long as a launch.
        return lru_cache(_KEPT_MAKERS)(lambda shape: self._maker(shape, dtype, context))

    def _maker(self, shape: tuple[int, ...], dtype: DType, context: Context) -> Maker:
        array, kind, usual = self._gpuarray.GPUArray, dtype.numpy, self._driver.mem_alloc
        size_bytes, what = ArraySpec(dtype, shape, ()).size_bytes, f"an output of shape {shape}"
        hold = state_of(context).pool.holder(size_bytes, libcuda.DEFAULT_STREAM, what)
        new, known = array.__new__, dict[str, Any]()  # an array's attributes, but for its memory

        def make(like: Any) -> Any:
            allocator = getattr(like, "allocator", None) or usual
            if not size_bytes:
                return array(shape, kind, allocator)
            if allocator is usual:
                memory = hold()
            else:
                memory = self._allocated(allocator, shape, dtype, context)
            if not known:
                x = array(shape, kind, allocator, gpudata=memory)
                known.update({name: value for name, value in vars(x).items() if name != "gpudata"})
                return x
            x = new(array)
            x.__dict__ = attributes = known.copy()
            attributes["gpudata"], attributes["allocator"] = memory, allocator
            return x

        return make

    def _allocated(
        self, allocator: Allocator, shape: tuple[int, ...], dtype: DType, context: Context
    ) -> Any:
        """Return memory of the caller's *allocator* for an array."""
        driver, size_bytes = self._driver, ArraySpec(dtype, shape, ()).size_bytes

        def allocated() -> Any:
            # In the caller's own context object if there is one: PyCUDA frees memory only in the
            # thread that made that object.
            if driver.Context.get_current() is not None:
                return allocator(size_bytes)
            with context.pushed():
                return allocator(size_bytes)

        try:
            return allocated()
        except driver.MemoryError:
            state_of(context).pool.make_room()
        try:
            return allocated()
        except driver.MemoryError:
            raise _out_of_memory(shape, dtype, context) from None

    def memory(self, size_bytes: int, context: Context) -> tuple[Any, int] | None:
        return None


class _Interface:
    """Arrays that are known by ``__cuda_array_interface__`` only."""

    waits, makes_immutable = True, False  # nobody else knows on which stream we ran

    def pointer(self, x: Any) -> int:
        return int(x.__cuda_array_interface__["data"][0])

    def pointers(self, arrays: Sequence[Any]) -> list[int]:
        return [self.pointer(x) for x in arrays]

    def stream(self, ordinal: int, arrays: Sequence[Any]) -> int:
        streams = dict.fromkeys(
            _plain(x.__cuda_array_interface__.get("stream"))
            for x in arrays
            if hasattr(x, "__cuda_array_interface__")
        )
        chosen, *others = streams or (libcuda.DEFAULT_STREAM,)
        for other in others:
            libcuda.wait_for(chosen, other)
        return chosen

    def stream_source(self, ordinal: int) -> Callable[[], int] | None:
        return None

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        return lambda shape: lambda like: new_array(shape, dtype, context)

    def memory(self, size_bytes: int, context: Context) -> tuple[Any, int] | None:
        return None


class _Numba(_Interface):
    def __init__(self) -> None:
        self._cuda: Any = sys.modules.get("numba.cuda") or sys.modules["numba_cuda.numba.cuda"]

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        def make(shape: tuple[int, ...], like: Any) -> Any:
            with self._cuda.gpus[context.ordinal]:
                return self._cuda.device_array(shape, dtype.numpy)

        return lambda shape: partial(make, shape)


class _Jax:
    waits = makes_immutable = True

    def pointer(self, x: Any) -> int:
        if isinstance(x, DeviceArray):
            return x.address
        return int(x.block_until_ready().unsafe_buffer_pointer())

    def pointers(self, arrays: Sequence[Any]) -> list[int]:
        return [self.pointer(x) for x in arrays]

    def stream(self, ordinal: int, arrays: Sequence[Any]) -> int:
        return libcuda.DEFAULT_STREAM

    def stream_source(self, ordinal: int) -> Callable[[], int]:
        return _default_stream

    def maker_of(self, dtype: DType, context: Context) -> MakerOf:
        return lambda shape: lambda like: new_array(shape, dtype, context)

    def memory(self, size_bytes: int, context: Context) -> tuple[Any, int] | None:
        return None


def _default_stream() -> int:
    return libcuda.DEFAULT_STREAM


def _plain(stream: int | None) -> int:
    """Return the driver's handle for the interface's *stream*."""
    return libcuda.DEFAULT_STREAM if stream in (None, 0, 1) else int(stream)


def _out_of_memory(shape: tuple[int, ...], dtype: DType, context: Context) -> TCError:
    size_bytes = ArraySpec(dtype, shape, ()).size_bytes
    with context.current():
        free_bytes = libcuda.free_memory()[0]
    return NO_DEVICE_MEMORY(
        what=f"an output of shape {shape}", size_bytes=size_bytes, device=context.name,
        free_bytes=free_bytes,
    )  # fmt: skip


def new_array(shape: tuple[int, ...], dtype: DType, context: Context) -> DeviceArray:
    """Return an array in memory of our own, which it frees."""
    size_bytes = max(ArraySpec(dtype, shape, ()).size_bytes, 1)
    with context.current():
        address = state_of(context).pool.allocate(size_bytes, f"an output of shape {shape}")
    return DeviceArray(address, shape, dtype, context.ordinal, context.handle)


_MAKERS: dict[str, type[Any]] = {
    "torch": _Torch,
    "cupy": _Cupy,
    "pycuda": _Pycuda,
    "numba": _Numba,
    "numba_cuda": _Numba,
    "jax": _Jax,
}
_known: dict[str, Library] = {}


def library(name: str) -> Library:
    """Return the library *name*, that of a device array's class."""
    found = _known.get(name)
    if found is None:
        maker = _MAKERS.get(name, _Interface)
        found = _known.setdefault(name, maker())
    return found


def deliver(x: Any, name: str) -> Any:
    """Return *x*, made by a :class:`Library`, as the caller's library knows it."""
    if not isinstance(x, DeviceArray):
        return x
    module: Any = sys.modules.get("jax.numpy" if name == "jax" else name)
    from_dlpack = getattr(module, "from_dlpack", None)
    return x if from_dlpack is None else from_dlpack(x)


__all__ = ["Library", "deliver", "library", "new_array"]
