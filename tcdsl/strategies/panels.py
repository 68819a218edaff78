"""A contraction on packed panels: the loops around a register tile, and the copies that feed it.

    C(m,n) +=! A(m,k) * B(k,n)                              blocks of mc x nc results, kc terms

    parallel n / nr:  B.panel[n/nr, k/kc, k%kc, n%nr] = B[k,n] or 0        a kernel of its own
    parallel n / nc, m / mc:
      sums[m % mc, n % nc] = 0
      k / kc:
        A.panel[m%mc / mr, m%mr, k%kc] = A[m,k] or 0
        m % mc / mr, n % nc / nr:
          acc[mr][nr] = 0
          k % kc:  acc[m % mr][n % nr] += A.panel * B.panel
          sums[m % mc, n % nc] += acc
      C[m,n] = sums, and what else the kernel does to C

Panels have whole tiles, zeros beyond the operands, so that no tile asks where it is: sums of rows
and columns that nobody has are computed, and not stored.

Rows may count the values of several indices, and so may terms: of a convolution rows of any images
share a block, for which filters that leave the caches are read once.

    O(n,h,w,f) +=! I(n,h+r,w+s,c) * K(f,r,s,c)    rows m = (n H + h) W + w, columns f, terms c
      A.panel[m%mc / mr, r, s, m%mr, c%kc] = I[m / (H W), m / W % H + r, m % W + s, c] or 0

Where operands are narrow, 16 bits or 8, and sums have 32, one instruction multiplies two terms or
four and adds them to each sum: ``B.panel[n/nr, k/kc, k%kc/2, n%nr, k%2]`` (``device/c/dots.h``).

Legal iff the instances are a product of ranges from 0 on, each factor is an element or 0, and all
other members follow the sums: each rewrite checks its own part.  The loops are those of Goto and
van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008,
doi:10.1145/1356052.1356053, but for the panels of B, which are all there before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import access_stride
from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.loop_tree import AnyCoordinate, Coordinate, Leaf, Loop, LoopKind, Node, sequence
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.index_classes import Merged, merged_index
from tcdsl.rewrites.scop.packing import Packed, Side, TileOf, pack
from tcdsl.rewrites.scop.padding import padded
from tcdsl.rewrites.scop.rfactor import Partial, rfactor
from tcdsl.schedule.placement import LARGE
from tcdsl.strategies.blocking import Class, Panels
from tcdsl.strategies.implicit_product import factors_of, form_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule

COPIES = "panel copies"  # the template of the kernel that fills the columns' panels
LINE_STEPS = 16  # of 4 bytes, in a line of the caches
# Of elements a line apart and more, 32 at once in the panel's order took 0.7 to 1.6 ns each, a line
# of the panel at once 0.15 to 0.2, and 0.56 where all share a set, 8 of these 0.17 (a Zen 4).
LINE_BYTES = cpu_thresholds.LINE_BYTES
SET_LINES, SET_BYTES = cpu_thresholds.SET_LINES, cpu_thresholds.SET_BYTES


def panel_schedules(
    problem: Problem, schedule: Schedule, prefix: str
) -> tuple[Scop, Mapping[str, Schedule]]:
    """Return the scop, and the kernels of *problem* by their names, as *schedule* says.

    :arg prefix: of the names of loops.
    """
    assert schedule.panels is not None
    return _Builder(problem, schedule.panels, prefix).schedules(schedule)


Level = tuple[LoopKind, Mapping[str, Coordinate], int | None]
Outer = list[tuple[AnyCoordinate, int]]


class _Builder:
    def __init__(self, problem: Problem, panels: Panels, prefix: str) -> None:
        self.problem = problem
        self.lead = lead = panels.lead
        self.panels = panels
        self.prefix = prefix
        self.n_loops = 0
        self.after = [name for name in problem.group.members if name != lead]

    def schedules(self, schedule: Schedule) -> tuple[Scop, Mapping[str, Schedule]]:
        """Return the scop and its kernels: copies of all columns if they are shared, products."""
        members = "+".join(self.problem.group.members)
        columns = self._packed(self._with_sums(), 1)
        rows = self._packed(columns.scop, 0)
        # What is along an operand's neighbours in memory is the outer dimension of these panels.
        own = self.panels
        is_row_transposed = own.dots is not None and not own.is_along_terms
        packs = (
            (columns, own.is_transposed and own.dots and not own.terms.is_several),
            (rows, is_row_transposed and not own.rows.is_several),
        )
        self.transposed = {packed.array for packed, is_transposed in packs if is_transposed}
        self.row_panels = rows.array
        self.scop = rows.scop
        found: dict[str, Schedule] = {}
        local = [rows]
        if self.panels.is_shared:
            names, tree = tuple(_copies(columns)), self._shared_copies(columns)
            found[f"{members} panels"] = Schedule(
                names, (), {}, tree=tree, template=COPIES, code=schedule.code
            )
        else:
            local.append(columns)
        blocked = (*(one.array for one in local), self.scop.by_name[self.fold].write.array)
        tree, storage = self._products(local), dict.fromkeys(blocked, LARGE)
        found[members] = replace(schedule, tree=tree, storage=storage)
        return self.scop, found

    # --- statements ------------------------------------------------------------------------

    def _with_sums(self) -> Scop:
        """Return the scop with sums of a block in their own type, and sums of a block's terms."""
        rows, columns, terms = self.panels.rows, self.panels.columns, self.panels.terms
        lead = self.lead
        shape = self.problem.shapes[lead]
        extents = dict(zip(shape.statement.indices, shape.extents, strict=True))

        def each(names: Iterable[str]) -> list[Merged]:
            return [merged_index([name], extents, extents) for name in names]

        form = form_of(
            self.problem, [*each(self.panels.around), rows.merged, columns.merged],
            [*each(self.panels.within), terms.merged],
        )  # fmt: skip
        scop, self.sums_init, self.store = form.scop, form.init, form.store
        part = Partial(terms.index, 0, terms.block, 0, terms.blocks, False)
        inner, init, fold = rfactor(scop, lead, (part,), columns.index)
        self.init, self.fold = init.name, fold.name
        spans = {one.index: (0, one.padded) for one in (rows, columns)}
        for name, own in ((lead, {terms.index: (0, terms.blocks * terms.block)}), (self.fold, {})):
            found = padded(inner, name, spans, own)
            assert found is not None, "its instances are a product of ranges"
            inner = found
        (self.chunk,) = set(inner.by_name[self.init].indices) - set(inner.by_name[lead].indices)
        return inner

    def _packed(self, scop: Scop, number: int) -> Packed:
        """Return *scop* with panels for the factor of rows (0) or of columns (1)."""
        panels, terms = self.panels, self.panels.terms
        own = (panels.rows, panels.columns)[number]
        factors = factors_of(scop.by_name[self.lead])
        assert factors is not None, "the template asks first"
        factor = factors[panels.factors[number]]

        def each(names: Iterable[str]) -> Outer:
            return [(Coordinate(self._at(scop, i)), self._extent(i)) for i in names]

        steps = Coordinate(self._at(scop, terms.index), 0, terms.block), terms.blocks
        within = [index for index in panels.within if index in factor.indices]
        position = self._at(scop, own.index)
        if number == 1 and panels.is_shared:
            around = [index for index in panels.around if index in factor.indices]
            tiles = Coordinate(position, 0, own.tile), own.padded // own.tile
            outer = [*each(around), tiles, steps, *each(within)]
        else:
            blocks = [
                (one.at(self._at(scop, one.index))[0], one.blocks)
                for one in (panels.columns, panels.rows)
            ]
            tiles = own.at(position)[1], own.block // own.tile
            outer = [*each(panels.around), *blocks, steps, tiles, *each(within)]
        name = f"{factor.load.tensor}.panel{number}{self.lead}"
        dots = panels.dots
        dtype = None if dots is None else dots.dtype or factor.load.dtype
        is_asked = own.is_several or terms.is_several
        of = TileOf(name, self._sides(number), is_split=True, is_asked=is_asked, dtype=dtype)
        return pack(scop, self.lead, factor, outer, of)

    def _sides(self, number: int) -> tuple[Side, ...]:
        """Return the dimensions of a panel of rows (0) or of columns (1), neighbours last."""
        panels = self.panels
        terms, own = panels.terms.side, (panels.rows, panels.columns)[number].side
        if number == 0 and (panels.is_along_terms or panels.dots):
            return own, terms
        if panels.dots is None:
            return terms, own
        some = panels.dots.together
        steps = replace(terms, size=terms.size // some, apart=some)
        return steps, own, replace(terms, size=some)

    def _extent(self, index: str) -> int:
        shape = self.problem.shapes[self.lead]
        return shape.extents[shape.statement.indices.index(index)]

    def _at(self, scop: Scop, index: str) -> int:
        return scop.by_name[self.lead].indices.index(index)

    # --- loops -----------------------------------------------------------------------------

    def _position(self, name: str, index: str) -> int:
        """Return the dimension of *name* that the lead's *index* is."""
        if name in (self.init, self.fold) and index == self.panels.terms.index:
            index = self.chunk
        return self.scop.by_name[name].indices.index(index)

    def _loop(
        self, kind: LoopKind, at: Mapping[str, Coordinate], extent: int | None, body: Node
    ) -> Loop:
        self.n_loops += 1
        name, one = next(iter(at.items()))
        index = self.scop.by_name[name].indices[one.position]
        return Loop(f"{self.prefix}.{index}.{self.n_loops}", at, kind, body, extent)

    def _nest(self, names: Sequence[str], levels: Iterable[Level]) -> Node:
        """Return *levels*, outermost first, around the statements *names* in order."""
        tree = sequence([Leaf(name) for name in names])
        for kind, at, extent in reversed(list(levels)):
            tree = self._loop(kind, {name: at[name] for name in names}, extent, tree)
        return tree

    def _digit(self, names: Iterable[str], one: Class, digit: int, kind: LoopKind) -> Level:
        """Return the loop over a digit of *one*: its blocks, tiles of a block, values of a tile."""
        counts = (one.blocks, one.block // one.tile, one.tile)
        at = {name: one.at(self._position(name, one.index))[digit] for name in names}
        return kind, at, counts[digit]

    def _in_block(self, names: Sequence[str]) -> Node:
        """Return the loops over the results of a block."""
        rows, columns = self.panels.rows, self.panels.columns
        levels: list[Level] = []
        for one, kind in ((rows, LoopKind.SERIAL), (columns, LoopKind.VECTOR)):
            at = {n: Coordinate(self._position(n, one.index), 0, 1, one.block) for n in names}
            levels.append((kind, at, one.block))
        return self._nest(names, levels)

    def _in_tile(self, name: str) -> Node:
        """Return the loops over the sums of a register tile."""
        rows, columns = self.panels.rows, self.panels.columns
        return self._nest([name], [
            self._digit([name], rows, 2, LoopKind.UNROLL),
            self._digit([name], columns, 2, LoopKind.VECTOR),
        ])  # fmt: skip

    def _products(self, packs: Sequence[Packed]) -> Node:
        """Return the loops over blocks, with *packs* in each."""
        panels, terms = self.panels, self.panels.terms
        lead, n_around = self.lead, len(panels.around)
        updates = [lead, self.init, self.fold]
        tile = sequence([
            self._in_tile(self.init), self._updates(), self._in_tile(self.fold)
        ])  # fmt: skip
        for one in (panels.columns, panels.rows):
            tile = self._loop(*self._digit(updates, one, 1, LoopKind.SERIAL), tile)
        copies = {name: packed for packed in packs for name in _copies(packed)}
        packing = [
            self._copy_nest(name, one, one.outer[n_around + 3 :]) for name, one in copies.items()
        ]
        chunks = {n: Coordinate(self._position(n, terms.index)) for n in (self.init, self.fold)}
        chunks[lead] = Coordinate(self._at(self.scop, terms.index), 0, terms.block)

        def with_copies(at: Mapping[str, Coordinate], depth: int) -> Mapping[str, Coordinate]:
            return {**at, **{n: Coordinate(one.outer[depth]) for n, one in copies.items()}}

        at = with_copies(chunks, n_around + 2)
        steps = self._loop(LoopKind.SERIAL, at, terms.blocks, sequence([*packing, tile]))
        stored = [self.store, *self.after]
        tree = sequence([self._in_block([self.sums_init]), steps, self._in_block(stored)])
        members = [*updates, self.sums_init, *stored]
        for depth, one in ((n_around + 1, panels.rows), (n_around, panels.columns)):
            kind, at, extent = self._digit(members, one, 0, self._outer_kind)
            tree = self._loop(kind, with_copies(at, depth), extent, tree)
        for depth, index in reversed(list(enumerate(panels.around))):
            at = {name: Coordinate(self._position(name, index)) for name in members}
            tree = self._loop(self._outer_kind, with_copies(at, depth), self._extent(index), tree)
        return tree

    def _updates(self) -> Node:
        """Return the loops that add the products of a block's terms to the sums of a tile."""
        lead, terms = self.lead, self.panels.terms
        levels: list[Level] = [
            (LoopKind.SERIAL, {lead: Coordinate(self._at(self.scop, index))}, self._extent(index))
            for index in self.panels.within
        ]
        at, dots = self._at(self.scop, terms.index), self.panels.dots
        some = 1 if dots is None else dots.together
        kinds = [LoopKind.SERIAL, LoopKind.UNROLL, LoopKind.VECTOR]
        if dots is not None:
            kinds = [LoopKind.COLLECTIVE] * 3
        steps = terms.block // some
        levels += [
            (kinds[0], {lead: Coordinate(at, 0, some, steps)}, steps),
            self._digit([lead], self.panels.rows, 2, kinds[1]),
            self._digit([lead], self.panels.columns, 2, kinds[2]),
        ]
        if dots is not None:
            levels.append((LoopKind.COLLECTIVE, {lead: Coordinate(at, 0, 1, some)}, some))
        return self._nest([lead], levels)

    @property
    def _outer_kind(self) -> LoopKind:
        return LoopKind.PARALLEL if self.problem.cpu.threads > 1 else LoopKind.SERIAL

    def _copy_nest(self, name: str, packed: Packed, around: Sequence[int]) -> Node:
        """Return the loops of a copy along neighbours in memory, those over *around* outside."""
        tile = self.scop.arrays[packed.array]

        def whole(kind: LoopKind, dim: int) -> Level:
            return kind, {name: Coordinate(dim)}, greatest(tile.shape[dim])

        first, second, *few = packed.elements  # the terms of a step are few
        if packed.array in self.transposed:
            # A line of the operand at once, which other lines may drive out of the cache.
            steps = greatest(tile.shape[first])
            assert steps is not None, "panels have no open sizes"
            lines = Coordinate(first, 0, LINE_STEPS)
            levels = [
                *(whole(LoopKind.SERIAL, dim) for dim in around),
                (LoopKind.SERIAL, {name: lines}, -(-steps // LINE_STEPS)),
                whole(LoopKind.SERIAL, second),
                (LoopKind.SERIAL, {name: Coordinate(first, 0, 1, LINE_STEPS)}, LINE_STEPS),
            ]
        elif (strided := self._strided_levels(name, packed, around)) is not None:
            levels = strided
        else:
            *slow, fast = self._copy_order(packed, around)
            is_along = fast == second or (few and fast == first)
            kind = LoopKind.VECTOR if is_along else LoopKind.SERIAL
            levels = [*(whole(LoopKind.SERIAL, dim) for dim in slow), whole(kind, fast)]
        return self._nest([name], [*levels, *(whole(LoopKind.UNROLL, dim) for dim in few)])

    def _strided_levels(
        self, name: str, packed: Packed, around: Sequence[int]
    ) -> list[Level] | None:
        """Return the loops of a copy whose neighbours are lines apart in memory, else None.

        A line of the panel is loaded at once, and then what follows each element in memory, so that
        each line of the operand stays in the first-level cache until all of it has been read; half
        a line, where a set of the cache has no room for more.

            K(f,c,r,s):  f / 32:  f % 32 / 16, c, r, s, f % 16:  panel[f / 32, r, s, c, f % 32]
        """
        *slow, fast = self._copy_order(packed, around)
        shape, statement = self.scop.arrays[packed.array].shape, self.scop.by_name[name]
        extent = greatest(shape[fast])
        is_plain = [*slow, fast] == [*around, *packed.elements]
        if name != packed.copy or not is_plain or extent is None or len(statement.reads) > 1:
            return None
        (read,) = statement.reads
        array = self.scop.arrays[read.array]
        strides = {dim: access_stride(array, read, statement.indices[dim]) for dim in (*slow, fast)}
        stride_bytes = strides[fast] * array.dtype.size_bytes
        if stride_bytes < LINE_BYTES:
            return None
        sets = SET_BYTES // gcd(stride_bytes, SET_BYTES)
        lanes = min(LINE_BYTES // array.dtype.size_bytes, SET_LINES * sets)
        if extent % lanes:
            return None

        def serial(dim: int) -> Level:
            return LoopKind.SERIAL, {name: Coordinate(dim)}, greatest(shape[dim])

        tile, inside = slow[: len(around[:1])], slow[len(around[:1]) :]
        some = LoopKind.SERIAL, {name: Coordinate(fast, 0, lanes)}, extent // lanes
        found = [(lanes * strides[fast], some), *((strides[dim], serial(dim)) for dim in inside)]
        found.sort(key=lambda one: -one[0])
        each = LoopKind.VECTOR, {name: Coordinate(fast, 0, 1, lanes)}, lanes
        return [*map(serial, tile), *(level for _, level in found), each]

    def _copy_order(self, packed: Packed, around: Sequence[int]) -> list[int]:
        """Return the dimensions of a copy, outermost first: what is of several indices, once.

        tiles, r, s:  rows % 6, terms        rows that count the values of n, h and w:
        tiles, rows % 6:  r, s, terms        n, h and w are quotients, found once a row
        """
        first, second = packed.elements[:2]
        own = self.panels
        is_rows_first = own.is_along_terms or own.dots is not None
        if packed.array == self.row_panels and own.rows.is_several:
            row, term = (first, second) if is_rows_first else (second, first)
            return [*around[:1], row, *around[1:], term]
        if own.terms.is_several:
            is_first = packed.array != self.row_panels or not is_rows_first
            term, other = (first, second) if is_first else (second, first)
            return [term, *around, other]
        return [*around, first, second]

    def _shared_copies(self, packed: Packed) -> Node:
        """Return the loops that fill all panels of columns."""
        names = _copies(packed)
        shape = self.scop.arrays[packed.array].shape
        outer, inside = list(packed.outer), list[int]()
        if self.panels.terms.is_several:  # see _copy_order: tiles are the last but steps
            inside.append(outer.pop(-2))
        tree = sequence([self._copy_nest(name, packed, inside) for name in names])
        for dim in reversed(outer):
            at = {name: Coordinate(dim) for name in names}
            tree = self._loop(self._outer_kind, at, greatest(shape[dim]), tree)
        return tree


def _copies(packed: Packed) -> list[str]:
    return [packed.copy, *([packed.zeros] if packed.zeros else [])]
