"""Device memory that calls take and give back, and copies between host and device.

Blocks are kept for the next call on the same stream, where what the earlier call launched is done
before the next one's kernels start.  New arrays of PyCUDA's hold such blocks too: its own
allocation asks the driver each time, and freeing waits for the device.  Host arrays travel through
two pinned buffers, so that the processor fills one while the other is on its way.
"""

import ctypes
import gc
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from tcdsl.codegen.cuda.source import TICKETS_BYTES
from tcdsl.errors import NO_DEVICE_MEMORY, TCError
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import NDArray
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.libcuda import OutOfDeviceMemoryError
from tcdsl.runtime.warm_path import address

CHUNK_BYTES = 4 << 20  # of a pinned buffer: long enough that starting a copy costs nothing
_SMALLEST_BYTES = 512
_KEPT_SHARE = 4  # idle blocks may take a fourth of the device's memory
_SLOTS = 1024  # host scalars of a stream that are kept on the device
_SLOT_BYTES = 8


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of device memory."""

    address: int
    size_bytes: int
    has_tickets: bool = False  # the first bytes are a workspace's tickets, zero between launches


class DevicePool:
    """The device memory of one context that tcdsl owns.

    That context must be current in every call but :meth:`give_back`.  Needs no lock: lists pop and
    append atomically.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._context = 0  # known as soon as there is anything to give back
        # By size, stream, and whether there are tickets, which nothing else may overwrite.
        self._idle: defaultdict[tuple[int, int, bool], list[Block]] = defaultdict(list)
        self._kept_bytes = 0
        self._most_bytes = 0

    def take(self, size_bytes: int, stream: int, what: str, *, has_tickets: bool = False) -> Block:
        """Return a block for *stream*, of which *what* is told where there is none.

        :raises LaunchError: (TC084) there is not enough memory.
        """
        block = self.take_idle(size_bytes, stream, has_tickets=has_tickets)
        if block is not None:
            return block
        return self.new_block(size_bytes, stream, what, has_tickets=has_tickets)

    def new_block(self, size_bytes: int, stream: int, what: str, *, has_tickets: bool) -> Block:
        """Return a block that no call has had; its tickets are zero for what *stream* runs next."""
        rounded = _rounded(size_bytes)
        block = Block(self._allocate(rounded, what, size_bytes), rounded, has_tickets)
        if has_tickets:
            libcuda.fill(block.address, 0, TICKETS_BYTES, stream)
        return block

    def take_idle(self, size_bytes: int, stream: int, *, has_tickets: bool = False) -> Block | None:
        """Return a block without asking the driver, or None."""
        try:
            block = self._idle[_rounded(size_bytes), stream, has_tickets].pop()
        except IndexError:
            return None
        self._kept_bytes -= block.size_bytes
        return block

    def holder(self, size_bytes: int, stream: int, what: str) -> "Callable[[], HeldMemory]":
        """Return a function like :meth:`take`, but what it returns comes back by itself."""
        idle = self._idle[_rounded(size_bytes), stream, False]

        def hold() -> HeldMemory:
            try:
                block = idle.pop()
                self._kept_bytes -= block.size_bytes
            except IndexError:
                block = self.take(size_bytes, stream, what)
            memory = HeldMemory(block.address)
            memory.home = self, block, stream
            return memory

        return hold

    def give_back(self, block: Block, stream: int) -> None:
        """Keep *block* for the next call on *stream*, or free it where too much is kept.

        Finalisers come here, at any time: the driver is asked for nothing but to free, and that
        also while a graph is captured.
        """
        if self._kept_bytes + block.size_bytes <= self._most_bytes:
            self._kept_bytes += block.size_bytes
            self._idle[block.size_bytes, stream, block.has_tickets].append(block)
            return
        with libcuda.current(self._context), libcuda.relaxed_capture():
            libcuda.free(block.address)

    def allocate(self, size_bytes: int, what: str) -> int:
        """Return new memory; before giving up, whatever lies idle in this process is freed."""
        return self._allocate(size_bytes, what, size_bytes)

    def _allocate(self, size_bytes: int, what: str, asked_bytes: int) -> int:
        free_abandoned()
        if not self._context:
            self._context = libcuda.current_context()
            self._most_bytes = libcuda.free_memory()[1] // _KEPT_SHARE
        with suppress(OutOfDeviceMemoryError):
            return libcuda.allocate(size_bytes)
        self.make_room()
        try:
            return libcuda.allocate(size_bytes)
        except OutOfDeviceMemoryError:
            raise NO_DEVICE_MEMORY(
                what=what, size_bytes=asked_bytes, device=self.device,
                free_bytes=libcuda.free_memory()[0],
            ) from None  # fmt: skip

    def make_room(self) -> None:
        """Free whatever lies idle in this process: blocks, dropped arrays, caches of libraries."""
        free_caches_of_libraries()  # collects garbage, by which blocks come back
        self.free_idle()

    def free_idle(self) -> None:
        """Free all blocks that no call uses."""
        for blocks in list(self._idle.values()):
            with suppress(IndexError):
                while True:
                    libcuda.free(blocks.pop().address)
        self._kept_bytes = 0


