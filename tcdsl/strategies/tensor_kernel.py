"""A contraction's kernel on tensor cores: the tree of its loops, and the rewrites before it.

    C(m,n) +=! A(m,k) * B(k,n)
    ---> blocks over m / 128, n / 128
           warps:  part = 0                        fragments, in registers (fragments.py)
           for k / 32:
             threads:  A.tile, B.tile = ... or 0   some steps ahead: copies of 16 bytes
             warps:    part += A.tile * B.tile     whole tiles (padding.py): one collective
           warps:  C = part; what else the group computes from it

The accumulators are padded with the product, what is stored is not.  Where blocks share sums, each
has a chunk of the terms, and what it stores is added up after the kernel (*left*), or by the last
block of each tile, with what else is computed of the sums (*last*, see ``schedule/stitching``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tcdsl.poly.isl_utils import whole_tiles
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    sequence,
    statements_of,
)
from tcdsl.poly.scop import PRODUCER, Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.caching import Buffer, Cached, cache_read
from tcdsl.rewrites.scop.padding import Spans, padded
from tcdsl.rewrites.scop.rfactor import Partial, coordinate_name, initialisation, rfactor
from tcdsl.schedule.fusion import textual
from tcdsl.schedule.nesting import Nester
from tcdsl.schedule.plan import DEFAULT_CODE, Code
from tcdsl.strategies.assembly import Assembly, Chunk
from tcdsl.strategies.fragments import (
    At,
    Level,
    X,
    Y,
    Z,
    boxed,
    copied,
    held,
    multiplied,
    vector_of,
)
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.sketch import OuterLoop, Sketch, Tensor, Tile
from tcdsl.strategies.tile_folds import (
    Fold,
    folded,
    folds_of,
    is_of_columns,
    levels_of_parts,
    outer_of_parts,
    parts_of,
    shared_axis,
    without_folds,
)


@dataclass(frozen=True, eq=False)
class TensorKernel:
    """A contraction's kernel before its loops are opened."""

    scop: Scop
    name: str  # the contraction's statement
    outer: tuple[Mapping[str, Level], ...]  # over blocks, and the tiles of one
    step: Mapping[str, Level]  # around the copies and the product; none: in one step
    before: tuple[tuple[str, ...], ...]  # the accumulators' initialisations, each in one nest
    inside: tuple[str, ...]
    after: tuple[tuple[str, ...], ...]  # in one nest each
    levels: Mapping[str, Sequence[Level]]
    staged: tuple[str, ...]  # tiles that asynchronous copies bring
    buffers: int = 1  # iterations that these have room for at least
    why: tuple[str, ...] = ()
    left: tuple[str, ...] = ()  # what is to be done after the kernel: sums over chunks
    template: str = "tile_mma"
    config: Mapping[str, Any] = field(default_factory=dict)
    code: Code = DEFAULT_CODE
    last: tuple[tuple[str, ...], ...] = ()  # what the last block of a tile does, each in one nest

    def tree(self, nester: Nester) -> Node:
        """Return the loops."""
        inside: Node = sequence([self._nest([name], nester) for name in self.inside])
        before, after = (
            [self._nest(names, nester) for names in nests] for nests in (self.before, self.after)
        )
        steps = _loop(self.step, inside, nester) if self.step else inside
        tree = sequence([*before, steps, *after])
        around = self.outer
        if self.last:
            around, chunks = self.outer[:-1], self.outer[-1]
            own = sequence([self._nest(names, nester) for names in self.last])
            tree = sequence([_loop(chunks, tree, nester), _last(own, chunks[self.name], nester)])
        for levels in reversed(around):
            tree = _loop(levels, tree, nester)
        return tree

    def _nest(self, names: Sequence[str], nester: Nester) -> Node:
        """Return the statements *names* in the same loops, which their axes align."""
        node: Node = sequence([Leaf(name) for name in names])
        for depth in reversed(range(len(self.levels[names[0]]))):
            node = _loop({name: self.levels[name][depth] for name in names}, node, nester)
        return node


def _loop(levels: Mapping[str, Level], body: Node, nester: Nester) -> Loop:
    """Return the loop of *levels* around *body*."""
    level = next(iter(levels.values()))
    coordinates: Mapping[str, AnyCoordinate] = {n: own.coordinate for n, own in levels.items()}
    extent = max(own.extent for own in levels.values())
    name = nester.fresh_name(str(level.kind))
    return Loop(name, coordinates, level.kind, body, extent, 0, level.axis, level.width)


def _last(body: Node, chunks: Level, nester: Nester) -> Loop:
    """Return the loop that the last of the blocks of *chunks* runs."""
    nowhere = {name: AffineCoordinate(()) for name in statements_of(body)}
    return Loop(nester.fresh_name("last"), nowhere, LoopKind.LAST, body, 1, width=chunks.width)


