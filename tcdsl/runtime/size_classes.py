"""Classes of sizes: which values of an open size share a kernel on a GPU.

    1..16   17..64    65..256             257..1024            1025..4096   ...
    1..64             65..128   129..256  257..512  513..1024  ...           of what is reduced
    1..64             65..256             257..1024            ...           of a row's length
    4..256 in steps of 4                  260..1024 of 4       ...           of a row of float32
                                          257..1021 of 4, 258..1022, 259..1023    of others

A kernel for a class is planned for its greatest size, and guarded for all others: the grid is from
the call.  Other sizes have other plans: tiles, rows a block, blocks that share a sum.  At a quarter
of the greatest size a plan is still close to the best, but for sums: what blocks and clusters keep
of a reduced range is room for all of its greatest length, and from some length on there is none.
Below 64, and where rows are short, that is no matter.

Where strides depend on a size, its values that vectors divide have classes of their own; so have
the others, from 257 on one for each remainder, which says where in a vector rows begin
(rewrites/scop/alignment_shift).  Shorter rows are not shifted, and these share a class: sizes
between 1 and 200 meet four classes at most, 1 among them.

By itself a size is left open at its second value, if it is the leading one wherever it is declared:
then no stride of an argument depends on it.  Of a size that a user leaves open the value 1 is a
class of its own: one image, or one row, is what a grid of blocks has to be filled with in other
ways.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence

from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.types.head import Head, factors_of

ENDS = (0, *(1 << n for n in range(4, 30, 2)), 2**31 - 1)
REDUCED_ENDS = (0, *(1 << n for n in range(6, 30)), 2**31 - 1)
SHORT_ROWS = (0, 64, 256)  # of what strides depend on: whose remainders share a class
NO_STEPS: Mapping[str, int] = {}
VALUES_BEFORE = 1  # that are compiled by themselves, before a size is left open


def class_of(size: int, ends: Sequence[int] = ENDS, step: int = 1) -> SizeClass | None:
    """Return the class of *size*, None if it has none.

    :arg step: what vectors need it to be a multiple of.
    """
    rest = size % step
    if step > 1:
        longer = ends[bisect_left(ends, SHORT_ROWS[-1]) + 1 :]
        ends = (0, *SHORT_ROWS[1 if rest else 2 :], *longer)
    position = bisect_left(ends, size)
    if not 0 < position < len(ends):
        return None
    least, greatest = ends[position - 1] + 1, ends[position]
    if step == 1:
        return SizeClass(least, greatest)
    if rest and greatest <= SHORT_ROWS[-1]:
        return SizeClass(least, greatest, other=step)
    return SizeClass(least + (rest - least) % step, greatest - (greatest - rest) % step, step)


def classes_of(
    sizes: Mapping[str, int],
    names: Iterable[str],
    reduced: Collection[str] = (),
    steps: Mapping[str, int] = NO_STEPS,
) -> dict[str, SizeClass] | None:
    """Return the class of each size of *names*, None if one is in none.

    :arg reduced: those that are lengths of what is reduced.
    :arg steps: what they had better be multiples of: see lang/ranges/roles_of_sizes.
    """
    found = {
        n: class_of(sizes[n], REDUCED_ENDS if n in reduced else ENDS, steps.get(n, 1))
        for n in names
    }
    known = {name: each for name, each in found.items() if each is not None}
    return known if len(known) == len(found) else None


def leading_sizes(head: Head) -> frozenset[str]:
    """Return the sizes that are the first extent of each tensor that they are declared for."""
    dims = [dim for name in head.inputs for dim in enumerate(head.tensors[name].dims)]
    places = {(f, n) for n, dim in dims if dim is not None for f in factors_of(dim)}
    inner = {name for name, position in places if position}
    return frozenset(name for name in head.sizes if (name, 0) in places and name not in inner)
