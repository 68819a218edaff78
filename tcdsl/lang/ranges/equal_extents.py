"""Extents that must be equal: those of dimensions that one index subscripts, without a header.

    D(i,k) +=! A(i,j) * B(j,k)      --->    dimension 1 of A is dimension 0 of B

A header says it by its size symbols, and a call of a def by those of that def.
"""

from collections.abc import Iterator, Sequence

import islpy as isl

from tcdsl.lang.comprehension import Statement
from tcdsl.lang.ranges.rounds import Access
from tcdsl.records import dataclass
from tcdsl.source import Span


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedAgreement:
    """Two extents that must be equal, what they are, and what to do where they are not."""

    what: str
    one: isl.PwAff
    other: isl.PwAff
    span: Span
    advice: str


def agreements_of_indices(
    statement: Statement, reads_: Sequence[Access]
) -> Iterator[ResolvedAgreement]:
    """Yield that all dimensions with the same index for a subscript are the same.

    Not of an index with a given range, nor of the tensor that *statement* itself assigns, unless
    that is an input.
    """
    first: dict[str, Access] = {}
    given = {bounds.index for bounds in statement.explicit}
    for access in reads_:
        index = access.plain
        if index is not None and index not in given and not access.is_own:
            yield from _equal_intervals(index, first.setdefault(index, access), access)


def _equal_intervals(index: str, one: Access, other: Access) -> Iterator[ResolvedAgreement]:
    names = [f"dimension {a.position} of {a.read.load.tensor!r}" for a in (one, other)]
    advice = (
        f"{index} is a subscript of both; if they may differ, give its range: where {index} in "
    )
    ends = (
        ("", one.interval.upper, other.interval.upper),
        ("the start of ", one.interval.lower, other.interval.lower),
    )
    for what, a, b in ends:
        if not (a.plain_is_equal(b) or a.is_equal(b)):
            text_ = f"{what}{names[0]} and {what}{names[1]}"
            yield ResolvedAgreement(text_, a, b, other.read.load.span, f"{advice}a:b")
