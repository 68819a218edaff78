"""What a size is the extent of: which kernels depend on its value.

    C(m,n) +=! A(m,k) * B(k,n)     K is reduced

Blocks share a reduced range in chunks, or keep it, and how they do is chosen for its length.
"""

from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.size_functions import involved_sizes


def reduced_sizes(c: Comprehension) -> frozenset[str]:
    """Return the sizes on which the range of a reduced index depends."""
    found: set[str] = set()
    for statement in c.statements:
        if statement.reduction is not None:
            for ranges in statement.ranges[statement.n_left :]:
                found |= set(involved_sizes(*ranges))
    return frozenset(found)
