"""What ``Options(tile=..., vectorise=False)`` change in a GPU kernel's sketch.

    tile=(4, 64)       a block takes 4 x 64 iterations of the two outermost loops that blocks share
    vectorise=False    one element at a time: for lanes of a vector  --->  loops written out

Sizes that a block's threads do not reach in ``MAX_REPEAT`` turns each are cut to what they reach.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import prod

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Gpu
from tcdsl.options import Options
from tcdsl.poly.loop_tree import Leaf, Loop, LoopKind, Node
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Scop
from tcdsl.strategies.assembly import Chunk, Lane
from tcdsl.strategies.block_sizes import BLOCK_THREADS, WARP
from tcdsl.strategies.both_ways import BothWaysSketcher, Crossing
from tcdsl.strategies.clusters import ClusterRows
from tcdsl.strategies.columns import KeptColumns
from tcdsl.strategies.sketch import Sketch, Tile
from tcdsl.transforms.fusion import Group

MAX_REPEAT = 8  # turns of a thread, which are written out


class RequestedSketcher(BothWaysSketcher):
    """Sketches a group as its options ask."""

    def __init__(
        self,
        scop: Scop,
        group: Group,
        shapes: Mapping[str, Shape],
        gpu: Gpu,
        *,
        options: Options,
    ) -> None:
        super().__init__(scop, group, shapes, gpu)
        self.options = options

    @cached_property
    def clusters(self) -> ClusterRows | None:
        """Tiles that are asked for are one block's."""
        return None if self.options.tile else super().clusters

    @cached_property
    def columns(self) -> KeptColumns | None:
        """Nor are tiles that are asked for those of columns."""
        return None if self.options.tile else super().columns

    @cached_property
    def crossing(self) -> Crossing | None:
        """Tiles that are asked for are of one direction."""
        return None if self.options.tile else super().crossing

    def lane_vector(
        self, name: str, dim: int, kept: Collection[str] = (), *, is_own: bool = True
    ) -> int:
        if not self.options.vectorise:
            return 1
        return super().lane_vector(name, dim, kept, is_own=is_own)

    def assembled(
        self,
        tiles: Sequence[Tile],
        lanes: Mapping[str, Lane],
        chunk: Chunk | None,
    ) -> Sketch:
        asked = zip(self.parallel, self.options.tile, strict=False)
        sizes = {self.name_of(axis): size for axis, size in asked}
        if sizes:
            taken = {lane.axis: lane.threads for lane in lanes.values()}
            tiles = self._resized(tiles, sizes, taken)
        return super().assembled(tiles, lanes, chunk)

    def _resized(
        self, tiles: Sequence[Tile], sizes: Mapping[str, int], taken: Mapping[int, int]
    ) -> list[Tile]:
        """Return *tiles* with the *sizes* that are given.

        :arg taken: the threads along each axis that members share by themselves.
        """
        found = []
        budget = max(1, BLOCK_THREADS // prod(taken.values()))
        free = [axis for axis in (0, 1) if axis not in taken]
        # All threads meet in the folds of a block: none may have fewer turns than another.
        meets = any(axis or threads > WARP for axis, threads in taken.items())
        for tile in tiles:
            size = min(sizes.get(self.name_of(tile.axis), 0), tile.extent)
            if not size and tile.thread_axis < 0:
                found.append(tile)
                continue
            size = size or tile.block
            vector = next((v for v in (tile.vector, 2) if v <= tile.vector and size % v == 0), 1)
            threads = min(-(-size // vector), budget) if free else 1
            repeat = min(-(-size // (threads * vector)), MAX_REPEAT)
            if meets and repeat > 1 and threads > 1:
                repeat = 1
            axis = free.pop(0) if threads > 1 else -1
            budget //= threads
            found.append(replace(
                tile, thread_axis=axis, threads=threads, repeat=repeat, vector=vector
            ))  # fmt: skip
        self.why.append(f"tiles as asked: {self.options.tile}")
        return found


def sketcher_for(
    options: Options,
) -> "type[BothWaysSketcher] | partial[RequestedSketcher]":
    """Return what sketches groups under *options*."""
    if options.vectorise and not options.tile:
        return BothWaysSketcher
    return partial(RequestedSketcher, options=options)


def written_out(tree: Node) -> Node:
    """Return *tree* with the lanes of vectors as short loops, which access one element each."""
    match tree:
        case Leaf():
            return tree
        case Children(children=children):
            return Children(tuple(written_out(child) for child in children))
        case Loop(kind=kind, body=body):
            kind = LoopKind.UNROLL if kind is LoopKind.LANES else kind
            return replace(tree, kind=kind, body=written_out(body))
