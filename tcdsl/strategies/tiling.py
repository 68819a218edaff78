"""Tiles around a nest: as many values of its outer axes at a time as the user, or the cache, asks.

    parallel i                       parallel i / 128
      j             --->               parallel j / 16
        y(i,j) = x(j,i)                  i % 128
                                           vector j % 16:  y(i,j) = x(j,i)

Legal for the axes that a group's members share (their distance is zero on every dependence between
members) where all of them are parallel.

*Crossing walks*: where one array's neighbours lie along one axis and another's along another,
whichever loop is innermost one of them uses a single element of each cache line before the line is
gone; in tiles all of it is used.  The innermost loop walks one line of what is written, the next
runs as far along the other array as its lines stay in the cache.  After Lam, Rothberg, Wolf,
ASPLOS 1991, doi:10.1145/106972.106981.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.schedule import OuterLoop, Schedule

LINE_BYTES = cpu_thresholds.LINE_BYTES
NEAR_TILE = cpu_thresholds.TRANSPOSED_NEAR
FAR_TILE = cpu_thresholds.TRANSPOSED_FAR
MIN_INSTANCES = cpu_thresholds.TRANSPOSED_INSTANCES

Axis = Mapping[str, int]  # member -> dimension


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two axes of a group along which its arrays are contiguous: *near* those that weigh more."""

    near: Axis
    far: Axis
    line: int  # values of *near* in a tile: a cache line, where that is not too many


def requested_tiles(
    schedule: Schedule, group: Group, shapes: Mapping[str, Shape], sizes: Sequence[int]
) -> Schedule:
    """Return *schedule* with its outermost parallel axes in tiles of *sizes*, outermost first."""
    lead = group.lead(shapes)
    axes = [axis for axis in group.axes if group.has_parallel(axis, shapes)]
    axes.sort(key=lambda axis: shapes[lead].order.index(axis[lead]))
    for axis, size in zip(axes, sizes, strict=False):
        schedule = _tile(schedule, axis, lead, size, LoopKind.SERIAL, shapes)
    return schedule


def crossing_tiles(
    schedule: Schedule, scop: Scop, group: Group, shapes: Mapping[str, Shape], far: int = FAR_TILE
) -> Schedule:
    """Return *schedule* in tiles if its arrays are walked along crossing axes, *far* along one."""
    crossing = find_crossing(scop, group, shapes)
    if crossing is None:
        return schedule
    lead = group.lead(shapes)
    is_parallel = any(loop.kind is LoopKind.PARALLEL for loop in schedule.outer)
    kind = LoopKind.PARALLEL if is_parallel else LoopKind.SERIAL
    for axis in group.axes:
        # The loops over other axes go around all tiles, to walk from one tile to its neighbour.
        if axis not in (crossing.far, crossing.near) and group.has_parallel(axis, shapes):
            schedule = _around(schedule, axis, lead, kind, shapes)
    schedule = _tile(schedule, crossing.far, lead, far, kind, shapes)
    schedule = _tile(schedule, crossing.near, lead, crossing.line, kind, shapes)
    schedule = _last(schedule, lead, (crossing.far[lead], crossing.near[lead]))
    remaining = {
        name: _innermost(pieces, crossing.far[name], crossing.near[name])
        for name, pieces in schedule.remaining.items()
    }
    text = f"{far} x {crossing.line} tiles: arrays are contiguous along crossing axes"
    return replace(schedule, remaining=remaining, why=(*schedule.why, text))


