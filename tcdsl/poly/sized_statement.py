"""A statement at the sizes at which it is lowered."""

from collections.abc import Mapping

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.ranges.affine import Builder
from tcdsl.poly.accesses import Bounds, box, builder_of
from tcdsl.poly.scop import Array
from tcdsl.records import dataclass
from tcdsl.source import Source


@dataclass(frozen=True, slots=True)
class SizedStatement:
    """A statement, and what its domain and its accesses follow from."""

    statement: tc.Statement
    bounds: Mapping[str, Bounds]  # of each index
    sizes: Mapping[str, int | None]
    arrays: Mapping[str, Array]
    context: isl.Set  # the sizes that may occur
    source: Source

    def builder(self, indices: tuple[str, ...], name: str) -> Builder:
        """Return a builder of affine expressions over the instances ``name[indices]``."""
        return builder_of(indices, name, self.sizes)

    def box(
        self, builder: Builder, indices: tuple[str, ...], bounds: Mapping[str, Bounds]
    ) -> isl.Set:
        """Return the box of *indices*, for the sizes that may occur."""
        return box(builder, indices, bounds).intersect_params(self.context)
