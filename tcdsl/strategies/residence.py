"""Rows that threads keep in registers between the passes of a kernel over them.

    m(i) max=! x(i,j)                      r[j] = x(i,j)           each thread its part of the row
    s(i) +=! exp(x(i,j) - m(i))    --->    m(i) max=! r[j]
    y(i,j) = exp(x(i,j) - m(i)) / s(i)     s(i) +=! exp(r[j] - m(i))
                                           y(i,j) = exp(r[j] - m(i)) / s(i)

Memory is read once, whatever the number of passes.  The copies are statements of the kernel
(rewrites/scop/caching); that they are registers follows from their threads (schedule/promotion).
Where a block's part is too large for registers, they are copied to shared memory
(templates/row_cluster).  Columns are kept in the same way (templates/column_cluster): a tile of
some of them, each thread with its rows.
"""

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Index
from tcdsl.lang.ranges.affine import Builder
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop, Statement, Storage
from tcdsl.poly.verify import are_digits
from tcdsl.rewrites.scop.caching import Buffer, Cached, cache_read, why_not_cached
from tcdsl.schedule.fusion import textual
from tcdsl.schedule.nesting import Piece
from tcdsl.schedule.placement import copied
from tcdsl.strategies.schedule import OuterLoop, Schedule


def keep_rows(scop: Scop, schedule: Schedule) -> tuple[Scop, Schedule]:
    """Return *scop* and *schedule* with copies of the resident arrays of the schedule.

    An array of which no copy can be made is read by every member, and the schedule says so.
    """
    again = []
    for array in schedule.resident:
        if scop.arrays[array].storage is Storage.ARGUMENT:
            before = scop
            scop, schedule = _keep(scop, schedule, array)
            again += [array] if scop is before else []
    if again:
        note = f"not copied, but read by each statement that uses them: {', '.join(again)}"
        schedule = replace(schedule, why=(*schedule.why, note))
    for array in _ahead(scop, schedule):
        scop, schedule = _keep(scop, schedule, array, is_ahead=True)
    return scop, schedule


def _ahead(scop: Scop, schedule: Schedule) -> list[str]:
    """Return the inputs that one update at elements that a fold finds adds, and nothing else reads.

    Nothing of their addresses depends on the fold: copied before it, they arrive meanwhile.
    """
    is_folded = any(p.is_lane for partials in schedule.partials.values() for p in partials)
    if not is_folded or not schedule.private or schedule.persistent:
        return []
    found = []
    for name in schedule.private:
        for read in scop.by_name[name].reads:
            array = scop.arrays[read.array]
            members = (scop.by_name[member] for member in schedule.members)
            readers = [s for s in members if any(r.array == read.array for r in s.reads)]
            is_changed = any(w.array == read.array for s in scop.statements for w in s.writes)
            if array.is_input and read.is_exact and len(readers) == 1 and not is_changed:
                found.append(read.array)
    return found


def _keep(
    scop: Scop, schedule: Schedule, array: str, *, is_ahead: bool = False
) -> tuple[Scop, Schedule]:
    readers = [
        name
        for name in schedule.members
        if _is_shared(schedule, name)
        and any(read.array == array for read in scop.by_name[name].reads)
    ]
    outer = {name: _around(schedule, name) for name in readers}
    if len(readers) < (1 if is_ahead else 2) or why_not_cached(scop, array, outer) is not None:
        return scop, schedule
    cached = cache_read(scop, array, outer, Buffer(f"{array}.row{len(scop.arrays)}"))
    ways = {_pieces(cached, schedule, name) for name in readers}
    pieces = ways.pop()
    own = {piece.coordinate.position for piece in pieces}
    if ways or not pieces or not _are_told(pieces, cached.sizes):
        return scop, schedule
    if not (schedule.is_staged or _has_numbers(pieces)):
        return scop, schedule
    loops, turns = _loops_of_copy(schedule, readers[0], cached)
    moved = [
        replace(
            piece,
            coordinate=replace(
                piece.coordinate, position=cached.elements[piece.coordinate.position]
            ),
        )
        for piece in pieces
    ]
    if schedule.is_staged:  # all copies are on their way before the first of them is waited for
        moved[0] = replace(moved[0], apart=cached.copy)
    units = tuple(
        Piece(Coordinate(position), 1, Role.PARALLEL, LoopKind.SERIAL)
        for dim, position in enumerate(cached.elements)
        if dim not in own
    )
    if is_ahead:
        cached = replace(cached, scop=_before(cached.scop, cached.copy, schedule.members))
    own_storage = {cached.array: copied()} if schedule.is_staged else {}
    return cached.scop, replace(
        schedule,
        members=textual(cached.scop, (*schedule.members, cached.copy)),
        outer=loops,
        remaining={**schedule.remaining, cached.copy: (*turns, *moved, *units)},
        storage={**schedule.storage, **own_storage},
    )


