"""What the CUDA printer makes: kernels as text, how they are launched, and memsets and calls.

The same text is compiled by NVRTC for the GPU and by a C++ compiler for the emulator; what they put
before it differs (``device/cuda``, ``emulator/emulate.h``), and who launches it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from tcdsl.codegen.cuda.counts import (
    Count,
    Counts,
    Room,
    SharedCount,
    largest,
    largest_text,
    workspace_at,
)
from tcdsl.costmodel.library_products import AnyProduct, from_json
from tcdsl.lang.faults import Site, sites_from_json
from tcdsl.lang.ranges.evaluators import evaluator
from tcdsl.records import dataclass

Dim3 = tuple[int, int, int]
NOWHERE: Mapping[int, int] = {}

# Where kernels take tickets (schedule/stitching) they are the workspace's first bytes: zero
# before the first launch, and after every one.
TICKETS_BYTES = 32 << 10
ROW_BYTES = 16  # of which strides of what copies of boxes read are multiples


class ParameterKind(StrEnum):
    """Where the value of a kernel's parameter comes from."""

    ARRAY = "array"  # the pointer of an argument
    SCRATCH = "scratch"  # a pointer into the call's workspace
    TICKETS = "tickets"  # the pointer of the workspace's tickets
    INTEGER = "integer"  # an open size or stride, 64 bits
    FAULT = "fault"  # the pointer of the fault record


class Overlap(StrEnum):
    """How a kernel begins; ``cuda/overlap.py`` says when it may."""

    ORDERED = "ordered"  # when all before it has ended
    WAITS_FIRST = "waits first"  # before; its threads wait for that
    WAITS_LAST = "waits last"  # before, and its threads wait for that at their end


