"""What one kernel must compute, as templates see it: analysis, no choices.

    y(i) +=! x(i,j)          parallel    i, along which no member waits for another or adds up
    z(i,j) = x(i,j) / y(i)   lead        the first of the members with the most instances
                             innermost   j, whose neighbours are neighbours in memory
                             lane        j of each member: threads may share it in addition to i
                             along       the parallel axis that is the lead's innermost: none here

A template (``template.py``) says whether it applies to a problem, lists its configurations, and
makes the schedule of one of them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property, wraps
from math import prod
from typing import TypeVar, TypeVarTuple

import islpy as isl

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape, coefficient_of, constant_run, runs_of
from tcdsl.costmodel.machine import Cpu, Machine
from tcdsl.lang.comprehension import Expr, Index, Load, walk
from tcdsl.options import Options
from tcdsl.poly.isl_utils import Extent, dim_bounds
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import why_not_laned
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.chunked_rows import ChunkedRows
from tcdsl.strategies.lowering import extent_of, lower_of
from tcdsl.strategies.nameless import without_names
from tcdsl.strategies.schedule import VECTOR_BYTES, Axis, Layout, Tile

DEFAULTS = Options()
MIN_LANES = gpu_thresholds.AXIS_ITERATIONS


class Scheme(StrEnum):
    """How loops are found."""

    AUTO = "auto"  # strategies, fusion, rewrites; isl for recurrences
    ISL = "isl"  # fusion as above, the loops of every kernel from isl
    PLAIN = "plain"  # every statement a kernel, in the order of its strides
    TEXTUAL = "source_order"  # every statement a kernel, its loops as written
    SERIAL = "serial"  # the same, all on one thread


@dataclass(frozen=True, slots=True)
class Finish:
    """What a kernel leaves to be done: *folds* add the sums of its chunks, on its *layout*.

    *sources* is what the kernel runs itself.
    """

    layout: Layout
    folds: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """The statements of one kernel, and their axes.

    *options* filter what templates offer.  *chunks*: the rows that blocks share, if it is over such
    (``row_chunks``).  *may_split*: whether blocks may share a reduced axis.  *finish*: of the
    kernel whose last blocks are to run this one.  *scheme*: how a plan finds the loops of its
    kernels; None while it is predicted alone, for isl's schedules take long.
    """

    scop: Scop
    group: Group
    shapes: Mapping[str, Shape]
    machine: Machine
    options: Options = DEFAULTS
    chunks: ChunkedRows | None = None
    may_split: bool = True
    finish: Finish | None = None
    scheme: Scheme | None = None
    _own: dict[object, object] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _known(self) -> dict[object, object]:
        """What analyses have found: of this problem, or of all that are alike (analyses_shared)."""
        shared = _shared.get()
        if shared is None or self.chunks is not None or self.finish is not None:
            return self._own
        return shared.setdefault(self._what_matters(), {})

    def _what_matters(self) -> tuple[object, ...]:
        """Return all that analyses depend on.

        Most groups are the same in a program and in what a rewrite makes of it: their statements,
        whoever else uses their arrays, and these.
        """
        scop, members = self.scop, self.group.members
        shapes = [self.shapes[name] for name in members]
        own = [shape.statement for shape in shapes]
        arrays = dict.fromkeys(a.array for s in own for a in (*s.writes, *s.reads))
        users = dict.fromkeys(s for array in arrays for s in scop.users.get(array, ()))
        return (
            tuple(own), tuple(users), tuple(scop.arrays[name] for name in arrays),
            tuple((shape.lower, shape.extents, shape.roles) for shape in shapes),
            tuple(tuple(axis.items()) for axis in self.group.axes),
            scop.rescaled, scop.overlapped, self.machine, self.options, self.may_split,
        )  # fmt: skip

    @cached_property
    def _known_of_alike(self) -> dict[object, object]:
        """What analyses have found of problems that are the same but for names."""
        shared = _shared.get()
        has_names = self.chunks is not None or self.finish is not None
        has_names |= bool(self.scop.rescaled or self.scop.overlapped)  # they are by names
        has_names |= not isinstance(self.machine, Chip)  # configurations have names of indices
        if shared is None or has_names or self.scop.context.dim(isl.dim_type.param) > 0:
            return self._known
        return shared.setdefault(self._but_for_names(), {})

    def _but_for_names(self) -> tuple[object, ...]:
        """Return the same as _what_matters, with numbers of members and arrays for their names."""
        members = {name: number for number, name in enumerate(self.group.members)}
        arrays: dict[str, int] = {}
        shapes = [self.shapes[name] for name in members]
        statements = []
        for shape in shapes:
            text, own = without_names(shape.statement)
            statements.append((text, *(arrays.setdefault(name, len(arrays)) for name in own)))
        return (
            tuple(statements), tuple(self._use_of(name) for name in arrays),
            tuple((shape.lower, shape.extents, shape.roles) for shape in shapes),
            tuple(tuple((members[n], d) for n, d in axis.items()) for axis in self.group.axes),
            self.machine, self.options, self.may_split,
        )  # fmt: skip

    def _use_of(self, name: str) -> tuple[object, ...]:
        """Return what matters of the array *name* and of what uses it outside the kernel.

        That is how it is initialised, and whether anything else is.
        """
        array, members = self.scop.arrays[name], self.group.members
        others = [s for s in self.scop.users.get(name, ()) if s.name not in members]
        inits = tuple(without_names(s).text for s in others if s.kind is Kind.INIT)
        return (
            array.dtype, array.origin, array.shape, array.storage, array.is_input,
            array.is_output, array.strides, array.shift, inits, len(inits) < len(others),
        )  # fmt: skip

    @property
    def gpu(self) -> Chip:
        assert isinstance(self.machine, Chip), "a template for GPUs"
        return self.machine

    @property
    def cpu(self) -> Cpu:
        assert isinstance(self.machine, Cpu), "a template for CPUs"
        return self.machine

    def of(self, members: Collection[str]) -> "Problem":
        """Return the problem of *members* alone, on the same axes."""
        names = tuple(name for name in self.group.members if name in members)
        axes = tuple({name: axis[name] for name in names} for axis in self.group.axes)
        return replace(self, group=Group(names, axes))

    @cached_property
    def lead(self) -> str:
        return self.group.lead(self.shapes)

    @cached_property
    def parallel(self) -> tuple[Axis, ...]:
        """The shared axes along which all members are parallel, in the order of the lead's."""
        order = self.shapes[self.lead].order
        axes = sorted(self.group.axes, key=lambda axis: order.index(axis[self.lead]))
        return tuple(axis for axis in axes if self.group.has_parallel(axis, self.shapes))

    @cached_property
    def along(self) -> Axis | None:
        """The parallel axis along which the lead's neighbours in memory are, or None."""
        inner = self.innermost(self.lead)
        return next((axis for axis in self.parallel if axis[self.lead] == inner), None)

    @cached_property
    def is_ragged(self) -> bool:
        """Whether data bound a loop of some member."""
        shapes = (self.shapes[name] for name in self.group.members)
        return any(shape.is_ragged(dim) for shape in shapes for dim in range(len(shape.extents)))

    @cached_property
    def lanes(self) -> Mapping[str, int]:
        """Member -> the dimension that threads may share, of those that have one."""
        found = ((name, self.lane(name)) for name in self.group.members)
        return {name: dim for name, dim in found if dim is not None}

    def is_row(self, last: Expr, index: str) -> bool:
        """Return whether elements with the subscript *last* are a row along *index*.

        In chunks of rows that is an element of the chunk: ``L * c + index``.
        """
        if self.chunks is None:
            return isinstance(last, Index) and last.name == index
        has_load = any(isinstance(node, Load) for node in walk(last))
        return not has_load and coefficient_of(last, index) == 1

    # --- axes ------------------------------------------------------------------------------

    def extent(self, axis: Axis) -> int:
        known = self._spans.get(id(axis))
        return extent_of(axis, self.shapes) if known is None else known[1]

    def lower(self, axis: Axis) -> int:
        known = self._spans.get(id(axis))
        return lower_of(axis, self.shapes) if known is None else known[0]

    @cached_property
    def _spans(self) -> Mapping[int, tuple[int, int]]:
        """The least value of each axis of the group, and how many there are, by the axis' id."""
        shapes = self.shapes
        return {id(a): (lower_of(a, shapes), extent_of(a, shapes)) for a in self.group.axes}

    def end(self, name: str, dim: int) -> Extent:
        """Return the value after the last of dimension *dim* of *name*: a function of open sizes.

        What costs ask for is ``extent``, at the greatest sizes.
        """
        return dim_bounds(self.scop.by_name[name].domain, dim, self.scop.context)[1]

    def is_open(self, axis: Axis) -> bool:
        """Return whether the length of *axis* is only known at the call."""
        has_sizes = self.scop.context.dim(isl.dim_type.param) > 0
        ends = (self.end(name, dim) for name, dim in axis.items() if has_sizes)
        return any(not isinstance(end, int) for end in ends)

    def name_of(self, axis: Axis) -> str:
        return self.shapes[self.lead].statement.indices[axis[self.lead]]

    def innermost(self, name: str) -> int:
        """Return the dimension of *name* along which its threads' accesses are neighbours.

        The last one, unless they would leave gaps there in an array that is as large as any, and
        would leave none along another.  -1 if no dimension has two values.
        """
        shape = self.shapes[name]
        several = [d for d in reversed(shape.order) if shape.extents[d] > 1]
        sizes = [
            prod(e for e, stride in zip(shape.extents, row, strict=True) if stride)
            for row in shape.strides
        ]

        def has_gaps(dim: int) -> bool:
            return any(
                row[dim] > 1 and 2 * size >= max(sizes)
                for row, size in zip(shape.strides, sizes, strict=True)
            )

        return min(several, key=has_gaps, default=-1)

    @cached_property
    def results(self) -> int:
        """How many values all parallel axes have."""
        return prod(self.extent(axis) for axis in self.parallel)

    @cached_property
    def most_rest(self) -> int:
        """How many instances one of these values has, at most."""
        return max((self.rest_of(name) for name in self.group.members), default=1)

    def rest_of(self, name: str) -> int:
        """Return how many instances of *name* one value of all parallel axes has."""
        taken = {axis[name] for axis in self.parallel}
        extents = self.shapes[name].extents
        return prod(extent for dim, extent in enumerate(extents) if dim not in taken)

    # --- a member's own axes ---------------------------------------------------------------

    def lane(self, name: str) -> int | None:
        """Return the dimension of *name* that threads may share: its innermost free one."""
        shape = self.shapes[name]
        taken = {axis[name] for axis in self.parallel}
        for dim in reversed(shape.order):
            if dim not in taken and shape.extents[dim] >= MIN_LANES:
                return dim if self.may_split_lane(name, dim) else None
        return None

    def longest_rest(self, name: str, least: int) -> int | None:
        """Return the longest free dimension of *name*, if of *least* values and to be shared."""
        shape = self.shapes[name]
        taken = {axis[name] for axis in self.parallel}
        free = [d for d in shape.order if d not in taken and shape.extents[d] >= least]
        dim = max(free, key=lambda d: shape.extents[d], default=None)
        return dim if dim is not None and self.may_split_lane(name, dim) else None

    def may_split_lane(self, name: str, dim: int) -> bool:
        """Return whether threads may share dimension *dim* of *name*."""
        shape = self.shapes[name]
        if shape.roles[dim] is Role.PARALLEL:
            return True
        return shape.roles[dim] is Role.REDUCED and why_not_laned(shape.statement) is None

    # --- vectors ---------------------------------------------------------------------------

    def vector_width(self, inner: Axis) -> int:
        """Return how many neighbours along *inner* a thread takes at once."""
        widths = [
            self.lane_vector(n, d, is_own=False) for n, d in inner.items() if self._is_wide(n)
        ]
        return min(widths, default=1)

    def _is_wide(self, name: str) -> bool:
        """Return whether *name* is among the members that touch the most."""
        return 2 * self.shapes[name].instances >= self.shapes[self.lead].instances

    def lane_vector(
        self, name: str, dim: int, kept: Collection[str] = (), *, is_own: bool = True
    ) -> int:
        """Return the widest vector along *dim* whose accesses are aligned, 1 if there is none.

        :arg kept: arrays that will be registers.
        :arg is_own: whether no other member's threads are along it, so that the last vector may
            end early: no sum is folded lane by lane.
        """
        if not self.options.vectorise:
            return 1
        shape = self.shapes[name]
        statement = shape.statement
        accesses = (*statement.writes, *statement.reads)
        sizes, steps = [], []
        for access, row in zip(accesses, shape.strides, strict=True):
            if access.array in kept:
                continue
            if row[dim] == 1:
                array = self.scop.arrays[access.array]
                sizes.append(array.dtype.size_bytes)
                if array.shift is None:
                    steps += [s for d, s in enumerate(row) if d != dim and shape.extents[d] > 1]
                runs = runs_of(array, access, statement.indices[dim])
                steps += [number for run in runs for number in (run.run, run.outer)]
            elif row[dim] > 1:
                if (run := constant_run(access, statement.indices[dim])) == 1:
                    return 1
                steps.append(run)
        if not sizes and kept and not statement.conditions:
            return VECTOR_BYTES  # it has no say
        if not sizes or statement.conditions:
            return 1
        width = VECTOR_BYTES // max(sizes)
        roles = zip(shape.roles, shape.extents, strict=True)
        is_sum = any(role is Role.REDUCED and extent > 1 for role, extent in roles)
        may_end = is_own or not (is_sum or any(steps))
        while width > 1 and (
            any(step % width for step in steps)
            or shape.lower[dim] % width
            or (shape.extents[dim] % width and not may_end)
            or shape.extents[dim] < width
        ):
            width //= 2
        return width

    # --- tiles -----------------------------------------------------------------------------

    def tile(self, axis: Axis) -> Tile:
        """Return the tile of blocks that take one value of *axis* each."""
        return Tile(axis, self.extent(axis), self.lower(axis))

    @property
    def unit_tiles(self) -> list[Tile]:
        """Tiles of one value along each parallel axis, the innermost first."""
        return [self.tile(axis) for axis in reversed(self.parallel)]


