"""The forward pass with a name for every value: each element of a version is final when read.

    O(b,n) +=! I(b,m) * W(m,n)                   O(b,n) +=! I(b,m) * W(m,n)
    O(b,n) = relu(O(b,n) + bias(n))      --->    O_1(b,n) = relu(O(b,n) + bias(n))

    w(i) = w(i) * 2 where i in 0:1       --->    w_1(i) = w(i);  w_1(i) = w(i) * 2 where i in 0:1

A statement that overwrites elements starts a new *version* of its target, a copy of the old one if
it writes only some.  Statements that write other elements, and sums that nobody has read so far,
go on in the version that there is.  In the result every read of another statement meets the last
value of its element; a read of a statement's own target meets either the version before (the
element is not yet written) or an element that an earlier instance wrote (:mod:`own_reads`).

So the adjoint of a version is complete when its writers are reached from behind, and all that the
derivatives read can be computed again.  This is array SSA (Knobe and Sarkar, POPL 1998,
doi:10.1145/268946.268956) for comprehensions, whose images isl knows.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from functools import partial

import islpy as isl

from tcdsl.derivatives.lines import Box, Instances, Line, deferred_instances, fills, instances_of
from tcdsl.derivatives.names import Names
from tcdsl.derivatives.own_reads import OwnReads, chosen, own_reads
from tcdsl.derivatives.terms import as_type
from tcdsl.lang.comprehension import (
    Comprehension,
    Const,
    Expr,
    Index,
    IndexBounds,
    Load,
    Operator,
    Reduction,
    Size,
    Statement,
)
from tcdsl.lang.ranges.boxes import image
from tcdsl.lang.ranges.elements import box_set, element_map
from tcdsl.lang.ranges.linear import Interval
from tcdsl.lang.ranges.reads import nodes, reads
from tcdsl.lang.ranges.rounds import Space
from tcdsl.lang.ranges.size_functions import SizeSpace, dim_expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32, DType, arithmetic
from tcdsl.records import dataclass

NotDifferentiable = Callable[[Statement, str, str], Exception]  # statement, what, advice


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A tensor between two overwritings: *tensor* of the def, called *name* in the derivative."""

    name: str
    tensor: str
    dtype: DType
    box: Box | None  # None: of a deferred def, at each call


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A statement over versions.

    *before* is the version that the target's starts as a copy of, by *copy*, or whose values a
    statement of whole boxes reads.
    """

    statement: Statement
    line: Line
    reduction: Reduction | None
    copy: Line | None = None

    @property
    def target(self) -> str:
        return self.line.target


@dataclass(slots=True, eq=False)
class _State:
    """The current version of a tensor, and what of it is written."""

    version: Version
    written: isl.Set | None  # None: the whole box
    is_read: bool = False
    is_sum: bool = True  # no extreme or product has written it, whose derivatives read it


@dataclass(slots=True, eq=False)
class Forward:
    """The forward pass over versions."""

    c: Comprehension
    names: Names
    sizes: SizeSpace
    known: isl.Set
    refuse: NotDifferentiable
    versions: dict[str, Version] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    _current: dict[str, _State] = field(default_factory=dict)
    _indices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.c.inputs:
            version = Version(name, name, self.c.tensors[name].dtype, self._box(name))
            self.versions[name] = version
            self._current[name] = _State(version, None)
        for statement in self.c.statements:
            self._add(statement)

    def last(self, tensor: str) -> Version:
        """Return the version of *tensor* that the def returns."""
        return self._current[tensor].version

    def _box(self, tensor: str) -> Box | None:
        t = self.c.tensors[tensor]
        if len(t.extents) < t.rank:
            return None
        return tuple(
            (lower, lower.add(extent)) for lower, extent in zip(t.origin, t.extents, strict=True)
        )

    def _new(self, tensor: str) -> Version:
        # Temporaries of an inlined call are called "softmax.top", or "softmax.top.2".
        parts = [part for part in tensor.split(".") if not part.isdigit()]
        name = self.names.fresh(parts[-1])
        version = Version(name, tensor, self.c.tensors[tensor].dtype, self._box(tensor))
        self.versions[name] = version
        return version

    # --- a statement ----------------------------------------------------------------------------
    def _add(self, statement: Statement) -> None:
        if self.c.tensors[statement.target].needs_out:
            raise self.refuse(
                statement, f"{statement.target} starts from what a call passes as out=",
                f"make {statement.target} a parameter too",
            )  # fmt: skip
        space = self._space(statement)
        state = self._current.get(statement.target)
        own = OwnReads()
        if state and any(read.load.tensor == statement.target for read in reads(statement)):
            refuse = partial(self.refuse, statement)
            own = own_reads(space, statement, self.known, self.sizes, refuse)
        if state and statement.domain is None and statement.subscripts:
            self._refuse_overwriting(statement)
        copied = None
        written = self._image(space, statement)
        if state is None:
            version = self._new(statement.target)
            self._current[statement.target] = _State(version, written)
            before = version.name
        elif not own.meets_old and self._goes_on(statement, state, written):
            version, before = state.version, state.version.name
            state.written = _union(state.written, written)
        else:
            version, before = self._new(statement.target), state.version.name
            if own.meets_final or not self._is_whole(statement, state.version.box):
                self._fill(state)
                copied = self.copy(version.name, state.version.name)
            self._current[statement.target] = _State(version, None if copied else written)
        operator = statement.reduction and statement.reduction.operator
        if operator not in (None, Operator.ADD):
            self._current[statement.target].is_sum = False
        self._append(statement, version, before, own, copied)

    def _fill(self, state: _State) -> None:
        """Let every element of a version that is copied have a value: 0 where none is written."""
        version, written = state.version, state.written
        if written is None or version.box is None:
            return
        runs = [Interval(*run) for run in version.box]
        box = box_set(version.tensor, runs, self.sizes).intersect_params(self.known)
        if box.is_subset(written):
            return
        first = next(n for n, step in enumerate(self.steps) if step.target == version.name)
        copy = self.copy(version.name, version.name)
        zero = Const(0.0 if version.dtype.is_float else 0, copy.value.dtype)
        line = replace(copy, value=zero)
        self.steps.insert(first, Step(self.steps[first].statement, line, None))
        state.written = None

    def _refuse_overwriting(self, statement: Statement) -> None:
        """Raise an error if a deferred def clears what it wrote: which elements, calls decide."""
        reduction = statement.reduction
        if reduction is not None and reduction.initialise:
            what = f"it writes {statement.target} again, and products of sizes decide where"
            raise self.refuse(statement, what, "write to a tensor of another name")

    def _append(
        self, statement: Statement, version: Version, before: str, own: OwnReads,
        copied: Line | None,
    ) -> None:  # fmt: skip
        tensors = {name: state.version.name for name, state in self._current.items()}
        tensors[statement.target] = version.name

        def named(node: Expr) -> Expr:
            return replace(node, tensor=tensors[node.tensor]) if isinstance(node, Load) else node

        def moved(load: Load) -> Load:
            return replace(load, subscripts=tuple(rewrite(s, named) for s in load.subscripts))

        at = own.rewritten(moved)  # operands are changed before what reads them
        left = tuple(rewrite(s, named) for s in statement.subscripts)

        def change(node: Expr) -> Expr:
            if not isinstance(node, Load):
                return node
            older, newer = replace(node, tensor=before), replace(node, tensor=tensors[node.tensor])
            if node in at.mixed:
                return chosen(older, newer, left, self.sizes)
            return older if node in at.old else newer

        instances = self._instances(statement)
        line = line_of(statement, version.name, instances).rewritten(change)
        for node in line.nodes():
            if isinstance(node, Load) and node.tensor != version.name:
                self._note_read(node.tensor)
        self.steps.append(Step(statement, line, statement.reduction, copied))

    def _instances(self, statement: Statement) -> Instances:
        if not self.c.is_deferred:
            return instances_of(statement)
        if not {n.name for n in nodes(statement) if isinstance(n, Size)} <= set(self.c.sizes):
            what = "it is in a definition that is called, and products of sizes give its ranges"
            raise self.refuse(statement, what, "write its statements out")
        dims = self.c.tensors[statement.target].dims
        found = deferred_instances(statement, dims)
        if isinstance(found, str):
            raise self.refuse(statement, found, "give each index its range in a where clause")
        return found

    def _note_read(self, version: str) -> None:
        state = self._current[self.versions[version].tensor]
        if state.version.name == version:
            state.is_read = True

    def copy(self, to: str, source: str) -> Line:
        """Return ``to(i, j) = source(i, j)`` over the whole box."""
        version = self.versions[source]
        tensor = self.c.tensors[version.tensor]
        indices = tuple(Index(name) for name in self.indices(tensor.rank))
        load = Load(source, indices, version.dtype)
        value = as_type(load, arithmetic(version.dtype))
        return Line(to, indices, "=", value, self._whole(version, load))

    def _whole(self, version: Version, load: Load) -> Instances:
        """Return the instances of *load*, a read by plain indices of all of *version*."""
        names = [s.name for s in load.subscripts if isinstance(s, Index)]
        if version.box is not None:
            return Instances(dict(zip(names, version.box, strict=True)))
        dims = self.c.tensors[version.tensor].dims
        declared = [(v, dim) for v, dim in zip(names, dims, strict=True) if dim is not None]
        if len(declared) < len(names):
            return Instances(dict.fromkeys(names), bounds=(load,))
        zero = Const(0, INT32)
        clauses = tuple(IndexBounds(v, zero, dim_expr(dim)) for v, dim in declared)
        return Instances(dict.fromkeys(names), clauses)

    def indices(self, rank: int) -> tuple[str, ...]:
        """Return names of indices over a box, the same for each *rank*."""
        while len(self._indices) < rank:
            self._indices.append(self.names.fresh(f"i{len(self._indices)}"))
        return tuple(self._indices[:rank])

    def image_box(self, statement: Statement) -> tuple[tuple[Expr, ...], Instances] | None:
        """Return indices over the box of the left side of *statement*; None: data give it."""
        intervals = image(statement, self._space(statement), self._space(statement).ranges)
        indices = self.indices(len(intervals))
        ranges = {
            name: (interval.lower, interval.upper)
            for name, interval in zip(indices, intervals, strict=True)
            if interval is not None
        }
        if len(ranges) < len(indices):
            return None
        return tuple(map(Index, indices)), Instances(ranges)

    def _space(self, statement: Statement) -> Space:
        space = Space(statement, self.sizes)
        known = zip(statement.indices, statement.ranges, strict=not self.c.is_deferred)
        space.ranges = {v: Interval(*r) for v, r in known}
        return space

    # --- what is overwritten --------------------------------------------------------------------
    def _goes_on(self, statement: Statement, state: _State, written: isl.Set | None) -> bool:
        """Return whether *statement*, which reads no old values, may write the current version."""
        reduction = statement.reduction
        if reduction is not None and not reduction.initialise:
            is_sum = reduction.operator is Operator.ADD and state.is_sum
            return is_sum and not state.is_read and state.version.name not in self.c.inputs
        if written is None or state.written is None:
            return False
        overlap = written.intersect(state.written).intersect_params(self.known)
        return bool(overlap.is_empty())

    def _image(self, space: Space, statement: Statement) -> isl.Set | None:
        """Return the elements that *statement* writes, or initialises; None: perhaps all."""
        if statement.domain is None:
            return None
        elements = element_map(space, statement.target, statement.subscripts)
        if elements is None:
            return None
        if statement.reduction is not None and statement.reduction.initialise:
            intervals = image(statement, space, space.ranges)
            known = [interval for interval in intervals if interval is not None]
            return box_set(statement.target, known, self.sizes)
        return statement.domain.apply(elements)

    def _is_whole(self, statement: Statement, box: Box | None) -> bool:
        """Return whether *statement* gives every element of *box* a value of its own."""
        if self.c.is_deferred:
            return not statement.subscripts and not statement.conditions
        instances = instances_of(statement)
        if not fills(statement.subscripts, instances.ranges, box):
            return False
        if statement.reduction is None:
            return instances.is_box
        return statement.reduction.initialise


def line_of(statement: Statement, target: str, instances: Instances) -> Line:
    """Return *statement* as a line that assigns *target*."""
    reduction = statement.reduction
    op = "=" if reduction is None else f"{reduction.operator}={'!' * reduction.initialise}"
    return Line(target, statement.subscripts, op, statement.value, instances)


def _union(one: isl.Set | None, other: isl.Set | None) -> isl.Set | None:
    return None if one is None or other is None else one.union(other).coalesce()


def needed(lines: Sequence[Line], wanted: Collection[str]) -> list[Line]:
    """Return those of *lines* that the tensors *wanted* need, in order."""
    found: list[Line] = []
    read = set(wanted)
    for line in reversed(lines):
        if line.target in read:
            found.append(line)
            read.update(node.tensor for node in line.nodes() if isinstance(node, Load))
    return found[::-1]


def lines_of(step: Step) -> Iterator[Line]:
    """Yield the lines of *step*."""
    if step.copy is not None:
        yield step.copy
    yield step.line
