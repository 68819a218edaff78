"""Loading emulated kernels and running them.

Arrays are copied into memory of the emulator's own, where every byte's owner, last writer and last
reader are known, and what was written is copied back.  A run is one call of all launches in order,
memsets among them.
"""

import ctypes
import os
import random
import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from tcdsl.codegen.cuda.source import (
    TICKETS_BYTES,
    AnyLaunch,
    CudaSource,
    Launch,
    LibraryCall,
    Memset,
    Overlap,
    Parameter,
    ParameterKind,
)
from tcdsl.costmodel.convolutions import Convolution
from tcdsl.emulator.build import kernel_names
from tcdsl.emulator.findings import Finding, FindingKind, emulation_error, error_of
from tcdsl.emulator.maps import emulated_map
from tcdsl.records import dataclass
from tcdsl.runtime.host_convolutions import convolved, tensors_at
from tcdsl.runtime.host_products import matrices_at, multiplied, row_starts
from tcdsl.runtime.launch import FAULT_WORDS, Fault, load_library

_WRITABLE, _WRITTEN_BEFORE = 1, 4  # RegionFlags of memory.h
_PAUSED, _FOUND = 1, 2  # Outcome of state.h
_SCRATCH_ALIGNMENT = 256
N_SIZES = 12  # of a launch: see emu_launch
_POISON = 0xFF  # a NaN, where read as floats

_Array = np.ndarray[Any, Any]

# The library's runtime has one set of fibres, and its signal handlers are the process's.
_one_at_a_time = threading.RLock()
# A fork waits for the end of a run: its child would find the lock taken, by nobody.
os.register_at_fork(
    before=_one_at_a_time.acquire,
    after_in_parent=_one_at_a_time.release,
    after_in_child=_one_at_a_time.release,
)


@dataclass(frozen=True, slots=True)
class _Memory:
    """A copy of *array* for the run; *view* has its strides."""

    array: _Array
    view: _Array
    address: int  # of the first element


