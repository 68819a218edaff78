"""Calls at any sizes, of code that leaves sizes open.

    softmax(x[300, 256])    a DeviceCall, made in full: its arguments are described, sizes bound,
                            layouts compared, operands and outputs made
    softmax(x[301, 256])    (301, 256) --> the integers (301,) of the kernels, the result's shape;
                            of the integers grids, bytes of shared memory, tensor maps, workspace

That is for dense arrays that differ from those of a known call in their open extents alone.  What
depends on the extents is computed in each call, so that nothing is kept of a size, and the first
call at one is like any other.  Whatever a quick call leaves to the long way is made in full.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tcdsl.lang.types.head import Head
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.quick_call import QuickCall
from tcdsl.runtime.lazy_defs import LazyDef
from tcdsl.runtime.open_extents import Shapes, open_extents, why_not_of_extents
from tcdsl.runtime.warm_path import MISSING


class Code(Protocol):
    """What is asked of an executable."""

    head: Head
    bounds: Any


class SizedCalls:
    """Calls at any values of the open sizes, which launch as *known* does."""

    def __init__(
        self,
        code: Code,
        definition: LazyDef,
        known: QuickCall,
        loaded: Loaded,
        sizes: Mapping[str, int],
    ) -> None:
        """Take the kernels *loaded* for all sizes, and the *sizes* that *known* was made for.

        The caller has asked :func:`why_not_sized`.
        """
        self._definition, self._known, self._loaded = definition, known, loaded
        self._extents = open_extents(code.head, code.bounds, sizes)
        self._at: Callable[[Shapes], Any] | None = None  # made at the first new size: it needs isl
        self._steps = list(zip(loaded.steps, known.selects, strict=True))
        self._has_workspace = bool(loaded.workspace_bytes)

    def run(self, shapes: Shapes, args: Sequence[Any], out: Any) -> Any:
        """Return new results for *args*, dense arrays of these *shapes*, or numbers.

        MISSING where the code is not for them, or the long way is to be gone.
        """
        if out is not None:
            return MISSING
        found = (self._at or self._formulas())(shapes)
        if found is None:
            return MISSING
        integers, extents = found
        for extent in extents:
            if 0 in extent:
                return MISSING
        known = self._known
        if known.has_obstacle():
            return MISSING
        stream = known.stream()
        if known.numbers:

            def run(pointers: list[int]) -> Any:
                return self._launch(pointers, known.fresh(args, extents), integers, stream)

            return known.with_numbers(args, stream, run)
        return self._launch(known.pointers(args), known.fresh(args, extents), integers, stream)

    def _formulas(self) -> Callable[[Shapes], Any]:
        self._at = self._definition.of_extents(self._extents, self._loaded.manifest.integers)
        return self._at

    def _launch(
        self, pointers: Sequence[int], objects: Sequence[Any], integers: Sequence[int], stream: int
    ) -> Any:
        """Launch from the inputs at *pointers* into *objects*, and return these, or MISSING."""
        known = self._known
        arrays = (*pointers, *known.pointers(objects))
        if self._has_workspace:
            if stream and libcuda.is_capturing(stream):
                return MISSING
            self._launch_with_workspace(arrays, integers, stream)
        else:
            self._launch_all((*arrays, known.fault, *integers), integers, stream)
        return objects[0] if len(objects) == 1 else tuple(objects)

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
    if any(dim >= 0 for _, dim in call.loaded.manifest.integers):
        return "strides are open"
    return why_not_of_extents(code.head)
