"""Equal shares (stream-K): blocks have as many steps each, whatever tiles these are of.

T tiles of S steps each are T S steps in a row, tile after tile, and block b of G has W of them:

    step       s(m, n, k) = S t + k / K,    t(m, n) = (N / Bn)-th column of tiles, row by row
    block      b = s / W,                   W = ceil(T S / G)
    part       c = s / W - S t / W          of its tile: 0 where the tile begins

    tiles       |---- 0 ----|---- 1 ----|---- 2 ----|---- 3 ----|---- 4 ----|       S = 12, W = 15
    blocks      |      0       |      1       |      2       |      3       |
    parts             0      1 0         1    0      1    0    1      0

Where tiles are not a multiple of the blocks that run at once, the last ones are there alone, and
leave the rest of the chip idle; of shares all end at once.  A tile is its owner's, the block with
its first steps.  The others have begun it in the middle: they store what they have added up,

    owner         y = part 0, which it holds;   for c = 1, 2, ...:  await c;  y += stored[c]
    block of c    stored[c] = part c;  signal

and the owner adds that to its own in the order of the terms, so that a result never depends on who
came first.  A block begins at most one tile in the middle, its first one, and owns at most one that
others have a part of, its last one: it has signalled before it waits for anybody, and whoever it
waits for did that part first.  Between the two are whole tiles, which cost what they always did.

Legal iff the sum may be cut (rfactor), and waiting ends.  Blocks are numbered from the last share
on, so that each waits for blocks of a lesser number alone, which have started before it; and all of
them are there at once, for there are no more than the chip holds (why_not_signalled in
poly/signals.py proves order and pairing with isl).

Whole tiles by turns, and the last wave alone in shares (Osama et al.'s hybrid) is another order of
tiles: blocks that run at once would read the same panels at the same k.  It is no function of one
formula; here shares are for operands that the second-level cache holds.  After M. Osama, D. Merrill,
C. Cecka, M. Garland, J. D. Owens, Stream-K, PPoPP 2023, doi:10.1145/3572848.3577479.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Const, Expr, Index
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate, LoopKind
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.strategies.fragments import Level, X


@dataclass(frozen=True, slots=True)
class Shares:
    """*blocks* have *each* steps, of tiles in *tiles* rows and columns with *steps* each.

    Tiles have *sizes* results along rows and columns, steps have *step* terms.
    """

    blocks: int
    each: int
    tiles: tuple[int, int]
    steps: int
    sizes: tuple[int, int]
    step: int

    @property
    def parts(self) -> int:
        """How many blocks have steps of one tile, at most."""
        return -(-(self.steps - 1) // self.each) + 1

    def begin(self, at: "Place") -> AffineCoordinate:
        """Return the number of the first step of the tile."""
        rows = Coordinate(at.row, 0, self.sizes[0])
        columns = Coordinate(at.column, 0, self.sizes[1])
        per_column = self.tiles[0] * self.steps
        return AffineCoordinate(((per_column, columns), (self.steps, rows)))

    def number(self, at: "Place") -> AffineCoordinate:
        """Return the number of the step of a term."""
        assert at.term is not None, "a product"
        return AffineCoordinate(((1, self.begin(at)), (1, Coordinate(at.term, 0, self.step))))

    def part(self, at: "Place") -> AffineCoordinate:
        """Return which part of its tile a term is in."""
        own, first = (replace(of, div=self.each) for of in (self.number(at), self.begin(at)))
        return AffineCoordinate(((1, own), (-1, first)))

    def last_part(self, at: "Place") -> AffineCoordinate:
        """Return the last part of the tile."""
        begin = self.begin(at)
        ends = (replace(begin, shift=-shift, div=self.each) for shift in (self.steps - 1, 0))
        return AffineCoordinate(tuple(zip((1, -1), ends, strict=True)))

    def block(self, at: "Place") -> AffineCoordinate:
        """Return the block, numbered from the last share on: of a term, a part, or of the owner."""
        if at.term is not None:
            share: AnyCoordinate = replace(self.number(at), div=self.each)
        else:
            share = replace(self.begin(at), div=self.each)
        parts = [] if at.part is None else [(-1, Coordinate(at.part))]
        return AffineCoordinate(((-1, share), *parts), 1 - self.blocks)


@dataclass(frozen=True, slots=True)
class Place:
    """The dimensions of a statement: rows, columns, and terms or parts where it has them."""

    row: int
    column: int
    term: int | None = None
    part: int | None = None


def shares_of(
    blocks: int, tiles: tuple[int, int], steps: int, sizes: tuple[int, int], step: int
) -> Shares:
    """Return equal shares for at most so many *blocks*."""
    total = tiles[0] * tiles[1] * steps
    each = -(-total // blocks)
    return Shares(-(-total // each), each, tiles, steps, sizes, step)


def outer_loops(shares: Shares, places: Mapping[str, Place]) -> list[dict[str, Level]]:
    """Return the loops over blocks, and over the tiles that one has steps of."""
    blocks, (rows, columns) = shares.blocks, shares.tiles
    return [
        {
            name: Level(LoopKind.BLOCK, shares.block(at), blocks, X, blocks)
            for name, at in places.items()
        },
        {
            name: Level(LoopKind.SERIAL, Coordinate(at.column, 0, shares.sizes[1]), columns)
            for name, at in places.items()
        },
        {
            name: Level(LoopKind.SERIAL, Coordinate(at.row, 0, shares.sizes[0]), rows)
            for name, at in places.items()
        },
    ]


def step_loop(shares: Shares, at: Place) -> Level:
    """Return the loop over the steps of a block in a tile, numbered through all of its share."""
    number = replace(shares.number(at), mod=shares.each)
    return Level(LoopKind.SERIAL, number, shares.each, runs_on=True)


def in_parts(
    scop: Scop, shares: Shares, places: Mapping[str, Place], own: Sequence[str], store: str
) -> Scop:
    """Return *scop* with those parts of tiles that there are.

    Of all others the first one stays where it is: what begins the sum takes it from there, and
    *store* and what adds up leave it out.

    :arg own: what begins the accumulators of parts, what begins the sum of all, and adds them up.
    """
    init, begin, fold = own
    new = {
        init: _restricted(scop.by_name[init], shares, places[init], 0),
        store: _restricted(scop.by_name[store], shares, places[store], 1),
        fold: _restricted(scop.by_name[fold], shares, places[fold], 1),
        begin: _from_first(scop, scop.by_name[begin], scop.by_name[store], places[store]),
    }
    order = [s for s in scop.statements if s.name != begin]
    order.insert(next(n for n, s in enumerate(order) if s.name == fold), scop.by_name[begin])
    return scop.with_statements(tuple(new.get(s.name, s) for s in order))


def _restricted(statement: Statement, shares: Shares, at: Place, first: int) -> Statement:
    """Return *statement* for the parts from *first* on that its tiles have."""
    assert at.part is not None
    space = statement.domain.get_space()
    last, part = (
        isl.PwAff.from_aff(of.function(space)) for of in (shares.last_part(at), Coordinate(at.part))
    )
    domain = statement.domain.intersect(part.le_set(last))
    domain = domain.lower_bound_val(isl.dim_type.set, at.part, isl.Val(first)).coalesce()
    return _on(statement, domain)


def _on(statement: Statement, domain: isl.Set) -> Statement:
    reads = tuple(
        replace(read, relation=read.relation.intersect_domain(domain)) for read in statement.reads
    )
    relation = statement.write.relation.intersect_domain(domain)
    return replace(
        statement, domain=domain, reads=reads, write=replace(statement.write, relation=relation)
    )


def _from_first(scop: Scop, begin: Statement, store: Statement, at: Place) -> Statement:
    """Return *begin* with the first part, which *store* would store, for the identity."""
    assert at.part is not None and store.value is not None
    part = store.indices[at.part]

    def first(node: Expr) -> Expr:
        return Const(0, INT32) if isinstance(node, Index) and node.name == part else node

    value = rewrite(store.value, first)
    return with_own_reads(scop, replace(begin, kind=Kind.ASSIGN, value=value, reduction=None))
