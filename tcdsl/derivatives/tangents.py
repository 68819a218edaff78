"""The jvp of a def as text: beside each value the derivative of it along a direction.

    def f(x) -> (y)        --->    def f_jvp(x, d_x) -> (d_y)
    T(l) += e(X(a))        --->    dT(l) += de/dX(a) * dX(a)      summed over the reads in e

The instances are those of the statement, so that nothing is inverted and nothing runs backwards.
Products, extremes and ties have the factors of the reverse pass (:mod:`reductions`): the vjp is
the transpose of this, term by term.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

import islpy as isl

from tcdsl.derivatives import reductions, terms
from tcdsl.derivatives.adjoint import undefined_derivative
from tcdsl.derivatives.inversion import Sizes
from tcdsl.derivatives.lines import Line
from tcdsl.derivatives.names import Names, names_of
from tcdsl.derivatives.partials import partials
from tcdsl.derivatives.program import (
    Boxes,
    declared_dims,
    refused,
    statement_texts,
    varied_versions,
)
from tcdsl.derivatives.text import definition_text, parameter
from tcdsl.derivatives.versions import Forward, Step, lines_of, needed
from tcdsl.lang.comprehension import Comprehension, Expr, Load, Operator, Statement
from tcdsl.lang.ranges.size_functions import SizeSpace
from tcdsl.lang.types.dtypes import DType, arithmetic
from tcdsl.records import dataclass


def jvp_text(c: Comprehension, wrt: Sequence[str]) -> tuple[str, str]:
    """Return the name and the text of the jvp of *c* by the parameters *wrt*, which are floats.

    :raises SemanticError: (TC093) a statement is not differentiable, or not by these rules.
    """
    return _Jvp(c, tuple(wrt)).derived()


@dataclass(slots=True, eq=False)
class _Jvp:
    c: Comprehension
    wrt: tuple[str, ...]
    names: Names = field(init=False)
    forward: Forward = field(init=False)
    varied: frozenset[str] = field(init=False)
    results: Mapping[str, str] = field(init=False)  # of the last version of each: its tangent
    tangents: dict[str, str] = field(init=False)  # by version
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        c = self.c
        self.names = Names(names_of(c))
        self.tangents = {name: self.names.fresh(f"d_{name}") for name in self.wrt}
        floats = [name for name in c.outputs if c.tensors[name].dtype.is_float]
        results = {name: self.names.fresh(f"d_{name}") for name in floats}
        space = SizeSpace(c.sizes)
        known = reduce(isl.Set.intersect, (p.holds for p in c.preconditions), space.sane)
        self.forward = Forward(c, self.names, space, known, self._refuse)
        self.varied = varied_versions(self.forward, self.wrt)
        self.results = {self.forward.last(name).name: results[name] for name in floats}

    def _refuse(self, statement: Statement, what: str, advice: str) -> Exception:
        return refused(self.c, statement.target_span, what, advice)

    def derived(self) -> tuple[str, str]:
        """Return the name and the text."""
        for step in self.forward.steps:
            self.lines += lines_of(step)
            if step.target in self.varied:
                self._step(step)
        for version, name in self.results.items():
            if version not in self.varied or version in self.c.inputs:
                self._whole(name, version)
        body = needed(self.lines, set(self.results.values()))
        name = self.names.fresh(f"{self.c.name}_jvp")
        return name, definition_text(name, self._parameters(), self._returns(), self._texts(body))

    # --- tangents -------------------------------------------------------------------------------
    def _tangent(self, version: str) -> str:
        if version not in self.tangents:
            known = self.results.get(version)
            self.tangents[version] = known or self.names.fresh(f"d_{version}")
        return self.tangents[version]

    def _read(self, load: Load) -> Expr:
        """Return the tangent of what *load* reads; 0 where that is a constant."""
        dtype = arithmetic(load.dtype)
        if load.tensor not in self.varied or not load.dtype.is_float:
            return terms.number(0.0, dtype)
        declared = load.dtype if self._keeps_type(load.tensor) else dtype
        return terms.as_type(Load(self._tangent(load.tensor), load.subscripts, declared), dtype)

    def _keeps_type(self, version: str) -> bool:
        """Return whether the tangent of *version* has its type: parameters and results do."""
        return version in self.wrt or version in self.results

    def _whole(self, name: str, version: str) -> None:
        """Assign the tangent of *version*, which no statement writes, to all of *name*."""
        copy = self.forward.copy(version, version)
        load = Load(version, copy.subscripts, self.forward.versions[version].dtype)
        self.lines.append(replace(copy, target=name, value=self._read(load)))

    def _step(self, step: Step) -> None:
        operator = None if step.reduction is None else step.reduction.operator
        one = terms.number(1.0, step.line.value.dtype)
        if step.copy is not None and operator in (None, Operator.ADD):
            self._append(step.copy, "=", self._of(step, step.copy.value, one))
        if operator in (None, Operator.ADD):
            self._append(step.line, step.line.op, self._of(step, step.line.value, one))
            return
        if operator not in (Operator.MUL, Operator.MIN, Operator.MAX):
            return
        box = self.forward.copy(step.target, step.target)
        rule = reductions.product if operator is Operator.MUL else reductions.extreme
        found = rule(step, one, self.names, (box.subscripts, box.instances))
        self.lines += found.lines
        if step.copy is not None:
            kept = found.before or one
            self._append(step.copy, "=", self._of(step, step.copy.value, kept))
        is_new = step.reduction is not None and step.reduction.initialise
        self._append(step.line, "+=!" if is_new else "+=",
                     self._of(step, step.line.value, found.factor))  # fmt: skip

    def _of(self, step: Step, value: Expr, factor: Expr) -> Expr:
        """Return *factor* times the derivative of *value* along the direction."""

        def is_active(load: Load) -> bool:
            return load.dtype.is_float and load.tensor in self.varied

        slopes = partials(value, factor, is_active, undefined_derivative(self._refused))
        parts = [terms.product(self._read(load), slope) for load, slope in slopes.items()]
        return terms.total(parts) if parts else terms.number(0.0, value.dtype)

    def _refused(self, span: object, what: str, advice: str) -> Exception:
        return refused(self.c, span, what, advice)  # type: ignore[arg-type]

    def _append(self, line: Line, op: str, value: Expr) -> None:
        version = line.target
        if self._keeps_type(version):
            value = terms.as_type(value, self._result_type(version, value.dtype))
        self.lines.append(replace(line, target=self._tangent(version), op=op, value=value))

    def _result_type(self, version: str, dtype: DType) -> DType:
        own = self.forward.versions[version].dtype
        return own if own.size_bytes < dtype.size_bytes else dtype

    # --- text -----------------------------------------------------------------------------------
    def _parameters(self) -> list[str]:
        c = self.c
        own = [
            f"size {name}" if name in c.size_parameters
            else parameter(name, c.tensors[name].dtype, declared_dims(c, name))
            for name in c.parameters
        ]  # fmt: skip
        return own + [
            parameter(self.tangents[name], c.tensors[name].dtype, declared_dims(c, name))
            for name in self.wrt
        ]

    def _returns(self) -> list[str]:
        found = []
        for version, name in self.results.items():
            tensor = self.c.tensors[self.forward.versions[version].tensor]
            is_declared = None not in tensor.dims
            dims = declared_dims(self.c, tensor.name)
            found.append(parameter(name, tensor.dtype, dims) if is_declared else name)
        return found

    def _texts(self, body: Sequence[Line]) -> list[str]:
        versions = self.forward.versions
        read = {name: versions[name].box for name in self.c.inputs}
        read |= {self.tangents[name]: versions[name].box for name in self.wrt}
        targets = {name: version.box for name, version in versions.items()}
        targets |= {name: versions[v].box for v, name in self.tangents.items()}
        sizes = Sizes(self.forward.sizes, self.forward.known)
        return statement_texts(body, self.forward, sizes, Boxes(targets, read))
