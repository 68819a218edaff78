"""What generated code found out of range while running, as errors.

It needs no statement of the program: code from the disk cache is called without any.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tcdsl.errors import DATA_RANGE, OUT_OF_RANGE, TCError
from tcdsl.lang.types.head import Head
from tcdsl.source import NOWHERE, Source, Span


class Site(NamedTuple):
    """A checked subscript: where it stands in the text, and the tensor that it reads first.

    Of a range whose bounds are read *tensor* is the clause, and *dim* -1.  *is_wrapped*: an index
    of ``uint64`` from 2^63 on is found as a negative number.
    """

    tensor: str
    dim: int
    start: int = 0
    end: int = 0
    reads: str = ""
    is_wrapped: bool = False


def sites_from_json(data: Sequence[Any]) -> tuple[Site, ...]:
    """Return the sites that were written as lists."""
    return tuple(
        Site(str(name), int(dim), int(start), int(end), str(reads), bool(is_wrapped))
        for name, dim, start, end, reads, is_wrapped in data
    )


def fault_error(head: Head, site: Site, index: int, extent: int, element: str | None) -> TCError:
    """Return the error for *index* at *site*.

    :arg extent: what the index must be below, or where the range must end.
    :arg element: of the tensor that the subscript reads, from which it comes: ``at(2, 3)``.
    """
    if site.dim == -1:
        return data_range_error(head.source, site.tensor, index, extent)
    if site.is_wrapped and index < 0:
        index += 2**64
    span = Span(site.start, site.end)
    tensor = head.tensors.get(site.tensor)
    if span == NOWHERE and tensor is not None:
        span = tensor.span
    return OUT_OF_RANGE(
        head.source, span, index=index, tensor=site.tensor, extent=extent,
        origin=origin_text(element),
    )  # fmt: skip


def origin_text(element: str | None) -> str:
    """Return what the message says of the element that the index comes from."""
    return "" if element is None else f" (the index is from {element})"


def element_text(name: str, position: Sequence[int]) -> str:
    """Return an element as the language writes it."""
    return f"{name}({', '.join(map(str, position))})" if position else name


def data_range_error(source: Source, clause: str, reached: int, end: int) -> TCError:
    """Return the error for the range *clause*, which is [a, *end*) at most.

    :arg reached: its upper bound if that is above *end*, or else its lower one, which is below a.
    """
    written = re.search(r"\s+".join(map(re.escape, clause.split())), source.text)
    span = Span(*written.span()) if written is not None else NOWHERE
    name = clause.partition(" ")[0]
    if reached > end:
        what = f"reaches {reached}, but {name} ends at {end}"
        return DATA_RANGE(source, span, clause=clause, what=what)
    # The reads of an index begin at 0, mostly: another clause says that it begins later.
    hint = None if reached < 0 else (
        f"the reads and the other ranges of {name} say where it begins, for all rows at once; to"
        f" leave out values of a row, write a condition: where {clause}, exists {name} >= ..."
    )  # fmt: skip
    what = f"begins at {reached}, before {name} does"
    return DATA_RANGE(source, span, clause=clause, what=what, hint=hint)
