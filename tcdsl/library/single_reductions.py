"""The reductions that are one operator over some axes of one tensor.

CUB and cuDNN have an operator and a layout, not a formula: this table says which case is which.
"""

from collections.abc import Mapping
from typing import Literal

from tcdsl.records import dataclass

Operator = Literal["sum", "prod", "max", "min"]

_ALL, _ROW, _COLUMN, _MIDDLE = (0,), (1,), (0,), (1,)
_CHANNEL, _CHANNEL_LAST = (0, 2, 3), (0, 1, 2)


@dataclass(frozen=True, slots=True)
class SingleReduction:
    """*operator* over *axes*; of bools, the least is their conjunction, the greatest the other."""

    operator: Operator
    axes: tuple[int, ...]

    def kept_axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes of a tensor of *rank* that stay, in order."""
        return tuple(axis for axis in range(rank) if axis not in self.axes)


SINGLE_REDUCTIONS: Mapping[str, SingleReduction] = {
    "all_sum": SingleReduction("sum", _ALL),
    "all_prod": SingleReduction("prod", _ALL),
    "all_max": SingleReduction("max", _ALL),
    "all_min": SingleReduction("min", _ALL),
    "all_and": SingleReduction("min", _ALL),
    "all_or": SingleReduction("max", _ALL),
    "row_sum": SingleReduction("sum", _ROW),
    "row_sum_float32": SingleReduction("sum", _ROW),
    "row_max": SingleReduction("max", _ROW),
    "row_min": SingleReduction("min", _ROW),
    "row_prod": SingleReduction("prod", _ROW),
    "row_and": SingleReduction("min", _ROW),
    "row_or": SingleReduction("max", _ROW),
    "column_sum": SingleReduction("sum", _COLUMN),
    "column_max": SingleReduction("max", _COLUMN),
    "column_or": SingleReduction("max", _COLUMN),
    "middle_sum": SingleReduction("sum", _MIDDLE),
    "middle_max": SingleReduction("max", _MIDDLE),
    "channel_sum": SingleReduction("sum", _CHANNEL),
    "channel_sum_nhwc": SingleReduction("sum", _CHANNEL_LAST),
    "channel_max": SingleReduction("max", _CHANNEL),
}


def result_type(results: tuple[str, ...], element: str) -> str:
    """Return the type of a single reduction's output, whose case says *results*."""
    return results[0] if results else element