TFLOAT32 = "tfloat32"  # float32 that copies round to the nearest tf32


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What a copy of whole boxes knows of its array; the innermost dimension is first.

    Lines of a box have 128 bytes, of which vectors of 16 change places (the swizzle of 128 bytes).
    With *corners*, lower and upper, a copy is of rows of pixels (im2col): of *box*, neighbours of a
    pixel and pixels, each along a dimension a *step* after the one before.  Where rows have an open
    length, of so many bytes an *element*, they begin at the next multiple of 16 bytes after one
    another, and what is around them lies together.
    """

    dtype: str  # a type's name, or TFLOAT32
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, of all dimensions but the first, whose neighbours are
    box: tuple[int, ...]
    counts: tuple[Counts, ...] = ()  # the sizes, where some are open: the others are the greatest
    corners: tuple[tuple[int, ...], ...] = ()  # of all dimensions but the first and the last
    steps: tuple[int, ...] = ()  # of the same
    element: int = 0

    def at(self, integers: Sequence[int]) -> "TensorMap":
        """Return the map at the open sizes among *integers*: beyond them a box has zeros."""
        if not self.counts:
            return self
        return self.of_sizes(tuple(largest(counts, integers) for counts in self.counts))

    def of_sizes(self, sizes: tuple[int, ...]) -> "TensorMap":
        """Return the map of an array of these *sizes*."""
        row = -(-sizes[0] * self.element // ROW_BYTES) * ROW_BYTES
        strides = (*accumulate(sizes[1:-1], mul, initial=row),) if self.element else self.strides
        return replace(self, sizes=sizes, strides=strides, counts=(), element=0)

    def to_json(self) -> list[Any]:
        counts = [[count.to_json() for count in own] for own in self.counts]
        pixels = [*map(list, self.corners), list(self.steps)] if self.corners else []
        numbers = [list(self.sizes), list(self.strides), list(self.box)]
        return [self.dtype, *numbers, counts, pixels, self.element]

    @classmethod
    def from_json(cls, data: Any) -> "TensorMap":
        dtype, *numbers, counts, pixels, element = data
        sizes, strides, box = (tuple(map(int, own)) for own in numbers)
        read = tuple(tuple(map(Count.from_json, own)) for own in counts)
        *corners, steps = (tuple(map(int, own)) for own in pixels or [[]])
        return cls(str(dtype), sizes, strides, box, read, tuple(corners), steps, int(element))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel: a value, or (with a *map*) the tensor map of what it points to."""

    declaration: str  # "const float *__restrict__ x"
    kind: ParameterKind
    name: str = ""  # the array's, as the program calls it
    # SCRATCH, TICKETS: bytes from the workspace's start; INTEGER: position in `integers`
    offset: int = 0
    map: TensorMap | None = None  # of ARRAY and SCRATCH
    is_read_only: bool = False  # the kernel changes nothing that it points to

    def to_json(self) -> list[Any]:
        found: list[Any] = [self.declaration, self.kind, self.name, self.offset, self.is_read_only]
        return found if self.map is None else [*found, self.map.to_json()]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel: its function, its grid, and what it is called with.

    *cluster_dims* neighbouring blocks form a cluster, and the grid has whole ones.  The kernel's
    text says so, and how many threads a block has, because it is printed from this.
    """

    name: str  # of the __global__ function
    grid: Dim3
    block: Dim3
    shared_bytes: int  # dynamic shared memory
    parameters: tuple[Parameter, ...]
    label: str = ""  # the statements that it runs, for people
    why: tuple[str, ...] = ()
    cluster_dims: Dim3 = (1, 1, 1)  # blocks of a cluster
    overlap: Overlap = Overlap.ORDERED
    counts: tuple[Counts, Counts, Counts] = ((), (), ())  # of blocks, where sizes are open
    is_cooperative: bool = False  # all blocks are there at once, for barriers of all
    shared_counts: tuple[SharedCount, ...] = ()  # of arrays that take less at lesser sizes
    is_in_order: bool = False  # blocks wait for signals of others, which have lesser numbers

    def at(self, integers: Sequence[int], places: Mapping[int, int] = NOWHERE) -> "Launch":
        """Return the launch at the open sizes among *integers*: without idle blocks and arrays.

        :arg places: { offset in the workspace -> that at these sizes }.
        """
        if not (self.is_open or places):
            return self
        parameters = tuple([_at(parameter, places, integers) for parameter in self.parameters])
        return replace(
            self, grid=self.grid_at(integers), shared_bytes=self.shared_at(integers),
            parameters=parameters, shared_counts=(),
        )  # fmt: skip

    def grid_at(self, integers: Sequence[int]) -> Dim3:
        """Return the blocks at the open sizes among *integers*, one at least."""
        x, y, z = [
            min(most, max(1, largest(counts, integers))) if counts else most
            for most, counts in zip(self.grid, self.counts, strict=True)
        ]
        return x, y, z

    def shared_at(self, integers: Sequence[int]) -> int:
        """Return the bytes of shared memory at the open sizes among *integers*."""
        if not self.shared_counts:
            return self.shared_bytes
        return self.shared_bytes - sum([own.idle_bytes(integers) for own in self.shared_counts])

    def shape_function(self) -> Callable[[Sequence[int]], tuple[Dim3, int]]:
        """Return ``integers -> (grid_at, shared_at)`` as one function, which calls wait for."""
        if not (any(self.counts) or self.shared_counts):
            shape = self.grid, self.shared_bytes
            return lambda integers: shape
        grid = ", ".join(
            f"min({most}, max(1, {largest_text(counts)}))" if counts else str(most)
            for most, counts in zip(self.grid, self.counts, strict=True)
        )
        shared = " - ".join(
            (str(self.shared_bytes), *(own.idle_text for own in self.shared_counts))
        )
        return evaluator(f"(({grid}), {shared})", "i")

    @property
    def is_open(self) -> bool:
        """Whether its grid, its shared memory or a map depend on the sizes of a call."""
        return bool(any(self.counts) or self.shared_counts or self.has_open_maps)

    @property
    def cluster(self) -> int:
        """How many blocks are in a cluster."""
        return prod(self.cluster_dims)

    @property
    def has_open_maps(self) -> bool:
        """Whether a parameter is a map whose sizes are known at the call."""
        return any(p.map is not None and p.map.counts for p in self.parameters)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "grid": list(self.grid),
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "parameters": [p.to_json() for p in self.parameters],
            "label": self.label,
            "why": list(self.why),
            "cluster_dims": list(self.cluster_dims),
            "overlap": self.overlap,
            "counts": [[count.to_json() for count in counts] for counts in self.counts],
            "is_cooperative": self.is_cooperative,
            "shared_counts": [count.to_json() for count in self.shared_counts],
            "is_in_order": self.is_in_order,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Launch":
        return cls(
            str(data["name"]),
            _dim3(data["grid"]),
            _dim3(data["block"]),
            int(data["shared_bytes"]),
            tuple(map(_parameter, data["parameters"])),
            str(data["label"]),
            tuple(map(str, data["why"])),
            # Manifests in caches may be older than these.
            _dim3(data.get("cluster_dims", (1, 1, 1))),
            Overlap(data.get("overlap", Overlap.ORDERED)),
            _counts(data.get("counts", ((), (), ()))),
            bool(data.get("is_cooperative", False)),
            tuple(map(SharedCount.from_json, data.get("shared_counts", ()))),
            bool(data.get("is_in_order", False)),
        )

    def described(self) -> dict[str, Any]:
        """Return what users are told of it."""
        return {
            "name": self.name,
            "grid": self.grid,
            "block": self.block,
            "shared": self.shared_bytes,
            "why": (self.label, *self.why) if self.label else self.why,
        }


@dataclass(frozen=True, slots=True)
class Memset:
    """A step between kernels that needs none: the driver fills an array, on the call's stream.

    *count* numbers of *width* bytes (1, 2 or 4), each *value*, from the pointer *target* on.
    """

    target: Parameter  # ARRAY or SCRATCH
    width: int
    value: int
    count: int
    label: str = ""  # the statement that it stands for, for people

    @property
    def name(self) -> str:
        return f"memset of {self.target.name}"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (self.target,)

    @property
    def why(self) -> tuple[str, ...]:
        text = f"{self.count} x {self.width} bytes of 0x{self.value:0{2 * self.width}x}"
        return (f"a memset in place of a kernel: {text}",)

    def at(self, integers: Sequence[int], places: Mapping[int, int] = NOWHERE) -> "Memset":
        """Return the memset itself, at its place: what it fills has no open size."""
        return replace(self, target=_moved(self.target, places)) if places else self

    def to_json(self) -> dict[str, Any]:
        target = self.target
        return {
            "memset": [self.width, self.value, self.count],
            "target": target.to_json(),
            "label": self.label,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Memset":
        width, value, count = map(int, data["memset"])
        return cls(_parameter(data["target"]), width, value, count, str(data["label"]))

    def described(self) -> dict[str, Any]:
        """Return what users are told of it."""
        size_bytes = self.width * self.count
        return {"name": self.name, "memset_bytes": size_bytes, "why": (self.label, *self.why)}


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A step between kernels that a library computes, on the call's stream.

    *operands* are the left and the right operand, the result, and where it has some the workspace,
    of *workspace_bytes*.
    """

    library: str
    product: AnyProduct
    operands: tuple[Parameter, ...]
    workspace_bytes: int = 0
    precision: str = "float32"  # of Options
    label: str = ""  # the statements that it stands for, for people
    why: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.library} of {self.label}"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.operands

    def at(self, integers: Sequence[int], places: Mapping[int, int] = NOWHERE) -> "LibraryCall":
        """Return the call itself: programs with one have no open sizes."""
        return self

    def to_json(self) -> dict[str, Any]:
        return {
            "library": self.library,
            "product": self.product.to_json(),
            "operands": [operand.to_json() for operand in self.operands],
            "workspace_bytes": self.workspace_bytes,
            "precision": self.precision,
            "label": self.label,
            "why": list(self.why),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LibraryCall":
        return cls(
            str(data["library"]),
            from_json(str(data["library"]), data["product"]),
            tuple(map(_parameter, data["operands"])),
            int(data["workspace_bytes"]),
            str(data["precision"]),
            str(data["label"]),
            tuple(map(str, data["why"])),
        )

    def described(self) -> dict[str, Any]:
        """Return what users are told of it."""
        return {"name": self.name, "library": self.library, "why": (self.label, *self.why)}


AnyLaunch = Launch | Memset | LibraryCall


def launches_at(
    launches: Sequence[AnyLaunch], rooms: Sequence[Room], integers: Sequence[int]
) -> tuple[tuple[AnyLaunch, ...], int]:
    """Return *launches* for the open sizes among *integers*, and the workspace's bytes, if any."""
    start = TICKETS_BYTES if has_tickets(launches) else 0
    moved, size_bytes = workspace_at(rooms, start, integers)
    return tuple(launch.at(integers, moved) for launch in launches), size_bytes


def _at(parameter: Parameter, places: Mapping[int, int], integers: Sequence[int]) -> Parameter:
    """Return *parameter* at its place, a map with the open sizes among *integers*."""
    moved = _moved(parameter, places)
    return moved if moved.map is None else replace(moved, map=moved.map.at(integers))


def _moved(parameter: Parameter, places: Mapping[int, int]) -> Parameter:
    if parameter.kind is not ParameterKind.SCRATCH or not places:
        return parameter
    return replace(parameter, offset=places[parameter.offset])


def launch_from_json(data: Mapping[str, Any]) -> AnyLaunch:
    """Return what the method ``to_json`` of a launch gave."""
    if "library" in data:
        return LibraryCall.from_json(data)
    return Memset.from_json(data) if "memset" in data else Launch.from_json(data)


def has_tickets(launches: Iterable[AnyLaunch]) -> bool:
    """Return whether any of *launches* takes tickets."""
    return any(p.kind is ParameterKind.TICKETS for launch in launches for p in launch.parameters)


def _parameter(data: Any) -> Parameter:
    text, kind, name, offset, is_read_only, *maps = data
    map_ = TensorMap.from_json(maps[0]) if maps else None
    return Parameter(
        str(text), ParameterKind(kind), str(name), int(offset), map_, bool(is_read_only)
    )


def _counts(data: Any) -> tuple[Counts, Counts, Counts]:
    x, y, z = (tuple(map(Count.from_json, counts)) for counts in data)
    return x, y, z


def _dim3(values: Any) -> Dim3:
    x, y, z = map(int, values)
    return x, y, z


@dataclass(frozen=True, slots=True)
class CudaSource:
    """The kernels of a plan, and the memsets between them.

    *functions* are the device library's that *text* calls; *alignments* the bytes of which an
    argument's pointer must be a multiple (1 where it is not named).
    """

    text: str  # without the device library
    functions: frozenset[str]
    launches: tuple[AnyLaunch, ...]
    workspace_bytes: int
    sites: tuple[Site, ...]  # by the number that a fault record has
    integers: tuple[tuple[str, int], ...] = ()  # (open size, -step), or (tensor, dim): its stride
    alignments: Mapping[str, int] = field(default_factory=dict)
    rooms: tuple[Room, ...] = ()  # of the workspace, where sizes are open
    # For each line of the text, the statement that it prints; not kept in the cache.
    statements: tuple[str, ...] = field(default=(), compare=False)

    @property
    def kernels(self) -> tuple[Launch, ...]:
        """The launches that run kernels of ours."""
        return tuple(launch for launch in self.launches if isinstance(launch, Launch))

    @property
    def has_tickets(self) -> bool:
        return has_tickets(self.launches)

    @property
    def residents(self) -> int:
        """The threads that are there at once in the largest cooperative launch; 0 without one."""
        sizes = (prod(k.grid) * prod(k.block) for k in self.kernels if k.is_cooperative)
        return max(sizes, default=0)

    def at(self, integers: Sequence[int]) -> "CudaSource":
        """Return the same code with grids and workspace for the open sizes among *integers*."""
        if not self.integers:
            return self
        launches, size_bytes = launches_at(self.launches, self.rooms, integers)
        return replace(self, launches=launches, workspace_bytes=size_bytes or self.workspace_bytes)

    def arch(self, chip: str) -> str:
        """Return the architecture to compile for, on one like *chip* ("sm_90")."""
        return f"{chip}a" if any("tc_wgmma" in name for name in self.functions) else chip

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "functions": sorted(self.functions),
            "launches": [launch.to_json() for launch in self.launches],
            "workspace_bytes": self.workspace_bytes,
            "sites": [list(site) for site in self.sites],
            "integers": [list(integer) for integer in self.integers],
            "alignments": dict(self.alignments),
            "rooms": [room.to_json() for room in self.rooms],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CudaSource":
        return cls(
            str(data["text"]),
            frozenset(map(str, data["functions"])),
            tuple(map(launch_from_json, data["launches"])),
            int(data["workspace_bytes"]),
            sites_from_json(data["sites"]),
            tuple((str(name), int(dim)) for name, dim in data["integers"]),
            {str(name): int(size) for name, size in data["alignments"].items()},
            tuple(map(Room.from_json, data.get("rooms", ()))),
        )
