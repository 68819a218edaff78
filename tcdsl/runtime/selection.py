"""Several elements of a sequence at once."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

Select: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]


def selector(positions: Sequence[int]) -> Select:
    """Return a function that gives what stands at *positions* of its argument."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple([values[position] for position in positions])
