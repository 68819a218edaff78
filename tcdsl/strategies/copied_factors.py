"""Factors of a chain of products in shared memory: what a block reads of them, copied once.

    blocks b                                      blocks b
      threads: h(b,o) += x(b,n) * V(o,n)   --->     threads: x' = x(b, ..), V' = V(..)  | barrier
                                                    threads: h(b,o) += x'(n) * V'(o,n)

Threads whose rows lie far apart in memory look up the first-level cache once a row; from shared
memory they read vectors at once.  The copies are asynchronous, statements as ``cache_read`` has
them.
"""

from dataclasses import replace

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.caching import Buffer, Cached, cache_read, why_not_cached
from tcdsl.schedule.fusion import textual
from tcdsl.schedule.nesting import Piece
from tcdsl.schedule.placement import copied
from tcdsl.strategies.schedule import VECTOR_BYTES, OuterLoop, Schedule


def with_copied_factors(scop: Scop, schedule: Schedule) -> tuple[Scop, Schedule]:
    """Return *scop* and *schedule* with copies of the arrays that the schedule says."""
    for array in schedule.copied:
        readers = [
            name
            for name in schedule.members
            if any(read.array == array for read in scop.by_name[name].reads)
        ]
        outer = {
            name: tuple(loop.pieces[name].coordinate for loop in schedule.outer) for name in readers
        }
        if why_not_cached(scop, array, outer) is not None:
            continue
        cached = cache_read(scop, array, outer, Buffer(f"{array}.copied{len(scop.arrays)}"))
        scop, schedule = cached.scop, _with_copy(schedule, cached, readers[0])
    return scop, schedule


def _with_copy(schedule: Schedule, cached: Cached, reader: str) -> Schedule:
    loops = tuple(
        _with(loop, cached.copy, loop.pieces[reader], cached.outer[depth])
        for depth, loop in enumerate(schedule.outer)
    )
    return replace(
        schedule,
        members=textual(cached.scop, (*schedule.members, cached.copy)),
        outer=loops,
        remaining={**schedule.remaining, cached.copy: _pieces(schedule, cached)},
        storage={**schedule.storage, cached.array: copied(is_large=True)},
    )


def _with(loop: OuterLoop, name: str, piece: Piece, position: int) -> OuterLoop:
    """Return *loop* with the copy *name*, whose dimension *position* is the loop's iteration."""
    own = replace(piece, coordinate=Coordinate(position), role=Role.PARALLEL)
    return replace(loop, pieces={**loop.pieces, name: own})


def _pieces(schedule: Schedule, cached: Cached) -> tuple[Piece, ...]:
    """Return the loops of a copy: threads along its last axis first, then along the one before."""
    array, sizes = cached.scop.arrays[cached.array], cached.sizes
    dims = [dim for dim in reversed(range(len(sizes))) if sizes[dim] > 1]
    used = dict.fromkeys(dims, 1)  # values that a turn of all threads has
    vector = VECTOR_BYTES // array.dtype.size_bytes
    while dims and sizes[dims[0]] % vector:
        vector //= 2
    threads: list[Piece] = []
    if dims:
        used[dims[0]] = vector
    for axis, width in enumerate(schedule.copiers):
        free = [dim for dim in dims if used[dim] < sizes[dim]]
        if width == 1 or not free:
            continue
        dim = free[0]
        threads.append(_piece(cached, dim, used[dim], width, sizes[dim], axis))
        used[dim] *= width
    turns = [
        Piece(
            Coordinate(cached.elements[dim], 0, used[dim]), -(-sizes[dim] // used[dim]),
            Role.PARALLEL, LoopKind.SERIAL, apart=cached.copy,
        )
        for dim in reversed(dims)
        if used[dim] < sizes[dim]
    ]  # fmt: skip
    lanes = Coordinate(cached.elements[dims[0]], 0, 1, vector) if dims else None
    last = (
        [Piece(lanes, vector, Role.PARALLEL, LoopKind.LANES, apart=cached.copy)]
        if lanes is not None and vector > 1
        else []
    )
    return (*threads, *turns, *last)


def _piece(cached: Cached, dim: int, div: int, width: int, size: int, axis: int) -> Piece:
    count = -(-size // div)
    coordinate = Coordinate(cached.elements[dim], 0, div, width if count > width else 0)
    return Piece(
        coordinate, min(count, width), Role.PARALLEL, LoopKind.THREAD, axis, width, cached.copy
    )
