"""Calls at any sizes, of code that leaves sizes open.

    softmax(x[300, 256])    a DeviceCall, made in full: its arguments are described, sizes bound,
                            layouts compared, operands and outputs made
    softmax(x[301, 256])    (301, 256) --> the integers (301,) of the kernels, the result's shape;
                            of the integers grids, bytes of shared memory, tensor maps, workspace

That is for dense arrays, or arrays of the same strides, that differ from those of a known call in
their open extents alone; sizes that a call gives count as extents.  What depends on the extents is
computed in each call at other ones than the last, so that the first call at a size is like any
other.  Whatever a quick call leaves to the long way is made in full.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol, TypeAlias

from tcdsl.lang.types.head import Head
from tcdsl.runtime.arrays import ArraySpec
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.quick_call import QuickCall
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.runtime.open_extents import Shapes, open_extents, why_not_of_extents
from tcdsl.runtime.warm_path import MISSING, output_form, output_signature


class Code(Protocol):
    """What is asked of an executable."""

    head: Head
    bounds: Any
    specs: dict[str, ArraySpec]


# What calls on arguments of some shapes have in common, made at each new size: these shapes, the
# integers of the kernels, the results' shapes, and what makes them.
AtSizes: TypeAlias = tuple[Shapes, Sequence[int], Shapes, Sequence[Callable[[Any], Any]]]


Placed: TypeAlias = tuple[Sequence[int], Shapes]  # where arrays are, and their shapes


class SizedCalls:
    """Calls at any values of the open sizes, which launch as *known* does."""

    def __init__(
        self, code: Code, sized: SizedDef, known: QuickCall, loaded: Loaded, *, is_dense: bool
    ) -> None:
        """Take the kernels *loaded* for all sizes, and what *known* was made for.

        The caller has asked :func:`why_not_sized`.
        """
        self._definition, self._known, self._loaded = sized.definition, known, loaded
        self._is_dense = is_dense
        self._extents = extents = open_extents(code.head, code.bounds, sized.sizes)
        self._integers = [
            extents.steps(n, -dim) if dim < 0 else str(code.specs[n].strides[dim])
            for n, dim in loaded.manifest.integers
        ]
        self._at: Callable[[Shapes], Any] | None = None  # made at the first new size: it needs isl
        self._last: AtSizes | None = None
        self._steps = list(zip(loaded.steps, known.selects, strict=True))
        self._has_workspace = bool(loaded.workspace_bytes)
        tensors, inputs = code.head.tensors, [code.specs[name] for name in code.head.inputs]
        self._input_bytes = [0 if own.is_number else own.dtype.size_bytes for own in inputs]
        self._output_bytes = [tensors[name].dtype.size_bytes for name in code.head.outputs]

    def run(self, shapes: Shapes, args: Sequence[Any], out: Any) -> Any:
        """Return the results for *args*, arrays of these *shapes*, or numbers.

        MISSING where the code is not for them, or the long way is to be gone.
        """
        at = self._last
        if at is None or at[0] != shapes:
            at = self._at_sizes(shapes)
            if at is None:
                return MISSING
            self._last = at
        known = self._known
        if known.has_obstacle():
            return MISSING
        stream = known.stream()
        if known.numbers:
            return known.with_numbers(
                args, stream, lambda pointers: self._run(at, (args, pointers), out, stream)
            )
        return self._run(at, (args, known.pointers(args)), out, stream)

    def _at_sizes(self, shapes: Shapes) -> AtSizes | None:
        """Return what calls on arguments of *shapes* have in common; None: the code has none."""
        found = (self._at or self._formulas())(shapes)
        if found is None:
            return None
        integers, extents = found
        for own in extents:
            if 0 in own:  # there is nothing to launch
                return None
        # Strides of extents of 1 say nothing.
        if not self._is_dense and any(0 in own or 1 in own for own in shapes):
            return None
        makers = [make(own) for make, own in zip(self._known.maker_of, extents)]  # noqa: B905
        return shapes, integers, extents, makers

    def _formulas(self) -> Callable[[Shapes], Any]:
        self._at = self._definition.of_extents(self._extents, self._integers)
        return self._at

    def _run(
        self, at: AtSizes, inputs: tuple[Sequence[Any], Sequence[int]], out: Any, stream: int
    ) -> Any:
        """Launch on *inputs*, arguments and where they are, and return the results, or MISSING."""
        known, (args, pointers), (shapes, integers, extents, makers) = self._known, inputs, at
        if out is None:
            like = None if known.first is None else args[known.first]
            objects: Sequence[Any] = [make(like) for make in makers]
            addresses = known.pointers(objects)
        else:
            objects = out if type(out) is tuple else (out,)
            if not self._fit(objects, extents):
                return MISSING
            addresses = known.pointers(objects)
            if not self._are_apart((pointers, shapes), (addresses, extents)):
                return MISSING
        arrays = (*pointers, *addresses)
        if self._has_workspace:
            if stream and libcuda.is_capturing(stream):
                return MISSING
            self._launch_with_workspace(arrays, integers, stream)
        else:
            self._launch_all((*arrays, known.fault, *integers), integers, stream)
        return objects[0] if len(objects) == 1 else tuple(objects)

    def _fit(self, objects: Sequence[Any], extents: Shapes) -> bool:
        """Return whether *objects* are dense arrays of *extents*, in other ways like known ones."""
        fitting = self._known.fitting
        if not self._is_dense or len(objects) != len(fitting):
            return False
        for x, own, known in zip(objects, extents, fitting):  # noqa: B905
            form = output_form(output_signature(x))
            if form is None or x.shape != own or form not in map(output_form, list(known)):
                return False
        return True

    def _are_apart(self, inputs: Placed, outputs: Placed) -> bool:
        """Return whether results share no memory with each other, nor with inputs: all dense."""
        each_input = zip(*inputs, self._input_bytes)  # noqa: B905 (sizes are the last shapes)
        spans = [(low, low + prod(shape) * each) for low, shape, each in each_input if each]
        for start, shape, each in zip(*outputs, self._output_bytes):  # noqa: B905
            end = start + prod(shape) * each
            if any(start < high and low < end for low, high in spans):
                return False
            spans.append((start, end))
        return True

    def _launch_with_workspace(
        self, arrays: Sequence[int], integers: Sequence[int], stream: int
    ) -> None:
        loaded = self._loaded
        pool, manifest = loaded.state.pool, loaded.manifest
        offsets, size_bytes = manifest.workspace_at(integers)
        block = pool.take(size_bytes, stream, "the workspace", has_tickets=manifest.has_tickets)
        try:
            scratch = [block.address + offset for offset in offsets]
            slots = (*arrays, *scratch, self._known.fault, *integers)
            self._launch_all(slots, integers, stream)
        finally:
            pool.give_back(block, stream)

    def _launch_all(self, slots: Sequence[int], integers: Sequence[int], stream: int) -> None:
        if stream:
            kernels = self._loaded.raw_kernels()
            for kernel, (_, select) in zip(kernels, self._steps):  # noqa: B905 (0.3 us)
                kernel.launch_at(integers, select(slots), stream)
            return
        try:
            for step, select in self._steps:
                step.launch_at(integers, select(slots), stream)
        except self._loaded.driver_error as error:
            raise device.translated(error, "cuLaunchKernel") from None


def why_not_sized(code: Code, call: DeviceCall) -> str | None:
    """Return why calls at other sizes are made in full, or None."""
    if not code.bounds:
        return "no size is open"
    if call.quick is None or not call.quick.may_be_fresh:
        return "a call does more than launch"
    return why_not_of_extents(code.head)
