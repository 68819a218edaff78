"""The sizes of a call from the extents of its arrays, if a known call differs in open ones alone.

softmax(x[300, 256]) is known, M is open
x[301, 256]   --->   {M: 301, N: 256}
x[301, 128]   --->   None: N is not open
"""

from collections.abc import Mapping, Sequence

from tcdsl.lang.types.head import Dim, Head
from tcdsl.runtime.selection import selector

Shapes = Sequence[tuple[int, ...]]


class OpenExtents:
    """Where the *bounds* of open sizes, least and greatest value, meet the extents of arrays."""

    def __init__(
        self, head: Head, bounds: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]
    ) -> None:
        """Take the *sizes* of the known call; the caller has asked :func:`why_not_of_extents`."""
        self._sizes = dict(sizes)
        self._bounds = list(bounds.items())
        dims = [dim for name in head.inputs for dim in head.tensors[name].dims]
        places = list(enumerate(dims))
        first = {dim: place for place, dim in reversed(places)}
        self._open = selector([first[name] for name in bounds])
        # Other extents are as they were, or that of an open size again.
        fixed = [place for place, dim in places if dim not in bounds]
        self._fixed = selector(fixed)
        self._known_fixed = tuple([_value(dims[place], sizes) for place in fixed])
        self._again = [
            (place, first[dim]) for place, dim in places if dim in bounds and place != first[dim]
        ]

    def sizes_of(self, shapes: Shapes) -> dict[str, int] | None:
        """Return the sizes of a call on arrays of *shapes*, None if the code is not for them.

        They are of as many dimensions as those of the known call.
        """
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


def why_not_of_extents(head: Head) -> str | None:
    """Return why the extents of arrays do not give the sizes of a call by themselves, or None."""
    if head.size_parameters:
        return "a size is given"
    dims = {dim for name in head.inputs for dim in head.tensors[name].dims}
    if any(dim is None or (isinstance(dim, str) and dim not in head.sizes) for dim in dims):
        return "an extent is a product"
    if set(head.sizes) - dims:
        return "a size is no extent"
    return None


def _value(dim: Dim | None, sizes: Mapping[str, int]) -> int:
    """Return the extent of *dim*, a number or a size."""
    assert dim is not None, "refused by why_not_of_extents"
    return sizes[dim] if isinstance(dim, str) else dim
