"""The vjp of a def as text: what the reverse pass needs of the forward pass, then the adjoints.

    def f(x) -> (y)      --->      def f_vjp(x, d_y) -> (d_x)

1. The forward pass gets versions (:mod:`versions`), the steps their adjoints (:mod:`adjoint`).
2. The first contribution to an adjoint array initialises it where it writes all of it; else zeros
   do.  A cotangent that gets contributions is copied first: a parameter is not written.
3. Of the forward pass only those statements stay whose values the adjoints read.  Those of values
   that a forward pass keeps (:mod:`keeping`) do not; the values are parameters, after those of f.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

import islpy as isl

from tcdsl.derivatives import terms
from tcdsl.derivatives.adjoint import (
    Adjoints,
    Cleared,
    Event,
    Recurrence,
    adjoint_name,
)
from tcdsl.derivatives.clipping import clipped
from tcdsl.derivatives.contributions import Contribution, contributed
from tcdsl.derivatives.inversion import Sizes
from tcdsl.derivatives.keeping import costly_versions, read_versions
from tcdsl.derivatives.lines import Box, Line, fills
from tcdsl.derivatives.names import Names, names_of
from tcdsl.derivatives.text import definition_text, line_text, parameter
from tcdsl.derivatives.versions import Forward, Version, lines_of, needed
from tcdsl.errors import EXTENTS_DIFFER, NOT_DIFFERENTIABLE
from tcdsl.lang.comprehension import (
    Binary,
    Comprehension,
    Expr,
    Index,
    Load,
    Precondition,
    Size,
    Statement,
    walk,
)
from tcdsl.lang.ranges.affine import constant_value
from tcdsl.lang.ranges.preconditions import ExtentsDiffer
from tcdsl.lang.ranges.size_functions import SizeSpace, evaluate, to_expr
from tcdsl.lang.rewrite import stored_as
from tcdsl.lang.types.dtypes import INT32, DType, arithmetic
from tcdsl.lang.types.head import Dim, extent_at
from tcdsl.records import dataclass
from tcdsl.source import Span


@dataclass(frozen=True, slots=True)
class Passed:
    """The parameter *name*, of *dims*: the adjoint of the result *version*, or its kept value."""

    name: str
    version: Version
    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Derived:
    """The text of a vjp, and which tensors' extents its further parameters must have.

    *forward* is the name and the text of the forward pass that returns what is kept, too: *kept*,
    after its own results.
    """

    name: str
    text: str
    passed: Mapping[str, str]  # parameter -> tensor of the def
    kept: tuple[str, ...] = ()
    forward: tuple[str, str] = ("", "")


def vjp_text(c: Comprehension, wrt: Sequence[str], *, keeps: bool = False) -> Derived:
    """Return the vjp of *c* by the parameters *wrt*, which are floats.

    :arg keeps: whether values of the forward pass are parameters, where that is worth while.
    :raises SemanticError: (TC093) a statement is not differentiable, or not by these rules.
    """
    return _Vjp(c, tuple(wrt), keeps).derived()


def refused(c: Comprehension, span: Span, what: str, advice: str) -> Exception:
    """Return the error that what stands at *span* is not differentiable."""
    return NOT_DIFFERENTIABLE(c.source, span, name=c.name, what=what, advice=advice)


def with_extents(derivative: Comprehension, c: Comprehension, derived: Derived) -> Comprehension:
    """Return *derivative*, which a call checks: a cotangent has the extents of its result.

    (The text cannot say so of an extent like ``H - KH + 1``: it has a size of its own there.)
    """
    if derivative.resolve is not None:
        return replace(derivative, resolve=_CheckedExtents(derivative, c, derived))
    space = SizeSpace(derivative.sizes)
    found: list[Precondition] = []
    for name, result in derived.passed.items():
        dims = derivative.tensors[name].dims
        for position, (dim, extent) in enumerate(zip(dims, c.tensors[result].extents, strict=True)):
            if isinstance(dim, str) and dim not in c.sizes:
                one, other = space.size(dim), space.builder.affine(to_expr(extent))
                assert other is not None
                what = f"dimension {position} of {name!r} and that of {result!r}"
                error = ExtentsDiffer(derivative.source, derivative.tensors[name].span, what, one,
                                      other, f"pass {name} in the shape of {result}")  # fmt: skip
                found.append(Precondition(one.eq_set(other), error))
    # Before the others: of two extents that differ, some access may be out of bounds too.
    return replace(derivative, preconditions=(*found, *derivative.preconditions))


@dataclass(frozen=True, slots=True, eq=False)
class _CheckedExtents:
    """What gives a deferred derivative its ranges, once its cotangents are seen to fit."""

    derivative: Comprehension
    c: Comprehension
    derived: Derived

    def __call__(self, sizes: Mapping[str, int]) -> Comprehension:
        """Return the derivative at *sizes*.

        :raises ShapeError: a cotangent has other extents than its result.
        """
        at = self.c.at({name: sizes[name] for name in self.c.sizes})
        for name, result in self.derived.passed.items():
            own = at.tensors[result]
            if any(evaluate(lower, {}) for lower in own.origin):
                what = f"the elements of {result} begin at others than 0, as sizes decide"
                raise refused(self.c, own.span, what, "shift its subscripts")
            tensor = self.derivative.tensors[name]
            for position, (dim, extent) in enumerate(
                zip(tensor.dims, at.tensors[result].extents, strict=True)
            ):
                assert dim is not None
                found, wanted = extent_at(dim, sizes), evaluate(extent, {})
                if found != wanted:
                    raise EXTENTS_DIFFER(
                        self.derivative.source, tensor.span, where="", one=found, other=wanted,
                        what=f"dimension {position} of {name!r} and that of {result!r}",
                        advice=f"pass {name} in the shape of {result}",
                    )  # fmt: skip
        return replace(self.derivative.at(sizes), resolve=self)


@dataclass(slots=True, eq=False)
class _Vjp:
    c: Comprehension
    wrt: tuple[str, ...]
    keeps: bool
    names: Names = field(init=False)
    sizes: Sizes = field(init=False)
    forward: Forward = field(init=False)
    cotangents: dict[str, Passed] = field(init=False)  # by version
    kept: list[Passed] = field(default_factory=list)
    gradients: dict[str, str] = field(init=False)  # by parameter
    boxes: dict[str, Box | None] = field(init=False)  # of all tensors but the cotangents

    def __post_init__(self) -> None:
        c = self.c
        self.names = Names(names_of(c))
        self.gradients = {name: self.names.fresh(f"d_{name}") for name in self.wrt}
        results = [name for name in c.outputs if c.tensors[name].dtype.is_float]
        adjoints = {name: self._cotangent_name(name) for name in results}
        space = SizeSpace(c.sizes)
        known = reduce(isl.Set.intersect, (p.holds for p in c.preconditions), space.sane)
        self.sizes = Sizes(space, known)
        self.forward = Forward(c, self.names, space, known, self._refuse_statement)
        self.cotangents = {}
        for name in results:
            version = self.forward.last(name)
            dims = self._dims(name, adjoints[name])
            self.cotangents[version.name] = Passed(adjoints[name], version, dims)

    def _cotangent_name(self, result: str) -> str:
        """Return the name of the adjoint of *result*: an updated parameter's is updated too."""
        return self.gradients.get(result) or self.names.fresh(f"d_{result}")

    def _refuse_statement(self, statement: Statement, what: str, advice: str) -> Exception:
        return refused(self.c, statement.target_span, what, advice)

    def _dims(self, result: str, adjoint: str) -> tuple[Dim, ...]:
        """Return the declared extents of *result*; a new size where they are no single size."""
        tensor = self.c.tensors[result]
        found: list[Dim] = []
        extents = tensor.extents or (None,) * tensor.rank
        for position, (declared, extent) in enumerate(zip(tensor.dims, extents, strict=True)):
            if extent is None:
                found.append(declared or self.names.fresh(f"{adjoint}_{position}"))
                continue
            expr = to_expr(extent)
            value = constant_value(extent)
            if declared is not None:
                found.append(declared)
            elif isinstance(expr, Size):
                found.append(expr.name)
            elif value is not None and value >= 0:
                found.append(value)
            else:
                found.append(self.names.fresh(f"{adjoint}_{position}"))
        return tuple(found)

    # --- the passes -----------------------------------------------------------------------------
    def derived(self) -> Derived:
        """Return the text."""
        c = self.c
        varied = varied_versions(self.forward, self.wrt)
        reached = set(self.cotangents)
        adjoints = Adjoints(
            self.forward, self.sizes, self.names, varied,
            lambda span, what, advice: refused(c, span, what, advice), reached,
        )  # fmt: skip
        assembly = _Assembly(self, adjoints.run())
        lines = assembly.lines()
        versions = self.forward.versions
        self.boxes = {name: version.box for name, version in versions.items()}
        self.boxes |= {name: versions[v].box for v, name in assembly.arrays.items()}
        body = self._needed(lines)
        name = self.names.fresh(f"{c.name}_vjp")
        text = definition_text(
            name, self._parameters(), self._results(), self._texts(body)
        )  # fmt: skip
        passed = {p.name: p.version.tensor for p in (*self.kept, *self.cotangents.values())}
        kept = tuple(one.name for one in self.kept)
        return Derived(name, text, passed, kept, self._forward_text() if kept else ("", ""))

    def _needed(self, adjoints: Sequence[Line]) -> list[Line]:
        """Return the lines that the gradients need, and note what they read of kept values."""
        wanted = set(self.gradients.values())
        costly = costly_versions(self.forward) if self.keeps else set()
        steps = [step for step in self.forward.steps if step.target not in costly]
        forward = [line for step in steps for line in lines_of(step)]
        body = needed([*forward, *adjoints], wanted)
        for name in read_versions(body, costly):
            version = self.forward.versions[name]
            self.kept.append(Passed(name, version, self._dims(version.tensor, name)))
        return body

    def _forward_text(self) -> tuple[str, str]:
        """Return the name and the text of the forward pass that returns what is kept, too."""
        forward, c = self.forward, self.c
        name = self.names.fresh(f"{c.name}_forward")
        results = []
        for output in c.outputs:
            tensor, version = c.tensors[output], forward.last(output)
            dims = declared_dims(c, output)
            is_declared = None not in tensor.dims
            results.append(
                parameter(version.name, tensor.dtype, dims) if is_declared else version.name
            )
        names = [forward.last(output).name for output in c.outputs]
        results += [one.name for one in self.kept if one.name not in names]
        lines = [line for step in forward.steps for line in lines_of(step)]
        boxes = Boxes(
            {name: version.box for name, version in forward.versions.items()},
            {name: forward.versions[name].box for name in c.inputs},
        )
        body = needed(lines, {*names, *(one.name for one in self.kept)})
        declared = {forward.last(o).name for o in c.outputs if None not in c.tensors[o].dims}
        texts = statement_texts(self._typed(body, declared), forward, self.sizes, boxes)
        return name, definition_text(name, self._own_parameters(), results, texts)

    def _typed(self, body: Sequence[Line], declared: Collection[str]) -> list[Line]:
        """Return *body*, whose first line of each target gives it its type, if none is declared."""
        begun = set(declared)
        found = []
        for line in body:
            if line.target not in begun:
                begun.add(line.target)
                dtype = self.forward.versions[line.target].dtype
                line = replace(line, value=stored_as(line.value, dtype, line.op))
            found.append(line)
        return found

    # --- text -----------------------------------------------------------------------------------
    def _parameters(self) -> list[str]:
        found = self._own_parameters()
        for passed in (*self.kept, *self.cotangents.values()):
            found.append(parameter(passed.name, passed.version.dtype, passed.dims))
        return found

    def _own_parameters(self) -> list[str]:
        """Return the parameters of the def."""
        c = self.c
        found = []
        for name in c.parameters:
            if name in c.size_parameters:
                found.append(f"size {name}")
            else:
                found.append(parameter(name, c.tensors[name].dtype, declared_dims(c, name)))
        return found

    def _results(self) -> list[str]:
        taken = {cotangent.name for cotangent in self.cotangents.values()}
        return [
            gradient if gradient in taken
            else parameter(gradient, self.c.tensors[name].dtype, declared_dims(self.c, name))
            for name, gradient in self.gradients.items()
        ]  # fmt: skip

    def _texts(self, body: Sequence[Line]) -> list[str]:
        boxes = {name: self.forward.versions[name].box for name in self.c.inputs}
        updated = {cotangent.name for cotangent in self.cotangents.values()}
        for passed in (*self.kept, *self.cotangents.values()):
            boxes[passed.name] = self._box_of_parameter(passed)
        return statement_texts(body, self.forward, self.sizes, Boxes(self.boxes, boxes, updated))

    def _box_of_parameter(self, passed: Passed) -> Box | None:
        known = set(self.c.sizes)
        if any(isinstance(dim, str) and dim not in known for dim in passed.dims):
            return None
        zero = self.sizes.space.zero
        tensor = self.c.tensors[passed.version.tensor]
        if len(tensor.extents) < tensor.rank:
            return None
        return tuple((zero, extent) for extent in tensor.extents)


