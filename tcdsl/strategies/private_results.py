"""Loops of a kernel whose blocks have copies of what they update at scattered elements.

    blocks over tiles of i                  blocks over turns of tiles
      threads along i: t[x(i)] += f(i)        threads along e: p[e] = 0
                                     --->     for the tiles of a turn
                                                threads along i: p[x(i)] += f(i)
                                              threads along e: t[e] += p[e]

Any template's schedule may be made one of turns.  What initialises the copies, and adds them to the
target (rewrites/scop/privatisation), has the kernel's loops over blocks, and takes its threads for
the elements of a copy: neighbours along x.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.loop_tree import Coordinate, LoopKind, X, Y
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.privatisation import (
    in_copy,
    private_indices,
    private_shape,
    privatised,
    why_not_private,
)
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.fusion import textual
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.schedule import OuterLoop, Schedule

SEVERAL = 8  # neighbours that threads take rather than others: a sector of memory


def scattered_members(scop: Scop, members: Sequence[str]) -> tuple[str, ...]:
    """Return those of *members* that may update copies of their targets."""
    return tuple(name for name in members if why_not_private(scop, scop.by_name[name]) is None)


def why_no_copies(schedule: Schedule) -> str | None:
    """Return why blocks of *schedule* have no copies of results, None if they may."""
    if schedule.steps is not None or schedule.tensor is not None or schedule.implicit is not None:
        return "it is a contraction in tiles"
    if schedule.transposition is not None:
        return "tiles are transposed in shared memory"
    if any(loop.kind not in (LoopKind.BLOCK, LoopKind.THREAD) for loop in schedule.outer):
        return "a loop around the kernel is neither over blocks nor over threads"
    pieces = [p for found in schedule.remaining.values() for p in found]
    if any(p.kind is LoopKind.THREAD and p.axis > Y for p in pieces) or schedule.is_staged:
        return "clusters share its rows"
    return None


def in_turns(scop: Scop, schedule: Schedule, name: str, per_block: int) -> Schedule:
    """Return *schedule* with *per_block* iterations of its longest loop over blocks in each block.

    Of loops along what *name* does not subscript its target by.
    """
    if per_block < 2:
        return schedule
    number = _turned(scop, schedule, name)
    assert number is not None, "nothing to take in turn"
    threads = _threads_of(schedule, number)
    if threads is not None:
        return _in_turns_of_threads(schedule, (number, threads), per_block)
    loop = schedule.outer[number]
    pieces, remaining = {}, dict(schedule.remaining)
    for member, piece in loop.pieces.items():
        pieces[member] = _shared_by_fewer(piece, per_block)
        turn = Piece(
            replace(piece.coordinate, mod=per_block), per_block, Role.PARALLEL, LoopKind.SERIAL
        )
        remaining[member] = (turn, *remaining[member])
    outer = list(schedule.outer)
    outer[number] = OuterLoop(pieces, loop.kind)
    turns = (remaining[name][0],)
    return replace(schedule, outer=tuple(outer), remaining=remaining, persistent=turns, layout=None)


def _shared_by_fewer(piece: Piece, per_block: int) -> Piece:
    """Return the loop over blocks *piece*, of blocks with *per_block* of its iterations each."""
    old, count = piece.coordinate, -(-piece.extent // per_block)
    coordinate = replace(old, div=old.div * per_block)
    return replace(piece, coordinate=coordinate, extent=count, width=min(piece.width, count))


def _threads_of(schedule: Schedule, number: int) -> int | None:
    """Return which loop over threads goes over what a block of loop *number* has, if one does.

    Threads that share nothing may go over several such parts as one, whose loads start together.
    """
    blocks = schedule.outer[number].pieces
    if any(p.is_lane for partials in schedule.partials.values() for p in partials):
        return None
    for position, loop in enumerate(schedule.outer):
        if loop.kind is LoopKind.THREAD and all(
            piece.coordinate
            == replace(blocks[name].coordinate, div=1, mod=blocks[name].coordinate.div)
            and piece.width == blocks[name].coordinate.div
            for name, piece in loop.pieces.items()
        ):
            return position
    return None


def _in_turns_of_threads(schedule: Schedule, numbers: tuple[int, int], per_block: int) -> Schedule:
    """Return *schedule* with the loops of *numbers*, over blocks and threads, so many times longer.

    By *per_block* parts: each thread takes every width-th element of all of them.
    """
    outer = list(schedule.outer)
    for number, loop in zip(numbers, (outer[n] for n in numbers), strict=True):
        pieces = {
            name: _shared_by_fewer(piece, per_block)
            if loop.kind is LoopKind.BLOCK
            else replace(
                piece, coordinate=replace(piece.coordinate, mod=piece.coordinate.mod * per_block),
                extent=piece.extent * per_block,
            )
            for name, piece in loop.pieces.items()
        }  # fmt: skip
        outer[number] = replace(loop, pieces=pieces)
    return replace(schedule, outer=tuple(outer), layout=None)


def tiles_in_turn(scop: Scop, schedule: Schedule, name: str) -> int:
    """Return how many iterations the loop over blocks has that may be taken in turn, 0 if none."""
    number = _turned(scop, schedule, name)
    return 0 if number is None else schedule.outer[number].pieces[name].extent


def _turned(scop: Scop, schedule: Schedule, name: str) -> int | None:
    if schedule.persistent:
        return None
    chunks = {p.index for found in schedule.partials.values() for p in found if not p.is_lane}
    own = private_indices(scop.by_name[name])
    lengths = {
        loop.pieces[name].extent: number
        for number, loop in enumerate(schedule.outer)
        if loop.kind is LoopKind.BLOCK
        and _index(scop, name, loop.pieces[name]) not in (*own, *chunks)
    }
    return lengths[max(lengths)] if lengths else None


def chunks_of(scop: Scop, schedule: Schedule, name: str) -> tuple[Partial, ...]:
    """Return the coordinates of the copies of what *name* updates: of its blocks."""
    own = private_indices(scop.by_name[name])
    found = []
    for loop in schedule.outer:
        piece = loop.pieces[name]
        index, c = _index(scop, name, piece), piece.coordinate
        if loop.kind is LoopKind.BLOCK and index not in own:
            found.append(Partial(index, c.shift, c.div, c.mod, piece.extent, False))
    return tuple(found)


def chunks_in_memory(scop: Scop, schedule: Schedule, name: str, copies: int) -> tuple[Partial, ...]:
    """Return the coordinate of at most *copies* copies of what *name* updates, in memory.

    Blocks take them in turn, along the longest loop over blocks that tells elements apart.
    """
    own = private_indices(scop.by_name[name])
    found = [
        piece
        for loop in schedule.outer
        if loop.kind is LoopKind.BLOCK and _index(scop, name, piece := loop.pieces[name]) not in own
    ]
    if not found:
        return ()
    piece = max(found, key=lambda piece: piece.extent)
    c, mod = piece.coordinate, copies if piece.extent > copies else 0
    extent = min(copies, piece.extent)
    return (Partial(_index(scop, name, piece), c.shift, c.div, mod, extent, False),)


def copy_elements(scop: Scop, schedule: Schedule, name: str) -> int:
    """Return how many elements the copy of one block has."""
    statement = scop.by_name[name]
    shape = private_shape(scop, statement)
    blocks = {
        _index(scop, name, loop.pieces[name]): loop.pieces[name].coordinate.div
        for loop in schedule.outer
        if loop.kind is LoopKind.BLOCK
    }
    return prod(
        min(extent, blocks.get(index, extent))
        for index, extent in zip(private_indices(statement), shape, strict=True)
    )


def neighbours(scop: Scop, schedule: Schedule, name: str) -> tuple[int, int]:
    """Return how many threads of a warp update elements of one row, and how far apart these are.

    Of copies in shared memory that is a row of the copy.
    """
    own = private_indices(scop.by_name[name])
    is_shared = name in schedule.private and not schedule.is_summed
    near = along_threads(scop, schedule, name) if is_shared else None
    last = own[-1:] if near is None else (own[near],)
    along = [p for p in _pieces(schedule, name) if _index(scop, name, p) in last]
    threads = [p.width for p in along if p.kind is LoopKind.THREAD and p.axis == X]
    return max(threads, default=1), prod(p.extent for p in along if p.kind is LoopKind.LANES)


def with_summed_copies(
    scop: Scop, schedule: Schedule
) -> tuple[Scop, tuple[str, ...], tuple[str, ...]]:
    """Return *scop* with the copies in memory of *schedule*, what starts and adds them."""
    before, after = [], []
    for name, partials in schedule.private.items() if schedule.is_summed else ():
        old = {statement.name for statement in scop.statements}
        scop = privatised(scop, name, partials, is_summed=True)
        init, add = (s.name for s in scop.statements if s.name not in old)
        before.append(init)
        after.append(add)
    return scop, tuple(before), tuple(after)


def with_copies(scop: Scop, schedule: Schedule) -> tuple[Scop, Schedule]:
    """Return *scop* and *schedule* with the copies in shared memory that the schedule asks for.

    Threads share the elements of copies otherwise than what is updated: no loop over threads stays
    around the kernel.
    """
    if not schedule.private or schedule.is_summed:
        return scop, schedule
    is_within = [loop.kind is LoopKind.THREAD for loop in schedule.outer]
    moved = tuple(loop for loop, inside in zip(schedule.outer, is_within, strict=True) if inside)
    stay = tuple(loop for loop, inside in zip(schedule.outer, is_within, strict=True) if not inside)
    schedule = replace(schedule, outer=stay, within=moved)
    for name, partials in schedule.private.items():
        old = {statement.name for statement in scop.statements}
        innermost = along_threads(scop, schedule, name)
        scop = privatised(scop, name, partials, innermost=innermost)
        for new in (s for s in scop.statements if s.name not in old):
            near = innermost if new.kind is Kind.INIT else None
            schedule = _with_loops(scop, schedule, name, new, near)
    return scop, schedule


def along_threads(scop: Scop, schedule: Schedule, name: str) -> int | None:
    """Return the dimension of its target along which neighbouring threads update with *name*.

    Copies have neighbours along it: the threads of a warp then update different banks.
    """
    own = private_indices(scop.by_name[name])
    for piece in _pieces(schedule, name):
        index = _index(scop, name, piece)
        is_near = piece.kind is LoopKind.THREAD and piece.axis == X and piece.coordinate.div == 1
        if is_near and index in own:
            return own.index(index)
    return None


def _with_loops(
    scop: Scop, schedule: Schedule, name: str, new: Statement, near: int | None
) -> Schedule:
    """Return *schedule* with the loops of *new*, over the copies of what *name* updates.

    Along an index of *name* that blocks share they are the same.  Threads share what is left: for
    what begins copies neighbours as copies have them, for what adds them as the target has.

    :arg near: the dimension of the target along which they are, None: the last.
    """
    n_chunks = len(schedule.private[name])
    pieces = {p: _index(scop, name, p) for p in _pieces(schedule, name)}
    blocks = {i: p for p, i in pieces.items() if p.kind is LoopKind.BLOCK}
    mapped = {i: d for d, i in enumerate(new.indices) if d >= n_chunks and i in blocks}
    order = [n_chunks + d for d in in_copy(len(new.indices) - n_chunks, near)]
    digits = _Digits([_share(new, dim, blocks.get(new.indices[dim])) for dim in order])
    on_axis = [digits.over(axis, width) for axis, width in sorted(widths_of(schedule).items())]
    chunks = iter(range(n_chunks))
    outer = tuple(
        replace(
            loop,
            pieces={**loop.pieces, new.name: _around(loop.pieces[name], pieces, mapped, chunks)},
        )
        for loop in schedule.outer
    )
    remaining = {**schedule.remaining, new.name: (*on_axis, *digits.rest())}
    members = textual(scop, (*schedule.members, new.name))
    return replace(schedule, members=members, outer=tuple(outer), remaining=remaining)


def _around(
    piece: Piece, indices: Mapping[Piece, str], mapped: Mapping[str, int], chunks: Iterator[int]
) -> Piece:
    """Return the loop around a copy that is *piece* around its updates: their index, or a chunk."""
    index = indices[piece]
    if index in mapped:
        coordinate = replace(piece.coordinate, position=mapped[index])
        return replace(piece, coordinate=coordinate, role=Role.PARALLEL)
    return replace(piece, coordinate=Coordinate(next(chunks)), role=Role.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Share:
    """What a block has of a copy along *dim*: *extent* values from *low* on, or of each as many."""

    dim: int
    low: int
    extent: int
    is_whole: bool


def _share(new: Statement, dim: int, block: Piece | None) -> _Share:
    """Return what a block has of the copy that *new* runs over along *dim*."""
    bounds = constant_bounds(new.domain, dim)
    assert bounds is not None, "why_not_private"
    extent = bounds[1] - bounds[0] + 1
    if block is None:
        return _Share(dim, bounds[0], extent, is_whole=True)
    return _Share(dim, block.coordinate.shift, block.coordinate.div, is_whole=False)


class _Digits:
    """Gives threads the elements of what a block has of a copy: neighbours, the last first."""

    def __init__(self, shares: Sequence[_Share]) -> None:
        self._shares = list(shares)
        self._used = {share.dim: 1 for share in shares}  # dimension -> the first free digit

    def over(self, axis: int, width: int) -> Piece:
        """Return the loop over the *width* threads of an axis: one of them, if nothing is left."""
        shared = Role.PARALLEL, LoopKind.THREAD, axis, width
        left_over = [s for s in reversed(self._shares) if self._left(s) > 1]
        several = (s for s in left_over if self._left(s) >= SEVERAL)
        share = next(several, max(left_over, key=self._left, default=None))
        if share is None:
            return Piece(self._digit(self._shares[0], 0), 1, *shared)
        left = self._left(share)
        digit = self._digit(share, width if left > width else 0)
        self._used[share.dim] *= width
        return Piece(digit, min(left, width), *shared)

    def rest(self) -> tuple[Piece, ...]:
        """Return the loops over what no thread was given, inside each thread."""
        return tuple(
            Piece(self._digit(share, 0), self._left(share), Role.PARALLEL, LoopKind.SERIAL)
            for share in self._shares
            if self._left(share) > 1 or self._used[share.dim] == 1
        )

    def _digit(self, share: _Share, mod: int) -> Coordinate:
        """Return the next digit of what a block has along a dimension, the last one if *mod* is 0.

        Where blocks have but a part each, that is no more than the part.
        """
        mod = mod or (0 if share.is_whole else self._left(share))
        return Coordinate(share.dim, share.low, self._used[share.dim], mod)

    def _left(self, share: _Share) -> int:
        return -(-share.extent // self._used[share.dim])


def _pieces(schedule: Schedule, name: str) -> tuple[Piece, ...]:
    outer = (
        loop.pieces[name] for loop in (*schedule.outer, *schedule.within) if name in loop.pieces
    )
    return (*outer, *schedule.remaining[name])


def _index(scop: Scop, name: str, piece: Piece) -> str:
    return scop.by_name[name].indices[piece.coordinate.position]


def widths_of(schedule: Schedule) -> dict[int, int]:
    """Return how many threads a block has along each axis."""
    found: dict[int, int] = {}
    outer = (loop.pieces.values() for loop in (*schedule.outer, *schedule.within))
    for piece in (p for own in (*outer, *schedule.remaining.values()) for p in own):
        if piece.kind is LoopKind.THREAD:
            found[piece.axis] = max(found.get(piece.axis, 1), piece.width)
    return found