def _are_told(pieces: Sequence[Piece], sizes: Sequence[int]) -> bool:
    """Return whether *pieces* tell each element of a box of these *sizes*: one an iteration.

    Where threads have a row each, and several in turn, they do not.  Such a thread reads rows
    i % 4 = t of x, and the box around them has all: for each i / 4 there are four rows::

        i % 4 (threads), i / 4 (rows of a thread)    --->    t, e / 4  over the rows e of the box
    """
    coordinates = [piece.coordinate for piece in pieces]
    return all(size == 1 or are_digits(coordinates, dim, size) for dim, size in enumerate(sizes))


def _has_numbers(pieces: Sequence[Piece]) -> bool:
    """Return whether a thread's values have numbers, as registers do: of one axis, or unrolled."""
    axes = {piece.coordinate.position for piece in pieces if piece.kind is not LoopKind.LANES}
    return len(axes) <= 1 or all(piece.kind is not LoopKind.SERIAL for piece in pieces)


def _before(scop: Scop, copy: str, members: Sequence[str]) -> Scop:
    """Return *scop* with *copy*, of what nothing writes, before all *members*."""
    first = min(map(scop.position, members))
    others = [s for s in scop.statements if s.name != copy]
    return scop.with_statements((*others[:first], scop.by_name[copy], *others[first:]))


def _around(schedule: Schedule, name: str) -> tuple[Coordinate, ...]:
    """Return what tells one row of the reader *name* from another: outer loops, and turns.

    A loop over blocks of turns tells nothing that the turns do not.
    """
    turns = [
        piece.coordinate.position for piece in schedule.remaining[name][: len(schedule.persistent)]
    ]
    outer = (loop.pieces[name].coordinate for loop in schedule.outer)
    return (*(c for c in outer if c.position not in turns), *map(Coordinate, turns))


def _loops_of_copy(
    schedule: Schedule, reader: str, cached: Cached
) -> tuple[tuple[OuterLoop, ...], tuple[Piece, ...]]:
    """Return the outer loops with the copy, and its turns: where those of *reader* are."""
    turns = schedule.remaining[reader][: len(schedule.persistent)]
    first = len(cached.outer) - len(turns)
    at = {turn.coordinate.position: cached.outer[first + n] for n, turn in enumerate(turns)}
    free = iter(cached.outer[:first])
    loops = []
    for loop in schedule.outer:
        piece = loop.pieces[reader]
        position = at.get(piece.coordinate.position)
        own = _moved(piece, next(free)) if position is None else _renumbered(piece, position)
        loops.append(replace(loop, pieces={**loop.pieces, cached.copy: own}))
    return tuple(loops), tuple(_renumbered(t, at[t.coordinate.position]) for t in turns)


def _renumbered(piece: Piece, position: int) -> Piece:
    """Return the loop *piece* for a copy, whose dimension *position* is that of the reader."""
    coordinate = replace(piece.coordinate, position=position)
    return replace(piece, coordinate=coordinate, role=Role.PARALLEL)


def _is_shared(schedule: Schedule, name: str) -> bool:
    """Return whether threads share an axis of *name*."""
    return any(
        piece.kind is LoopKind.THREAD and piece.coordinate.position >= 0
        for piece in schedule.remaining[name]
    )


def _pieces(cached: Cached, schedule: Schedule, name: str) -> tuple[Piece, ...]:
    """Return the loops of *name* over a row, as loops over dimensions of the copied array.

    None of them, unless the row's elements are numbered as the axes that threads share: then the
    thread that copies an element is the one that reads it.
    """
    statement = cached.scop.by_name[name]
    builder = builder_of(statement.indices, name, cached.scop.sizes)
    mine = schedule.remaining[name]
    found = set()
    for read in statement.reads:
        if read.array != cached.array:
            continue
        elements = read.subscripts[-len(cached.sizes) :]
        own = [
            (dim, function)
            for dim, (size, element) in enumerate(zip(cached.sizes, elements, strict=True))
            if size > 1 and (function := builder.affine(element)) is not None
        ]
        pieces = [_over_elements(piece, own, statement, builder) for piece in mine]
        if any(p.kind is LoopKind.THREAD and m is None for p, m in zip(mine, pieces, strict=True)):
            return ()
        found.add(tuple(piece for piece in pieces if piece is not None))
    return found.pop() if len(found) == 1 else ()


def _over_elements(
    piece: Piece, elements: Sequence[tuple[int, isl.PwAff]], statement: Statement, builder: Builder
) -> Piece | None:
    """Return *piece* of the loops of *statement* over the (dimension, number) of an element.

    An element is numbered by the index of the loop, or, in a tile that outer loops began, by what
    the loop makes of it.  None if it is by neither.
    """
    old = piece.coordinate
    index = builder.affine(Index(statement.indices[old.position]))
    inside = isl.PwAff.from_aff(old.function(statement.domain.get_space()))
    for dim, number in elements:
        if index is not None and statement.domain.is_subset(number.eq_set(index)):
            coordinate = replace(old, position=dim)
        elif statement.domain.is_subset(number.eq_set(inside)):
            coordinate = Coordinate(dim)
        else:
            continue
        return replace(piece, coordinate=coordinate, role=Role.PARALLEL)
    return None


def _moved(piece: Piece, position: int) -> Piece:
    """Return the loop *piece* for a copy, whose dimension *position* is the loop's iteration."""
    return replace(piece, coordinate=Coordinate(position), role=Role.PARALLEL)
