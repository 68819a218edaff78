"""The derivatives and batched forms of a def, and those of these, made when first needed.

A form is named by its path: ``"d0,2;v1"`` is the vjp by the inputs 0 and 2, batched over the input
1 of that.  The inputs of a vjp are those of the def, then a cotangent for each floating-point
result, so that positions need no derivation: only a call does.  ``t0,2`` is the jvp along tangents
of the inputs 0 and 2, which follow those of the def.  ``k0,2`` is the forward pass that returns
what the vjp by the inputs 0 and 2 keeps, too, and ``b0,2`` that vjp, whose inputs are those of the
def, what is kept, and the cotangents.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from tcdsl.api import Function, define
from tcdsl.errors import SemanticError, TCError
from tcdsl.frontends.derivatives import Passes, jvp, passes, vjp
from tcdsl.lang.types.head import Head
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import ArraySpec, named_dtype
from tcdsl.runtime.fitting import described, require_type
from tcdsl.torch.batching import batched_tensors, batched_text
from tcdsl.torch.sizes import Shape, ShapeFunction


class Form:
    """One form of a def."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._forms: dict[str, Form] = {}
        self._expected: frozenset[str] = frozenset()  # sizes that graphs leave symbolic
        self._paths: dict[str, Form] = {}
        self._derivatives: dict[tuple[bool, ...], Derivative] = {}
        self._passes: dict[tuple[int, ...], Passes | None] = {}
        self._batches: dict[tuple[int, ...], Batch | None] = {}

    @cached_property
    def head(self) -> Head:
        """What is declared."""
        return self.function.comprehension

    @cached_property
    def float_inputs(self) -> tuple[int, ...]:
        """The positions of the inputs that have derivatives."""
        head = self.head
        return tuple(i for i, n in enumerate(head.inputs) if head.tensors[n].dtype.is_float)

    @cached_property
    def float_outputs(self) -> tuple[int, ...]:
        """The positions of the results that have cotangents."""
        head = self.head
        return tuple(i for i, n in enumerate(head.outputs) if head.tensors[n].dtype.is_float)

    @cached_property
    def _shapes(self) -> ShapeFunction:
        return ShapeFunction(self.function)

    def shapes(self, shapes: Sequence[Shape], sizes: Sequence[int]) -> list[Shape]:
        """Return the shapes of the results for inputs of *shapes*, in order; sizes may be symbolic.

        :raises TCError: they do not fit the def.
        """
        found = self._shapes(shapes, sizes)
        if self._shapes.symbolic - self._expected:
            self.expect(self._shapes.symbolic)
        return found

    def require(self, inputs: Sequence[Any], sizes: Sequence[int]) -> list[Shape]:
        """Return the shapes of the results for the tensors *inputs*.

        :raises TCError: their types or shapes do not fit the def.
        """
        for name, tensor in zip(self.head.inputs, inputs, strict=True):
            dtype = named_dtype(tensor.dtype, f"argument {name!r}")
            require_type(self.head, name, ArraySpec(dtype, (), (), library="torch"))
        return self.shapes([tensor.shape for tensor in inputs], sizes)

    def require_arrays(self, inputs: Sequence[Any]) -> None:
        """Say which of *inputs* is no array.

        :raises ShapeError: (TC056) one is none.
        """
        for name, tensor in zip(self.head.inputs, inputs, strict=True):
            described(self.head, name, tensor)

    def refuse_nested(self, inputs: Sequence[Any]) -> None:
        """Say which of *inputs* is a nested tensor: those of PyTorch's jagged layout would not.

        :raises ShapeError: (TC056) one is.
        """
        for name, tensor in zip(self.head.inputs, inputs, strict=True):
            if getattr(tensor, "is_nested", False):
                described(self.head, name, tensor)

    def expect(self, names: frozenset[str]) -> None:
        """Let code of this form and of its derivatives serve many values of the sizes *names*."""
        self._expected |= names
        self.function.expect(names)
        for form in list(self._forms.values()):
            form.expect(names)

    @cached_property
    def has_numbers(self) -> bool:
        """Whether an input has no dimensions."""
        return not all(self.head.tensors[name].rank for name in self.head.inputs)

    def call(self, inputs: Sequence[Any], sizes: Sequence[int]) -> Any:
        """Return the results: one tensor, or a tuple of several."""
        if self.has_numbers and any(x.is_cuda for x in inputs):
            # A GPU takes numbers of the host as arguments.
            inputs = [x.item() if x.dim() == 0 and x.is_cpu else x for x in inputs]
        return self.function(*self.arguments(inputs, sizes))

    def arguments(self, inputs: Sequence[object], sizes: Sequence[object]) -> list[object]:
        """Return the arguments of a call, in the order of the parameters."""
        head = self.head
        if not head.size_parameters:
            return list(inputs)
        arrays, numbers = iter(inputs), iter(sizes)
        return [next(numbers if n in head.size_parameters else arrays) for n in head.parameters]

    def at(self, path: str) -> "Form":
        """Return the form of the name *path*, from here.

        :raises SemanticError: (TC093) it is a derivative that does not exist.
        """
        form = self._paths.get(path)
        if form is None:
            form = self
            for step in path.split(";"):
                form = form._next(step)
            self._paths[path] = form
        return form

    def derivative(self, needed: tuple[bool, ...]) -> "Derivative":
        """Return the derivative by those inputs that are *needed*."""
        found = self._derivatives.get(needed)
        if found is None:
            by = tuple(position for position in self.float_inputs if needed[position])
            known = self._passes_by(by)
            kept = () if known is None else known.kept
            steps = [step(kind, by) for kind in ("d", "k", "b")]
            found = self._derivatives[needed] = Derivative(by, kept, *steps)
        return found

    def _passes_by(self, by: tuple[int, ...]) -> Passes | None:
        if not by:
            return None  # of a call in forward mode alone
        if by not in self._passes:
            names = [self.head.inputs[position] for position in by]
            try:
                self._passes[by] = passes(self.function, names)
            except SemanticError:  # a backward pass, if there is one, will say so
                self._passes[by] = None
        return self._passes[by]

    def _next(self, step: str) -> "Form":
        form = self._forms.get(step)
        if form is None:
            positions = tuple(map(int, step[1:].split(",")))
            if step[0] in "dt":
                names = tuple(self.head.inputs[position] for position in positions)
                form = self._form_of((vjp if step[0] == "d" else jvp)(self.function, wrt=names))
            elif step[0] in "kb":
                known = self._passes_by(positions)
                assert known is not None, "paths are made of passes that there are"
                form = self._form_of(known.forward if step[0] == "k" else known.backward)
            else:
                batch = self.batch(positions)
                assert batch is not None, "paths are made of batches that there are"
                form = batch.form
            form = self._forms.setdefault(step, form)
            form.expect(self._expected)
        return form

    def _form_of(self, function: Function) -> "Form":
        """Return the form of *function*, with this one's options but for choices of kernels."""
        options = replace(self.function.options, choices="")
        return Form(Function(function._definition, options))

    def batch(self, positions: tuple[int, ...]) -> "Batch | None":
        """Return the form batched over the inputs at *positions*; None: there is no text of it."""
        if positions not in self._batches:
            self._batches[positions] = self._batch(positions)
        return self._batches[positions]

    def _batch(self, positions: tuple[int, ...]) -> "Batch | None":
        c = self.function.comprehension
        batched = batched_tensors(c, [c.inputs[position] for position in positions])
        try:
            text = batched_text(c, batched)
            function = define(text, name=f"<batched {c.name}>")[c.name]
        except TCError:  # the language has no such def: a range from data of two dimensions
            return None
        found = function.comprehension.tensors
        if any(found[name].dtype != c.tensors[name].dtype for name in c.outputs):
            return None  # no text has the type: a sum of halves times integers
        return Batch(
            self._form_of(function),
            tuple(i for i, name in enumerate(c.inputs) if name in batched),
            tuple(name in batched for name in c.outputs),
        )


@dataclass(frozen=True, slots=True)
class Derivative:
    """The steps to the derivative *by* inputs: all of it, or in two passes.

    *kept* are the positions, among the results of the first pass, of what the second takes; there
    is none where nothing is worth keeping.
    """

    by: tuple[int, ...]
    kept: tuple[int, ...]
    whole: str
    forward: str
    backward: str


class Batch:
    """A batched form, with its batched inputs (by position) and whether each result is batched."""

    def __init__(self, form: Form, inputs: tuple[int, ...], outputs: tuple[bool, ...]) -> None:
        self.form = form
        self.inputs = inputs
        self.outputs = outputs


def step(kind: str, positions: Sequence[int]) -> str:
    """Return a step: ``d``, ``t``, ``k``, ``b`` for derivatives by inputs, ``v`` for a batch."""
    return kind + ",".join(map(str, positions))


def extended(path: str, further: str) -> str:
    """Return *path* with one more step."""
    return f"{path};{further}" if path else further
