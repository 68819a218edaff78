"""Compiled kernels: loaded into a context, and launched.

A launch's parameters are all eight bytes wide: pointers and 64-bit integers.  They are packed
from the call's *slots*:

    pointers of arrays | pointers into the workspace | fault record | integers

PyCUDA launches on the default stream.  For streams of other libraries the code is loaded once more
through the driver, since PyCUDA keeps the handles of its functions to itself.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, TypeAlias

from tcdsl.codegen.cuda_source import Dim3, Launch, ParameterKind, has_tickets
from tcdsl.errors import LAUNCH_LIMITS, LOAD_FAILED, TCError
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import Context, never_destroyed, pycuda, translated
from tcdsl.runtime.cuda.faults import FaultRecord
from tcdsl.runtime.cuda.state import state_of
from tcdsl.runtime.launch import Fault

_IN_WORKSPACE = (ParameterKind.SCRATCH, ParameterKind.TICKETS)
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_DYNAMIC_SHARED, _ANY_CLUSTER = 8, 14
_PORTABLE_CLUSTER = 8  # blocks; of more a device must be asked for
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_*


@dataclass(frozen=True)
class Manifest:
    """What a launch needs to know of compiled code; stored beside it in the cache."""

    arch: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
    sites: tuple[tuple[str, int], ...]
    integers: tuple[tuple[str, int], ...]
    alignments: Mapping[str, int]
    stages: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of all tensors

    def to_json(self) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "launches": [launch.to_json() for launch in self.launches],
            "workspace_bytes": self.workspace_bytes,
            "sites": [list(site) for site in self.sites],
            "integers": [list(integer) for integer in self.integers],
            "alignments": dict(self.alignments),
            "stages": dict(self.stages),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Manifest":
        return cls(
            str(data["arch"]),
            tuple(map(Launch.from_json, data["launches"])),
            int(data["workspace_bytes"]),
            tuple((str(name), int(dim)) for name, dim in data["sites"]),
            tuple((str(name), int(dim)) for name, dim in data["integers"]),
            {str(name): int(size) for name, size in data["alignments"].items()},
            dict(data["stages"]),
            {str(name): tuple(shape) for name, shape in data["shapes"].items()},
        )

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays whose pointers the kernels take, in the order of the slots."""
        return tuple(dict.fromkeys(
            p.name for launch in self.launches for p in launch.parameters
            if p.kind is ParameterKind.ARRAY
        ))  # fmt: skip

    @property
    def offsets(self) -> tuple[int, ...]:
        """The places in the workspace that kernels take pointers to, in the order of the slots."""
        return tuple(dict.fromkeys(
            p.offset for launch in self.launches for p in launch.parameters
            if p.kind in _IN_WORKSPACE
        ))  # fmt: skip

    @cached_property
    def has_tickets(self) -> bool:
        """Whether the workspace begins with tickets."""
        return has_tickets(self.launches)

    @property
    def has_faults(self) -> bool:
        kinds = (p.kind for launch in self.launches for p in launch.parameters)
        return ParameterKind.FAULT in kinds


Attributes: TypeAlias = tuple[tuple[int, int], ...]  # CU_FUNC_ATTRIBUTE_* -> value
Values: TypeAlias = tuple[int, ...]  # a kernel's parameters, in its order
Select: TypeAlias = Callable[[Sequence[int]], Values]


