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
from tcdsl.lang.types.head import Dim, Head
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.quick_call import QuickCall
from tcdsl.runtime.cuda.steps import selector
from tcdsl.runtime.lazy_defs import LazyDef

Shapes = Sequence[tuple[int, ...]]
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
        self._known, self._loaded, self._sizes = known, loaded, dict(sizes)
        head = code.head
        self._outputs = head.outputs
        self._integers = [name for name, _ in loaded.manifest.integers]
        self._bounds = list(code.bounds.items())
        dims = [dim for name in head.inputs for dim in head.tensors[name].dims]
        places = list(enumerate(dims))
        first = {dim: place for place, dim in reversed(places)}
        self._open = selector([first[name] for name in code.bounds])
        # Other extents are as they were, or that of an open size again.
        fixed = [place for place, dim in places if dim not in code.bounds]
        self._fixed = selector(fixed)
        self._known_fixed = tuple([_value(dims[place], sizes) for place in fixed])
        self._again = [
            (place, first[dim])
            for place, dim in places
            if dim in code.bounds and place != first[dim]
        ]

    def run_at(self, shapes: Shapes) -> Run | None:
        """Return a call on dense arrays of these *shapes*, or None: it must be made in full.

        They are of as many dimensions as those of the known call.
        """
        sizes = self._sizes_of(shapes)
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

    def _sizes_of(self, shapes: Shapes) -> dict[str, int] | None:
        """Return the sizes of a call, None if this code is not for them."""
        extents = [extent for shape in shapes for extent in shape]
        if self._fixed(extents) != self._known_fixed:
            return None
        for place, first in self._again:
            if extents[place] != extents[first]:
                return None
        sizes = self._sizes.copy()
        for (name, (low, high)), extent in zip(self._bounds, self._open(extents)):  # noqa: B905
            if not low <= extent <= high:
                return None
            sizes[name] = extent
        return sizes


def _value(dim: Dim | None, sizes: Mapping[str, int]) -> int:
    """Return the extent of *dim*, a number or a size."""
    assert dim is not None, "refused by why_not_sized"
    return sizes[dim] if isinstance(dim, str) else dim


def why_not_sized(code: Code, call: DeviceCall) -> str | None:
    """Return why calls at other sizes are made in full, or None."""
    head = code.head
    if not code.bounds:
        return "no size is open"
    if head.size_parameters or call.quick is None:
        return "a call does more than launch"
    if any(dim >= 0 for _, dim in call.loaded.manifest.integers):
        return "strides are open"
    dims = {dim for name in head.inputs for dim in head.tensors[name].dims}
    if any(dim is None or (isinstance(dim, str) and dim not in head.sizes) for dim in dims):
        return "an extent is a product"
    if set(head.sizes) - dims:
        return "a size is no extent"
    return None
