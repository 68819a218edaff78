"""Both directions in one kernel: rows that are reduced, and columns of the same rows.

    s(i) +=! x(i,j)                       blocks over chunks c of the rows
    y(i,j) = x(i,j) * s(i)                  part[c,j] = 0                threads along j
    d(j) +=! x(i,j) * y(i,j)     --->       for the rows i of c
                                              r[j] = x(i,j)              in registers
                                              s = sum of r;  y(i,j) = r[j] * s
                                              part[c,j] += r[j] * y(i,j)
                                          d(j) = sum over c of part[c,j]  a kernel of its own

The axis i is parallel for what makes rows and reduced for what makes columns.  A thread has the
same columns of every row: their sums are its registers.  So whatever the rows are made of is read
once, where a kernel of each direction would read it twice.  Worth while where the rows and the sums
fit the registers of few enough threads, and where that takes less time than the kernels apart
(costmodel/both_ways).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from tcdsl.costmodel.both_ways import BothWays, Share, apart_seconds, best_share
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Gpu
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.strategies.assembly import Lane
from tcdsl.strategies.row_registers import live_arrays
from tcdsl.strategies.rows import is_chunkable
from tcdsl.strategies.sketch import Axis, Sketch
from tcdsl.strategies.threads import GpuSketcher
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.nesting import Piece

WORTH = 0.9  # of the time of kernels apart, that one kernel may take: estimates err


@dataclass(frozen=True, slots=True)
class Crossing:
    """The axes of a group that goes both ways."""

    mixed: tuple[Axis, ...]  # parallel for rows, reduced for columns; blocks share the first
    lanes: Mapping[str, int]  # member -> the dimension along which a row's elements are
    length: int  # of a row


class BothWaysSketcher(GpuSketcher):
    """Sketches a group whose members reduce rows and columns of the same rows."""

    def sketch(self, may_chunk: bool = True) -> Sketch:
        """Return the sketch of the group; one direction is as ever."""
        if not may_chunk or self.crossing is None or self.share is None:
            return super().sketch(may_chunk)
        return self._both_ways(self.crossing, self.share)

    @property
    def seconds(self) -> float | None:
        """The estimated time of the group in one kernel, None if it does not go both ways."""
        return self.share.seconds if self.share is not None else None

    @cached_property
    def crossing(self) -> Crossing | None:
        """The axes of rows and columns, None if the group does not go both ways."""
        inner = self.innermost(self.lead)
        mixed = [a for a in self.group.axes if a not in self.parallel and a[self.lead] != inner]
        if not mixed or any(axis[self.lead] == inner for axis in self.parallel):
            return None
        if not all(is_chunkable(axis, self.shapes) for axis in mixed):
            return None
        mixed.sort(key=self.extent, reverse=True)
        lanes: dict[str, int] = {}
        for name in self.group.members:
            own = self._own_dims(name, mixed)
            if len(own) > 1 or not all(self._is_along(name, dim, inner) for dim in own):
                return None
            if own:
                lanes[name] = own[0]
        if not any(self._sums_rows(name, dim, mixed) for name, dim in lanes.items()):
            return None
        if not any(self._column_bytes(name, dim) for name, dim in lanes.items()):
            return None  # what is one number a row is for another kernel
        return Crossing(tuple(mixed), lanes, self.shapes[self.lead].extents[inner])

    def _own_dims(self, name: str, mixed: Sequence[Axis]) -> list[int]:
        """Return the dimensions of *name* that are not shared."""
        taken = {axis[name] for axis in (*self.parallel, *mixed)}
        extents = self.shapes[name].extents
        return [d for d, extent in enumerate(extents) if d not in taken and extent > 1]

    def _is_along(self, name: str, dim: int, inner: int) -> bool:
        """Return whether *dim* of *name* is a row like the lead's, and threads may share it."""
        own, lead = self.shapes[name], self.shapes[self.lead]
        is_same = (own.lower[dim], own.extents[dim]) == (lead.lower[inner], lead.extents[inner])
        return is_same and self.may_split(name, dim)

    def _sums_rows(self, name: str, dim: int, mixed: Sequence[Axis]) -> bool:
        roles = self.shapes[name].roles
        is_one_each = all(roles[axis[name]] is Role.PARALLEL for axis in mixed)
        return roles[dim] is Role.REDUCED and is_one_each

    @cached_property
    def share(self) -> Share | None:
        """How blocks and threads share the rows, None if the group is not for one kernel."""
        found = self.crossing
        if found is None:
            return None
        return best_share(self.gpu, BothWays(
            prod(map(self.extent, self.parallel)), prod(map(self.extent, found.mixed)),
            self.extent(found.mixed[0]), -(-found.length // self._vector(found)),
            self._vector(found), self._kept_bytes(found), self._sums_bytes(found),
            moved_bytes(self.scop, self.group, self.shapes)
            // prod(map(self.extent, (*self.parallel, *found.mixed))),
            sum(self._sums_rows(name, dim, found.mixed) for name, dim in found.lanes.items()),
        ))  # fmt: skip

    def _vector(self, found: Crossing) -> int:
        resident = self.resident(found.lanes, found.length)
        kept = {a for a in resident if self.scop.arrays[a].storage is Storage.SCRATCH}
        return min(self.lane_vector(n, d, kept, is_own=False) for n, d in found.lanes.items())

    def _kept_bytes(self, found: Crossing) -> int:
        """Return what a thread keeps for each column: elements of rows, and sums."""
        resident = self.resident(found.lanes, found.length)
        widest = max((self.scop.arrays[a].dtype.size_bytes for a in resident), default=0)
        return live_arrays(self, resident) * max(widest, 4) + self._sums_bytes(found)

    def _sums_bytes(self, found: Crossing) -> int:
        """Return the bytes of a column's sums."""
        return sum(self._column_bytes(name, dim) for name, dim in found.lanes.items())

    def _column_bytes(self, name: str, dim: int) -> int:
        """Return the bytes of the sum of a column along *dim* by *name*, 0 if it sums none."""
        shape = self.shapes[name]
        reduction = shape.statement.reduction
        if shape.roles[dim] is not Role.PARALLEL or reduction is None:
            return 0
        return max(reduction.dtype.size_bytes, 4)

    def _both_ways(self, found: Crossing, share: Share) -> Sketch:
        """Blocks over chunks of rows, one row after another, threads along it."""
        tiles = [self.tile(axis) for axis in reversed(self.parallel)]
        vector = self._vector(found)
        lanes = {
            name: Lane(dim, 0, share.threads, vector, share.repeat)
            for name, dim in found.lanes.items()
        }
        resident = self.resident(found.lanes, found.length)
        rows = f"rows of {', '.join(resident)} and " if resident else ""
        self.why.append(
            f"both ways: {share.blocks} blocks over chunks of {share.per_block} of"
            f" {self.name_of(found.mixed[0])}, {share.threads} threads a row;"
            f" {rows}the sums of columns in registers:"
            f" {1e6 * share.seconds:.2g} us as estimated"
        )
        sketch = self.assembled(tiles, lanes, (found.mixed[0], share.per_block))
        remaining = {
            name: _outside([axis[name] for axis in found.mixed], pieces)
            for name, pieces in sketch.remaining.items()
        }
        turns = remaining[self.lead][: len(found.mixed)]
        return replace(
            sketch, remaining=remaining, resident=resident, turns=turns, beside=share.beside,
            layout=None, template="both ways",
        )  # fmt: skip


def _outside(dims: Sequence[int], pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return *pieces* with those of *dims* before all others, in the order of these."""
    first = [p for dim in dims for p in pieces if p.coordinate.position == dim]
    return (*first, *(p for p in pieces if p.coordinate.position not in dims))


def moved_bytes(scop: Scop, group: Group, shapes: Mapping[str, Shape]) -> int:
    """Return the bytes that *group* loads and stores, if it touches every element once."""
    sizes: dict[str, int] = {}
    for name in group.members:
        shape = shapes[name]
        statement = shape.statement
        accesses = (*statement.writes, *statement.reads)
        for access, row in zip(accesses, shape.strides, strict=True):
            count = prod(e for e, stride in zip(shape.extents, row, strict=True) if stride)
            count *= scop.arrays[access.array].dtype.size_bytes
            sizes[access.array] = max(sizes.get(access.array, 0), count)
    inside = set(group.members)
    return sum(size for array, size in sizes.items() if not _is_inside(scop, array, inside))


def _is_inside(scop: Scop, array: str, members: Collection[str]) -> bool:
    """Return whether *array* is a temporary that only *members* use."""
    users = {
        s.name
        for s in scop.statements
        if s.kind is not Kind.INIT and any(a.array == array for a in (*s.writes, *s.reads))
    }
    return scop.arrays[array].storage is Storage.SCRATCH and users <= set(members)


Sketchers = Callable[[Scop, Group, Mapping[str, Shape], Gpu], BothWaysSketcher]


class Estimates:
    """The estimated times of groups, each as one kernel."""

    def __init__(
        self, scop: Scop, shapes: Mapping[str, Shape], gpu: Gpu, sketchers: Sketchers
    ) -> None:
        self.scop = scop
        self.shapes = shapes
        self.gpu = gpu
        self.sketchers = sketchers
        self._known: dict[frozenset[str], float | None] = {}

    def both_ways(self, group: Group) -> float | None:
        """Return the seconds of *group* where it goes both ways, None if it does not."""
        members = frozenset(group.members)
        if members not in self._known:
            sketcher = self.sketchers(self.scop, group, self.shapes, self.gpu)
            self._known[members] = sketcher.seconds
        return self._known[members]

    def is_faster(self, group: Group, parts: Sequence[Group]) -> bool:
        """Return whether *group* goes both ways, in less time than its *parts* one by one."""
        seconds = self.both_ways(group)
        if seconds is None:
            return False
        apart = 0.0
        for part in parts:
            moved = moved_bytes(self.scop, part, self.shapes)
            elements = self.shapes[part.lead(self.shapes)].instances
            apart += self.both_ways(part) or apart_seconds(self.gpu, moved, elements)
        return seconds < WORTH * apart
