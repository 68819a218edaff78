"""The loops of isl's bands before they are opened, and what tiles and wavefronts make of them.

whole  (low)              member - low                      counted from 0
tile, point  (size)       level / size,  level % size       so that no tile is cut at its start
front                     level_1 + level_2 + ...
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel.locality import OPEN_EXTENT, Shape
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Loop,
    LoopKind,
    Node,
    iterations_of,
)
from tcdsl.poly.scheduler import Member
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """A loop to be opened: a function of each statement's indices."""

    coordinates: Mapping[str, AnyCoordinate]
    extent: int
    is_coincident: bool
    kind: LoopKind = LoopKind.SERIAL
    axis: int = 0
    width: int = 0  # of BLOCK and THREAD loops; 0: not known yet


def level_of(scop: Scop, member: Member) -> Level:
    """Return the loop over all of *member*, counted from its least value.

    Where sizes are open, that is a guess: tiles are then not aligned, and none the worse.
    """
    lows, highs = [], []
    for name, coordinate in member.coordinates.items():
        domain = scop.by_name[name].domain
        if domain.is_empty():
            continue
        bounds = iterations_of(domain, coordinate)
        lows.append(bounds[0] if bounds else 0)
        highs.append(bounds[1] if bounds else OPEN_EXTENT - 1)
    low, extent = (min(lows), max(highs) - min(lows) + 1) if lows else (0, 0)
    moved = {n: replace(c, shift=c.shift + low) for n, c in member.coordinates.items()}
    return Level(moved, extent, member.is_coincident)


def tiles_of(level: Level, size: int) -> Level:
    """Return the loop over the tiles of *level*."""
    coordinates = {n: replace(c, div=size) for n, c in level.coordinates.items()}
    return Level(coordinates, -(-level.extent // size), level.is_coincident)


def points_of(level: Level, size: int) -> Level:
    """Return the loop over the points of a tile of *level*."""
    if size >= level.extent:
        return level
    coordinates = {n: replace(c, mod=size) for n, c in level.coordinates.items()}
    return Level(coordinates, size, level.is_coincident)


def front_of(levels: Sequence[Level]) -> Level:
    """Return the sum of *levels*, which grows along every dependence that any of them carries."""
    coordinates = {
        name: AffineCoordinate(tuple((1, level.coordinates[name]) for level in levels))
        for name in levels[0].coordinates
    }
    extent = sum(level.extent - 1 for level in levels) + 1
    return Level(coordinates, extent, is_coincident=False)


def opened(level: Level, body: Node, shapes: Mapping[str, Shape], prefix: str, number: int) -> Loop:
    """Return the loop *level* around *body*, named after its first statement's index."""
    name, coordinate = next(iter(level.coordinates.items()))
    indices = shapes[name].statement.indices
    hint = indices[coordinate.position] if coordinate.position >= 0 else "t"
    return Loop(
        f"{prefix}.{hint}.{number}", level.coordinates, level.kind, body, level.extent,
        axis=level.axis, width=level.width,
    )  # fmt: skip