def tensor_kernel(problem: Problem, sketch: Sketch, product: Tensor) -> TensorKernel:
    """Return the kernel of *problem* that *sketch* says, a *product* on tensor cores."""
    whole, members = problem, problem.group.members
    problem, folds = _in_parts(problem, product)
    lead, shape, tiles = problem.lead, problem.shapes[problem.lead], product.tiles
    row, column = product.row, product.column
    names = [shape.statement.indices[d] for d in (row[lead], column[lead], product.term)]
    chunked, left = _in_chunks(problem, product) if product.chunk else (problem.scop, ())
    scop = rfactor(chunked, lead, ())
    init, store = (s.name for s in scop.statements if s.name not in chunked.by_name)
    scop = _padded(scop, lead, problem, product)
    levels = {name: held(tiles, *_at(scop, name, names[:2])) for name in (init, store)}
    levels[lead] = multiplied(tiles, *_at(scop, lead, names))
    after = [name for name in members if name != lead]
    rows, columns = (shared_axis(whole, axis) for axis in (row, column))
    for name in after:
        levels[name] = held(tiles, At(rows[name]), At(columns[name]))
    outer = [_with(scop, loop, lead, (init, store)) for loop in _blocks(problem, product)]
    for fold in folds:
        levels |= levels_of_parts(fold, tiles)
        outer = [_with_fold(loop, whole, fold, product) for loop in outer]
    outer.sort(key=lambda loop: loop[lead].kind is not LoopKind.BLOCK)
    step = _step(problem, product)
    last: tuple[tuple[str, ...], ...] = ()
    if product.is_finished:
        *around, chunks = outer
        outer = [*(_with(scop, loop, lead, left) for loop in around), chunks]
        for name in left:
            levels[name] = held(tiles, *_at(scop, name, names[:2]))
        begin, fold_, end = left
        chunk = coordinate_name(shape.statement, 0, is_lane=False)
        at = scop.by_name[fold_].indices.index(chunk)
        levels[fold_].insert(0, Level(LoopKind.SERIAL, Coordinate(at), chunks[lead].extent))
        last, left, after = ((begin,), (fold_,), (end, *after)), (), []
    left += tuple(name for fold in folds for name in fold.left)
    kernel = TensorKernel(
        scop, lead, tuple(outer), {lead: step}, ((init,), *((fold.init,) for fold in folds)),
        (lead,), ((store, *after), *((fold.store,) for fold in folds)), levels, (),
        product.stages if product.boxes else 1, sketch.why, left, sketch.template, sketch.config,
        sketch.code, last,
    )  # fmt: skip
    for number in range(len(scop.by_name[lead].reads)):
        kernel = _with_copy(kernel, product, number)
    return kernel


def _in_parts(problem: Problem, product: Tensor) -> tuple[Problem, list[Fold]]:
    """Return *problem* without its folds, which the scop has in parts, and these."""
    scop, folds, axes = problem.scop, list[Fold](), (product.row, product.column)
    for name in folds_of(problem):
        parts = parts_of(problem, name, axes, product.tiles)
        kept = axes[is_of_columns(problem, name, product.row)]
        index = scop.by_name[name].indices[shared_axis(problem, kept)[name]]
        scop, fold = folded(scop, name, index, parts)
        folds.append(fold)
    return (replace(without_folds(problem), scop=scop) if folds else problem), folds


def _with_fold(
    loop: Mapping[str, Level], problem: Problem, fold: Fold, product: Tensor
) -> dict[str, Level]:
    """Return *loop* over blocks or tiles with what *fold* has in the kernel."""
    level = loop[problem.lead]
    coordinate = level.coordinate
    assert isinstance(coordinate, Coordinate)
    axis = next(own for own in problem.group.axes if own[problem.lead] == coordinate.position)
    updates = replace(level, coordinate=replace(coordinate, position=axis[fold.updates]))
    parts = outer_of_parts(updates, fold, product.tiles)
    return {**loop, fold.updates: updates, **dict.fromkeys(fold.parts, parts)}


def _in_chunks(problem: Problem, product: Tensor) -> tuple[Scop, tuple[str, ...]]:
    """Return the scop with sums of chunks of the terms, and the statements that add these up."""
    scop, lead, shape = problem.scop, problem.lead, problem.shapes[problem.lead]
    statement = shape.statement
    assert statement.reduction is not None, "it is a sum of products"
    init, left = initialisation(scop, statement), []
    is_wider = scop.arrays[statement.write.array].dtype != statement.reduction.dtype
    if is_wider or product.is_finished:
        # The chunks' sums are added in the reduction's type, and rounded once.
        scop = rfactor(scop, lead, ())
        init, store = (s for s in scop.statements if s.name not in problem.scop.by_name)
        left.append(store.name)
    count, step = _chunks(problem, product), product.tiles.step
    run, mod = (step, count) if _is_dealt(problem, product) else (product.chunk, 0)
    chunks = Partial(statement.indices[product.term], 0, run, mod, count, False)
    done = rfactor(scop, lead, [chunks])
    _, fold = (s for s in done.statements if s.name not in scop.by_name)
    return done, textual(done, [*([init.name] if init else []), fold.name, *left])


