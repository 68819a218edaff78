"""What is to be compiled: a comprehension at the sizes, layouts and options of a call."""

from collections.abc import Mapping
from dataclasses import field

from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.open_sizes import AnySpecialisation
from tcdsl.lang.size_class import SizeClass
from tcdsl.options import Options
from tcdsl.records import dataclass

Strides = Mapping[str, tuple[int | None, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A comprehension, and what its code may rely on.

    *strides* are in elements, of the arguments that are not dense and row-major (None: open).
    *alignments* are bytes of which arguments' pointers are multiples; on a GPU 16 for others.
    *opened* are the sizes whose values a call gives: the class that the code has to serve, or None
    for all values.
    """

    comprehension: Comprehension
    special: AnySpecialisation
    strides: Strides = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    alignments: Mapping[str, int] = field(default_factory=dict)
    opened: Mapping[str, SizeClass | None] = field(default_factory=dict)


__all__ = ["Request", "Strides"]
