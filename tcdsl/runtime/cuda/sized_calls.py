"""First calls at new sizes, of code that leaves sizes open.

    softmax(x[300, 256])    a DeviceCall, made in full: its arguments are described, sizes bound,
                            layouts compared, operands and outputs made
    softmax(x[301, 256])    a copy of its QuickCall; only the grid, the extents of outputs, tensor
                            maps and the open sizes among the parameters are others

That is for dense arrays that differ from those of a known call in their open extents alone.
Others, and whatever a quick call leaves to the long way, are made in full.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tcdsl.errors import TCError
from tcdsl.lang.types.head import Head
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.quick_call import QuickCall
from tcdsl.runtime.lazy_defs import LazyDef
from tcdsl.runtime.open_extents import OpenExtents, Shapes, why_not_of_extents

Run = Callable[[Sequence[Any], Any], Any]


class Code(Protocol):
    """What is asked of an executable."""

    head: Head
    bounds: Any

    def full_call(self, args: Sequence[Any], sizes: Mapping[str, int], out: Any) -> DeviceCall:
        """Return the call on *args* at other open *sizes*, made in full."""


class SizedCalls:
    """Makes calls at any values of the open sizes from one, *known*."""

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
        self._code, self._definition = code, definition
        self._known, self._loaded = known, loaded
        self._outputs = code.head.outputs
        self._integers = [name for name, _ in loaded.manifest.integers]
        self._extents = OpenExtents(code.head, code.bounds, sizes)

    def run_at(self, shapes: Shapes) -> Run | None:
        """Return a call on dense arrays of these *shapes*, or None: it must be made in full.

        They are of as many dimensions as those of the known call.
        """
        sizes = self._extents.sizes_of(shapes)
        if sizes is None:
            return None
        try:
            known = self._definition.output_shapes(sizes)
        except TCError:  # said by the call that is made in full
            return None
        results = [known[name] for name in self._outputs]
        for shape in results:
            if 0 in shape:
                return None
        integers = [sizes[name] for name in self._integers]
        found = self._known.at(self._loaded.at(integers), results, integers)

        def slowly(args: Sequence[Any], out: Any = None) -> Any:
            call = self._code.full_call(args, sizes, out)
            assert call.quick is not None, "as the known one"
            found.become(call.quick)
            return call.run_slowly(args, out)

        found.become_slow(slowly)
        return found.run


def why_not_sized(code: Code, call: DeviceCall) -> str | None:
    """Return why calls at other sizes are made in full, or None."""
    head = code.head
    if not code.bounds:
        return "no size is open"
    if head.size_parameters or call.quick is None:
        return "a call does more than launch"
    if any(dim >= 0 for _, dim in call.loaded.manifest.integers):
        return "strides are open"
    return why_not_of_extents(head)
