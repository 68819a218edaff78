"""Loops over blocks of tiles: in swaths, in clusters, several tiles of a block in turn."""

from collections.abc import Iterator
from dataclasses import replace

from tcdsl.poly.loop_tree import Coordinate, LoopKind, X, Y, Z
from tcdsl.strategies.fragments import Level
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import OuterLoop, Tensor


def _position(level: Level) -> int | None:
    """Return which dimension *level* is over, None if it is over several."""
    return level.coordinate.position if isinstance(level.coordinate, Coordinate) else None


def with_clusters(loop: dict[str, Level], problem: Problem, product: Tensor) -> dict[str, Level]:
    """Return *loop* over blocks, with whole clusters of them."""
    level = loop[problem.lead]
    axes = zip((product.row, product.column), product.cluster, strict=True)
    found = (n for axis, n in axes if _position(level) == axis[problem.lead])
    if (size := next(found, 1)) == 1:
        return loop
    count = -(-level.extent // size) * size
    return {
        name: replace(own, extent=count, width=count, cluster=size) for name, own in loop.items()
    }


def in_swaths(
    loop: dict[str, Level], lead: str, row: int, size: int, in_turn: bool
) -> Iterator[dict[str, Level]]:
    """Yield *loop*, or where it is over tiles of rows and blocks have these in swaths, its digits.

        x: tile of rows % 8     y: tile of columns     z: tile of rows / 8

    Blocks start in the order of x, y, z: those that run at once share rows and columns in caches.
    Where tiles are taken *in_turn*, a block has those of all z.

    :arg row: the dimension of *lead* whose tiles are in swaths of a *size*, 1: in none.
    """
    level = loop[lead]
    if size == 1 or level.coordinate.position != row:
        yield loop if size == 1 else {n: replace(own, axis=Y) for n, own in loop.items()}
        return
    count = -(-level.extent // size)
    digits = ((Z, count, size, 0), (X, size, 1, size)) if count > 1 else ((X, size, 1, size),)
    for axis, extent, div, mod in digits:
        is_serial = in_turn and axis == Z
        kind, width = (LoopKind.SERIAL, 0) if is_serial else (level.kind, extent)
        yield {
            name: replace(own, kind=kind, extent=extent, axis=X if is_serial else axis, width=width,
                          cluster=own.cluster if axis == X else 1, coordinate=replace(
                own.coordinate, div=own.coordinate.div * div, mod=mod
            ))
            for name, own in loop.items()
            if isinstance(own.coordinate, Coordinate)
        }  # fmt: skip


def levels_of(loop: OuterLoop) -> dict[str, Level]:
    return {
        name: Level(loop.kind, piece.coordinate, piece.extent, piece.axis, piece.width)
        for name, piece in loop.pieces.items()
    }
