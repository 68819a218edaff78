"""A class of values of an open size, which one plan serves on a GPU.

    257 .. 1024 in steps of 8        264, 272, ..., 1024     K = 8 q,      33 <= q <= 128
                                     257, 265, ..., 1017     K = 8 q + 1,  32 <= q <= 127
    17 .. 64, none of 8              17, ..., 23, 25, ...    K

Where a row's length is known modulo a vector, so is what depends on it: strides, and the places at
which rows begin.  Code for such values has q for its open size (lang/ranges/open_sizes), so that
divisors are coefficients, and what remains is a number.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class SizeClass(NamedTuple):
    """Values from *least* to *greatest* in steps of *step*, none a multiple of *other* (1: any)."""

    least: int
    greatest: int
    step: int = 1
    other: int = 1

    @property
    def units(self) -> tuple[int, int]:
        """The least and the greatest number of whole steps."""
        return self.least // self.step, self.greatest // self.step

    @property
    def rest(self) -> int:
        """What all values are beyond whole steps."""
        return self.least % self.step

    def condition(self, value: str) -> str:
        """Return the text of Python that says whether *value*, a text, is in the class."""
        parts = [f"{self.least} <= {value} <= {self.greatest}"]
        parts += [f"{value} % {self.step} == {self.rest}"] if self.step > 1 else []
        parts += [f"{value} % {self.other} != 0"] if self.other > 1 else []
        return " and ".join(parts)

    def __str__(self) -> str:
        ends = f"from {self.least} to {self.greatest}"
        return f"{ends} in steps of {self.step}" if self.step > 1 else ends


Bounds: TypeAlias = Mapping[str, SizeClass]  # of open sizes

__all__ = ["Bounds", "SizeClass"]
