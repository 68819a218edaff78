"""Rows that threads keep in registers between the passes of a kernel over them.

    m(i) max=! x(i,j)                      r[j] = x(i,j)           each thread its part of the row
    s(i) +=! exp(x(i,j) - m(i))    --->    m(i) max=! r[j]
    y(i,j) = exp(x(i,j) - m(i)) / s(i)     s(i) +=! exp(r[j] - m(i))
                                           y(i,j) = exp(r[j] - m(i)) / s(i)

Memory is read once, whatever the number of passes.  The copies are statements of the kernel
(transforms/caching); that they are registers follows from their threads (transforms/promotion).
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.lang.comprehension import Index
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.lowering import builder_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop, Storage
from tcdsl.strategies.sketch import OuterLoop, Sketch
from tcdsl.transforms.caching import Cached, cache_read, why_not_cached
from tcdsl.transforms.fusion import textual
from tcdsl.transforms.nesting import Piece


def keep_rows(scop: Scop, sketch: Sketch) -> tuple[Scop, Sketch]:
    """Return *scop* and *sketch* with the resident arrays of the sketch in registers."""
    for array in sketch.resident:
        if scop.arrays[array].storage is Storage.ARGUMENT:
            scop, sketch = _keep(scop, sketch, array)
    return scop, sketch


def _keep(scop: Scop, sketch: Sketch, array: str) -> tuple[Scop, Sketch]:
    readers = [
        name
        for name in sketch.members
        if any(read.array == array for read in scop.by_name[name].reads) and _lane(sketch, name)
    ]
    outer = {name: tuple(loop.pieces[name].coordinate for loop in sketch.outer) for name in readers}
    if len(readers) < 2 or why_not_cached(scop, readers, array, outer) is not None:
        return scop, sketch
    lanes = {tuple(replace(p, role=Role.PARALLEL) for p in _at(0, sketch, n)) for n in readers}
    cached = cache_read(scop, array, readers, outer, f"{array}.row{len(scop.arrays)}")
    is_row = all(size == 1 for size in cached.sizes[:-1])
    if len(lanes) != 1 or not is_row or not _is_own(cached, sketch, readers):
        return scop, sketch
    loops = tuple(
        OuterLoop(
            {**loop.pieces, cached.copy: _moved(loop.pieces[readers[0]], cached.outer[depth])},
            loop.kind,
            loop.limit,
        )
        for depth, loop in enumerate(sketch.outer)
    )
    (pieces,) = lanes
    units = tuple(
        Piece(Coordinate(position), 1, Role.PARALLEL, LoopKind.SERIAL)
        for position in cached.elements[:-1]
    )
    moved = tuple(
        replace(piece, coordinate=replace(piece.coordinate, position=cached.elements[-1]))
        for piece in pieces
    )
    return cached.scop, replace(
        sketch,
        members=textual(cached.scop, (*sketch.members, cached.copy)),
        outer=loops,
        remaining={**sketch.remaining, cached.copy: (*moved, *units)},
    )


def _is_own(cached: Cached, sketch: Sketch, readers: Sequence[str]) -> bool:
    """Return whether the copy's elements are numbered as the readers' axis that threads share.

    Then the thread that copies an element is the one that reads it.
    """
    for name in readers:
        statement = cached.scop.by_name[name]
        builder = builder_of(statement.indices, name, cached.scop.sizes)
        lane = builder.affine(Index(statement.indices[_lane_dim(sketch, name)]))
        for read in statement.reads:
            if read.array != cached.array:
                continue
            element = builder.affine(read.subscripts[-1])
            if element is None or lane is None:
                return False
            if not statement.domain.is_subset(element.eq_set(lane)):
                return False
    return True


def _lane(sketch: Sketch, name: str) -> bool:
    """Return whether threads share an axis of *name* in a known number of turns."""
    return any(
        piece.kind is LoopKind.THREAD and piece.coordinate.position >= 0
        for piece in sketch.remaining[name]
    )


def _at(position: int, sketch: Sketch, name: str) -> tuple[Piece, ...]:
    """Return the loops over the axis that threads share of *name*, as if it were *position*."""
    lane = _lane_dim(sketch, name)
    return tuple(
        replace(piece, coordinate=replace(piece.coordinate, position=position))
        for piece in sketch.remaining[name]
        if piece.coordinate.position == lane
    )


def _lane_dim(sketch: Sketch, name: str) -> int:
    """Return the dimension of *name* that threads share."""
    pieces = sketch.remaining[name]
    return next(p.coordinate.position for p in pieces if p.kind is LoopKind.THREAD)


def _moved(piece: Piece, position: int) -> Piece:
    """Return the loop *piece* for a copy, whose dimension *position* is the loop's iteration."""
    return replace(piece, coordinate=Coordinate(position), role=Role.PARALLEL)
