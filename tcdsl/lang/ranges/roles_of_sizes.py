"""What a size is the extent of: which kernels depend on its value.

    C(m,n) +=! A(m,k) * B(k,n)     K is reduced; K and N are the lengths of rows

Blocks share a reduced range in chunks, or keep it, and how they do is chosen for its length.  Of
what rows' lengths are multiples strides are, and so are the places at which vectors may begin.
"""

from collections.abc import Collection, Mapping
from math import gcd

from tcdsl.lang.comprehension import Comprehension, Index, Load, walk
from tcdsl.lang.ranges.size_functions import evaluate, involved_sizes

VECTOR_BYTES = 16


def reduced_sizes(c: Comprehension) -> frozenset[str]:
    """Return the sizes on which the range of a reduced index depends."""
    found: set[str] = set()
    for statement in c.statements:
        if statement.reduction is not None:
            for ranges in statement.ranges[statement.n_left :]:
                found |= set(involved_sizes(*ranges))
    return frozenset(found)


def steps_of(c: Comprehension, sizes: Mapping[str, int], opened: Collection[str]) -> dict[str, int]:
    """Return of what each size of *opened* had better be a multiple, where that is more than 1.

    All strides that depend on it then are multiples of 16 bytes, or of what has fewer:

        float32(M, N) x, N open              N % 4
        float16(M, N, 4) x, N open           N % 2
        float32(M, N, 56) x, N open          nothing: the stride of m is 56 N
        x(m, n+1), x(m, (n+1) % N)           nothing: windows and remainders want N itself

    :arg sizes: the values of all sizes.
    """
    found: dict[str, int] = {}
    moved = _moved_along(c)
    for tensor in c.tensors.values():
        step = max(1, VECTOR_BYTES // tensor.dtype.size_bytes)
        for extent in reversed(tensor.extents[1:]):
            unknown = set(involved_sizes(extent)) & set(opened)
            for name in unknown - moved:
                found[name] = max(step, found.get(name, 1))
            if unknown - moved:
                step = 1
            elif not unknown:  # else nothing is known of it
                step //= gcd(step, evaluate(extent, sizes))
    return {name: step for name, step in found.items() if step > 1}


def _moved_along(c: Comprehension) -> set[str]:
    """Return the sizes of dimensions that are read at other places than those of one index."""
    return {
        name
        for statement in c.statements
        for expr in (statement.value, *statement.conditions)
        for node in walk(expr)
        if isinstance(node, Load)
        for extent, at in zip(c.tensors[node.tensor].extents, node.subscripts, strict=True)
        if not isinstance(at, Index)
        for name in involved_sizes(extent)
    }
