"""Equal shares (stream-K): blocks have as many steps each, whatever tiles these are of.

T tiles of S steps each are T S steps in a row, tile after tile, and block b of G has W of them:

    step       s(m, n, k) = S t + k / K,    t(m, n) = (N / Bn)-th column of tiles, row by row
    share      b = s / W,                   W = ceil(T S / G)

    tiles       |---- 0 ----|---- 1 ----|---- 2 ----|---- 3 ----|---- 4 ----|       S = 12, W = 15
    shares      |      0       |      1       |      2       |      3       |

Where tiles are not a multiple of the blocks that run at once, the last ones are there alone, and
leave the rest of the chip idle; of shares all end at once.  A tile is its owner's, the block with
its first steps.  The others have begun it in the middle: they store what they have added up,

    owner      y = part[S t / W], which it holds;  for b > S t / W:  await b;  y += stored[b]
    others     stored[b] = part[b];  signal b

and the owner adds that to its own in the order of the terms, so that a result never depends on who
came first.  A block begins at most one tile in the middle, its first one, and owns at most one that
others have a part of, its last one: it has signalled before it waits for anybody, and whoever it
waits for did that part first.  Between the two are whole tiles, which cost what they always did.

Legal iff the sum may be cut (rfactor), and waiting ends.  Blocks are numbered from the last share
on, so that each waits for blocks of a lesser number alone, which have started before it; and all of
them are there at once, for there are no more than the chip holds (why_not_signalled in
poly/signals.py proves order and pairing with isl).

Whole tiles by turns, and the last wave alone in shares (the hybrid of the paper) is another order
of tiles: blocks that run at once would read the same panels at the same k.  It is no function of
one formula; here shares are for operands that the second-level cache holds.  After M. Osama et al.,
Stream-K, PPoPP 2023, doi:10.1145/3572848.3577479.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Load
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate, LoopKind, X
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.caching import coordinate_expression
from tcdsl.strategies.fragments import Level


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

    def share(self, at: "Place") -> AnyCoordinate:
        """Return the share of a term, of a part, or of the owner."""
        if at.share is not None:
            return Coordinate(at.share)
        return replace(self.begin(at) if at.term is None else self.number(at), div=self.each)

    def block(self, at: "Place") -> AffineCoordinate:
        """Return whose share that is: blocks are numbered from the last one on."""
        return AffineCoordinate(((-1, self.share(at)),), 1 - self.blocks)


@dataclass(frozen=True, slots=True)
class Place:
    """The dimensions of a statement: rows, columns, and terms or shares where it has them."""

    row: int
    column: int
    term: int | None = None
    share: int | None = None


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

    Of these the first one stays where it is: what begins the sum takes it from there, and *store*
    and what adds up leave it out.  The others are stored in as many planes as a tile has of them.

    :arg own: what begins the accumulators of parts, what begins the sum of all, and adds them up.
    """
    init, begin, fold = own
    new = {
        init: _restricted(scop.by_name[init], shares, places[init], 0),
        store: _restricted(scop.by_name[store], shares, places[store], 1),
        fold: _restricted(scop.by_name[fold], shares, places[fold], 1),
        begin: _from_first(scop, shares, scop.by_name[begin], places[begin], scop.by_name[store]),
    }
    order = [s for s in scop.statements if s.name != begin]
    order.insert(next(n for n, s in enumerate(order) if s.name == fold), scop.by_name[begin])
    scop = scop.with_statements(tuple(new.get(s.name, s) for s in order))
    planes = max(1, shares.parts - 1)
    return _in_planes(scop, scop.by_name[store].write.array, planes, (store, fold))


def _restricted(statement: Statement, shares: Shares, at: Place, first: int) -> Statement:
    """Return *statement* for the shares that its tiles have steps of, from the *first* of them on.

    Of share b and the tile whose steps begin at s that is b W < s + S and s < (b + 1) W; for all
    but the first s < b W.
    """
    assert at.share is not None
    space = statement.domain.get_space()
    begin, share = shares.begin(at).function(space), Coordinate(at.share).function(space)
    before = share.scale_val(val(shares.each)).sub(begin)  # the tile's steps, before the share
    least, most = 1 if first else 1 - shares.each, shares.steps - 1
    zero = isl.PwAff.from_aff(isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space)))
    bounds = before.add_constant_val(val(-least)), before.neg().add_constant_val(val(most))
    domain = statement.domain
    for bound in bounds:
        domain = domain.intersect(isl.PwAff.from_aff(bound).ge_set(zero))
    return _on(statement, domain.coalesce())


def _on(statement: Statement, domain: isl.Set) -> Statement:
    reads = tuple(
        replace(read, relation=read.relation.intersect_domain(domain)) for read in statement.reads
    )
    relation = statement.write.relation.intersect_domain(domain)
    return replace(
        statement, domain=domain, reads=reads, write=replace(statement.write, relation=relation)
    )


def _from_first(
    scop: Scop, shares: Shares, begin: Statement, at: Place, store: Statement
) -> Statement:
    """Return *begin* with the owner's part, which *store* would store, for the identity."""
    assert store.value is not None and isinstance(store.value, Load)
    own = coordinate_expression(shares.share(at), begin.indices)
    _, *others = store.value.subscripts
    value = replace(store.value, subscripts=(own, *others))
    return with_own_reads(scop, replace(begin, kind=Kind.ASSIGN, value=value, reduction=None))


def _in_planes(scop: Scop, array: str, planes: int, names: Sequence[str]) -> Scop:
    """Return *scop* with the shares of *array*, its first subscripts, modulo *planes*.

    The parts of a tile are in neighbouring shares.
    """
    old = scop.arrays[array]
    new = replace(old, origin=(0, *old.origin[1:]), shape=(planes, *old.shape[1:]))
    scop = replace(scop, arrays={**scop.arrays, array: new})

    def moved(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.tensor != array:
            return node
        return replace(node, subscripts=in_plane(node.subscripts))

    def in_plane(subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        share, *others = subscripts
        return (Binary("%", share, Const(planes, INT32), INT32), *others)

    found = []
    for statement in scop.statements:
        if statement.name in names:
            value = None if statement.value is None else rewrite(statement.value, moved)
            statement = with_own_reads(scop, replace(statement, value=value))
        if statement.write.array == array:
            builder = builder_of(statement.indices, statement.name, scop.sizes)
            subscripts = in_plane(statement.write.subscripts)
            write = access(builder, array, subscripts, scop.arrays, statement.domain)
            statement = replace(statement, write=write)
        found.append(statement)
    return scop.with_statements(tuple(found))
