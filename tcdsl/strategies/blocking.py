"""How a contraction is cut into tiles of registers and blocks of caches (panels.py)."""

from tcdsl.lang.comprehension import Const
from tcdsl.lang.types.dtypes import INT32, DType
from tcdsl.poly.loop_tree import Coordinate
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import Merged
from tcdsl.rewrites.scop.packing import Side


@dataclass(frozen=True, slots=True)
class Dots:
    """How an instruction multiplies several narrow terms and adds them to each sum."""

    at_once: int  # terms that take as long as one by one: 1 where this processor has none
    together: int  # terms of a step
    dtype: DType | None  # of panels; None: each factor's own


@dataclass(frozen=True, slots=True)
class Class:
    """An index in tiles: *tile* values in registers, *block* values (whole tiles) in caches.

    It may count the values of several.
    """

    merged: Merged
    tile: int
    block: int

    @property
    def index(self) -> str:
        """The name of the index."""
        return self.merged.name

    @property
    def extent(self) -> int:
        """How many values it has."""
        return self.merged.extent

    @property
    def is_several(self) -> bool:
        """Whether it counts the values of several indices: each is a quotient or a remainder."""
        return sum(extent > 1 for extent in self.merged.extents) > 1

    @property
    def padded(self) -> int:
        """The extent in whole tiles."""
        return -(-self.extent // self.tile) * self.tile

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.extent // self.block)

    @property
    def side(self) -> Side:
        """Return the dimension of a panel along a tile."""
        return Side(self.index, self.tile, Const(self.extent, INT32))

    def at(self, position: int) -> tuple[Coordinate, Coordinate, Coordinate]:
        """Return the number of the block, of the tile in it, and the place in the tile."""
        return (
            Coordinate(position, 0, self.block),
            Coordinate(position, 0, self.tile, self.block // self.tile),
            Coordinate(position, 0, 1, self.tile),
        )


@dataclass(frozen=True, slots=True)
class Panels:
    """How the contraction *lead* is blocked; of the terms a tile is a block.

    *factors* are the positions of the factors that rows and columns are of.
    """

    lead: str
    rows: Class
    columns: Class
    terms: Class
    factors: tuple[int, int]
    is_along_terms: bool  # whether neighbours in the rows' panels are terms
    is_shared: bool  # whether the columns' panels are filled before, or by each block of rows
    around: tuple[str, ...] = ()  # other indices of results: a product each
    within: tuple[str, ...] = ()  # other reduced indices, each with all its values in a block
    is_transposed: bool = False  # whether terms of a column are neighbours in memory
    dots: Dots | None = None  # None: terms are multiplied one by one
