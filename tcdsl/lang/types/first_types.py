"""Warnings of values that are narrowed to the type that a tensor's first statement gave it.

A tensor without a declared type has that of its first value: of ``t(i) = 0`` an int32, to which
``t(i) += x(i,j)`` then converts every float.  Where the program itself converts it, that is meant.
"""

from collections.abc import Iterator

from tcdsl.lang.comprehension import Cast, Statement
from tcdsl.lang.types.dtypes import FLOAT64, DType
from tcdsl.source import Source


def narrowed_values(statement: Statement, source: Source) -> Iterator[str]:
    """Yield a warning if the type of the target, which nobody declared, cannot hold the value."""
    value = statement.value
    # A conversion that is written stands around what it converts.
    if not isinstance(value, Cast) or value.span != value.operand.span:
        return
    given, kept = value.operand.dtype, value.dtype
    if not _loses(given, kept):
        return
    line, column = source.position(value.span.start)
    yield (
        f"{source.name}:{line}:{column}: {given} values become {kept}, the type that its first "
        f"statement gives {statement.target!r}: convert the first value, "
        f"{statement.target}(...) = {given}(...), or this one if that is meant, {kept}(...)"
    )


def _loses(given: DType, kept: DType) -> bool:
    """Return whether values of type *given* lose a fraction, their range or half of their digits.

    Types of arithmetic: half types compute in float32.
    """
    return given.is_float and (not kept.is_float or (given == FLOAT64 and kept != FLOAT64))
