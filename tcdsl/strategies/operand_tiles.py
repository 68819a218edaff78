"""Operands in shared memory: the copies that a schedule's steps ask for, and the loops around them.

    for k / 16:                        for k / 16 + 2:
      C += A * B          --->           A.tile = A; B.tile = B       two steps ahead
                                         C += A.tile * B.tile

The copies are shifted along the loop over steps.  How many buffers their tiles need, and where
threads wait, follows from it (schedule/promotion, synchronisation, arrivals).
"""

from collections.abc import Mapping
from dataclasses import replace

from tcdsl.lang.comprehension import Index, Load, Operator, multiplied
from tcdsl.poly.isl_utils import Extent, dim_bounds, greatest, minus, plus
from tcdsl.poly.loop_tree import AnyCoordinate, Coordinate, LoopKind, Node, sequence
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop, Statement
from tcdsl.rewrites.scop.caching import Buffer, Cached, cache_read, why_not_cached
from tcdsl.rewrites.scop.packing import factor_of
from tcdsl.rewrites.scop.padding import padded
from tcdsl.schedule.nesting import Nester, Piece
from tcdsl.schedule.placement import copied
from tcdsl.strategies.contracted import copied_along
from tcdsl.strategies.held_operands import with_held_operands
from tcdsl.strategies.schedule import Operand, OuterLoop, Schedule, Steps


def with_operand_tiles(scop: Scop, schedule: Schedule) -> tuple[Scop, Schedule]:
    """Return *scop* and *schedule* with copies of what its steps read."""
    steps = schedule.steps
    if steps is None:
        return scop, schedule
    steps = replace(steps, terms=_zero_terms(scop, steps))
    whole = _whole(scop, steps)
    if whole is not None:
        scop, schedule = whole, _without_limits(scop, schedule, steps)
        steps = replace(steps, loop=_without_limit(scop, steps.loop, steps))
    step = steps.loop.pieces[steps.reader]
    around = [loop.pieces[steps.reader].coordinate for loop in schedule.outer]
    coordinates: tuple[AnyCoordinate, ...] = (*around, step.coordinate)
    for number, (operand, width) in enumerate(zip(steps.operands, steps.widths, strict=True)):
        name = f"{operand.access.array}.tile{number}{steps.reader}"
        is_padded = whole is not None
        cached = _cached(scop, steps.reader, operand, coordinates, name, is_padded=is_padded)
        if cached is None:
            continue
        scop = cached.scop
        outer = [
            _with(loop, cached.copy, _along(loop.pieces[steps.reader], cached.outer[n]))
            for n, loop in enumerate(schedule.outer)
        ]
        own = _ahead(step, cached.outer[len(outer)], steps.stages - 1)
        steps = replace(
            steps, loop=_with(steps.loop, cached.copy, own), copies=(*steps.copies, cached.copy)
        )
        pieces = _pieces(cached, steps, width)
        tile = {cached.array: copied()} if steps.stages > 1 else {}
        schedule = replace(
            schedule, outer=tuple(outer), remaining={**schedule.remaining, cached.copy: pieces},
            storage={**schedule.storage, **tile},
        )  # fmt: skip
    schedule = replace(schedule, steps=steps)
    return with_held_operands(scop, schedule, steps) if steps.is_held else (scop, schedule)


def nested_in_steps(schedule: Schedule, steps: Steps, nester: Nester) -> Node:
    """Return the loops of *schedule* below its outer ones: what is in steps, before and after."""
    remaining = schedule.remaining
    copies = [nester.nest([name], {name: remaining[name]}) for name in steps.copies]
    points = [steps.reader] if steps.points is None else list(steps.points.pieces)
    product = sequence([nester.nest([name], {name: remaining[name]}) for name in points])
    if steps.points is not None:
        product = nester.loop(steps.points.pieces, steps.points.kind, product)
    inner = sequence([*copies, product])
    inner = nester.loop(steps.loop.pieces, steps.loop.kind, inner, steps.loop.limit)
    at = schedule.members.index(steps.reader)
    parts: list[Node] = [inner]
    if before := schedule.members[:at]:
        parts.insert(0, nester.nest(before, {name: remaining[name] for name in before}))
    if after := schedule.members[at + 1 :]:
        parts.append(nester.nest(after, {name: remaining[name] for name in after}))
    return sequence(parts)


def _whole(scop: Scop, steps: Steps) -> Scop | None:
    """Return *scop* with whole tiles of the reader, None where some operand knows no bounds."""
    reads = {(read.array, read.subscripts) for read in scop.by_name[steps.reader].reads}
    copied = {(o.access.array, o.access.subscripts) for o in steps.operands}
    if steps.stages == 1 or reads != copied:
        return None
    return padded(scop, steps.reader, steps.spans, steps.terms)