Found = TypeVar("Found")


Given = TypeVarTuple("Given")
_shared: ContextVar[dict[object, dict[object, object]] | None] = ContextVar("shared", default=None)


@contextmanager
def analyses_shared() -> Iterator[None]:
    """Make each analysis once for all problems alike, in this block: a search meets most often."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def analysis(find: Callable[[Problem, *Given], Found]) -> Callable[[Problem, *Given], Found]:
    """Keep what *find* returns for a problem, and for those alike.

    It may depend on what :meth:`Problem._what_matters` returns, and not on the scheme, and may not
    hold the scop.
    """
    return _remembered(find, lambda problem: problem._known)


def nameless_analysis(
    find: Callable[[Problem, *Given], Found],
) -> Callable[[Problem, *Given], Found]:
    """Keep what *find* returns, which has no names, for all problems that are alike but for names.

    Steps of a recurrence, layers of a network, and statements that a rewrite has made anew are.
    """
    return _remembered(find, lambda problem: problem._known_of_alike)


def own_analysis(find: Callable[[Problem, *Given], Found]) -> Callable[[Problem, *Given], Found]:
    """Keep what *find* returns for a problem as long as the problem."""
    return _remembered(find, lambda problem: problem._own)


def _remembered(
    find: Callable[[Problem, *Given], Found], known_of: Callable[[Problem], dict[object, object]]
) -> Callable[[Problem, *Given], Found]:
    @wraps(find)
    def found(problem: Problem, *args: *Given) -> Found:
        known, key = known_of(problem), (find, *args)
        if key not in known:
            known[key] = find(problem, *args)
        return known[key]  # type: ignore[return-value]

    return found
