"""Classes of sizes: which values of an open size share a kernel on a GPU.

    1..16   17..256   257..4096   4097..65536   ...

A kernel for a class is planned for its greatest size, and guarded for all others: the grid is from
the call.  What a plan depends on (rows a block, chunks of a reduced range) varies by less than a
class is wide where sizes are small, and a launch takes most of the time there.  Sizes between 1 and
65536 meet four classes.

By itself a size is left open at its third value, if it is the leading one wherever it is declared:
then no stride depends on it.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tcdsl.lang.types.head import Head, factors_of

ENDS = (0, 16, 256, 4096, 65536, 1 << 20, 1 << 24, 1 << 28, 2**31 - 1)
VALUES_BEFORE = 2  # that are compiled by themselves, before a size is left open


def class_of(size: int) -> tuple[int, int] | None:
    """Return the least and the greatest value of the class of *size*, None if it has none."""
    ends = ((low + 1, high) for low, high in pairwise(ENDS))
    return next((end for end in ends if end[0] <= size <= end[1]), None)


def classes_of(sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, tuple[int, int]] | None:
    """Return the class of each size of *names*, None if one is in none."""
    found = {name: class_of(sizes[name]) for name in names}
    known = {name: ends for name, ends in found.items() if ends is not None}
    return known if len(known) == len(found) else None


def leading_sizes(head: Head) -> frozenset[str]:
    """Return the sizes that are the first extent of each tensor that they are declared for."""
    dims = [dim for name in head.inputs for dim in enumerate(head.tensors[name].dims)]
    places = {(f, n) for n, dim in dims if dim is not None for f in factors_of(dim)}
    inner = {name for name, position in places if position}
    return frozenset(name for name in head.sizes if (name, 0) in places and name not in inner)
