"""What a size is the extent of: which kernels depend on its value.

    C(m,n) +=! A(m,k) * B(k,n)     K is reduced;  M and N are tiled: each is of one operand only
    D(b,m) +=! A(b,m,k) * x(b,k)   K is reduced;  B and M are neither: one operand has both

Blocks share a reduced range in chunks, whose number is chosen for its length.
"""

from tcdsl.lang.comprehension import Comprehension, Load, Statement, walk
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.ranges.size_functions import involved_sizes


def reduced_sizes(c: Comprehension) -> frozenset[str]:
    """Return the sizes on which the range of a reduced index depends."""
    found: set[str] = set()
    for statement in c.statements:
        if statement.reduction is not None:
            for ranges in statement.ranges[statement.n_left :]:
                found |= set(involved_sizes(*ranges))
    return frozenset(found)


def tiled_sizes(c: Comprehension) -> frozenset[str]:
    """Return the sizes of left-hand indices that not all operands of a contraction have."""
    found: set[str] = set()
    for statement in c.statements:
        operands = _operands(statement)
        if len(operands) < 2 or any(set(_left(statement)) <= own for own in operands):
            continue
        for index, ranges in zip(_left(statement), statement.ranges, strict=False):
            if not all(index in own for own in operands):
                found |= set(involved_sizes(*ranges))
    return frozenset(found)


def _left(statement: Statement) -> tuple[str, ...]:
    return statement.indices[: statement.n_left]


def _operands(statement: Statement) -> list[set[str]]:
    """Return the indices of each load of *statement* that changes along what it reduces."""
    if statement.reduction is None:
        return []
    reduced = set(statement.indices[statement.n_left :])
    loads = (node for node in walk(statement.value) if isinstance(node, Load))
    indices = (set().union(*map(index_names, load.subscripts)) for load in loads)
    return [own for own in indices if own & reduced]
