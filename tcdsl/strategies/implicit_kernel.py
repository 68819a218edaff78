"""An implicit matrix product's kernel on tensor cores: the tree of its loops, and the rewrites.

    blocks over m / 128, n / 64 [, chunks of the terms]
      warps:  part = 0
      for steps, terms / 64:
        threads:  A.tile, B.tile = ... or 0    some steps ahead, packed (packing.py)
        warps:    part += A.tile * B.tile      one collective
      warps:  C = part; what else the group computes from it

As ``tensor_kernel`` makes it of plain operands.  Where blocks share the terms each stores its own
sums, and what follows adds them up in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.poly.isl_utils import Extent, dim_bounds, whole_tiles
from tcdsl.poly.loop_tree import AffineCoordinate, Coordinate, LoopKind
from tcdsl.poly.scop import Accumulation, Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.packing import Side, TileOf, pack
from tcdsl.rewrites.scop.padding import padded
from tcdsl.rewrites.scop.rfactor import Partial, rfactor
from tcdsl.strategies import fragments, thread_tiles
from tcdsl.strategies.bulk_tiles import bulk_tile_of
from tcdsl.strategies.fragments import At, Level, WarpTiles, copied
from tcdsl.strategies.implicit_product import (
    Classes,
    Form,
    classes_of,
    factor_type,
    factors_of,
    flat_classes_of,
    form_of,
)
from tcdsl.strategies.live_steps import with_live_steps
from tcdsl.strategies.lowering import Chunk, Lowering
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Implicit, Tile
from tcdsl.strategies.tensor_blocks import in_swaths, levels_of
from tcdsl.strategies.tensor_kernel import accumulation_of, with_accumulation
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.tile_copies import ahead_of, along, around_of, in_order, with_producer


def classes_for(problem: Problem, chunks: int) -> Classes:
    """Return the classes of a kernel whose blocks share the terms in so many *chunks*."""
    classes = classes_of(problem) if chunks == 1 else flat_classes_of(problem)
    assert classes is not None, "the template asks first"
    return classes


def chunk_size(classes: Classes, step: int, chunks: int) -> int:
    """Return how many terms a chunk has: whole steps."""
    return -(-classes.term.extent // (step * chunks)) * step


def implicit_kernel(problem: Problem, product: Implicit) -> TensorKernel:
    """Return the loops of *product*, a sum of *problem*."""
    return _Builder(problem, product).kernel()


@dataclass(frozen=True, slots=True)
class _Sums:
    """The statements around the updates: what initialises their sums and what stores these."""

    scop: Scop
    init: str
    store: str
    after: tuple[str, ...]  # in the kernel
    left: tuple[str, ...] = ()  # after it
    chunk: str = ""  # the index of chunks


class _Builder:
    """Makes one kernel."""

    def __init__(self, problem: Problem, product: Implicit) -> None:
        self.problem = problem
        self.product = product
        self.lead = problem.lead
        self.tiles: WarpTiles = product.tiles
        self.classes = classes_for(problem, product.chunks)
        self.form: Form = form_of(problem, self.classes.results, self.classes.terms)
        self.size = chunk_size(self.classes, self.tiles.step, product.chunks)
        self.count = -(-self.classes.term.extent // self.size)
        # Blocks that share an open number of terms have steps in turn: each has some of any number.
        self.is_dealt = self.count > 1 and bool(self.classes.term.size)

    def kernel(self) -> TensorKernel:
        """Return the kernel's loops."""
        sums = self._sums()
        scop = self._padded(sums.scop)
        row, column, term = self.classes.row, self.classes.column, self.classes.term

        def at(name: str, index: str) -> At:
            return At(scop.by_name[name].indices.index(index))

        lead, is_finished = self.lead, self.product.is_finished
        holders = fragments if self.tiles.together else thread_tiles
        names = (sums.init, sums.store, *sums.after)
        levels = {
            name: holders.held(self.tiles, at(name, row.name), at(name, column.name))
            for name in (*names, *(sums.left if is_finished else ()))
        }
        levels[lead] = holders.multiplied(
            self.tiles, at(lead, row.name), at(lead, column.name), at(lead, term.name)
        )
        loops = ({lead: loop[lead]} for loop in self._blocks())
        outer = [self._with(scop, loop, names, sums.chunk) for loop in loops]
        outer.sort(key=lambda loop: loop[lead].kind is not LoopKind.BLOCK)
        last: tuple[tuple[str, ...], ...] = ()
        if is_finished:
            *around, chunks = outer
            outer = [*(self._with(scop, loop, sums.left, "") for loop in around), chunks]
            begin, fold, *end = sums.left
            turn = Coordinate(at(fold, sums.chunk).position)
            levels[fold].insert(0, Level(LoopKind.SERIAL, turn, chunks[lead].extent))
            last = ((begin,), (fold,), tuple(end))
        buffers = self.product.stages if self.product.boxes else 1
        kernel = TensorKernel(
            scop, lead, tuple(outer), {lead: self._step()}, ((sums.init,),), (lead,),
            ((sums.store, *sums.after),), levels, (), buffers,
            () if is_finished else sums.left, last,
        )  # fmt: skip
        if not self.product.in_turn:
            kernel = with_live_steps(kernel, is_counted=self.product.boxes)
        for number in range(2):
            kernel = self._with_copy(kernel, number)
        accumulation = self._accumulation()
        return with_accumulation(kernel, (self.lead,), accumulation) if accumulation else kernel

    def _accumulation(self) -> Accumulation | None:
        """Return how the product is added up, None as its statement says."""
        return accumulation_of(factor_type(self.problem), self.problem, self.tiles)

    def _sums(self) -> _Sums:
        """Return the statements, sums of a chunk each where blocks share the terms."""
        form, members = self.form, self.form.group.members
        after = tuple(name for name in members if name not in (self.lead, form.store))
        if self.count == 1:
            return _Sums(form.scop, form.init, form.store, after)
        term = self.classes.term
        run, mod = (self.tiles.step, self.count) if self.is_dealt else (self.size, 0)
        part = Partial(term.name, 0, run, mod, self.count, False)
        shared = rfactor(form.scop, self.lead, (part,))
        scop, init, store = rfactor(shared.scop, self.lead, ())
        (chunk,) = set(store.indices) - set(scop.by_name[self.lead].indices)
        left = (form.init, shared.fold.name, form.store, *after)
        return _Sums(scop, init.name, store.name, (), left, chunk)

    def _padded(self, scop: Scop) -> Scop:
        """Return *scop* with whole tiles of the product."""
        rows, columns = self.tiles.block
        row, column, term = self.classes.row, self.classes.column, self.classes.term
        spans: dict[str, tuple[int, Extent]] = {
            one.name: (0, whole_tiles(self._end(scop, one.name), size))
            for one, size in ((row, rows), (column, columns))
        }
        is_whole = self.count == 1 or self.is_dealt
        size = self.tiles.step if is_whole else self.size
        terms = {term.name: (0, whole_tiles(self._end(scop, term.name), size))}
        found = padded(scop, self.lead, spans, terms)
        assert found is not None, "its indices are merged"
        return found

    def _end(self, scop: Scop, index: str) -> Extent:
        """Return the end of an *index* of the product: a function of an open size."""
        product = scop.by_name[self.lead]
        return dim_bounds(product.domain, product.indices.index(index), scop.context)[1]

    def _step(self) -> Level:
        """Return the loop over steps of the terms, for each value of the other indices.

        Of an open number of terms, all other values for each step: there is no gap between those
        that there are.
        """
        names = self.form.scop.by_name[self.lead].indices
        position = names.index(self.classes.term.name)
        count = self.size // self.tiles.step
        terms = Coordinate(position, 0, self.tiles.step, count if self.count > 1 else 0)
        if self.is_dealt:
            terms = Coordinate(position, 0, self.tiles.step * self.count)
        steps = self.classes.steps
        if steps is None:
            return Level(LoopKind.SERIAL, terms, count)
        slow = Coordinate(names.index(steps.name))
        turns = ((steps.extent, terms), (1, slow)) if self.classes.term.size else (
            (count, slow), (1, terms)
        )  # fmt: skip
        return Level(LoopKind.SERIAL, AffineCoordinate(turns), count * steps.extent)

    def _blocks(self) -> list[dict[str, Level]]:
        form, classes = self.form, self.classes
        rows, columns = self.tiles.block
        tiles = [
            Tile(form.axis(one), one.extent, 0, repeat=size)
            for one, size in ((classes.column, columns), (classes.row, rows))
        ]
        tiles += [Tile(form.axis(one), one.extent, 0) for one in reversed(classes.batches)]
        chunk = None
        if self.count > 1:
            names = form.scop.by_name[self.lead].indices
            run = self.tiles.step if self.is_dealt else 0
            at = {self.lead: names.index(classes.term.name)}
            chunk = Chunk(at, self.size, self.is_dealt, run)
        loops = Lowering(form.group, form.shapes, self.problem.gpu, tiles, chunk=chunk)
        lead, product = self.lead, self.product
        row = form.axis(classes.row)[lead]
        return [
            part
            for loop in loops.block_loops()
            for part in in_swaths(levels_of(loop), lead, row, product.swath, product.in_turn)
        ]

    def _with(
        self, scop: Scop, loop: Mapping[str, Level], names: Sequence[str], chunk: str
    ) -> dict[str, Level]:
        """Return *loop* over blocks for the lead, and for *names* that are with it in the kernel.

        :arg chunk: their index of the chunks.
        """
        level, found = loop[self.lead], dict(loop)
        coordinate = level.coordinate
        assert isinstance(coordinate, Coordinate)
        index = scop.by_name[self.lead].indices[coordinate.position]
        for name in names:
            indices = scop.by_name[name].indices
            if index == self.classes.term.name:
                own = Coordinate(indices.index(chunk))
            else:
                own = replace(coordinate, position=indices.index(index))
            found[name] = replace(level, coordinate=own)
        return found

    def _goes_on(self) -> bool:
        """Return whether a product goes on after it was issued, while copies are."""
        return self.tiles.together > 1 and not self._accumulation()

    def _with_copy(self, kernel: TensorKernel, number: int) -> TensorKernel:
        """Return *kernel* with the rows' or the columns' factor from a tile."""
        lead, step = kernel.name, kernel.step[kernel.name]
        classes, stages = self.classes, self.product.stages
        factors = factors_of(kernel.scop.by_name[lead])
        assert factors is not None
        factor = factors[classes.factors[number]]
        merged = (classes.row, classes.column)[number]
        sides = (
            Side(merged.name, self.tiles.block[number], merged.end),
            Side(classes.term.name, self.tiles.step, classes.term.end),
        )
        loaded = classes.loaded[number]
        # Threads on their own have runs of each term: a factor that lies along the terms is turned.
        is_turned = loaded.is_along_terms and not self.tiles.together
        sides = sides if loaded.is_along_terms and not is_turned else (sides[1], sides[0])
        name = f"{factor.load.tensor}.tile{number}{lead}"
        tile = TileOf(name, sides)
        if self.product.boxes:
            bulk = bulk_tile_of(self.problem, self.product.chunks > 1, number)
            assert not isinstance(bulk, str), "the template asks first"
            tile = TileOf(name, sides, bulk=bulk.copy)
        around = around_of(kernel, lead, runs_on=self.product.boxes)
        packed = pack(kernel.scop, lead, factor, around, tile)
        kernel = replace(kernel, scop=packed.scop)
        if self.product.boxes:
            return with_producer(kernel, packed, [side.size for side in sides], lead, (lead,))
        blocks = [
            {**loop, packed.copy: along(loop[lead], packed.outer[depth])}
            for depth, loop in enumerate(kernel.outer)
        ]
        order = -1 if is_turned else 1  # neighbouring threads copy neighbours of memory
        line, within = map(At, packed.elements[::order])
        sizes, vector = [side.size for side in sides[::order]], 1 if is_turned else loaded.vector
        own = copied(line, within, sizes, self.tiles, vector)
        return replace(
            kernel,
            outer=tuple(blocks),
            step={**kernel.step, packed.copy: ahead_of(step, packed.outer[-1], stages - 1)},
            inside=in_order((*kernel.inside, packed.copy), (lead,), is_shifted=self._goes_on()),
            levels={**kernel.levels, packed.copy: own},
            staged=(*kernel.staged, packed.array),
        )