class EmulatedProgram:
    """The loaded object of :func:`tcdsl.emulator.compile_emulated`, for the same source."""

    def __init__(
        self, code: bytes, source: CudaSource, kernels: Sequence[str] | None = None
    ) -> None:
        """Load *code*; *kernels* are all that it has, in order, if these are not *source*'s."""
        self.source = source
        names = kernel_names(source) if kernels is None else kernels
        self._numbers = {name: number for number, name in enumerate(names)}
        self._runs = 0
        self._code = code
        self._library = _declare(load_library(code))

    def run(
        self,
        arrays: Mapping[str, _Array],
        integers: Sequence[int] = (),
        *,
        written: AbstractSet[str] = frozenset(),
        seed: int | None = None,
    ) -> Fault | None:
        """Run all launches on *arrays*, in place; return the fault that the kernels report.

        :arg written: arrays whose first contents mean nothing: reading them is a finding.
        :arg seed: of the order of blocks and threads; by default another one each time, the same
            in every process.
        :raises EmulationError: at the first finding; *arrays* are as they were.
        """
        self._runs += 1
        chosen = self._runs if seed is None else seed
        sizes = [_extent(arrays[name])[1] for name in _used(self.source)]
        source = self.source.at(integers)
        room = sum(sizes) + source.workspace_bytes + TICKETS_BYTES
        cluster = max((launch.cluster for launch in self.source.kernels), default=1)
        with _one_at_a_time:
            try:
                if not self._library.emu_begin(
                    chosen, len(sizes) + 3, room, cluster, self.source.residents
                ):
                    raise MemoryError(f"the emulator has no room for {room} bytes of arrays")
                return self._run(source, arrays, integers, written, chosen)
            finally:
                self._library.emu_end()

    def _run(
        self,
        source: CudaSource,
        arrays: Mapping[str, _Array],
        integers: Sequence[int],
        written: AbstractSet[str],
        seed: int,
    ) -> Fault | None:
        memories = {
            name: self._copy_in(name, arrays[name], name in written, is_written)
            for name, is_written in _used(self.source).items()
        }
        workspace, tickets = self._workspace(source.workspace_bytes), self._tickets()
        fault = np.zeros(FAULT_WORDS, np.int64)
        record = self._copy_in("the fault record", fault, False, True)
        addresses = {name: memory.address for name, memory in memories.items()}
        for launch in _shuffled(source.launches, seed):
            values = [
                _value(parameter, addresses, workspace, tickets, record.address, integers)
                for parameter in launch.parameters
            ]
            maps = {
                number: emulated_map(parameter.map, values[number])
                for number, parameter in enumerate(launch.parameters)
                if parameter.map is not None
            }
            values = [maps[n].ctypes.data if n in maps else v for n, v in enumerate(values)]
            self._name_scratch(launch, values)
            if isinstance(launch, Memset):
                self._fill(launch, values[0], seed)
            elif isinstance(launch, LibraryCall):
                self._multiply(launch, values, seed)
            else:
                self._launch(launch, values, seed)
        if self.source.has_tickets and _bytes_at(tickets, TICKETS_BYTES).any():
            what = "tickets are left that are not zero, which the next run would take for its own"
            raise emulation_error(FindingKind.RACE, source.kernels[-1].name, "", what, "", seed)
        for name, is_written in _used(self.source).items():
            if is_written:
                memories[name].array[...] = memories[name].view
        return Fault(*map(int, record.view)) if record.view[0] else None

    def _launch(self, launch: Launch, values: Sequence[int], seed: int) -> None:
        sizes = (ctypes.c_uint32 * N_SIZES)(*launch_sizes(launch))
        packed = (ctypes.c_uint64 * max(1, len(values)))(*(value % 2**64 for value in values))
        outcome = self._library.emu_launch(
            self._numbers[launch.name], sizes, launch.shared_bytes, packed, len(values)
        )
        while outcome == _PAUSED:  # an interrupt of the user is raised here
            outcome = self._library.emu_resume()
        if outcome == _FOUND:
            finding = self._library.emu_finding().contents
            raise error_of(finding, launch, seed, self._code)

    def _name_scratch(self, launch: AnyLaunch, values: Sequence[int]) -> None:
        """Say where the scratch arrays of *launch* are: findings speak of these."""
        pairs = zip(launch.parameters, values, strict=True)
        own = [(p.name, at) for p, at in pairs if p.kind is ParameterKind.SCRATCH and not p.map]
        bases = (ctypes.c_uint64 * len(own))(*(at for _, at in own))
        names = (ctypes.c_char_p * len(own))(*(name.encode() for name, _ in own))
        self._library.emu_name_parts(bases, names, len(own))

    def _fill(self, memset: Memset, address: int, seed: int) -> None:
        outcome = self._library.emu_fill(address, memset.value, memset.width, memset.count)
        if outcome == _FOUND:
            finding = self._library.emu_finding().contents
            raise error_of(finding, memset, seed, self._code)

    def _multiply(self, call: LibraryCall, addresses: Sequence[int], seed: int) -> None:
        """Do what the library would, by NumPy; the elements of the result are written now."""
        if isinstance(call.product, Convolution):
            self._convolve(call, call.product, addresses, seed)
            return
        views = matrices_at(call.product, addresses)
        value = multiplied(call.product, *views)
        size_bytes = views[-1].itemsize
        for element in row_starts(call.product, addresses[2], size_bytes):
            address, count = element
            zeros = Memset(call.operands[2], 1, 0, count * size_bytes, call.label)
            self._fill(zeros, address, seed)
        views[-1][...] = value

    def _convolve(
        self, call: LibraryCall, product: Convolution, addresses: Sequence[int], seed: int
    ) -> None:
        tensors = tensors_at(product, addresses)
        value, result = convolved(product, tensors), tensors[product.computed]
        self._fill(Memset(call.operands[2], 1, 0, result.nbytes, call.label), addresses[2], seed)
        result[...] = value

    # --- memory ----------------------------------------------------------------------------

    def _copy_in(self, name: str, array: _Array, poison: bool, is_written: bool) -> _Memory:
        """Return a copy of *array*, of which the kernels may touch the elements only."""
        lowest, extent = _extent(array)
        flags = _WRITABLE if is_written and array.flags.writeable else 0
        flags |= 0 if poison else _WRITTEN_BEFORE
        alignment = max(self.source.alignments.get(name, 1), array.itemsize)
        base = self._allocate(extent, _power_of_two(alignment), array.itemsize, flags, name)
        view, each = _view(base, base - lowest, extent, array), _each_once(array)
        if poison:
            _bytes_at(base, extent).fill(_POISON)
        else:
            _each_once(view)[...] = each
        if each.size and extent != each.nbytes:
            shape, strides = ((ctypes.c_int64 * each.ndim)(*v) for v in (each.shape, each.strides))
            self._library.emu_only_elements(base - lowest, each.ndim, shape, strides, base)
        return _Memory(array, view, base - lowest)

    def _workspace(self, size: int) -> int:
        base = self._allocate(size, _SCRATCH_ALIGNMENT, 4, _WRITABLE, "the workspace")
        _bytes_at(base, size).fill(_POISON)
        return base

    def _tickets(self) -> int:
        size = TICKETS_BYTES if self.source.has_tickets else 0
        flags = _WRITABLE | _WRITTEN_BEFORE
        base = self._allocate(size, _SCRATCH_ALIGNMENT, 4, flags, "the tickets")
        _bytes_at(base, size).fill(0)
        return base

    def _allocate(self, size: int, alignment: int, element: int, flags: int, name: str) -> int:
        address = self._library.emu_allocate(size, alignment, element, flags, name.encode())
        if not address:
            raise MemoryError(f"the emulator has no room for {size} bytes of {name}")
        return int(address)


