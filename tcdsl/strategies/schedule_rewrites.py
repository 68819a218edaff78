"""The rewrites that a schedule asks for.

    y += x        partials: chunks        part_init; part += x        a kernel of the schedule
                        --->              y_init; y += part           after it, or atomics in it

Sums get their partial accumulators one after another.  The new statements take their place in the
schedule beside the old ones: initialisations in its loops where these walk all of their indices,
else in a kernel before; folds over chunks in a kernel after, unless every block adds its own.
"""

from collections.abc import Collection
from dataclasses import replace

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.padding import clamped
from tcdsl.rewrites.scop.rfactor import (
    Partial,
    coordinate_name,
    initialisation,
    needs_own_type,
    rfactor,
)
from tcdsl.schedule.fusion import textual
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A scop after a schedule's rewrites, the schedule grown by the new statements."""

    scop: Scop
    schedule: Schedule
    before: tuple[str, ...]  # initialisations for a kernel of their own, before this one
    after: tuple[str, ...]  # folds over chunks, for a kernel after this one


def apply(scop: Scop, schedule: Schedule, queued: Collection[str] = ()) -> Rewritten:
    """Apply the schedule's rewrites to *scop*.

    Sums of other types than their targets have accumulators of their own, asked for or not.

    :arg queued: statements that kernels before this one have, initialisations among them.
    """
    own = {name: () for name in schedule.members if needs_own_type(scop, name)}
    rewriting = _Rewriting(scop, replace(schedule, partials={**own, **schedule.partials}), queued)
    for name in schedule.members:
        rewriting.take(name)
    return rewriting.done()


class _Rewriting:
    """A scop and a schedule, between the rewrites of one member and the next."""

    def __init__(self, scop: Scop, schedule: Schedule, queued: Collection[str]) -> None:
        self.scop = scop
        self.schedule = schedule
        self.queued = queued
        self.before: list[str] = []
        self.after: list[str] = []

    def done(self) -> Rewritten:
        members = textual(self.scop, self.schedule.members)
        schedule, after = replace(self.schedule, members=members), textual(self.scop, self.after)
        return Rewritten(self.scop, schedule, tuple(self.before), after)

    def take(self, name: str) -> None:
        """Rewrite the sum *name*, if it has partial sums."""
        statement = self.scop.by_name[name]
        init = initialisation(self.scop, statement) if statement.kind is Kind.UPDATE else None
        is_queued = init is not None and init.name in self.queued
        partials = self.schedule.partials.get(name)
        if partials is None:
            if init is not None and not is_queued:
                self._place(statement, init)
            return
        chunks = tuple(p for p in partials if not p.is_lane)
        lanes = tuple(p for p in partials if p.is_lane)
        if chunks:
            new = self._in_chunks(statement, init, chunks)
            if not (lanes or self.schedule.in_registers):
                self.schedule = _with_partial(self.scop, self.schedule, name, new, chunks)
        if lanes or not chunks or self.schedule.in_registers:
            innermost = self.schedule.innermost.get(name)
            init_new, fold_new = self._factored(name, lanes, innermost, keeps_init=is_queued)
            if name in self.schedule.whole and not lanes:
                self.scop = clamped(self.scop, name, self.schedule.whole[name]) or self.scop
                init_new = self.scop.by_name[init_new.name]
            for made in (init_new, fold_new):
                self.schedule = _with_partial(self.scop, self.schedule, name, made, chunks)
            if not (chunks or is_queued) and init is not None and init.name in self.scop.by_name:
                self._place(statement, init)

    def _in_chunks(
        self, statement: Statement, init: Statement | None, chunks: tuple[Partial, ...]
    ) -> Statement:
        """Give each chunk a sum of its own, and return what initialises these."""
        name, target = statement.name, self.scop.arrays[statement.write.array]
        is_wider = statement.reduction is not None and target.dtype != statement.reduction.dtype
        is_atomic = name in self.schedule.atomic and not is_wider
        if is_wider:
            # The chunks' sums are added in the reduction's type, and rounded once.
            init, store = self._factored(name, ())
            self.after.append(store.name)
        is_in_turn = name in self.schedule.in_turn
        innermost = self.schedule.innermost.get(name) if is_in_turn else None
        init_new, fold = self._factored(name, chunks, innermost)
        if is_atomic or is_in_turn:
            # Every block adds its chunk's sum; what it adds to is initialised before.
            self.scop = _with_atomic(self.scop, fold.name) if is_atomic else self.scop
            fold = self.scop.by_name[fold.name]
            self.schedule = _with_partial(self.scop, self.schedule, name, fold, chunks)
            self.before += [init.name] if init is not None else []
        else:
            self.after += [fold.name] if init is None else [init.name, fold.name]
        return init_new

    def _factored(
        self,
        name: str,
        partials: tuple[Partial, ...],
        innermost: str | None = None,
        *,
        keeps_init: bool = False,
    ) -> tuple[Statement, Statement]:
        """Apply ``rfactor`` to the sum *name*, and return the two statements that it adds."""
        done = rfactor(self.scop, name, partials, innermost, keeps_init=keeps_init)
        self.scop = done.scop
        return done.init, done.fold

    def _place(self, statement: Statement, init: Statement) -> None:
        """Initialise what *statement* adds to in its loops, or in a kernel before."""
        self.schedule, joins = _with_init(self.schedule, statement, init)
        if not joins:
            self.before.append(init.name)


