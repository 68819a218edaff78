"""Rows whose lengths are data: so many threads a row as an average one keeps busy.

    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r+1)

    blocks over tiles of r, threads.y along r, threads.x along e: each takes every x-th entry of the
    row from its first one on, and the partial sums of a row are folded

    y(r,d) +=! val(e) * X(col(e), d)       threads along d, neighbours in memory; e in each thread

A row has E / R entries on average, which is all that is known of it.  Few rows get more threads,
for nothing else would fill the chip.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.strategies import block_sizes
from tcdsl.strategies.assembly import Lane
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.flat_threads import flat_sketch
from tcdsl.strategies.group_axes import MIN_LANES, GroupAxes
from tcdsl.strategies.sketch import Axis, OuterLoop, Sketch, Tile
from tcdsl.transforms.nesting import Piece
from tcdsl.transforms.rfactor import Partial

CHUNK_BLOCKS, ROW_BLOCKS = 64, 32  # that share chunks of a long row, and long rows
ENTRIES = 4  # of an average row, that a thread takes: their loads start together


def is_ragged(axes: GroupAxes) -> bool:
    """Return whether data bound a loop of some member."""
    shapes = (axes.shapes[name] for name in axes.group.members)
    return any(shape.is_ragged(dim) for shape in shapes for dim in range(len(shape.extents)))


def ragged_sketch(axes: GroupAxes) -> Sketch:
    """Return the sketch of a group with ranges from data."""
    lead = axes.shapes[axes.lead]
    is_shared = any(lead.is_ragged(axis[axes.lead]) for axis in axes.group.axes)
    if is_shared and len(axes.group.members) > 1:  # as long_groups alone makes them
        return _long_sketch(axes)
    inner = _inner_axis(axes)
    if inner is not None:
        return flat_sketch(axes, inner, 1)
    lanes = {name: dim for name in axes.group.members if (dim := axes.lane(name)) is not None}
    tiles = [axes.tile(axis) for axis in reversed(axes.parallel)]
    x = _threads_of_row(axes, lanes, tiles)
    if tiles:
        tiles[0] = _packed(tiles[0], x)
    y = tiles[0].threads if tiles else 1
    axes.why.append(f"{x} threads a row of data" + (f", {y} rows a block" if y > 1 else ""))
    sketch = axes.assembled(tiles, {n: Lane(d, 0, x) for n, d in lanes.items()}, None)
    return replace(sketch, template="ragged")


def _long_sketch(axes: GroupAxes) -> Sketch:
    """Return the sketch of rows that blocks share (transforms/long_rows): s and c over blocks."""
    outer = []
    for number, (axis, width) in enumerate(
        zip(reversed(axes.group.axes), (CHUNK_BLOCKS, ROW_BLOCKS), strict=True)
    ):
        extent = axes.extent(axis)
        mapped = Role.PARALLEL, LoopKind.BLOCK, number, min(extent, width)
        pieces = {name: Piece(Coordinate(dim), extent, *mapped) for name, dim in axis.items()}
        outer.append(OuterLoop(pieces, LoopKind.BLOCK))
    outer.reverse()
    threads = block_sizes.BLOCK_THREADS
    remaining, partials, widths = {}, {}, {}
    for name in axes.group.members:
        shape = axes.shapes[name]
        remaining[name] = tuple(
            Piece(
                Coordinate(dim), shape.extents[dim], shape.roles[dim], LoopKind.THREAD, 0, threads
            )
            for dim in range(2, len(shape.extents))
        )
        if shape.statement.kind is Kind.UPDATE and remaining[name]:
            entry = shape.statement.indices[2]
            partials[name] = (Partial(entry, 0, 1, threads, threads, True),)
            widths[name] = ((0, threads),)
    axes.why.append(f"long rows: {CHUNK_BLOCKS} x {ROW_BLOCKS} blocks over their chunks")
    return Sketch(
        axes.group.members, tuple(outer), remaining, partials, why=tuple(axes.why), threads=widths,
        in_registers=True, template="ragged",
    )  # fmt: skip


def _inner_axis(axes: GroupAxes) -> Axis | None:
    """Return the shared axis that stands inside the ranges of all members that have any."""
    for axis in reversed(axes.parallel):
        ragged = [
            (axes.shapes[name], dim)
            for name, dim in axis.items()
            if any(map(axes.shapes[name].is_ragged, range(len(axes.shapes[name].extents))))
        ]
        is_inside = all(s.order[-1] == dim and s.extents[dim] >= MIN_LANES for s, dim in ragged)
        if ragged and is_inside:
            return axis
    return None


def _threads_of_row(axes: GroupAxes, lanes: Mapping[str, int], tiles: list[Tile]) -> int:
    """Return how many threads share a row, whose members they share along *lanes*.

    Of a statement that is not ragged along its lane each has a value of its own, in a register.
    """
    shapes = {name: axes.shapes[name] for name in lanes}
    beside = [
        shape.extents[lanes[name]]
        for name, shape in shapes.items()
        if not shape.is_ragged(lanes[name]) and any(map(shape.is_ragged, shape.order))
    ]
    if beside:
        return min(power_of_two(max(beside)), block_sizes.MAX_ROW_THREADS)
    count = max((shape.counts[lanes[name]] for name, shape in shapes.items()), default=1)
    rows = prod(tile.extent for tile in tiles)
    wanted = -(-count // ENTRIES)
    if rows * wanted < axes.gpu.threads:
        wanted = min(count, -(-axes.gpu.threads // rows))
    x = min(power_of_two(max(wanted, 1)), block_sizes.MAX_ROW_THREADS)
    # A block of several warps folds through shared memory: only where a row is worth it.
    return x if x <= block_sizes.WARP or count >= 2 * x else block_sizes.WARP


def _packed(tile: Tile, threads: int) -> Tile:
    """Return *tile* with as many rows as fit a block, each of *threads*."""
    y = min(max(block_sizes.BLOCK_THREADS // threads, 1), power_of_two(tile.extent))
    if y == 1:
        return tile
    return Tile(tile.axis, tile.extent, tile.lower, 1, y)