class HeldMemory(int):
    """A block that an array of PyCUDA's holds: its address, which is what PyCUDA takes for memory.

    When nobody refers to it any more, its block waits for the next array on its stream, whatever
    thread that happens in.  PyCUDA's own pool ends the process where its last array is dropped in a
    thread without a context of PyCUDA's.
    """

    home: tuple[DevicePool, Block, int] | None = None  # whose it is, and of which stream

    @property
    def gpudata(self) -> int:
        """What PyCUDA looks for in the argument of a kernel."""
        return self

    def free(self) -> None:
        """Give the memory back now, as the allocations of PyCUDA's own can be."""
        home, self.home = self.home, None
        if home is not None:
            pool, block, stream = home
            pool.give_back(block, stream)

    def __del__(self) -> None:
        if self.home is not None:
            try:
                pool, block, stream = self.home
                pool.give_back(block, stream)
            except TCError:  # the context is lost, or this is a forked child
                pass


_abandoned: list[tuple[int, int]] = []  # (context, address)


def abandon(context: int, address: int) -> None:
    """Let the memory at *address* be freed by the next allocation.

    For finalisers, which run at any time, and must not call the driver: a graph may be captured.
    """
    _abandoned.append((context, address))


def free_abandoned() -> None:
    """Free what was abandoned; the driver waits for what still reads it."""
    with suppress(IndexError):
        while True:
            context, address = _abandoned.pop()
            with libcuda.current(context):
                libcuda.free(address)


def _rounded(size_bytes: int) -> int:
    """Return a size of which there are few, at most an eighth more than *size_bytes*."""
    if size_bytes <= _SMALLEST_BYTES:
        return _SMALLEST_BYTES
    step = max(_SMALLEST_BYTES, 1 << (size_bytes.bit_length() - 4))
    return -(-size_bytes // step) * step


def free_caches_of_libraries() -> None:
    """Ask the libraries that keep freed device memory to give it back to the driver."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()


# --- host scalars --------------------------------------------------------------------------


class Scalars:
    """Host scalars on the device: kernels read every tensor through a pointer.

    A value is written once and found again by its bytes.  The oldest slot of a stream is written
    anew when there are too many; what reads it there is earlier on the same stream.  The lock is
    held until the launch that reads the slots.
    """

    def __init__(self, pool: DevicePool) -> None:
        self.lock = threading.Lock()
        self._pool = pool
        self._slots: dict[int, dict[bytes, int]] = {}  # stream -> value -> address
        self._fresh: dict[int, list[int]] = {}

    def address_of(self, value: bytes, stream: int) -> int:
        """Return the address of *value* for launches on *stream*."""
        try:
            return self._slots[stream][value]
        except KeyError:
            return self._written(value, stream)

    def _written(self, value: bytes, stream: int) -> int:
        slots = self._slots.setdefault(stream, {})
        address = self._slot(slots, stream)
        libcuda.write_value(address, value, stream)
        slots[value] = address
        return address

    def _slot(self, slots: dict[bytes, int], stream: int) -> int:
        fresh = self._fresh.get(stream)
        if fresh is None:
            base = self._pool.allocate(_SLOTS * _SLOT_BYTES, "the scalars of calls")
            fresh = self._fresh[stream] = [base + _SLOT_BYTES * n for n in range(_SLOTS)]
        return fresh.pop() if fresh else slots.pop(next(iter(slots)))


# --- host arrays ---------------------------------------------------------------------------


class Staging:
    """Copies between NumPy arrays and device memory through two pinned buffers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._buffers: list[tuple[int, NDArray, int]] = []  # address, its bytes, event

    def _chunks(self, size_bytes: int) -> list[tuple[int, int]]:
        if not self._buffers:
            for _ in range(2):
                start = libcuda.allocate_pinned(CHUNK_BYTES)
                memory = np.ctypeslib.as_array((ctypes.c_uint8 * CHUNK_BYTES).from_address(start))
                self._buffers.append((start, memory, libcuda.new_event(is_timed=False)))
        return [
            (start, min(start + CHUNK_BYTES, size_bytes))
            for start in range(0, size_bytes, CHUNK_BYTES)
        ]

    def to_device(self, target: int, array: NDArray, stream: int) -> None:
        """Start copying the dense *array*; it may change as soon as this returns."""
        source = _bytes_of(array)
        with self.lock:
            for number, (start, end) in enumerate(self._chunks(source.size)):
                pinned, memory, event = self._buffers[number % 2]
                libcuda.wait(event)
                memory[: end - start] = source[start:end]
                libcuda.copy_to_device(target + start, pinned, end - start, stream)
                libcuda.record(event, stream)

    def to_host(self, array: NDArray, source: int, stream: int) -> None:
        """Copy to the dense *array*, after what was launched on *stream* before."""
        target = _bytes_of(array)
        with self.lock:
            chunks = self._chunks(target.size)
            for number in range(len(chunks) + 1):
                if number < len(chunks):
                    start, end = chunks[number]
                    pinned, _, event = self._buffers[number % 2]
                    libcuda.copy_to_host(pinned, source + start, end - start, stream)
                    libcuda.record(event, stream)
                if number > 0:
                    start, end = chunks[number - 1]
                    _, memory, event = self._buffers[(number - 1) % 2]
                    libcuda.wait(event)
                    target[start:end] = memory[: end - start]


def _bytes_of(array: NDArray) -> NDArray:
    """Return the memory of a dense array as bytes."""
    assert array.flags.c_contiguous
    if array.nbytes == 0:
        return np.empty(0, np.uint8)
    memory = (ctypes.c_uint8 * array.nbytes).from_address(address(array))
    return np.ctypeslib.as_array(memory)