def launch_sizes(launch: Launch) -> tuple[int, ...]:
    """Return what ``emu_launch`` is told of *launch*."""
    has_boxes = any(parameter.map is not None for parameter in launch.parameters)
    dims = (*launch.grid, *launch.block, *launch.cluster_dims)
    return (*dims, int(launch.is_cooperative), int(has_boxes), int(launch.is_in_order))


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    u32, u64, i64, text = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "emu_begin": (ctypes.c_int32, [u64, u64, u64, u32, u64]),
        "emu_end": (None, []),
        "emu_allocate": (u64, [u64, u32, u32, u32, text]),
        "emu_only_elements": (None, [u64, u32, ctypes.POINTER(i64), ctypes.POINTER(i64), u64]),
        "emu_name_parts": (None, [ctypes.POINTER(u64), ctypes.POINTER(text), u32]),
        "emu_launch": (ctypes.c_int32, [u32, ctypes.POINTER(u32), u64, ctypes.POINTER(u64), u32]),
        "emu_fill": (ctypes.c_int32, [u64, u64, u32, u64]),
        "emu_resume": (ctypes.c_int32, []),
        "emu_finding": (ctypes.POINTER(Finding), []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _used(source: CudaSource) -> dict[str, bool]:
    """Return { array that a kernel takes -> whether one may write it }."""
    used: dict[str, bool] = {}
    for launch in source.launches:
        for parameter in launch.parameters:
            if parameter.kind is ParameterKind.ARRAY:
                known = used.get(parameter.name, False)
                used[parameter.name] = known or not parameter.is_read_only
    return used


def _value(
    parameter: Parameter,
    addresses: Mapping[str, int],
    workspace: int,
    tickets: int,
    fault: int,
    integers: Sequence[int],
) -> int:
    match parameter.kind:
        case ParameterKind.ARRAY:
            return addresses[parameter.name]
        case ParameterKind.SCRATCH:
            return workspace + parameter.offset
        case ParameterKind.TICKETS:
            return tickets + parameter.offset
        case ParameterKind.INTEGER:
            return integers[parameter.offset]
        case ParameterKind.FAULT:
            return fault


def _shuffled(launches: Sequence[AnyLaunch], seed: int) -> list[AnyLaunch]:
    """Return *launches* in an order that the GPU might run them in.

    A kernel that waits for others only at its end may be done before them.
    """
    groups: list[list[AnyLaunch]] = []
    for launch in launches:
        if isinstance(launch, Launch) and launch.overlap is Overlap.WAITS_LAST:
            groups[-1].append(launch)
        else:
            groups.append([launch])
    choose = random.Random(seed)
    for group in groups:
        choose.shuffle(group)
    return [launch for group in groups for launch in group]


def _extent(array: _Array) -> tuple[int, int]:
    """Return the lowest element's offset from the first, and the bytes from it to the end."""
    if array.size == 0:
        return 0, 0
    reach = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    lowest = sum(min(0, r) for r in reach)
    return lowest, sum(max(0, r) for r in reach) - lowest + array.itemsize


def _each_once(array: _Array) -> _Array:
    """Return *array* without the repetitions of a broadcast, of which there may be billions."""
    return array[(..., *(slice(0, 1 if stride == 0 else None) for stride in array.strides))]


def _view(base: int, first: int, extent: int, array: _Array) -> _Array:
    """Return *array*'s counterpart in the emulator's memory."""
    return np.ndarray(
        array.shape, array.dtype, _bytes_at(base, extent).data, first - base, array.strides
    )


def _bytes_at(address: int, size: int) -> _Array:
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ndarray((size,), np.uint8, memoryview(memory))


def _power_of_two(alignment: int) -> int:
    """Return the largest power of two that divides *alignment*."""
    return alignment & -alignment
