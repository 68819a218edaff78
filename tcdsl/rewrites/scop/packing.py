"""Packing: a factor of a product, as a tile of one iteration has it, is computed into that tile.

    S[m,n,k]:  p[m,n] += (g(m,k) ? I[f(m,k)] : 0) * K[n,k]        under o = (m/64, n/64, k/32)
        --->
    tile_copy[o0,o1,o2,e0,e1]:  tile[o0,o1,o2,e0,e1] = 64 o0 + e0 < M && 32 o2 + e1 < T
                                                     && g(64 o0 + e0, 32 o2 + e1)
                                                       ? I[f(64 o0 + e0, 32 o2 + e1)] : 0
    S[m,n,k]:  p[m,n] += tile[m/64, n/64, k/32, m%64, k%32] * K[n,k]

What a tile has beyond the rows, or beyond the terms, is 0.  ``caching.cache_read`` copies the box
around what an iteration reads; here a tile has one element a pair of values, wherever f is.

Legal iff nothing writes the array between the copy and S.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Unary,
    indices_in,
)
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32, DType, arithmetic
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.footprints import outer_map
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate
from tcdsl.poly.scop import PRODUCER, Array, BulkCopy, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import assignment, with_own_reads
from tcdsl.rewrites.scop.caching import coordinate_expression, insertion


@dataclass(frozen=True, slots=True)
class Factor:
    """An element, or 0 where *condition* does not hold; *expr* is how it stands in the product."""

    expr: Expr
    load: Load
    condition: Expr | None = None

    @property
    def indices(self) -> frozenset[str]:
        """The indices that it depends on."""
        exprs = [*self.load.subscripts, *([] if self.condition is None else [self.condition])]
        return indices_in(*exprs)


def factor_of(expr: Expr) -> Factor | None:
    """Return what the operand *expr* of a product is, None if it computes anything else."""
    match _uncast(expr):
        case Load() as load:
            return Factor(expr, load)
        case Select(condition=condition, if_true=value, if_false=other):
            if _is_zero(value):
                value, other, condition = other, value, Unary("!", condition, BOOL)
            inner = factor_of(value) if _is_zero(other) else None
            if inner is None:
                return None
            return Factor(expr, inner.load, _both(condition, inner.condition))
    return None


def _uncast(expr: Expr) -> Expr:
    return expr.operand if isinstance(expr, Cast) else expr


def _is_zero(expr: Expr) -> bool:
    value = _uncast(expr)
    return isinstance(value, Const) and value.value == 0


def _both(one: Expr, other: Expr | None) -> Expr:
    return one if other is None else Binary("&&", one, other, BOOL)


@dataclass(frozen=True, slots=True)
class Side:
    """A dimension of a tile: an index of the statement, *size* values of it, *end* in all.

    Values are *apart*: between them are those of another side of the same index.
    """

    index: str
    size: int
    end: Expr
    apart: int = 1


@dataclass(frozen=True, slots=True)
class TileOf:
    """The tile *name*: its lines and what is in one; *has_zeros*: beyond these, or anything.

    Requests of a producer bring it, if *bulk* says how, in terms of the product's indices.
    With *is_split* the copy is two statements, of elements as the product has them (converted), or
    of another type that holds all of them.  With *is_asked* it is one for the factor's condition:
    the instances where one on quotients of an index holds are many sets.
    """

    name: str
    sides: tuple[Side, ...]
    has_zeros: bool = True
    is_split: bool = False
    is_asked: bool = False
    dtype: DType | None = None
    bulk: BulkCopy | None = None

    @property
    def elements(self) -> tuple[str, ...]:
        """The copy's indices in the tile."""
        return tuple(f"e{number}" for number in range(len(self.sides)))


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The new scop, the tile and the statement that fills it."""

    scop: Scop
    array: str
    copy: str
    outer: tuple[int, ...]  # positions of the copy's dimensions: the outer loops' coordinates
    elements: tuple[int, ...]  # those of a line, and of an element in it
    zeros: str = ""  # the statement that stores 0 where the copy has no instance


def pack(
    scop: Scop,
    name: str,
    factor: Factor,
    outer: Sequence[tuple[AnyCoordinate, int]],
    of: TileOf,
) -> Packed:
    """Serve *factor* of the statement *name* from the new array that *of* describes.

    :arg outer: the coordinates of the loops around it and the copy, and their extents.
    """
    statement = scop.by_name[name]
    array = scop.arrays[factor.load.tensor]
    shape = (*(extent for _, extent in outer), *(side.size for side in of.sides))
    dtype = of.dtype or (factor.expr.dtype if of.is_split else array.dtype)
    tile = Array(of.name, dtype, (0,) * len(shape), shape, Storage.SCRATCH)
    wide = replace(scop, arrays={**scop.arrays, tile.name: tile})
    copies = _copy(wide, statement, factor, tile, [at for at, _ in outer], of)
    around = [coordinate_expression(at, statement.indices) for at, _ in outer]
    inside = [_remainder(side) for side in of.sides]
    load = Load(tile.name, (*around, *inside), tile.dtype)
    served: Expr = load if factor.expr.dtype == tile.dtype else Cast(load, factor.expr.dtype)
    reader = _reading(wide, statement, factor.expr, served)
    result = [reader if s is statement else s for s in scop.statements]
    place = insertion(scop, [name])
    result[place:place] = copies
    n_outer = len(outer)
    return Packed(
        wide.with_statements(tuple(result)), tile.name, copies[0].name, tuple(range(n_outer)),
        tuple(range(n_outer, len(shape))), copies[1].name if len(copies) > 1 else "",
    )  # fmt: skip


def _remainder(side: Side) -> Expr:
    index: Expr = Index(side.index)
    if side.apart > 1:
        index = Binary("/", index, Const(side.apart, INT32), INT32)
    return Binary("%", index, Const(side.size, INT32), INT32)


def _copy(
    scop: Scop,
    statement: Statement,
    factor: Factor,
    tile: Array,
    outer: Sequence[AnyCoordinate],
    of: TileOf,
) -> list[Statement]:
    """Return ``tile[o, e] = factor where the loops o and the elements e are, or 0``."""
    name = f"{tile.name}_copy"
    indices = (*(f"o{number}" for number in range(len(outer))), *of.elements)
    builder = builder_of(indices, name, scop.sizes)
    extents = {index: (0, extent) for index, extent in zip(indices, tile.shape, strict=True)}
    domain = box(builder, indices, extents).intersect_params(scop.context)
    values = _values(statement, outer)
    if of.is_split:
        for side in of.sides:
            if (start := values.get(side.index)) is not None:
                domain = domain.intersect(builder.truth(_below(start, side)).below)
    for side, element in zip(of.sides, of.elements, strict=True):
        place = _scaled(Index(element), side.apart)
        values[side.index] = _sum(values.get(side.index), place)

    nothing = Const(0, INT32)  # of an index without loops, which has one value

    def change(node: Expr) -> Expr:
        return values.get(node.name, nothing) if isinstance(node, Index) else node

    load = rewrite(factor.load, change)
    bounds = list(dict.fromkeys(_below(values[side.index], side) for side in of.sides))
    needed: list[Expr] = [b for b in bounds if not domain.is_subset(builder.truth(b).below)]
    if not of.has_zeros:
        domain, needed = reduce(isl.Set.intersect, map(_holds(builder), needed), domain), []
    asked: list[Expr] = []
    if factor.condition is not None:
        (asked if of.is_asked else needed).append(rewrite(factor.condition, change))
    wide = arithmetic(tile.dtype)
    value: Expr = load if load.dtype == wide else Cast(load, wide)
    is_open = statement.domain.dim(isl.dim_type.param) > 0
    # Roles meet the same iterations, of tiles that there are.
    if of.bulk is not None or is_open or statement.is_masked:
        domain = _of_readers(domain, statement, outer)
    inside = domain
    if of.is_split:
        exact = {bound: builder.truth(bound).exact for bound in needed}
        for found in exact.values():
            inside = inside if found is None else inside.intersect(found)
        needed = [bound for bound in needed if exact[bound] is None]
    needed += asked
    zero = Const(0.0 if wide.is_float else 0, wide)
    if needed:
        value = Select(reduce(_both, needed), value, zero, wide)
    target = Load(tile.name, tuple(map(Index, indices)), tile.dtype)
    copies = [assignment(scop, inside, indices, target, value, statement)]
    if of.bulk is not None:
        return [replace(copies[0], role=PRODUCER, bulk=_moved(of.bulk, change))]
    if not of.is_split:
        return copies
    outside = domain.subtract(inside).coalesce().set_tuple_name(f"{tile.name}_zeros")
    if not outside.is_empty():
        copies.append(assignment(scop, outside, indices, target, zero, statement))
    return copies


def _of_readers(domain: isl.Set, reader: Statement, outer: Sequence[AnyCoordinate]) -> isl.Set:
    """Return the instances of a copy, of *domain*, in whose iteration of *outer* *reader* has one.

    The first dimensions of the copy are the coordinates *outer*.
    """
    iterations = reader.domain.apply(outer_map(reader, outer)).coalesce().remove_redundancies()
    more = domain.dim(isl.dim_type.set) - len(outer)
    iterations = iterations.add_dims(isl.dim_type.set, more)
    return domain.intersect(iterations.set_tuple_name(domain.get_tuple_name()))


def _moved(bulk: BulkCopy, change: Callable[[Expr], Expr]) -> BulkCopy:
    dims = tuple(replace(one, tap=rewrite(one.tap, change)) for one in bulk.dims)
    return replace(bulk, line=rewrite(bulk.line, change), dims=dims)


def _below(value: Expr, side: Side) -> Expr:
    return Binary("<", value, side.end, BOOL)


def _holds(builder: Builder) -> Callable[[Expr], isl.Set]:
    return lambda condition: builder.truth(condition).below


def _values(statement: Statement, outer: Sequence[AnyCoordinate]) -> dict[str, Expr]:
    """Return the least value of each index in an iteration of *outer*, from its digits there."""
    found: dict[str, Expr] = {}

    def add(coordinate: AnyCoordinate, value: Expr) -> None:
        match coordinate:
            case AffineCoordinate(terms=((count, slow), (1, fast)), shift=0, div=1):
                add(slow, Binary("/", value, Const(count, INT32), INT32))
                add(fast, Binary("%", value, Const(count, INT32), INT32))
            case Coordinate(shift=0):
                index = statement.indices[coordinate.position]
                found[index] = _sum(found.get(index), _scaled(value, coordinate.div))
            case _:
                raise AssertionError("loops over whole tiles")

    for number, coordinate in enumerate(outer):
        add(coordinate, Index(f"o{number}"))
    return found


def _scaled(value: Expr, factor: int) -> Expr:
    return value if factor == 1 else Binary("*", Const(factor, INT32), value, INT32)


def _sum(one: Expr | None, other: Expr) -> Expr:
    return other if one is None else Binary("+", one, other, INT32)


def _reading(scop: Scop, statement: Statement, old: Expr, served: Expr) -> Statement:
    """Return *statement* with *served* for its factor *old*."""
    assert statement.value is not None
    value = _served(statement.value, old, served)
    new = replace(statement, value=value)
    return with_own_reads(scop, new)


def _served(value: Expr, old: Expr, new: Expr) -> Expr:
    """Return *value* with *new* for *old*; of a product whose factors are alike, for that one."""
    match value:
        case Binary(left=left) if left is old:
            return replace(value, left=new)
        case Binary(right=right) if right is old:
            return replace(value, right=new)
        case _:
            return rewrite(value, lambda node: new if node == old else node)