def _chunks(problem: Problem, product: Tensor) -> int:
    """Return how many blocks share the terms of a tile."""
    return -(-problem.shapes[problem.lead].extents[product.term] // product.chunk)


def _is_dealt(problem: Problem, product: Tensor) -> bool:
    """Return whether blocks that share terms have steps in turn: see :class:`Chunk`."""
    return product.chunk > 0 and problem.is_open({problem.lead: product.term})


def _step(problem: Problem, product: Tensor) -> Level:
    """Return the loop over steps: tiles of the terms, for each value of the other indices."""
    extents = problem.shapes[problem.lead].extents
    count = -(-(product.chunk or extents[product.term]) // product.tiles.step)
    terms = Coordinate(product.term, 0, product.tiles.step, count if product.chunk else 0)
    if _is_dealt(problem, product):
        terms = Coordinate(product.term, 0, product.tiles.step * _chunks(problem, product))
    if not product.others:
        return Level(LoopKind.SERIAL, terms, count)
    parts: list[tuple[int, AnyCoordinate]] = [(1, terms)]
    for dim in reversed(product.others):
        parts.insert(0, (count, Coordinate(dim)))
        count *= extents[dim]
    return Level(LoopKind.SERIAL, AffineCoordinate(tuple(parts)), count)


def _padded(scop: Scop, lead: str, problem: Problem, product: Tensor) -> Scop:
    """Return *scop* with whole tiles of the product."""
    rows, columns = (
        _spans(problem, axis[lead], size)
        for axis, size in zip((product.row, product.column), product.tiles.block, strict=True)
    )
    is_one = product.chunk == 0 or _is_dealt(problem, product)
    terms = _spans(problem, product.term, product.tiles.step if is_one else product.chunk)
    found = padded(scop, lead, {**rows, **columns}, terms)
    assert found is not None, "the template asks first"
    return found


def _spans(problem: Problem, dim: int, size: int) -> Spans:
    """Return the range of the lead's dimension *dim* in whole tiles of *size*."""
    statement = problem.shapes[problem.lead].statement
    return {statement.indices[dim]: (0, whole_tiles(problem.end(problem.lead, dim), size))}


def _at(scop: Scop, name: str, indices: Sequence[str]) -> list[At]:
    return [At(scop.by_name[name].indices.index(index)) for index in indices]


def _with_copy(kernel: TensorKernel, product: Tensor, number: int) -> TensorKernel:
    """Return *kernel* with the read *number* of the product from a tile, and what fills that."""
    lead, step = kernel.name, kernel.step[kernel.name]
    blocks = [loop for loop in kernel.outer if loop[lead].kind is LoopKind.BLOCK]
    around = (*(loop[lead].coordinate for loop in blocks), _time(kernel))
    read = kernel.scop.by_name[lead].reads[number]
    array, only = read.array, {read.subscripts}  # an array may be both operands
    tile = Buffer(f"{array}.tile{number}{lead}", is_padded=True)
    cached = cache_read(kernel.scop, array, {lead: around}, tile, only)
    outer = [
        {**loop, cached.copy: along(loop[lead], cached.outer[depth])}
        for depth, loop in enumerate(blocks)
    ]
    time = cached.outer[len(outer)]
    if product.boxes:  # the producer's loop is its own: nothing is shifted
        own, done = boxed(cached.elements, cached.sizes), _of_producer(cached)
        ahead = replace(step, coordinate=_inner(time, step, kernel))
        for loop in kernel.outer[len(blocks) :]:
            level = replace(loop[lead], coordinate=Coordinate(time, 0, step.extent))
            outer.append({**loop, cached.copy: level})
    else:
        ahead = ahead_of(step, time, product.stages - 1)
        lines = [d for d, size in enumerate(cached.sizes) if size > 1]
        line, within = (At(cached.elements[d]) for d in lines)
        vector = vector_of(kernel.scop.arrays[array])
        own = copied(line, within, [cached.sizes[d] for d in lines], product.tiles, vector)
        done = cached.scop
    is_shifted = product.tiles.together > 1 and not product.boxes
    return replace(
        kernel,
        scop=done,
        outer=tuple(outer),
        step={**kernel.step, cached.copy: ahead},
        inside=in_order((*kernel.inside, cached.copy), lead, is_shifted=is_shifted),
        levels={**kernel.levels, cached.copy: own},
        staged=(*kernel.staged, cached.array),
    )


def _time(kernel: TensorKernel) -> AnyCoordinate:
    """Return the number of a step, which runs on over the tiles of a block."""
    step, lead = kernel.step[kernel.name], kernel.name
    turns = [loop[lead] for loop in kernel.outer if loop[lead].kind is not LoopKind.BLOCK]
    if not turns:
        return step.coordinate
    (turn,) = turns
    return AffineCoordinate(((step.extent, turn.coordinate), (1, step.coordinate)))


def _inner(time: int, step: Level, kernel: TensorKernel) -> Coordinate:
    """Return the step of a copy whose dimension *time* is the number of its step."""
    is_one = all(loop[kernel.name].kind is LoopKind.BLOCK for loop in kernel.outer)
    return Coordinate(time, 0, 1, 0 if is_one else step.extent)


def _of_producer(cached: Cached) -> Scop:
    """Return the scop of *cached*, the copy being the producer's."""
    copy = replace(cached.scop.by_name[cached.copy], role=PRODUCER)
    own = (copy if s.name == copy.name else s for s in cached.scop.statements)
    return cached.scop.with_statements(tuple(own))


def in_order(names: Sequence[str], lead: str, *, is_shifted: bool) -> tuple[str, ...]:
    """Return the statements of a step: copies first, unless products go on meanwhile."""
    copies = [name for name in names if name != lead]
    return (lead, *copies) if is_shifted else (*copies, lead)


def _blocks(problem: Problem, product: Tensor) -> list[dict[str, Level]]:
    """Return the loops over blocks."""
    cut = zip((product.column, product.row), reversed(product.tiles.block), strict=True)
    own = [Tile(axis, problem.extent(axis), problem.lower(axis), repeat=n) for axis, n in cut]
    taken = product.row, product.column
    own += [problem.tile(axis) for axis in reversed(problem.parallel) if axis not in taken]
    chunk, is_dealt = None, _is_dealt(problem, product)
    if product.chunk:
        run = product.tiles.step if is_dealt else 0
        chunk = Chunk({problem.lead: product.term}, product.chunk, is_dealt, run)
    loops = Assembly(problem.group, problem.shapes, problem.gpu, own, chunk=chunk).block_loops()
    return [part for loop in loops for part in _in_swaths(levels_of(loop), problem, product)]


def _in_swaths(
    loop: dict[str, Level], problem: Problem, product: Tensor
) -> Iterator[dict[str, Level]]:
    """Yield *loop*, or where it is over tiles of rows and blocks have these in swaths, its digits.

        x: tile of rows % 8     y: tile of columns     z: tile of rows / 8

    Blocks start in the order of x, y, z: those that run at once share rows and columns in caches.
    Where tiles are taken in turn, a block has those of all z.
    """
    level, size = loop[problem.lead], product.swath
    if size == 1 or level.coordinate.position != product.row[problem.lead]:
        yield loop if size == 1 else {n: replace(own, axis=Y) for n, own in loop.items()}
        return
    count = -(-level.extent // size)
    for axis, extent, div, mod in ((Z, count, size, 0), (X, size, 1, size)):
        is_serial = product.in_turn and axis == Z
        kind, width = (LoopKind.SERIAL, 0) if is_serial else (level.kind, extent)
        yield {
            name: replace(own, kind=kind, extent=extent, axis=0 if is_serial else axis, width=width,
                          coordinate=replace(
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


def _with(
    scop: Scop, loop: Mapping[str, Level], lead: str, names: Sequence[str]
) -> dict[str, Level]:
    """Return *loop* with *names*, statements whose indices are called as the lead's."""
    level, found = loop[lead], dict(loop)
    coordinate = level.coordinate
    assert isinstance(coordinate, Coordinate)
    index = scop.by_name[lead].indices[coordinate.position]
    chunk = coordinate_name(scop.by_name[lead], 0, is_lane=False)
    for name in names:
        indices = scop.by_name[name].indices
        own = replace(coordinate, position=indices.index(index)) if index in indices else None
        found[name] = replace(level, coordinate=own or Coordinate(indices.index(chunk)))
    return found


def along(level: Level, position: int) -> Level:
    """Return *level* for a copy, whose dimension *position* is the loop's iteration."""
    return replace(level, coordinate=Coordinate(position))


def ahead_of(level: Level, position: int, steps: int) -> Level:
    """Return *level* for a copy that runs some *steps* before what uses it."""
    return replace(level, coordinate=Coordinate(position, steps), extent=level.extent + steps)
