"""A class of values of an open size, which one plan serves on a GPU.

    257 .. 1024, multiples of 8        264, 272, ..., 1024     K = 8 q,  33 <= q <= 128
    257 .. 1024, none of 8             257, ..., 263, 265, ...

Where a row's length is a multiple of a vector, so is what depends on it: strides, and the places
at which rows begin.  Code for multiples has q for its open size (lang/ranges/open_sizes), so that
divisors are coefficients.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class SizeClass(NamedTuple):
    """The values from *least* to *greatest* that *step* divides, and *other* does not (1: any)."""

    least: int
    greatest: int
    step: int = 1
    other: int = 1

    @property
    def units(self) -> tuple[int, int]:
        """The least and the greatest number of steps."""
        return -(-self.least // self.step), self.greatest // self.step

    def condition(self, value: str) -> str:
        """Return the text of Python that says whether *value*, a text, is in the class."""
        parts = [f"{self.least} <= {value} <= {self.greatest}"]
        parts += [f"{value} % {self.step} == 0"] if self.step > 1 else []
        parts += [f"{value} % {self.other} != 0"] if self.other > 1 else []
        return " and ".join(parts)

    def __str__(self) -> str:
        ends = f"from {self.least} to {self.greatest}"
        return f"{ends} in steps of {self.step}" if self.step > 1 else ends


Bounds: TypeAlias = Mapping[str, SizeClass]  # of open sizes

__all__ = ["Bounds", "SizeClass"]
