"""Loops of a kernel whose blocks have copies of what they update at scattered elements.

    blocks over tiles of i                  blocks over turns of tiles
      threads along i: t[x(i)] += f(i)        threads along e: p[e] = 0
                                     --->     for the tiles of a turn
                                                threads along i: p[x(i)] += f(i)
                                              threads along e: t[e] += p[e]

Any template's sketch may be made one of turns.  What initialises the copies, and adds them to the
target (rewrites/scop/privatisation), has the kernel's loops over blocks, and takes its threads for
the elements of a copy: neighbours along x.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Array, Scop, Statement
from tcdsl.rewrites.scop.privatisation import (
    private_indices,
    private_shape,
    privatised,
    why_not_private,
)
from tcdsl.rewrites.scop.rfactor import Partial
from tcdsl.schedule.fusion import textual
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.sketch import OuterLoop, Sketch


def scattered_members(scop: Scop, members: Sequence[str]) -> tuple[str, ...]:
    """Return those of *members* that may update copies of their targets."""
    return tuple(name for name in members if why_not_private(scop, scop.by_name[name]) is None)


def why_no_copies(sketch: Sketch) -> str | None:
    """Return why blocks of *sketch* have no copies of results, None if they may."""
    if sketch.steps is not None or sketch.tensor is not None or sketch.implicit is not None:
        return "it is a contraction in tiles"
    if sketch.transposition is not None:
        return "tiles are transposed in shared memory"
    if any(loop.kind not in (LoopKind.BLOCK, LoopKind.THREAD) for loop in sketch.outer):
        return "a loop around the kernel is neither over blocks nor over threads"
    pieces = [p for found in sketch.remaining.values() for p in found]
    if any(p.kind is LoopKind.THREAD and p.axis > 1 for p in pieces) or sketch.is_staged:
        return "clusters share its rows"
    return None


def in_turns(scop: Scop, sketch: Sketch, name: str, per_block: int) -> Sketch:
    """Return *sketch* with *per_block* iterations of its longest loop over blocks in each block.

    Of loops along what *name* does not subscript its target by.
    """
    if per_block < 2:
        return sketch
    number = _turned(scop, sketch, name)
    assert number is not None, "nothing to take in turn"
    loop = sketch.outer[number]
    pieces, remaining = {}, dict(sketch.remaining)
    for member, piece in loop.pieces.items():
        old = piece.coordinate
        count = -(-piece.extent // per_block)
        pieces[member] = replace(
            piece, coordinate=replace(old, div=old.div * per_block), extent=count,
            width=min(piece.width, count),
        )  # fmt: skip
        turn = Piece(replace(old, mod=per_block), per_block, Role.PARALLEL, LoopKind.SERIAL)
        remaining[member] = (turn, *remaining[member])
    outer = list(sketch.outer)
    outer[number] = OuterLoop(pieces, loop.kind)
    turns = (remaining[name][0],)
    return replace(sketch, outer=tuple(outer), remaining=remaining, turns=turns, layout=None)


def tiles_in_turn(scop: Scop, sketch: Sketch, name: str) -> int:
    """Return how many iterations the loop over blocks has that may be taken in turn, 0 if none."""
    number = _turned(scop, sketch, name)
    return 0 if number is None else sketch.outer[number].pieces[name].extent


def _turned(scop: Scop, sketch: Sketch, name: str) -> int | None:
    if sketch.turns:
        return None
    chunks = {p.index for found in sketch.partials.values() for p in found if not p.is_lane}
    own = private_indices(scop.by_name[name])
    lengths = {
        loop.pieces[name].extent: number
        for number, loop in enumerate(sketch.outer)
        if loop.kind is LoopKind.BLOCK
        and _index(scop, name, loop.pieces[name]) not in (*own, *chunks)
    }
    return lengths[max(lengths)] if lengths else None


def chunks_of(scop: Scop, sketch: Sketch, name: str) -> tuple[Partial, ...]:
    """Return the coordinates of the copies of what *name* updates: of its blocks."""
    own = private_indices(scop.by_name[name])
    found = []
    for loop in sketch.outer:
        piece = loop.pieces[name]
        index, c = _index(scop, name, piece), piece.coordinate
        if loop.kind is LoopKind.BLOCK and index not in own:
            found.append(Partial(index, c.shift, c.div, c.mod, piece.extent, False))
    return tuple(found)


def chunks_in_memory(scop: Scop, sketch: Sketch, name: str, copies: int) -> tuple[Partial, ...]:
    """Return the coordinate of at most *copies* copies of what *name* updates, in memory.

    Blocks take them in turn, along the longest loop over blocks that tells elements apart.
    """
    own = private_indices(scop.by_name[name])
    found = [
        piece
        for loop in sketch.outer
        if loop.kind is LoopKind.BLOCK and _index(scop, name, piece := loop.pieces[name]) not in own
    ]
    if not found:
        return ()
    piece = max(found, key=lambda piece: piece.extent)
    c, mod = piece.coordinate, copies if piece.extent > copies else 0
    extent = min(copies, piece.extent)
    return (Partial(_index(scop, name, piece), c.shift, c.div, mod, extent, False),)


def copy_elements(scop: Scop, sketch: Sketch, name: str) -> int:
    """Return how many elements the copy of one block has."""
    statement = scop.by_name[name]
    shape = private_shape(scop, statement)
    blocks = {
        _index(scop, name, loop.pieces[name]): loop.pieces[name].coordinate.div
        for loop in sketch.outer
        if loop.kind is LoopKind.BLOCK
    }
    return prod(
        min(extent, blocks.get(index, extent))
        for index, extent in zip(private_indices(statement), shape, strict=True)
    )


def neighbours(scop: Scop, sketch: Sketch, name: str) -> tuple[int, int]:
    """Return how many threads of a warp update elements of one row, and how far apart these are."""
    last = private_indices(scop.by_name[name])[-1:]
    along = [p for p in _pieces(sketch, name) if _index(scop, name, p) in last]
    threads = [p.width for p in along if p.kind is LoopKind.THREAD and p.axis == 0]
    return max(threads, default=1), prod(p.extent for p in along if p.kind is LoopKind.LANES)


def with_summed_copies(scop: Scop, sketch: Sketch) -> tuple[Scop, tuple[str, ...], tuple[str, ...]]:
    """Return *scop* with the copies in memory that *sketch* asks for, what starts and adds them."""
    before, after = [], []
    for name, partials in sketch.private.items() if sketch.is_summed else ():
        old = {statement.name for statement in scop.statements}
        scop = privatised(scop, name, partials, is_summed=True)
        init, add = (s.name for s in scop.statements if s.name not in old)
        before.append(init)
        after.append(add)
    return scop, tuple(before), tuple(after)


def with_copies(scop: Scop, sketch: Sketch) -> tuple[Scop, Sketch]:
    """Return *scop* and *sketch* with the copies in shared memory that the sketch asks for.

    Loops over threads stay around the kernel where all copies have their indices; threads of the
    others share the elements of copies otherwise than what is updated.
    """
    own = [set(private_indices(scop.by_name[name])) for name in sketch.private]
    if not own or sketch.is_summed:
        return scop, sketch
    is_within = [
        loop.kind is LoopKind.THREAD
        and any(_index(scop, name, loop.pieces[name]) not in indices
                for name, indices in zip(sketch.private, own, strict=True))
        for loop in sketch.outer
    ]  # fmt: skip
    moved = tuple(loop for loop, inside in zip(sketch.outer, is_within, strict=True) if inside)
    stay = tuple(loop for loop, inside in zip(sketch.outer, is_within, strict=True) if not inside)
    sketch = replace(sketch, outer=stay, within=moved)
    for name, partials in sketch.private.items():
        old = {statement.name for statement in scop.statements}
        scop = privatised(scop, name, partials)
        for new in (s for s in scop.statements if s.name not in old):
            sketch = _with_loops(scop, sketch, name, new)
    return scop, sketch


def _with_loops(scop: Scop, sketch: Sketch, name: str, new: Statement) -> Sketch:
    """Return *sketch* with the loops of *new*, over the copies of what *name* updates.

    Along an index of *name* that blocks or threads share they are the same; threads of other axes
    share what is left.
    """
    n_chunks = len(sketch.private[name])
    pieces = {p: _index(scop, name, p) for p in _pieces(sketch, name)}
    shared = {i for p, i in pieces.items() if p.kind in (LoopKind.BLOCK, LoopKind.THREAD)}
    mapped = {i: d for d, i in enumerate(new.indices) if d >= n_chunks and i in shared}
    free = [d for d, i in enumerate(new.indices) if d >= n_chunks and i not in mapped]
    digits = _Digits(scop.arrays[scop.by_name[name].write.array], free)
    taken = {p.axis for p, i in pieces.items() if p.kind is LoopKind.THREAD and i in mapped}
    widths = sorted(widths_of(sketch).items())
    on_axis = [digits.over(axis, width) for axis, width in widths if axis not in taken]
    chunks = iter(range(n_chunks))
    outer = tuple(
        replace(
            loop,
            pieces={**loop.pieces, new.name: _around(loop.pieces[name], pieces, mapped, chunks)},
        )
        for loop in sketch.outer
    )
    copied = [
        _renumbered(piece, mapped[pieces[piece]])
        for piece in sketch.remaining[name]
        if pieces[piece] in mapped
    ]
    remaining = {**sketch.remaining, new.name: (*on_axis, *digits.rest(), *copied)}
    members = textual(scop, (*sketch.members, new.name))
    return replace(sketch, members=members, outer=tuple(outer), remaining=remaining)


def _around(
    piece: Piece, indices: Mapping[Piece, str], mapped: Mapping[str, int], chunks: Iterator[int]
) -> Piece:
    """Return the loop around a copy that is *piece* around its updates: their index, or a chunk."""
    index = indices[piece]
    if index in mapped:
        return _renumbered(piece, mapped[index])
    return replace(piece, coordinate=Coordinate(next(chunks)), role=Role.PARALLEL)


def _renumbered(piece: Piece, position: int) -> Piece:
    coordinate = replace(piece.coordinate, position=position)
    return replace(piece, coordinate=coordinate, role=Role.PARALLEL)


class _Digits:
    """Gives threads the elements of the free dimensions of a copy: neighbours, the last first."""

    def __init__(self, copy: Array, dims: Sequence[int]) -> None:
        self._copy = copy
        self._dims = list(dims)
        self._used = dict.fromkeys(dims, 1)  # dimension -> the first digit that is still free

    def over(self, axis: int, width: int) -> Piece:
        """Return the loop over the *width* threads of an axis: one of them, if nothing is left."""
        shared = Role.PARALLEL, LoopKind.THREAD, axis, width
        dim = next((d for d in reversed(self._dims) if self._left(d) > 1), None)
        if dim is None:
            return Piece(Coordinate(0, div=max(self._extent(0), 1)), 1, *shared)
        low, div, left = self._low(dim), self._used[dim], self._left(dim)
        self._used[dim] = div * width
        return Piece(
            Coordinate(dim, low, div, width if left > width else 0), min(left, width), *shared
        )

    def rest(self) -> tuple[Piece, ...]:
        """Return the loops over what no thread was given, inside each thread."""
        return tuple(
            Piece(
                Coordinate(d, self._low(d), self._used[d]), self._left(d), Role.PARALLEL,
                LoopKind.SERIAL,
            )
            for d in self._dims
            if self._left(d) > 1 or self._used[d] == 1
        )  # fmt: skip

    def _extent(self, dim: int) -> int:
        extent = self._copy.shape[dim]
        assert isinstance(extent, int), "why_not_private"
        return extent

    def _low(self, dim: int) -> int:
        low = self._copy.origin[dim]
        assert isinstance(low, int), "why_not_private"
        return low

    def _left(self, dim: int) -> int:
        return -(-self._extent(dim) // self._used[dim])


def _pieces(sketch: Sketch, name: str) -> tuple[Piece, ...]:
    outer = (loop.pieces[name] for loop in (*sketch.outer, *sketch.within) if name in loop.pieces)
    return (*outer, *sketch.remaining[name])


def _index(scop: Scop, name: str, piece: Piece) -> str:
    return scop.by_name[name].indices[piece.coordinate.position]


def widths_of(sketch: Sketch) -> dict[int, int]:
    """Return how many threads a block has along each axis."""
    found: dict[int, int] = {}
    outer = (loop.pieces.values() for loop in (*sketch.outer, *sketch.within))
    for piece in (p for own in (*outer, *sketch.remaining.values()) for p in own):
        if piece.kind is LoopKind.THREAD:
            found[piece.axis] = max(found.get(piece.axis, 1), piece.width)
    return found
