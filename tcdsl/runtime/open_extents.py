"""The sizes of a call as functions of its arrays' extents, where a known call differs in those.

softmax(x[300, 256]) is known, M is open from 257 to 1024; of the shapes s:

    values    M: s[0][0]    N: 256
    guard     len(s[0]) == 2 and 257 <= s[0][0] <= 1024 and s[0][1] == 256

Sizes that a call gives among its arguments are the last extents: ``s[-1][0]``.
Both are texts of Python: what is compiled of them once is evaluated by every call at a new size.
"""

from collections.abc import Iterator, Mapping, Sequence

from tcdsl.lang.size_class import Bounds
from tcdsl.lang.types.head import Dim, Head, factors_of
from tcdsl.records import dataclass

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class OpenExtents:
    """The *values* of sizes, given the shapes ``s``, and the *guard*: whether code is for them."""

    values: Mapping[str, str]
    guard: str

    def steps(self, name: str, step: int) -> str:
        """Return the text of how many times *step* the size *name* is."""
        return self.values[name] if step == 1 else f"{self.values[name]} // {step}"


def open_extents(head: Head, bounds: Bounds, sizes: Mapping[str, int]) -> OpenExtents:
    """Return the functions for code that is open within *bounds*.

    :arg sizes: of the known call; the caller has asked :func:`why_not_of_extents`.
    """
    ranks = [f"len(s[{n}]) == {head.tensors[name].rank}" for n, name in enumerate(head.inputs)]
    dims = list(_dims(head))
    first = {dim: place for place, dim in reversed(dims)}
    values = {name: first[name] if name in bounds else str(size) for name, size in sizes.items()}
    limits = [each.condition(values[name]) for name, each in bounds.items()]
    equal = [
        f"{place} == {_value(dim, values)}" for place, dim in dims if place != values.get(str(dim))
    ]
    return OpenExtents(values, " and ".join((*ranks, *limits, *equal)) or "True")


def why_not_of_extents(head: Head) -> str | None:
    """Return why the extents of arrays do not give the sizes of a call by themselves, or None."""
    dims = {dim for _, dim in _dims(head)}
    if None in dims:
        return "an extent is not declared"
    if set(head.sizes) - dims:
        return "a size is no extent"
    return None


def _dims(head: Head) -> Iterator[tuple[str, Dim | None]]:
    """Return where each extent and size of the arguments is, and what is declared of it."""
    for n, name in enumerate(head.inputs):
        for dim, extent in enumerate(head.tensors[name].dims):
            yield f"s[{n}][{dim}]", extent
    count = len(head.size_parameters)
    for n, size in enumerate(head.size_parameters):
        yield f"s[{n - count}][0]", size


def _value(dim: Dim | None, values: Mapping[str, str]) -> str:
    """Return the extent *dim*, a number, a size or a product of such."""
    assert dim is not None, "refused by why_not_of_extents"
    return " * ".join(values[f] if isinstance(f, str) else str(f) for f in factors_of(dim))
