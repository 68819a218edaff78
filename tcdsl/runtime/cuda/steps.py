"""Kernels and memsets of a program, each ready to be launched with the slots of a call.

PyCUDA launches kernels on the default stream.  On streams of other libraries a :class:`RawKernel`
takes the place of a kernel's step, and everywhere where the kernel begins before the one before
it has ended, or all its blocks must be there at once, which PyCUDA cannot ask for; the driver's
memset takes any stream.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from tcdsl.codegen.cuda.source import Dim3, Launch, Memset
from tcdsl.records import dataclass
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.maps import MAP_BYTES, MapEncoder
from tcdsl.runtime.selection import Select, selector

_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_*
_VALUE_BYTES = 8

Attributes: TypeAlias = tuple[tuple[int, int], ...]  # CU_FUNC_ATTRIBUTE_* -> value
Values: TypeAlias = tuple[int, ...]  # a kernel's parameters, in its order
Prepared: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]  # what to call, and with what


class Step:
    """One kernel, ready to be launched with the slots of a call.

    It has no slots: an instance's dictionary is copied at once (:meth:`at`).
    """

    def __init__(
        self,
        launch: Launch,
        function: Any,
        attributes: Attributes,
        positions: Sequence[int],
        formats: str,
        *,
        begins_early: bool = False,
    ) -> None:
        """Take the *positions* among the slots of the parameters, of the types *formats*.

        *attributes* are the function's, for others of the same code.
        """
        self._launch = launch
        self.name = launch.name
        self.attributes = attributes
        self.begins_early = begins_early
        self.is_cooperative = launch.is_cooperative
        self.grid: Dim3 = launch.grid
        self.block: Dim3 = launch.block
        self.shared = launch.shared_bytes
        self.launch_kernel: Callable[..., None] = function._launch_kernel
        self.format = struct.Struct("=" + formats)
        self.encoders = _encoders(launch)
        self._shape_function = launch.shape_function()
        self._last: tuple[Sequence[int], tuple[Dim3, int]] = (), (self.grid, self.shared)
        self.positions = tuple(positions)
        self.select = selector(positions)

    def at(self, integers: Sequence[int]) -> "Step":
        """Return it with grid, shared memory and maps for the open sizes among *integers*."""
        launch = self._launch
        found = Step.__new__(Step)
        found.__dict__ = self.__dict__.copy()
        found.grid, found.shared = launch.grid_at(integers), launch.shared_at(integers)
        if self.encoders and launch.has_open_maps:
            found.encoders = _encoders(launch.at(integers))
        return found

    def shape_at(self, integers: Sequence[int]) -> tuple[Dim3, int]:
        """Return the grid and the bytes of shared memory, of the same *integers* again the last."""
        last = self._last
        if last[0] is not integers:
            self._last = last = integers, self._shape_function(integers)
        return last[1]

    @property
    def needs_driver(self) -> bool:
        """Whether PyCUDA cannot launch it: it has an attribute, or takes tensor maps."""
        return self.launch_attribute is not None or bool(self.encoders)

    @property
    def launch_attribute(self) -> libcuda.LaunchAttribute | None:
        """What the driver is told of the launch; never both: early ones wait for no others."""
        if self.is_cooperative:
            return libcuda.COOPERATIVE
        return libcuda.BEGINS_EARLY if self.begins_early else None

    def prepared(self, values: Values) -> Prepared:
        """Return the launch with the parameters *values* on the default stream."""
        parameters = self.format.pack(*values)
        return self.launch_kernel, (self.grid, self.block, parameters, self.shared, None)

    def launch_at(self, integers: Sequence[int], values: Values, stream: int) -> None:
        """Launch at the open sizes among *integers*, on the default stream."""
        grid, shared = self.shape_at(integers)
        self.launch_kernel(grid, self.block, self.format.pack(*values), shared, None)


def _encoders(launch: Launch) -> dict[int, MapEncoder]:
    """Return { number of a parameter -> what encodes its map }."""
    return {
        number: MapEncoder(parameter.map)
        for number, parameter in enumerate(launch.parameters)
        if parameter.map is not None
    }


@dataclass(slots=True, eq=False)
class Record:
    """The memory of one launch: its shape and stream, its parameters, and references to these.

    Its shape is that of *step*, the last that was launched with it; None: of some open sizes.
    Parameters are packed one
    after another, or (*pointers*) each told where it is: maps lie where the driver wants them,
    which it alone knows; and for cooperative launches.
    """

    step: Step | None
    config: libcuda.LaunchConfig
    buffer: Any
    size: ctypes.c_size_t
    config_reference: Any
    extra: Any
    pointers: Any = None


class RawKernel:
    """One kernel on any stream, through the driver.

    A launch needs memory for its parameters until it returns.  A :class:`Record` is taken and
    given back, so that threads do not share one, and nothing is allocated.  The same kernel at
    other sizes takes the same ones.
    """

    def __init__(self, function: int, step: Step) -> None:
        self._function = ctypes.c_void_p(function)
        self._step = step
        self.name, self.positions, self.select = step.name, step.positions, step.select
        self._launch = libcuda.launcher()
        self._pack_into = step.format.pack_into
        self._encoders = step.encoders
        self._free: list[Record] = []

    def at(self, integers: Sequence[int]) -> "RawKernel":
        """Return the same kernel for the open sizes among *integers*."""
        found = RawKernel.__new__(RawKernel)
        found.__dict__ = self.__dict__.copy()
        found._step = step = self._step.at(integers)
        found._encoders = step.encoders
        return found

    def prepared(self, values: Values) -> Prepared:
        """Return the launch with the parameters *values* on the default stream."""
        return self.launch, (values, libcuda.DEFAULT_STREAM)

    def launch(self, values: Values, stream: int) -> None:
        """Launch with the parameters *values*; the context must be current."""
        try:
            record = self._free.pop()
        except IndexError:
            record = self._new_record()
        step = self._step
        if record.step is not step:
            record.step, config = step, record.config
            config.grid, config.shared_bytes = step.grid, step.shared
        if self._encoders:
            self._encode(record.buffer, [e(values[n]) for n, e in self._encoders.items()])
        self._launch_with(record, values, stream)

    def launch_at(self, integers: Sequence[int], values: Values, stream: int) -> None:
        """Launch at the open sizes among *integers*."""
        record = self._idle_record()
        record.step, config = None, record.config
        config.grid, config.shared_bytes = self._step.shape_at(integers)
        if self._encoders:
            maps = [e.at(integers, values[n]) for n, e in self._encoders.items()]
            self._encode(record.buffer, maps)
        self._launch_with(record, values, stream)

    def _idle_record(self) -> Record:
        with suppress(IndexError):
            return self._free.pop()
        return self._new_record()

    def _launch_with(self, record: Record, values: Values, stream: int) -> None:
        record.config.stream = stream
        self._pack_into(record.buffer, 0, *values)
        status = self._launch(
            record.config_reference, self._function, record.pointers, record.extra
        )
        self._free.append(record)
        if status != 0:
            raise libcuda.error_of(status, "cuLaunchKernel")

    def _encode(self, buffer: Any, maps: Sequence[bytes]) -> None:
        """Write the *maps* behind the packed parameters."""
        for place, encoded in enumerate(maps):
            start = self._step.format.size + MAP_BYTES * place
            buffer[start : start + MAP_BYTES] = encoded

    def _new_record(self) -> "Record":
        step, size_bytes = self._step, self._step.format.size
        attribute = step.launch_attribute
        place = None if attribute is None else ctypes.addressof(attribute)
        config = libcuda.LaunchConfig(
            step.grid, step.block, step.shared, None, place, int(attribute is not None)
        )
        buffer = ctypes.create_string_buffer(max(size_bytes + MAP_BYTES * len(self._encoders), 1))
        if self._encoders or step.is_cooperative:  # a graph takes no packed ones of the latter
            pointers = self._pointers(ctypes.addressof(buffer))
            size = ctypes.c_size_t(0)
            return Record(step, config, buffer, size, ctypes.byref(config), None, pointers)
        size = ctypes.c_size_t(size_bytes)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), 0
        )
        return Record(step, config, buffer, size, ctypes.byref(config), ctypes.byref(extra))

    def _pointers(self, base: int) -> Any:
        """Return where each parameter is, in a buffer at *base*."""
        size_bytes, count = self._step.format.size, len(self.positions)
        places = [base + _VALUE_BYTES * number for number in range(count)]
        for place, number in enumerate(self._encoders):
            places[number] = base + size_bytes + MAP_BYTES * place
        return (ctypes.c_void_p * count)(*places)


class MemsetStep:
    """One memset, on any stream; a captured graph gets a node of it."""

    __slots__ = ("_call", "_count", "_function", "_value", "name", "positions", "select")
    needs_driver: bool = False

    def __init__(self, memset: Memset, position: int) -> None:
        """Take the *position* of the target among the slots."""
        self.name = memset.name
        self.positions: tuple[int, ...] = (position,)
        self.select = selector(self.positions)
        self._call = f"cuMemsetD{8 * memset.width}Async"
        self._function: Callable[..., int] = getattr(libcuda.library(), self._call)
        self._value, self._count = memset.value, memset.count

    def at(self, integers: Sequence[int]) -> "MemsetStep":
        """Return the memset itself: it has no grid."""
        return self

    def prepared(self, values: Values) -> Prepared:
        """Return the memset at *values*, one address, on the default stream."""
        return self.launch, (values, libcuda.DEFAULT_STREAM)

    def launch(self, values: Values, stream: int) -> None:
        """Fill at *values*, one address; the context must be current."""
        status = self._function(values[0], self._value, self._count, stream)
        if status != 0:
            raise libcuda.error_of(status, self._call)

    def launch_at(self, integers: Sequence[int], values: Values, stream: int) -> None:
        """Fill at *values*: what is filled has no open size."""
        self.launch(values, stream)


class StreamStep(Protocol):
    """A step on any stream that is no kernel of ours."""

    name: str
    needs_driver: bool
    positions: tuple[int, ...]
    select: Select

    def at(self, integers: Sequence[int]) -> "StreamStep": ...

    def prepared(self, values: Values) -> Prepared: ...

    def launch(self, values: Values, stream: int) -> None: ...

    def launch_at(self, integers: Sequence[int], values: Values, stream: int) -> None: ...


AnyStep: TypeAlias = Step | RawKernel | StreamStep
Raw: TypeAlias = RawKernel | StreamStep  # on any stream
