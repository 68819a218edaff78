"""Tiles around a nest: as many values of its outer axes at a time as the user, or the cache, asks.

    parallel i                       parallel i / 32
      j             --->   (32, 32)    j / 32
        y(i,j) = x(j,i)                  i % 32
                                           j % 32:  y(i,j) = x(j,i)

Legal for the axes that a group's members share (their distance is zero on every dependence between
members) where all of them are parallel.

Walks: where one array's neighbours lie along one axis and another's along another, whichever loop
is innermost one of them uses a single element of each cache line before the line is gone; in tiles
all of it is used.  After Lam, Rothberg, Wolf, ASPLOS 1991, doi:10.1145/106972.106981.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.strategies.rows import PARALLEL_WORK, work_of
from tcdsl.strategies.sketch import OuterLoop, Sketch
from tcdsl.transforms.fusion import Group
from tcdsl.transforms.nesting import Piece, Remaining

WALK_TILE = 32
FAR = 16  # elements: a stride of a cache line or more


def tiled(
    sketch: Sketch, group: Group, shapes: Mapping[str, Shape], sizes: Sequence[int], cpu: Cpu
) -> Sketch:
    """Return *sketch* with its outermost parallel axes in tiles of *sizes*, outermost first."""
    if not sizes:
        return sketch
    lead = max(group.members, key=lambda name: shapes[name].instances)
    axes = [axis for axis in group.axes if group.has_parallel(axis, shapes)]
    axes.sort(key=lambda axis: shapes[lead].order.index(axis[lead]))
    for axis, size in zip(axes, sizes, strict=False):
        sketch = _tile_axis(sketch, axis, lead, size, shapes)
    return sketch


def _tile_axis(
    sketch: Sketch, axis: Mapping[str, int], lead: str, size: int, shapes: Mapping[str, Shape]
) -> Sketch:
    """Give the loop over *axis* tiles of *size*: it keeps its place and its kind, or is new."""
    low = min(shapes[name].lower[dim] for name, dim in axis.items())
    high = max(shapes[name].lower[dim] + shapes[name].extents[dim] for name, dim in axis.items())
    if size >= high - low:
        return sketch
    pieces = {
        name: Piece(Coordinate(dim, low, size), -(-(high - low) // size), Role.PARALLEL)
        for name, dim in axis.items()
    }
    old = next(
        (p for p, loop in enumerate(sketch.outer)
         if loop.pieces[lead].coordinate.position == axis[lead]), None,
    )  # fmt: skip
    outer = list(sketch.outer)
    if old is None:
        outer.append(OuterLoop(pieces, LoopKind.SERIAL))
    else:
        outer[old] = OuterLoop(pieces, outer[old].kind)
    remaining = {
        name: _with_point(sketch.remaining, name, axis[name], low, size, shapes[name])
        for name in sketch.members
    }
    return replace(sketch, outer=tuple(outer), remaining=remaining)


def _with_point(
    remaining: Remaining, name: str, dim: int, low: int, size: int, shape: Shape
) -> tuple[Piece, ...]:
    """Return what is left of a member's loops, with a tile's points along *dim*, in order."""
    point = Piece(Coordinate(dim, low, 1, size), size, shape.roles[dim])
    others = [piece for piece in remaining[name] if piece.coordinate.position != dim]
    return tuple(sorted((*others, point), key=lambda p: shape.order.index(p.coordinate.position)))


def tile_walks(group: Group, shapes: Mapping[str, Shape]) -> tuple[int, ...]:
    """Return the tiles of *group* if its arrays are walked along different axes, else ()."""
    return ()


__all__ = ["PARALLEL_WORK", "tile_walks", "tiled", "work_of"]