def _zero_terms(scop: Scop, steps: Steps) -> Mapping[str, tuple[int, Extent]]:
    """Return *steps.terms* if all terms beyond the index's range are 0, nothing otherwise.

    Those of sums of products are whose elements are in no array there: copies bring zeros.
    """
    reader = scop.by_name[steps.reader]
    is_sum = reader.reduction is not None and reader.reduction.operator is Operator.ADD
    if not is_sum or reader.value is None:
        return {}
    factors = [factor_of(factor) for factor in multiplied(reader.value)]
    loads = [factor.load for factor in factors if factor is not None and not factor.condition]
    are_zero = len(loads) == len(factors) and all(
        _ends_with(scop, reader, load, index) for load in loads for index in steps.terms
    )
    return steps.terms if are_zero else {}


def _ends_with(scop: Scop, reader: Statement, load: Load, index: str) -> bool:
    """Return whether the array of *load* has no element beyond the range of *index*."""
    array, dim = scop.arrays[load.tensor], reader.indices.index(index)
    end = dim_bounds(reader.domain, dim, scop.context)[1]
    ends = (
        plus(first, extent)
        for subscript, first, extent in zip(load.subscripts, array.origin, array.shape, strict=True)
        if subscript == Index(index)
    )
    return any(greatest(minus(own, end)) == 0 == greatest(minus(end, own)) for own in ends)


def _without_limits(scop: Scop, schedule: Schedule, steps: Steps) -> Schedule:
    """Return *schedule* with loops over blocks that need not tell whole tiles from others."""
    return replace(
        schedule, outer=tuple(_without_limit(scop, loop, steps) for loop in schedule.outer)
    )


def _without_limit(scop: Scop, loop: OuterLoop, steps: Steps) -> OuterLoop:
    """Return *loop*, which need not tell whole tiles from others if all of its own are whole."""
    index = scop.by_name[steps.reader].indices[loop.pieces[steps.reader].coordinate.position]
    return replace(loop, limit=0) if index in {**steps.spans, **steps.terms} else loop


def _cached(
    scop: Scop,
    reader: str,
    operand: Operand,
    loops: tuple[AnyCoordinate, ...],
    name: str,
    *,
    is_padded: bool,
) -> Cached | None:
    """Return *scop* with a copy of what an iteration of *loops* reads, None if it cannot be."""
    array, only = operand.access.array, {operand.access.subscripts}
    if why_not_cached(scop, array, {reader: loops}, only) is not None:
        return None
    tile = Buffer(name, operand.order, is_padded)
    return cache_read(scop, array, {reader: loops}, tile, only)


def _with(loop: OuterLoop, name: str, piece: Piece) -> OuterLoop:
    return replace(loop, pieces={**loop.pieces, name: piece})


def _along(piece: Piece, position: int) -> Piece:
    """Return the loop *piece* for a copy, whose dimension *position* is the loop's iteration."""
    return replace(piece, coordinate=Coordinate(position), role=Role.PARALLEL)


def _ahead(piece: Piece, position: int, steps: int) -> Piece:
    """Return the loop *piece* for a copy that runs some *steps* before what uses it."""
    extent = piece.extent + steps
    return replace(piece, coordinate=Coordinate(position, steps), role=Role.PARALLEL, extent=extent)


def _pieces(cached: Cached, steps: Steps, width: int) -> tuple[Piece, ...]:
    """Return the loops of a copy: threads along its last axis, and along the longest other."""
    sizes = cached.box.sizes
    x = copied_along(sizes)
    y = max(
        (d for d, n in enumerate(sizes) if n > 1 and d != x), key=lambda d: sizes[d], default=-1
    )
    while sizes[x] % width:
        width //= 2
    serial, threads, turns = [], [], []
    for dim, size in enumerate(sizes):
        position = cached.elements[dim]
        if dim not in (x, y):
            serial.append(Piece(Coordinate(position), size, Role.PARALLEL, LoopKind.SERIAL))
            continue
        axis, vector = (0, width) if dim == x else (1, 1)
        count, wide = -(-size // vector), steps.threads[axis]
        threads.append(Piece(
            Coordinate(position, 0, vector, wide), min(count, wide), Role.PARALLEL,
            LoopKind.THREAD, axis, wide,
        ))  # fmt: skip
        if count > wide:
            turns.append(Piece(
                Coordinate(position, 0, vector * wide), -(-count // wide), Role.PARALLEL,
                LoopKind.UNROLL,
            ))  # fmt: skip
    if width > 1:
        lanes = Coordinate(cached.elements[x], 0, 1, width)
        turns.append(Piece(lanes, width, Role.PARALLEL, LoopKind.LANES))
    return (*serial, *threads, *turns)