def selector(positions: Sequence[int]) -> Select:
    """Return a function that gives what stands at *positions* of its argument."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple([values[position] for position in positions])


class Step:
    """One kernel, ready to be launched with the slots of a call."""

    __slots__ = (
        "attributes",
        "block",
        "format",
        "grid",
        "launch_kernel",
        "name",
        "positions",
        "select",
        "shared",
    )

    def __init__(
        self,
        launch: Launch,
        function: Any,
        attributes: Attributes,
        positions: Sequence[int],
        formats: str,
    ) -> None:
        """Take the *positions* among the slots of the parameters, of the types *formats*.

        *attributes* are the function's, for others of the same code.
        """
        self.name = launch.name
        self.attributes = attributes
        self.grid: Dim3 = launch.grid
        self.block: Dim3 = launch.block
        self.shared = launch.shared_bytes
        self.launch_kernel: Callable[..., None] = function._launch_kernel
        self.format = struct.Struct("=" + formats)
        self.positions = tuple(positions)
        self.select = selector(positions)


@dataclass(slots=True, eq=False)
class Record:
    """The memory of one launch: its shape and stream, its parameters, and references to these."""

    config: libcuda.LaunchConfig
    buffer: Any
    size: ctypes.c_size_t
    config_reference: Any
    extra: Any


class RawKernel:
    """One kernel on streams that PyCUDA cannot launch on, through the driver.

    A launch needs memory for its parameters until it returns.  A :class:`Record` is taken and
    given back, so that threads do not share one, and nothing is allocated.
    """

    __slots__ = ("_free", "_function", "_launch", "_pack_into", "_step")

    def __init__(self, function: int, step: Step) -> None:
        self._function = ctypes.c_void_p(function)
        self._step = step
        self._launch = libcuda.launcher()
        self._pack_into = step.format.pack_into
        self._free: list[Record] = []

    def launch(self, values: Values, stream: int) -> None:
        """Launch with the parameters *values*; the context must be current."""
        try:
            record = self._free.pop()
        except IndexError:
            record = self._new_record()
        record.config.stream = stream
        self._pack_into(record.buffer, 0, *values)
        status = self._launch(record.config_reference, self._function, None, record.extra)
        self._free.append(record)
        if status != 0:
            raise libcuda.error_of(status, "cuLaunchKernel")

    def _new_record(self) -> "Record":
        step, size_bytes = self._step, self._step.format.size
        config = libcuda.LaunchConfig(step.grid, step.block, step.shared, None, None, 0)
        buffer = ctypes.create_string_buffer(max(size_bytes, 1))
        size = ctypes.c_size_t(size_bytes)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), 0
        )
        return Record(config, buffer, size, ctypes.byref(config), ctypes.byref(extra))


class Loaded:
    """The kernels of a program in one context."""

    def __init__(
        self, context: Context, manifest: Manifest, code: bytes, error: Callable[[Fault], TCError]
    ) -> None:
        """Load *code*; *error* makes of a fault what is raised.

        :raises CompileError: (TC073) the driver does not load the code.
        :raises LaunchError: (TC086) the device cannot run a kernel of this shape.
        """
        self.context = context
        self.manifest = manifest
        self.state = state_of(context)
        self._code = code
        self._lock = threading.Lock()
        self._raw: list[RawKernel] | None = None
        driver = pycuda()
        self.driver_error: type[Exception] = driver.Error
        with context.pushed(), libcuda.relaxed_capture():
            try:
                self._module = never_destroyed(driver.module_from_buffer(code))
                self.steps = self._steps(driver)
            except driver.Error as failure:
                raise LOAD_FAILED(why=str(failure)) from None
            self.record: FaultRecord | None = None
            if manifest.has_faults:
                self.record = self.state.faults.new_record(error)

    def _steps(self, driver: Any) -> list[Step]:
        manifest = self.manifest
        arrays, offsets = manifest.arrays, manifest.offsets
        first_offset = len(arrays)
        fault = first_offset + len(offsets)
        first_integer = fault + 1
        steps = []
        for launch in manifest.launches:
            if 0 in launch.grid:
                continue
            self.context.limits.require(
                launch.name, self.context.name, launch.grid, launch.block, launch.shared_bytes
            )
            function = self._module.get_function(launch.name)
            attributes = self._attributes(driver, function, launch)
            for attribute, value in attributes:
                function.set_attribute(driver.function_attribute(attribute), value)
            positions, formats = [], ""
            for parameter in launch.parameters:
                match parameter.kind:
                    case ParameterKind.ARRAY:
                        positions.append(arrays.index(parameter.name))
                    case ParameterKind.SCRATCH | ParameterKind.TICKETS:
                        positions.append(first_offset + offsets.index(parameter.offset))
                    case ParameterKind.FAULT:
                        positions.append(fault)
                    case ParameterKind.INTEGER:
                        positions.append(first_integer + parameter.offset)
                formats += "q" if parameter.kind is ParameterKind.INTEGER else "Q"
            steps.append(Step(launch, function, attributes, positions, formats))
        return steps

    def _attributes(self, driver: Any, function: Any, launch: Launch) -> Attributes:
        """Return what the compiled kernel must be given so that the launch is allowed.

        :raises LaunchError: (TC086) its registers or its memory do not allow it.
        """
        kind = driver.function_attribute
        shared = launch.shared_bytes + function.get_attribute(kind.SHARED_SIZE_BYTES)
        self.context.limits.require(
            launch.name, self.context.name, launch.grid, launch.block, shared
        )
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        most = function.get_attribute(kind.MAX_THREADS_PER_BLOCK)
        if threads > most:
            raise LAUNCH_LIMITS(
                kernel=launch.name, device=self.context.name,
                why=f"its registers are enough for {most} threads a block, it has {threads}",
                advice="compile it with fewer threads",
            )  # fmt: skip
        attributes = []
        if shared > self.context.gpu.shared_bytes:
            attributes.append((_DYNAMIC_SHARED, launch.shared_bytes))
        if launch.cluster > _PORTABLE_CLUSTER:
            attributes.append((_ANY_CLUSTER, 1))
        return tuple(attributes)

    @property
    def fault_address(self) -> int:
        """The address of the fault record, 0 where the kernels take none."""
        return 0 if self.record is None else self.record.address

    # --- launching; the context must be current ----------------------------------------------

    def launch(self, slots: Sequence[int], stream: int) -> None:
        """Launch all kernels, in order."""
        if stream != libcuda.DEFAULT_STREAM:
            for step, kernel in zip(self.steps, self.raw_kernels(), strict=True):
                kernel.launch(step.select(slots), stream)
            return
        try:
            for step in self.steps:
                parameters = step.format.pack(*step.select(slots))
                step.launch_kernel(step.grid, step.block, parameters, step.shared, None)
        except self.driver_error as error:
            raise translated(error, "cuLaunchKernel") from None

    def raw_kernels(self) -> list[RawKernel]:
        """Return the kernels for other libraries' streams, at first loading the code again."""
        if self._raw is None:
            with self._lock, libcuda.relaxed_capture():
                if self._raw is None:
                    module = libcuda.load_module(self._code)
                    self._raw = [self._raw_kernel(module, step) for step in self.steps]
        return self._raw

    def _raw_kernel(self, module: int, step: Step) -> RawKernel:
        function = libcuda.function_of(module, step.name)
        for attribute, value in step.attributes:
            libcuda.set_function_attribute(function, attribute, value)
        return RawKernel(function, step)


class CudaProgram:
    """Compiled kernels, loaded once a context."""

    def __init__(self, code: bytes, manifest: Manifest, error: Callable[[Fault], TCError]) -> None:
        self.manifest = manifest
        self._code = code
        self._error = error
        self._loaded: dict[int, Loaded] = {}
        self._lock = threading.Lock()

    def loaded(self, context: Context) -> Loaded:
        """Return the kernels in *context*."""
        found = self._loaded.get(context.handle)
        if found is None:
            with self._lock:
                found = self._loaded.get(context.handle)
                if found is None:
                    found = Loaded(context, self.manifest, self._code, self._error)
                    self._loaded[context.handle] = found
        return found
