"""Defs that are one Einstein sum, and the same sum in NumPy and PyTorch: peers for a benchmark.

C(m, n) +=! A(m, k) * B(k, n)   --->   "mk,kn->mn" of A, B
"""

import string
from collections.abc import Iterator

from tcdsl.lang.comprehension import (
    Binary,
    Comprehension,
    Expr,
    Index,
    Load,
    Operator,
    Specialisation,
    Statement,
)


def einsum_text(c: Comprehension, special: Specialisation) -> tuple[str, tuple[str, ...]] | None:
    """Return the subscripts and the operands' names if *c* is one Einstein sum, else None.

    It is if its only statement sums products of elements from zero, whose subscripts are indices
    that run over all of each dimension.
    """
    if len(c.statements) != 1 or not _is_plain_sum(c, c.statements[0]):
        return None
    (statement,), (ranges,) = c.statements, special.ranges
    loads = list(_factors(statement.value))
    letters = dict(zip(statement.indices, string.ascii_letters, strict=False))
    texts = []
    for name, subscripts in [*((load.tensor, load.subscripts) for load in loads if load),
                             (statement.target, statement.subscripts)]:  # fmt: skip
        for subscript, extent in zip(subscripts, special.shapes[name], strict=True):
            if not isinstance(subscript, Index) or ranges[subscript.name] != range(extent):
                return None
        texts.append("".join(letters[s.name] for s in subscripts if isinstance(s, Index)))
    if None in loads or len(letters) < len(statement.indices):
        return None
    return f"{','.join(texts[:-1])}->{texts[-1]}", tuple(load.tensor for load in loads if load)


def _is_plain_sum(c: Comprehension, statement: Statement) -> bool:
    reduction = statement.reduction
    is_sum = reduction is not None and reduction.operator is Operator.ADD and reduction.initialise
    dtypes = {tensor.dtype for tensor in c.tensors.values()}
    is_float = len(dtypes) == 1 and not any(d.is_narrow_float or not d.is_float for d in dtypes)
    return is_sum and is_float and not statement.conditions and not statement.data_ranges


def _factors(value: Expr) -> Iterator[Load | None]:
    """Yield the loads whose product *value* is; None for a factor that is none."""
    match value:
        case Binary(op="*", left=left, right=right):
            yield from _factors(left)
            yield from _factors(right)
        case Load():
            yield value
        case _:
            yield None
