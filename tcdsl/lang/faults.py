"""What generated code found out of range while running, as errors.

It needs no statement of the program: code from the disk cache is called without any.
"""

from collections.abc import Sequence

from tcdsl.errors import DATA_RANGE, OUT_OF_RANGE, TCError
from tcdsl.lang.head import Head
from tcdsl.source import NOWHERE, Source, Span


def fault_error(head: Head, site: Sequence[object], index: int, extent: int) -> TCError:
    """Return the error for *index* at a fault *site*: a tensor and its dimension, or a range, -1.

    :arg extent: what the index must be below, or where the range must end.
    """
    name, dim = str(site[0]), site[1]
    if dim == -1:
        return data_range_error(head.source, name, index, extent)
    span = head.tensors[name].span
    return OUT_OF_RANGE(head.source, span, index=index, tensor=name, extent=extent)


def data_range_error(source: Source, clause: str, reached: int, end: int) -> TCError:
    """Return the error for the range *clause*, which is [a, *end*) at most.

    :arg reached: its upper bound if that is above *end*, or else its lower one, which is below a.
    """
    start = source.text.find(clause)
    span = Span(start, start + len(clause)) if start >= 0 else NOWHERE
    name = clause.partition(" ")[0]
    what = f"reaches {reached}, but {name} ends at {end}"
    if reached <= end:
        what = f"begins at {reached}, before {name} does"
    return DATA_RANGE(source, span, clause=clause, what=what)