def declared_dims(c: Comprehension, name: str) -> tuple[Dim, ...]:
    """Return the extents of *name* that are declared."""
    return tuple(dim for dim in c.tensors[name].dims if dim is not None)


def varied_versions(forward: Forward, wrt: Collection[str]) -> frozenset[str]:
    """Return the versions that depend on the parameters *wrt*."""
    varied = set(wrt)
    for step in forward.steps:
        is_float = forward.versions[step.target].dtype.is_float
        loads = [n for line in lines_of(step) for n in walk(line.value) if isinstance(n, Load)]
        if is_float and any(n.tensor in varied and n.dtype.is_float for n in loads):
            varied.add(step.target)
    return frozenset(varied)


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of the tensors of a text: what is written is clipped to *targets*.

    *read* are those that inference finds, of parameters at first; *updated* parameters keep theirs.
    """

    targets: Mapping[str, Box | None]
    read: dict[str, Box | None]
    updated: Collection[str] = ()


def statement_texts(
    body: Sequence[Line], forward: Forward, sizes: Sizes, boxes: Boxes
) -> list[str]:
    """Return *body* as statements, each with the ranges that inference would not find."""
    texts = []
    for line in body:
        box = boxes.targets.get(line.target)
        if box is not None:  # without writes that might seem to exceed it
            line = clipped(line, box, sizes, forward.indices)
        texts.append(line_text(line, boxes.read))
        whole = _image(line)
        known = boxes.read.setdefault(line.target, whole)
        if (whole is None or known is None) and line.target not in boxes.updated:
            boxes.read[line.target] = None
    return texts


def _image(line: Line) -> Box | None:
    """Return the box that *line* writes, if its left side is a list of indices."""
    if not all(isinstance(s, Index) for s in line.subscripts):
        return None
    runs = [line.instances.ranges[s.name] for s in line.subscripts if isinstance(s, Index)]
    known = tuple(run for run in runs if run is not None)
    return known if len(known) == len(runs) else None


@dataclass(slots=True, eq=False)
class _Assembly:
    """Events as lines: adjoint arrays get names, and their first values."""

    vjp: _Vjp
    events: Sequence[Event]
    found: list[Line] = field(default_factory=list)
    arrays: dict[str, str] = field(default_factory=dict)  # version -> the array of its adjoint
    begun: set[str] = field(default_factory=set)
    last: list[Line] = field(default_factory=list)

    def lines(self) -> list[Line]:
        """Return all lines of the reverse pass."""
        self._name_arrays()
        for event in self.events:
            match event:
                case Line():
                    self._append(event)
                case Contribution():
                    self._contribute(event)
                case Recurrence(contribution=contribution):
                    self._begin(contribution.version)
                    self._append(self._line(contribution, "+="))
                case Cleared(version=version, left=left, instances=instances):
                    self._begin(version)
                    zero = terms.number(0.0, self._dtype(version))
                    self._append(Line(self.arrays[version], left, "=", zero, instances))
        for name in self.vjp.wrt:
            self._begin(name)
        return [*self.found, *self.last]

    def _dtype(self, version: str) -> DType:
        return arithmetic(self.vjp.forward.versions[version].dtype)

    # --- arrays ---------------------------------------------------------------------------------
    def _name_arrays(self) -> None:
        """Name the adjoint arrays, and copy the cotangents that change."""
        vjp = self.vjp
        changing = [e.version for e in self.events if not isinstance(e, Line)]
        updated = {vjp.gradients[name] for name in vjp.wrt}
        for version, cotangent in vjp.cotangents.items():
            if version in changing or cotangent.name in updated:
                name = vjp.names.fresh(f"{cotangent.name}_total")
                self.arrays[version] = name
                copy = vjp.forward.copy(version, version)
                value = self._cotangent(cotangent, copy.subscripts)
                self.found.append(replace(copy, target=name, value=value))
                self.begun.add(version)
        for version in dict.fromkeys(changing):
            if version not in self.arrays:
                self.arrays[version] = self._array(version, changing.count(version))
        for name in vjp.wrt:
            self.arrays.setdefault(name, vjp.gradients[name])

    def _array(self, version: str, contributions: int) -> str:
        """Return the name of the adjoint of *version*, which no cotangent is."""
        vjp = self.vjp
        if version not in vjp.gradients:
            return vjp.names.fresh(f"d_{version}")
        gradient = vjp.gradients[version]
        if contributions == 1 or not vjp.forward.versions[version].dtype.is_narrow_float:
            return gradient
        # Sums of several terms are kept in float32, and rounded once.
        name = vjp.names.fresh(f"{gradient}_sum")
        copy = vjp.forward.copy(version, version)
        value = Load(name, copy.subscripts, self._dtype(version))
        self.last.append(replace(copy, target=gradient, value=value))
        return name

    def _cotangent(self, cotangent: Passed, subscripts: tuple[Expr, ...]) -> Expr:
        """Return the read of the parameter, which starts at 0, at *subscripts* of the result."""
        # (The results of a deferred def start at 0 unless their text says otherwise.)
        box = cotangent.version.box
        at = subscripts if box is None else tuple(
            _minus(s, lower) for s, (lower, _) in zip(subscripts, box, strict=True)
        )  # fmt: skip
        load = Load(cotangent.name, at, cotangent.version.dtype)
        return terms.as_type(load, arithmetic(cotangent.version.dtype))

    def _append(self, line: Line) -> None:
        self.found.append(line.rewritten(self._named))

    def _named(self, node: Expr) -> Expr:
        """Return *node*, a read of an adjoint, under the name of the array."""
        if not (isinstance(node, Load) and node.tensor.startswith("d ")):
            return node
        version = node.tensor.removeprefix("d ")
        if version in self.arrays and version in self.begun:
            return Load(self.arrays[version], node.subscripts, node.dtype)
        assert adjoint_name(version) == node.tensor
        return self._cotangent(self.vjp.cotangents[version], node.subscripts)

    # --- first values ---------------------------------------------------------------------------
    def _contribute(self, event: Contribution) -> None:
        if event.version in self.begun:
            self._append(self._line(event, "+="))
            return
        box = self.vjp.forward.versions[event.version].box
        if fills(event.left, event.instances.ranges, box):
            self.begun.add(event.version)
            plain = not event.reduced and event.instances.is_box
            self._append(self._line(event, "=" if plain else "+=!"))
            return
        self._begin(event.version)
        self._append(self._line(event, "+="))

    def _line(self, event: Contribution, op: str) -> Line:
        return contributed(event, self.arrays[event.version], op)

    def _begin(self, version: str) -> None:
        """Set the adjoint of *version* to zero, if nothing has given it values."""
        if version in self.begun:
            return
        self.begun.add(version)
        copy = self.vjp.forward.copy(version, version)
        zero = terms.number(0.0, self._dtype(version))
        self.found.append(replace(copy, target=self.arrays[version], value=zero))


def _minus(subscript: Expr, origin: isl.PwAff) -> Expr:
    if constant_value(origin) == 0:
        return subscript
    return Binary("-", subscript, to_expr(origin), INT32)
