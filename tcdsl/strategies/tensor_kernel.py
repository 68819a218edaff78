"""The kernel of contractions on tensor cores: the tree of its loops, and the rewrites before it.

    C(m,n) +=! A(m,k) * B(k,n)
    ---> blocks over m / 128, n / 128
           warps:  part = 0                        fragments, in registers (fragments.py)
           for k / 32:
             threads:  A.tile, B.tile = ... or 0   some steps ahead: copies of 16 bytes
             warps:    part += A.tile * B.tile     whole tiles (padding.py): one collective
           warps:  C = part; what else the group computes from it

The accumulators are padded with the product, what is stored is not.  Of several products each has
accumulators, and a step has the tiles of all factors (joint_products.py).  Where blocks share sums,
each has a chunk of the terms, and what it stores is added up after the kernel (*left*), or by the
last block of each tile, with what else is computed of the sums (*last*, ``schedule/stitching``).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import val, whole_tiles
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    LoopKind,
)
from tcdsl.poly.scop import Accumulation, Scop
from tcdsl.rewrites.scop.caching import coordinate_expression
from tcdsl.rewrites.scop.padding import Spans, padded
from tcdsl.rewrites.scop.rfactor import Partial, coordinate_name, initialisation, rfactor
from tcdsl.schedule.fusion import textual
from tcdsl.strategies.equal_shares import Place, in_parts, outer_loops, step_loop
from tcdsl.strategies.fragments import (
    At,
    Level,
    WarpTiles,
    held,
    multiplied,
)
from tcdsl.strategies.joint_products import factors_of, pairs_of
from tcdsl.strategies.live_steps import with_live_steps
from tcdsl.strategies.lowering import Chunk, Lowering
from tcdsl.strategies.one_sum import one_sum
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.register_operands import (
    is_in_registers,
    with_operand,
    with_register_operand,
)
from tcdsl.strategies.schedule import Tensor, Terms, Tile
from tcdsl.strategies.tensor_blocks import in_swaths, levels_of, with_clusters
from tcdsl.strategies.tensor_operands import operands_of
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.tensor_types import is_split, is_truncated
from tcdsl.strategies.tile_copies import with_copy
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

ROW_MULTIPLE = 4  # elements of a sum that a vector has


def tensor_kernel(problem: Problem, product: Tensor) -> TensorKernel:
    """Return the loops of *problem*, a *product* on tensor cores."""
    problem = with_operand(problem)
    whole, members = problem, problem.group.members
    problem, folds = _in_parts(problem, product)
    lead, tiles = product.products[0], product.tiles
    is_cut = product.chunk or product.shares is not None
    scop, left = _in_chunks(problem, product) if is_cut else (problem.scop, ())
    levels: dict[str, list[Level]] = {}
    inits, after = list[str](), [name for name in members if name not in product.products]
    outer = [] if product.shares is not None else _blocks(problem, product)
    for terms in product.terms:
        scop, init, store, own = _accumulated(scop, problem, product, terms)
        outer = [_with(scop, loop, terms.product, (init, store)) for loop in outer]
        levels |= own
        inits.append(init)
        after.append(store)
    rows, columns = (shared_axis(whole, axis) for axis in (product.row, product.column))
    for name in (name for name in after if name not in levels):
        levels[name] = held(tiles, At(rows[name]), At(columns[name]))
    for fold in folds:
        levels |= levels_of_parts(fold, tiles)
        outer = [_with_fold(loop, whole, fold, product) for loop in outer]
    outer.sort(key=lambda loop: loop[lead].kind is not LoopKind.BLOCK)
    steps = _steps(problem, product)
    stores, last = textual(scop, after), tuple[tuple[str, ...], ...]()
    nests: tuple[tuple[str, ...], ...] = (stores,)
    if product.shares is not None:
        begin, fold_, end = left
        for name in left:
            levels[name] = held(tiles, *_at(scop, name, _names(problem, product)[:2]))
        for name in (*stores[:1], fold_):
            scop = _in_whole_tiles(scop, problem, product, name)
        places = _places(scop, problem, product, (*inits, *stores[:1], *left))
        scop = in_parts(scop, product.shares, places, (*inits, begin, fold_), stores[0])
        share = places[fold_].share
        assert share is not None
        places[fold_] = replace(places[fold_], share=None)  # whosever it is, the owner adds it
        outer = outer_loops(product.shares, places)
        steps = {lead: step_loop(product.shares, places[lead])}
        of_parts = Level(LoopKind.SERIAL, Coordinate(share), product.shares.blocks)
        levels[fold_].insert(0, of_parts)
        nests, left = (stores[:1], (begin,), (fold_,), (end, *stores[1:])), ()
    elif product.is_finished:
        *around, chunks = outer
        outer = [*(_with(scop, loop, lead, left) for loop in around), chunks]
        for name in left:
            levels[name] = held(tiles, *_at(scop, name, _names(problem, product)[:2]))
        begin, fold_, end = left
        chunk = coordinate_name(problem.scop.by_name[lead], 0, is_lane=False)
        at = scop.by_name[fold_].indices.index(chunk)
        levels[fold_].insert(0, Level(LoopKind.SERIAL, Coordinate(at), chunks[lead].extent))
        last, left, stores = ((begin,), (fold_,), (end, *stores[1:])), (), stores[:1]
        nests = (stores,)
        scop = _with_whole_rows(scop, problem, product, (*stores, fold_))
    elif product.chunk:
        scop = _with_whole_rows(scop, problem, product, stores[:1])
    left += tuple(name for fold in folds for name in fold.left)
    begun = (*inits, *(fold.init for fold in folds))
    kernel = TensorKernel(
        scop, lead, tuple(outer), steps, tuple((name,) for name in begun), product.products,
        (*nests, *((fold.store,) for fold in folds)), levels, (),
        product.stages if product.boxes else 1, left, last,
    )  # fmt: skip
    return _with_operands(kernel, problem, product)


def _with_operands(kernel: TensorKernel, problem: Problem, product: Tensor) -> TensorKernel:
    """Return *kernel* with what brings its operands, its live steps and its way of adding up."""
    if not product.in_turn and len(product.terms) == 1 and product.cluster == (1, 1):
        kernel = with_live_steps(kernel, is_counted=product.boxes, may_shift=True)
    for factor in factors_of(problem, product.terms):
        with_tile = with_register_operand if is_in_registers(factor.array) else with_copy
        kernel = with_tile(kernel, product, factor)
    accumulation = accumulation_of(operands_of(problem)[0].dtype, problem, product.tiles)
    kernel = with_accumulation(kernel, product.products, accumulation) if accumulation else kernel
    return _in_one_sum(kernel, problem, product) if product.is_one_sum else kernel


def accumulation_of(factor: DType, problem: Problem, tiles: WarpTiles) -> Accumulation | None:
    """Return how products of this type of *factor* are added up, None as their statement says."""
    if tiles.together > 1 and is_split(factor, problem.options):
        return Accumulation.SPLIT
    if tiles.together > 1 and is_truncated(factor, problem.options):
        return Accumulation.PROMOTED
    return None


def with_accumulation(
    kernel: TensorKernel, products: Collection[str], accumulation: Accumulation
) -> TensorKernel:
    """Return *kernel* with its *products* added up so."""
    own = (
        replace(s, accumulation=accumulation) if s.name in products else s
        for s in kernel.scop.statements
    )
    return replace(kernel, scop=kernel.scop.with_statements(tuple(own)))


def _in_one_sum(kernel: TensorKernel, problem: Problem, product: Tensor) -> TensorKernel:
    """Return *kernel* with the products as one, whose steps are those of all."""
    (lead, *others), scop = product.terms, kernel.scop
    tiles = {}
    for own in others:
        pairs = pairs_of(problem, lead, own)
        assert pairs is not None, "joint_products"
        for first, number in pairs:
            tile, place = (
                scop.by_name[terms.product].reads[at].array
                for terms, at in ((own, number), (lead, first))
            )
            tiles[tile] = place
    products = {own.product for own in others}
    sums = {scop.by_name[name].write.array for name in products}
    dropped = {
        s.name
        for s in scop.statements
        if s.name in products or any(one.array in sums for one in (*s.writes, *s.reads))
    }
    last = _step(problem, product, lead).extent - 1
    copies = [s for s in scop.statements if s.write.array in tiles.values()]
    domains = {
        s.name: s.domain.intersect(_until(s.domain, kernel.step[s.name].coordinate, last))
        for s in copies
    }
    return _without(replace(kernel, scop=one_sum(scop, tiles, dropped, domains)), dropped, tiles)


def _until(domain: isl.Set, coordinate: AnyCoordinate, last: int) -> isl.Set:
    """Return where the step of a copy, however far ahead it runs, is none after *last*."""
    step = isl.PwAff.from_aff(replace(coordinate, shift=0).function(domain.get_space()))
    bound = isl.Aff.val_on_domain(isl.LocalSpace.from_space(domain.get_space()), val(last))
    return step.le_set(isl.PwAff.from_aff(bound))


def _without(kernel: TensorKernel, names: Collection[str], tiles: Collection[str]) -> TensorKernel:
    """Return *kernel* without the statements *names*, and the arrays *tiles*."""

    def kept(loop: Mapping[str, Level]) -> dict[str, Level]:
        return {name: level for name, level in loop.items() if name not in names}

    before, after = (
        tuple(tuple(name for name in nest if name not in names) for nest in nests)
        for nests in (kernel.before, kernel.after)
    )
    return replace(
        kernel,
        outer=tuple(map(kept, kernel.outer)),
        step=kept(kernel.step),
        before=tuple(nest for nest in before if nest),
        inside=tuple(name for name in kernel.inside if name not in names),
        after=tuple(nest for nest in after if nest),
        staged=tuple(array for array in kernel.staged if array not in tiles),
    )


def _accumulated(
    scop: Scop, problem: Problem, product: Tensor, terms: Terms
) -> tuple[Scop, str, str, dict[str, list[Level]]]:
    """Return *scop* with accumulators of the product *terms*, in whole tiles.

    And what initialises them, what stores them, and the loops of these and of the product.
    """
    name, names = terms.product, _names(problem, product, terms)
    done, begin, end = rfactor(scop, name, (), names[1])
    init, store = begin.name, end.name
    done = _padded(done, problem, product, terms)
    levels = {n: held(product.tiles, *_at(done, n, names[:2])) for n in (init, store)}
    levels[name] = multiplied(product.tiles, *_at(done, name, names))
    return done, init, store, levels


def _names(problem: Problem, product: Tensor, terms: Terms | None = None) -> list[str]:
    """Return the indices of rows, columns and terms of the product *terms*, or of the lead."""
    own = terms or product.terms[0]
    dims = product.row[own.product], product.column[own.product], own.term
    return [problem.scop.by_name[own.product].indices[dim] for dim in dims]


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
    if is_wider or product.is_finished or product.shares is not None:
        # The chunks' sums are added in the reduction's type, and rounded once.
        scop, init, store = rfactor(scop, lead, ())
        left.append(store.name)
    done, _, fold = rfactor(scop, lead, [_parts(problem, product)])
    return done, textual(done, [*([init.name] if init else []), fold.name, *left])


def _parts(problem: Problem, product: Tensor) -> Partial:
    """Return which of the blocks that have terms of a tile has one."""
    term, indices = product.terms[0].term, problem.shapes[problem.lead].statement.indices
    if (shares := product.shares) is not None:
        lead = problem.lead
        share = shares.share(Place(product.row[lead], product.column[lead], term))
        function = coordinate_expression(share, indices)
        return Partial(indices[term], 0, 1, 0, shares.blocks, False, function)
    count, step = _chunks(problem, product), product.tiles.step
    run, mod = (step, count) if _is_dealt(problem, product) else (product.chunk, 0)
    return Partial(indices[term], 0, run, mod, count, False)


def _places(
    scop: Scop, problem: Problem, product: Tensor, names: Sequence[str]
) -> dict[str, Place]:
    """Return where members have rows, columns and terms; and *names*, statements of these."""
    lead, term = problem.lead, product.terms[0].term
    rows, columns = (shared_axis(problem, axis) for axis in (product.row, product.column))
    found = {
        name: Place(rows[name], columns[name], term if name == lead else None)
        for name in problem.group.members
    }
    row, column, _ = _names(problem, product)
    part = coordinate_name(problem.scop.by_name[lead], 0, is_lane=False)
    for name in names:
        at = {index: dim for dim, index in enumerate(scop.by_name[name].indices)}
        found[name] = Place(at[row], at[column], None, at.get(part))
    return found


def _chunks(problem: Problem, product: Tensor) -> int:
    """Return how many blocks share the terms of a tile."""
    return -(-problem.shapes[problem.lead].extents[product.terms[0].term] // product.chunk)


def _is_dealt(problem: Problem, product: Tensor) -> bool:
    """Return whether blocks that share terms have steps in turn: see :class:`Chunk`."""
    return product.chunk > 0 and problem.is_open({problem.lead: product.terms[0].term})


def _steps(problem: Problem, product: Tensor) -> dict[str, Level]:
    """Return the loop over steps: the same of all products, or of one after another."""
    found = {terms.product: _step(problem, product, terms) for terms in product.terms}
    if not product.is_one_sum:
        return found
    count, before = sum(level.extent for level in found.values()), 0
    for name, level in found.items():
        after = AffineCoordinate(((1, level.coordinate),), -before)
        coordinate = after if before else level.coordinate
        found[name] = replace(level, coordinate=coordinate, extent=count)
        before += level.extent
    return found


def _step(problem: Problem, product: Tensor, own: Terms) -> Level:
    """Return the loop over steps: tiles of the terms, for each value of the other indices.

    Of an open number of terms each tile has all values of the others: so that there is no gap
    between the steps that there are.
    """
    extents = problem.shapes[own.product].extents
    count = -(-(product.chunk or extents[own.term]) // product.tiles.step)
    terms = Coordinate(own.term, 0, product.tiles.step, count if product.chunk else 0)
    if _is_dealt(problem, product):
        terms = Coordinate(own.term, 0, product.tiles.step * _chunks(problem, product))
    if not own.others:
        return Level(LoopKind.SERIAL, terms, count)
    pieces = [(Coordinate(dim), extents[dim]) for dim in own.others]
    is_open = problem.is_open({own.product: own.term})
    pieces.insert(0 if is_open else len(pieces), (terms, count))
    parts: list[tuple[int, AnyCoordinate]] = []
    count = 1
    for coordinate, extent in reversed(pieces):
        parts.insert(0, (count, coordinate))
        count *= extent
    return Level(LoopKind.SERIAL, AffineCoordinate(tuple(parts)), count)


def _padded(scop: Scop, problem: Problem, product: Tensor, own: Terms) -> Scop:
    """Return *scop* with whole tiles of the product *own*."""
    name = own.product
    rows, columns = (
        _spans(problem, name, axis[name], size * blocks)
        for axis, size, blocks in zip(
            (product.row, product.column), product.tiles.block, product.cluster, strict=True
        )
    )
    is_one = product.chunk == 0 or _is_dealt(problem, product)
    terms = _spans(problem, name, own.term, product.tiles.step if is_one else product.chunk)
    if product.is_one_sum and name == product.products[0]:  # it has the steps of all
        count = _steps(problem, product)[name].extent
        terms = dict.fromkeys(terms, (0, count * product.tiles.step))
    found = padded(scop, name, {**rows, **columns}, terms)
    assert found is not None, "the template asks first"
    return found


def _in_whole_tiles(scop: Scop, problem: Problem, product: Tensor, name: str) -> Scop:
    """Return *scop* with whole tiles of what *name* stores of parts' sums, or adds up."""
    axes = zip((product.row, product.column), product.tiles.block, strict=True)
    spans = [_spans(problem, problem.lead, axis[problem.lead], size) for axis, size in axes]
    found = padded(scop, name, {**spans[0], **spans[1]})
    assert found is not None, "as the accumulators are"
    return found


