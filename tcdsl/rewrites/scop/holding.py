"""What a statement reads of a tile, held in registers one iteration of a reduced index ahead.

    S[m,n,k]:  C[m,n] += A.tile[m/128, n/128, k/16, m - .., k - ..] * ...
        --->
    H[o0,o1,t,e]:  A.held[o0,o1,t,e] = A.tile[o0, o1, t/16, e - .., t % 16]
    S[m,n,k]:  C[m,n] += A.held[m/128, n/128, k, m] * ...

H is shifted by one value of t along the loops over k: while a thread multiplies what it holds, the
next values are on their way from shared memory, also where a step ends and threads wait.  A thread
holds as many values of k as iterations an element lives for (promotion's rings): two.

Legal iff one dimension of the tile mentions k, and one other the index m that neighbours differ in,
and the tile has an element for every term.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, indices_in, walk
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32, arithmetic
from tcdsl.poly.accesses import access, builder_of, elements_in
from tcdsl.poly.footprints import outer_map
from tcdsl.poly.isl_utils import dim_bounds
from tcdsl.poly.isl_utils import minus as extent_of
from tcdsl.poly.loop_tree import AnyCoordinate, Coordinate
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.caching import coordinate_expression, insertion


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """The new scop; *copy* fills *array*, its last two indices are the term and the kept index."""

    scop: Scop
    array: str
    copy: str
    kept: int  # the dimension of the reader


def hold(
    scop: Scop, reader: str, tile: str, around: Sequence[AnyCoordinate], term: Coordinate, step: int
) -> Held | None:
    """Return *scop* with what *reader* reads of *tile* in registers, None if it may not be.

    :arg around: the coordinates of the reader's loops outside the steps.
    :arg term: that of the reduced index, which steps of *step* values cut.
    """
    statement = scop.by_name[reader]
    loads = {load.subscripts: load for load in _loads(statement, tile)}
    if len(loads) != 1:
        return None
    (load,) = loads.values()
    reduced = statement.indices[term.position]
    inside = load.subscripts[len(around) + 1 :]
    mentioned = [set(indices_in(subscript)) for subscript in inside]
    others = [names for names in mentioned if names and names != {reduced}]
    if mentioned.count({reduced}) != 1 or len(others) != 1 or len(others[0]) != 1:
        return None
    (kept,) = others[0]
    outer = tuple(f"o{dim}" for dim in range(len(around)))
    indices = (*outer, "t", "e0")  # no names of the program
    dim = statement.indices.index(kept)
    name = f"{tile}.held"
    copy = f"{name}_copy"
    when = outer_map(statement, (*around, term, Coordinate(dim)))
    domain = statement.domain.apply(when).coalesce().set_tuple_name(copy)
    bounds = [dim_bounds(domain, d, scop.context) for d in range(len(indices))]
    dtype = scop.arrays[tile].dtype
    if dtype != arithmetic(dtype):
        return None
    shape = tuple(extent_of(end, low) for low, end in bounds)
    array = Array(name, dtype, tuple(low for low, _ in bounds), shape, Storage.SCRATCH)
    wide = replace(scop, arrays={**scop.arrays, name: array})
    builder = builder_of(indices, copy, scop.sizes)
    place = _place_of_term(scop, statement, inside[mentioned.index({reduced})], term, step)
    if place is None:
        return None
    places: tuple[Expr, ...] = (*map(Index, outer), _binary("/", Index("t"), step))
    places += tuple(
        place if names == {reduced} else _renamed(subscript, Index("e0"))
        for names, subscript in zip(mentioned, inside, strict=True)
    )
    read = access(builder, tile, places, wide.arrays, domain)
    elements = elements_in(scop.arrays[tile], read.relation.get_space().range())
    if not read.relation.range().is_subset(elements):
        return None  # some terms are not read, and the tile is the box of the others
    held = Statement(
        name=copy, domain=domain, indices=indices, n_left=len(indices), kind=Kind.ASSIGN,
        write=access(builder, name, tuple(map(Index, indices)), wide.arrays, domain),
        value=Load(tile, places, dtype), reads=(read,),
        source_name=statement.source_name, span=statement.span,
    )  # fmt: skip
    own = tuple(coordinate_expression(c, statement.indices) for c in (*around, term))
    new = _reading(wide, statement, load, Load(name, (*own, Index(kept)), dtype))
    statements = [new if s.name == reader else s for s in scop.statements]
    statements.insert(insertion(scop, [reader]), held)
    return Held(replace(wide, statements=tuple(statements)), name, copy, dim)


def _reading(scop: Scop, statement: Statement, old: Load, load: Load) -> Statement:
    """Return *statement* with *load* in the place of *old*."""

    def changed(node: Expr) -> Expr:
        is_old = isinstance(node, Load) and node.tensor == old.tensor
        return load if is_old else node

    assert statement.value is not None, "it reads"
    new = replace(statement, value=rewrite(statement.value, changed))
    return with_own_reads(scop, new)


def _loads(statement: Statement, array: str) -> list[Load]:
    value = statement.value
    nodes = walk(value) if value is not None else ()
    return [node for node in nodes if isinstance(node, Load) and node.tensor == array]


def _place_of_term(
    scop: Scop, statement: Statement, subscript: Expr, term: Coordinate, step: int
) -> Expr | None:
    """Return where the term *t* is in the tile, None if *subscript* is no function of it.

    ``k - 16(k/16)`` is ``t % 16``, and ``3k + 1 - (48(k/16) + 1)`` is ``3t - 48(t/16)``.
    """
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    own = coordinate_expression(term, statement.indices)
    wanted = builder.affine(subscript)
    if wanted is None:
        return None
    shifted = Binary("+", Index("t"), Const(term.shift, INT32), INT32)
    for place in (_binary("%", Index("t"), step), _renamed(subscript, shifted)):
        found = builder.affine(_renamed(place, own))
        if found is not None and statement.domain.is_subset(wanted.eq_set(found)):
            return place
    return None


def _renamed(expr: Expr, to: Expr) -> Expr:
    """Return *expr*, which mentions one index, with *to* for that."""
    return rewrite(expr, lambda node: to if isinstance(node, Index) else node)


def _binary(op: str, left: Expr, right: int) -> Expr:
    return Binary(op, left, Const(right, INT32), INT32)
