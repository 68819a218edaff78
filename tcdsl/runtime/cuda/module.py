"""Compiled kernels: loaded into a context, and launched, with memsets between them.

A launch's parameters are all eight bytes wide: pointers and 64-bit integers.  They are packed
from the call's *slots*:

    pointers of arrays | pointers into the workspace | fault record | integers

PyCUDA launches on the default stream.  For streams of other libraries, and where kernels overlap,
the code is loaded once more through the driver, since PyCUDA keeps the handles of its functions to
itself.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from tcdsl.codegen.cuda.counts import Room, workspace_at
from tcdsl.codegen.cuda.source import (
    TICKETS_BYTES,
    AnyLaunch,
    Launch,
    LibraryCall,
    Memset,
    Overlap,
    ParameterKind,
    has_tickets,
    launch_from_json,
)
from tcdsl.costmodel.convolutions import Convolution
from tcdsl.errors import LAUNCH_LIMITS, LOAD_FAILED, TCError
from tcdsl.lang.faults import Site, sites_from_json
from tcdsl.records import dataclass
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import Context, never_destroyed, pycuda, translated
from tcdsl.runtime.cuda.faults import FaultRecord
from tcdsl.runtime.cuda.state import state_of
from tcdsl.runtime.cuda.steps import (
    AnyStep,
    Attributes,
    MemsetStep,
    Raw,
    RawKernel,
    Step,
    StreamStep,
)
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.launch import Fault

_IN_WORKSPACE = (ParameterKind.SCRATCH, ParameterKind.TICKETS)
_PORTABLE_CLUSTER = 8  # blocks; of more a device must be asked for


@dataclass(frozen=True)
class Manifest:
    """What a launch needs to know of compiled code; stored beside it in the cache."""

    arch: str
    launches: tuple[AnyLaunch, ...]
    workspace_bytes: int
    sites: tuple[Site, ...]
    integers: tuple[tuple[str, int], ...]
    alignments: Mapping[str, int]
    stages: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of all tensors
    rooms: tuple[Room, ...] = ()  # of the workspace, where sizes are open

    def workspace_at(self, integers: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Return `offsets` and the workspace's bytes at the open sizes among *integers*."""
        start = TICKETS_BYTES if self.has_tickets else 0
        moved, size_bytes = workspace_at(self.rooms, start, integers)
        return tuple([moved.get(offset, offset) for offset in self.offsets]), size_bytes

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
            "rooms": [room.to_json() for room in self.rooms],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Manifest":
        return cls(
            str(data["arch"]),
            tuple(map(launch_from_json, data["launches"])),
            int(data["workspace_bytes"]),
            sites_from_json(data["sites"]),
            tuple((str(name), int(dim)) for name, dim in data["integers"]),
            {str(name): int(size) for name, size in data["alignments"].items()},
            dict(data["stages"]),
            {str(name): tuple(shape) for name, shape in data["shapes"].items()},
            tuple(map(Room.from_json, data["rooms"])),
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
    def is_open(self) -> bool:
        """Whether launches, or the workspace, depend on the sizes of a call."""
        kernels = (launch for launch in self.launches if isinstance(launch, Launch))
        return bool(self.rooms) or any(launch.is_open for launch in kernels)

    @cached_property
    def has_tickets(self) -> bool:
        """Whether the workspace begins with tickets."""
        return has_tickets(self.launches)

    def positions(self, launch: AnyLaunch) -> list[int]:
        """Return where among the slots the values of the parameters of *launch* are."""
        arrays, offsets = self.arrays, self.offsets
        fault = len(arrays) + len(offsets)
        found = []
        for parameter in launch.parameters:
            match parameter.kind:
                case ParameterKind.ARRAY:
                    found.append(arrays.index(parameter.name))
                case ParameterKind.SCRATCH | ParameterKind.TICKETS:
                    found.append(len(arrays) + offsets.index(parameter.offset))
                case ParameterKind.FAULT:
                    found.append(fault)
                case ParameterKind.INTEGER:
                    found.append(fault + 1 + parameter.offset)
        return found

    @property
    def has_faults(self) -> bool:
        kinds = (p.kind for launch in self.launches for p in launch.parameters)
        return ParameterKind.FAULT in kinds


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
        self.workspace_bytes, self.offsets = manifest.workspace_bytes, manifest.offsets
        self.state = state_of(context)
        self._code = code
        self._lock = threading.Lock()
        self._raw: list[Raw] | None = None
        # The kernels that these are, and the integers of a call of these.
        self._others: tuple[Loaded, Sequence[int]] | None = None
        driver = pycuda()
        self.driver_error: type[Exception] = driver.Error
        with context.pushed(), libcuda.relaxed_capture():
            try:
                self._module = never_destroyed(driver.module_from_buffer(code))
                steps = self._steps(driver)
            except driver.Error as failure:
                raise LOAD_FAILED(why=str(failure)) from None
            self.steps: list[AnyStep] = list(steps)
            if any(step.needs_driver for step in steps):
                self._raw = self._load_raw(steps)
                both = zip(steps, self._raw, strict=True)
                self.steps = [raw if step.needs_driver else step for step, raw in both]
            self.record: FaultRecord | None = None
            if manifest.has_faults:
                self.record = self.state.faults.new_record(error)

    def _steps(self, driver: Any) -> list[Step | StreamStep]:
        positions = self.manifest.positions
        steps: list[Step | StreamStep] = []
        for launch in self.manifest.launches:
            if isinstance(launch, Memset):
                steps.append(MemsetStep(launch, *positions(launch)))
            elif isinstance(launch, LibraryCall):
                steps.append(_product_step(launch, positions(launch), self.context.handle))
            else:
                steps.append(self._kernel(driver, launch, positions(launch)))
        return steps

    def _kernel(self, driver: Any, launch: Launch, positions: Sequence[int]) -> Step:
        """Return the kernel of *launch*, with its parameters at *positions* of the slots."""
        self.context.limits.require(
            launch.name, self.context.name, launch.grid, launch.block, launch.shared_bytes
        )
        function = self._module.get_function(launch.name)
        attributes = self._attributes(driver, function, launch)
        for attribute, value in attributes:
            function.set_attribute(driver.function_attribute(attribute), value)
        formats = ("q" if p.kind is ParameterKind.INTEGER else "Q" for p in launch.parameters)
        is_early = launch.overlap is not Overlap.ORDERED and self.context.gpu.overlaps_kernels
        return Step(
            launch, function, attributes, positions, "".join(formats), begins_early=is_early
        )

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
        if shared > self.context.gpu.static_shared_bytes_per_block:
            attributes.append((libcuda.DYNAMIC_SHARED, launch.shared_bytes))
        if launch.cluster > _PORTABLE_CLUSTER:
            attributes.append((libcuda.ANY_CLUSTER, 1))
        return tuple(attributes)

    def at(self, integers: Sequence[int]) -> "Loaded":
        """Return the same kernels with grids for the open sizes among *integers*."""
        if not self.manifest.is_open:
            return self
        found = Loaded.__new__(Loaded)
        found.__dict__ = self.__dict__.copy()  # the first call at a size waits
        found.steps = [step.at(integers) for step in self.steps]
        if self.manifest.rooms:
            found.offsets, found.workspace_bytes = self.manifest.workspace_at(integers)
        found._raw, found._others = None, (self, integers)
        found._lock = threading.Lock()  # it asks these for theirs
        return found

    @property
    def fault_address(self) -> int:
        """The address of the fault record, 0 where the kernels take none."""
        return 0 if self.record is None else self.record.address

    # --- launching; the context must be current ----------------------------------------------

    def launch(self, slots: Sequence[int], stream: int) -> None:
        """Launch all kernels and memsets, in order."""
        if stream != libcuda.DEFAULT_STREAM:
            for step, kernel in zip(self.steps, self.raw_kernels(), strict=True):
                kernel.launch(step.select(slots), stream)
            return
        try:
            for step in self.steps:
                launch, arguments = step.prepared(step.select(slots))
                launch(*arguments)
        except self.driver_error as error:
            raise translated(error, "cuLaunchKernel") from None

    def raw_kernels(self) -> list[Raw]:
        """Return the steps for other libraries' streams, at first loading the code again."""
        if self._raw is None:
            with self._lock, libcuda.relaxed_capture():
                if self._raw is None:
                    self._raw = self._load_raw(self.steps)
        return self._raw

    def _load_raw(self, steps: Sequence[AnyStep]) -> list[Raw]:
        if self._others is not None:
            loaded, integers = self._others
            return [raw.at(integers) for raw in loaded.raw_kernels()]
        module = libcuda.load_module(self._code)
        return [self._raw_kernel(module, step) for step in steps]

    def _raw_kernel(self, module: int, step: AnyStep) -> Raw:
        if not isinstance(step, Step):
            return step
        function = libcuda.function_of(module, step.name)
        for attribute, value in step.attributes:
            libcuda.set_function_attribute(function, attribute, value)
        return RawKernel(function, step)


def _product_step(call: LibraryCall, positions: Sequence[int], context: int) -> StreamStep:
    """Return the step of *call*; few programs have one, so its module is loaded late."""
    with late_import():
        from tcdsl.runtime.cuda.cublas import ProductStep
        from tcdsl.runtime.cuda.cudnn import ConvolutionStep

    step = ConvolutionStep if isinstance(call.product, Convolution) else ProductStep
    return step(call, positions, context)


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