def _with_whole_rows(scop: Scop, problem: Problem, product: Tensor, names: Collection[str]) -> Scop:
    """Return *scop* with whole tiles, along rows in memory, of what *names* store of chunks' sums.

    That is for rows of an open length, or of one that is no multiple of a vector's: stored one by
    one, what chunks leave of 97 x 1024 x 1024 takes four times as long as the product (H200).
    """
    lead = product.products[0]
    axes = zip((product.row, product.column), product.tiles.block, strict=True)
    index = problem.scop.by_name[lead].write.subscripts[-1]
    for axis, size in axes:
        spans = _spans(problem, lead, axis[lead], size)
        length = problem.shapes[lead].extents[axis[lead]]
        is_whole = length % ROW_MULTIPLE == 0 and not problem.is_open({lead: axis[lead]})
        if not is_whole and spans.keys() == {getattr(index, "name", "")}:
            for name in names:
                found = padded(scop, name, spans)
                assert found is not None, "as the accumulators are"
                scop = found
    return scop


def _spans(problem: Problem, name: str, dim: int, size: int) -> Spans:
    """Return the range of dimension *dim* of the product *name* in whole tiles of *size*."""
    index = problem.shapes[name].statement.indices[dim]
    return {index: (0, whole_tiles(problem.end(name, dim), size))}


def _at(scop: Scop, name: str, indices: Sequence[str]) -> list[At]:
    return [At(scop.by_name[name].indices.index(index)) for index in indices]


def _blocks(problem: Problem, product: Tensor) -> list[dict[str, Level]]:
    """Return the loops over blocks."""
    cut = zip((product.column, product.row), reversed(product.tiles.block), strict=True)
    own = [Tile(axis, problem.extent(axis), problem.lower(axis), repeat=n) for axis, n in cut]
    taken = product.row, product.column
    own += [problem.tile(axis) for axis in reversed(problem.parallel) if axis not in taken]
    chunk, is_dealt = None, _is_dealt(problem, product)
    if product.chunk:
        run = product.tiles.step if is_dealt else 0
        chunk = Chunk({problem.lead: product.terms[0].term}, product.chunk, is_dealt, run)
    loops = Lowering(problem.group, problem.shapes, problem.gpu, own, chunk=chunk).block_loops()
    lead, swath = problem.lead, (product.swath, product.in_turn)
    found = (with_clusters(levels_of(loop), problem, product) for loop in loops)
    return [part for loop in found for part in in_swaths(loop, lead, product.row[lead], *swath)]


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