def _with_atomic(scop: Scop, name: str) -> Scop:
    """Return *scop* with the updates *name* as atomics."""
    return scop.with_statements(
        tuple(replace(s, is_atomic=True) if s.name == name else s for s in scop.statements)
    )


def _with_init(schedule: Schedule, statement: Statement, init: Statement) -> tuple[Schedule, bool]:
    """Put *init* into the schedule if every outer loop walks one of its indices."""
    n_left = len(init.indices)
    if init.indices != statement.indices[:n_left]:
        return schedule, False
    outer = []
    for loop in schedule.outer:
        piece = loop.pieces[statement.name]
        if piece.coordinate.position >= n_left:
            return schedule, False
        outer.append(replace(loop, pieces={**loop.pieces, init.name: piece}))
    remaining = tuple(
        piece for piece in schedule.remaining[statement.name] if piece.coordinate.position < n_left
    )
    return replace(
        schedule,
        members=(*schedule.members, init.name),
        outer=tuple(outer),
        remaining={**schedule.remaining, init.name: remaining},
    ), True


def _with_partial(
    scop: Scop, schedule: Schedule, name: str, new: Statement, chunks: tuple[Partial, ...]
) -> Schedule:
    """Put a statement over partial accumulators beside the updates *name*.

    Its dimensions are the updates' left-hand ones (by name), one a chunk, and lanes; the loop
    over a chunk of the updates is the loop over that dimension.
    """
    seen: set[int] = set()
    outer = []
    positions = {index: d for d, index in enumerate(new.indices)}
    updates = scop.by_name[name]
    chunk_at = {
        chunk.index: (coordinate_name(updates, d, is_lane=False), chunk.shift)
        for d, chunk in enumerate(chunks)
    }
    names = updates.indices
    for loop in schedule.outer:
        piece = loop.pieces[name]
        index = names[piece.coordinate.position]
        if index in chunk_at and index not in positions:
            chunk, start = chunk_at[index]
            before = (start - piece.coordinate.shift) // piece.coordinate.div
            coordinate = Coordinate(positions[chunk], -before)
            mapped = replace(piece, coordinate=coordinate, role=Role.PARALLEL)
        else:
            coordinate = replace(piece.coordinate, position=positions[index])
            mapped = replace(piece, coordinate=coordinate, role=Role.PARALLEL)
        outer.append(replace(loop, pieces={**loop.pieces, new.name: mapped}))
        seen.add(mapped.coordinate.position)
    remaining: list[Piece] = []
    for piece in schedule.remaining[name]:
        index = names[piece.coordinate.position]
        if index in positions:
            coordinate = replace(piece.coordinate, position=positions[index])
            remaining.append(replace(piece, coordinate=coordinate, role=Role.PARALLEL))
            seen.add(positions[index])
    lanes = {
        coordinate_name(updates, d, is_lane=True): thread
        for d, thread in enumerate(schedule.threads.get(name, ()))
    }
    for dim, index in enumerate(new.indices):
        if dim not in seen and index in lanes:
            axis, width = lanes[index]
            thread = LoopKind.THREAD, axis, width
            remaining.append(Piece(Coordinate(dim), width, Role.PARALLEL, *thread))
        elif dim not in seen:
            remaining.append(Piece(Coordinate(dim), 0, Role.PARALLEL))
    unrolled = schedule.unrolled | {
        (new.name, positions[names[d]])
        for s, d in schedule.unrolled
        if s == name and names[d] in positions
    }
    return replace(
        schedule,
        members=(*schedule.members, new.name),
        outer=tuple(outer),
        remaining={**schedule.remaining, new.name: tuple(remaining)},
        unrolled=unrolled,
    )
