"""Every member's innermost axis along threads.x; shared axes over blocks, or packed into them.

    y(i) +=! x(i,j)            long rows    blocks over i, threads.x along j, and chunks if few
    z(i,j) = x(i,j) / y(i)     short ones   threads.y along i, so that a block has several rows
                               kept ones    x in registers between members (row_registers.py)

A row that one warp adds up needs no barrier, and of rows of a few values a thread takes several.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tcdsl.costmodel import kept_rows
from tcdsl.lang.comprehension import Expr
from tcdsl.strategies import block_sizes, row_registers
from tcdsl.strategies.assembly import Chunk, Lane
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.group_axes import GroupAxes
from tcdsl.strategies.row_registers import Row, resident_arrays, row_of
from tcdsl.strategies.shared_sums import share_of_sum
from tcdsl.strategies.sketch import VECTOR_BYTES, Sketch, Tile

ROW_LOADS = 2  # of a thread, of all its rows (bfloat16, 64 columns: 38 us; with four 39.6)
SHORT_BYTES = 8 * block_sizes.WARP * VECTOR_BYTES  # of rows that a warp adds up
ALONE = 16  # values of a row that one thread adds up (bfloat16: 39.6 us; of two threads 40.5)


class RowSketcher(GroupAxes):
    """Sketches a group whose members have rows."""

    def row_sketch(self, may_chunk: bool) -> Sketch:
        """Return the sketch of threads along rows."""
        lanes = {name: dim for name in self.group.members if (dim := self.lane(name)) is not None}
        length = max((self.shapes[n].extents[d] for n, d in lanes.items()), default=1)
        row = row_of(self, lanes, length, self.resident(lanes, length))
        tiles = [self.tile(axis) for axis in reversed(self.parallel)]
        share, chunk = self._share(row, tiles, may_chunk)
        x = share.threads
        if x <= block_sizes.WARP and self._are_many(tiles) and tiles:
            tiles[0] = self._packed(tiles[0], row, share)
        y = tiles[0].threads if tiles else 1
        self.why.append(
            f"{x} threads a row" + (f", {tiles[0].block} rows a block" if y > 1 else "")
        )
        if not lanes:
            x = 1
        resident, repeat = row.resident, share.turns
        if chunk is not None or not repeat:
            resident, repeat = (), 0
        else:
            names = ", ".join(resident)
            self.why.append(f"rows of {names} in registers: {repeat * row.vector} values a thread")
        width = {
            n: Lane(d, 0, x, row.vector, repeat) if self.shapes[n].extents[d] == length
            else Lane(d, 0, x)
            for n, d in lanes.items()
        }  # fmt: skip
        sketch = self.assembled(tiles, width, chunk)
        return replace(sketch, resident=resident, beside=share.beside, template="rows")

    def resident(self, lanes: Mapping[str, int], length: int) -> tuple[str, ...]:
        """Return the arrays whose rows of *length* values several members use."""
        return resident_arrays(self, lanes, length, self.is_row)

    def is_row(self, last: Expr, index: str) -> bool:
        """Return whether elements with the subscript *last* are a row along *index*."""
        return row_registers.is_row(last, index)

    def share_of_row(self, row: Row) -> kept_rows.Share:
        """Return how threads share a row that is kept in their registers."""
        return row_registers.share_of_row(self, row)

    def _share(
        self, row: Row, tiles: list[Tile], may_chunk: bool
    ) -> tuple[kept_rows.Share, Chunk | None]:
        """Return how threads share a row, no turns where none is kept; and how blocks do."""
        if row.is_kept:
            share = self.share_of_row(row)
            if share.beside:
                self.why.append(f"registers for {share.beside} blocks on a multiprocessor")
            return share, None
        warp = block_sizes.WARP
        row_bytes = row.groups * row.vector * self._value_bytes()
        if row_bytes <= SHORT_BYTES + VECTOR_BYTES and self._are_many(tiles):
            x = 1 if row.length <= ALONE else min(warp, power_of_two(row.groups))
            return kept_rows.Share(x, 0, 0), None
        most = min(block_sizes.MAX_ROW_THREADS, power_of_two(row.groups))
        # Several passes over long rows: few at once, so that the cache has them still.
        least = most if row.resident else min(warp, most)
        choices = [most >> n for n in range(6) if most >> n >= least]
        choices += [t for t in _fitting(row.groups) if least <= t <= most]
        x, chunk = share_of_sum(self, tiles, row.lanes, 1, row.vector, choices, may_chunk=may_chunk)
        return kept_rows.Share(x, 0, 0), chunk

    def _are_many(self, tiles: list[Tile]) -> bool:
        """Return whether there are several rows for each multiprocessor."""
        return prod(tile.extent for tile in tiles) >= 4 * self.gpu.multiprocessors

    def _value_bytes(self) -> int:
        """Return the bytes of the widest element that the lead loads."""
        reads = self.shapes[self.lead].statement.reads
        return max((self.scop.arrays[r.array].dtype.size_bytes for r in reads), default=1)

    def _packed(self, tile: Tile, row: Row, share: kept_rows.Share) -> Tile:
        """Return *tile*, of rows that fit a warp, with several of them in a block."""
        x = share.threads
        y = min(block_sizes.BLOCK_THREADS // x, power_of_two(tile.extent))
        is_alone = x == 1 < row.groups
        turns = 1 if share.turns or is_alone else self._rows_of_thread(-(-row.groups // x), y)
        return replace(tile, thread_axis=1 if y > 1 else -1, threads=y, repeat=turns)

    def _rows_of_thread(self, loads: int, threads: int) -> int:
        """Return how many rows a thread takes: several where one has few loads to start at once."""
        turns = max(1, ROW_LOADS // loads)
        while turns > 1 and self.results < 8 * self.gpu.multiprocessors * threads * turns:
            turns //= 2
        return turns


def _fitting(groups: int) -> list[int]:
    """Return numbers of threads, whole warps, of which few idle in the last turn of *groups*."""
    warp = block_sizes.WARP
    return [-(-groups // (turns * warp)) * warp for turns in range(1, 5)]
