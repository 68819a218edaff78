"""Classes of sizes: which values of an open size share a kernel on a GPU.

    1..16   17..256         257..4096                 4097..65536   ...
    1..64   65..256         257..1024   1025..4096   ...      of what is reduced, or tiles cut

A kernel for a class is planned for its greatest size, and guarded for all others: the grid is from
the call.  What a plan depends on (rows a block, chunks of a reduced range) varies by less than a
class is wide where sizes are small, and a launch takes most of the time there.  Sizes between 1 and
65536 meet four classes.  How many blocks share a sum, and which tiles of a contraction are best,
depends on the size: classes of what is reduced, and of a contraction's results, are narrower.

By itself a size is left open at its third value, if it is the leading one wherever it is declared:
then no stride depends on it.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence

from tcdsl.lang.types.head import Head, factors_of

ENDS = (0, 16, 256, 4096, 65536, 1 << 20, 1 << 24, 1 << 28, 2**31 - 1)
NARROW_ENDS = (0, *(1 << n for n in range(6, 30, 2)), 2**31 - 1)
VALUES_BEFORE = 2  # that are compiled by themselves, before a size is left open


def class_of(size: int, ends: Sequence[int] = ENDS) -> tuple[int, int] | None:
    """Return the least and the greatest value of the class of *size*, None if it has none."""
    position = bisect_left(ends, size)
    return (ends[position - 1] + 1, ends[position]) if 0 < position < len(ends) else None


def classes_of(
    sizes: Mapping[str, int], names: Iterable[str], narrow: Collection[str] = ()
) -> dict[str, tuple[int, int]] | None:
    """Return the class of each size of *names*, None if one is in none.

    :arg narrow: those whose classes end at powers of four.
    """
    found = {n: class_of(sizes[n], NARROW_ENDS if n in narrow else ENDS) for n in names}
    known = {name: ends for name, ends in found.items() if ends is not None}
    return known if len(known) == len(found) else None


def leading_sizes(head: Head) -> frozenset[str]:
    """Return the sizes that are the first extent of each tensor that they are declared for."""
    dims = [dim for name in head.inputs for dim in enumerate(head.tensors[name].dims)]
    places = {(f, n) for n, dim in dims if dim is not None for f in factors_of(dim)}
    inner = {name for name, position in places if position}
    return frozenset(name for name in head.sizes if (name, 0) in places and name not in inner)