def find_crossing(scop: Scop, group: Group, shapes: Mapping[str, Shape]) -> Crossing | None:
    """Return the axes along which the arrays of *group* are walked, if they are two."""
    lead = group.lead(shapes)
    shape = shapes[lead]
    if shape.statement.kind is not Kind.ASSIGN or shape.instances < MIN_INSTANCES:
        return None
    size_bytes = scop.arrays[shape.statement.write.array].dtype.size_bytes
    line = min(NEAR_TILE, LINE_BYTES // size_bytes)
    contiguous: dict[int, int] = {}  # dimension -> weight of the arrays with neighbours along it
    for position, row in enumerate(shape.strides):
        for dim, stride in enumerate(row):
            is_far_from_all = all(s == 0 or s >= line for d, s in enumerate(row) if d != dim)
            if stride == 1 and is_far_from_all and shape.extents[dim] > line:
                contiguous[dim] = contiguous.get(dim, 0) + (2 if position == 0 else 1)
    axes = {axis[lead]: axis for axis in group.axes if group.has_parallel(axis, shapes)}
    near, far = (*sorted(contiguous, key=lambda d: -contiguous[d]), -1, -1)[:2]
    if near not in axes or far not in axes or not _cross(shape, near, far):
        return None
    return Crossing(axes[near], axes[far], line)


def _cross(shape: Shape, near: int, far: int) -> bool:
    """Return whether one array walks *near* and leaps along *far*, and another the reverse."""
    return any(row[near] == 1 and row[far] > 1 for row in shape.strides) and any(
        row[far] == 1 and row[near] > 1 for row in shape.strides
    )


def _tile(
    schedule: Schedule,
    axis: Axis,
    lead: str,
    size: int,
    kind: LoopKind,
    shapes: Mapping[str, Shape],
) -> Schedule:
    """Give the loop over *axis* tiles of *size*: it keeps its place and kind, or is a new one."""
    low = min(shapes[name].lower[dim] for name, dim in axis.items())
    high = max(shapes[name].lower[dim] + shapes[name].extents[dim] for name, dim in axis.items())
    if size >= high - low:
        return schedule
    pieces = {
        name: Piece(Coordinate(dim, low, size), -(-(high - low) // size), Role.PARALLEL)
        for name, dim in axis.items()
    }
    positions = [loop.pieces[lead].coordinate.position for loop in schedule.outer]
    outer = list(schedule.outer)
    if axis[lead] in positions:
        old = positions.index(axis[lead])
        outer[old] = OuterLoop(pieces, outer[old].kind)
    else:
        outer.append(OuterLoop(pieces, kind))
    remaining = {
        name: _with_point(pieces_of, axis[name], low, size, shapes[name])
        for name, pieces_of in schedule.remaining.items()
    }
    return replace(schedule, outer=tuple(outer), remaining=remaining)


def _around(
    schedule: Schedule, axis: Axis, lead: str, kind: LoopKind, shapes: Mapping[str, Shape]
) -> Schedule:
    """Open the loop over *axis* outside the kernel, if it is not open."""
    if any(loop.pieces[lead].coordinate.position == axis[lead] for loop in schedule.outer):
        return schedule
    pieces = {
        name: Piece(Coordinate(dim), shapes[name].extents[dim], Role.PARALLEL)
        for name, dim in axis.items()
    }
    remaining = {
        name: tuple(p for p in left if p.coordinate.position != axis[name])
        for name, left in schedule.remaining.items()
    }
    return replace(schedule, outer=(*schedule.outer, OuterLoop(pieces, kind)), remaining=remaining)


def _last(schedule: Schedule, lead: str, dims: Sequence[int]) -> Schedule:
    """Put the loops over *dims* of *lead* inside the other outer loops."""
    order = sorted(schedule.outer, key=lambda o: o.pieces[lead].coordinate.position in dims)
    return replace(schedule, outer=tuple(order))


def _with_point(
    pieces: Sequence[Piece], dim: int, low: int, size: int, shape: Shape
) -> tuple[Piece, ...]:
    """Return a member's loops with the points of a tile along *dim*, in preferred order."""
    point = Piece(Coordinate(dim, low, 1, size), size, shape.roles[dim])
    others = [piece for piece in pieces if piece.coordinate.position != dim]
    return tuple(sorted((*others, point), key=lambda p: shape.order.index(p.coordinate.position)))


def _innermost(pieces: Sequence[Piece], *dims: int) -> tuple[Piece, ...]:
    """Return *pieces* with those of *dims* last, in that order."""
    return tuple(
        sorted(
            pieces,
            key=lambda p: (
                dims.index(p.coordinate.position) if p.coordinate.position in dims else -1
            ),
        )
    )
