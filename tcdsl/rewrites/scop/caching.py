"""cache_read: what an iteration of some outer loops reads of an array is first copied to a tile.

    S[m,n,k]:  C[m,n] += A[m,k] * B[k,n]               under o = (m/64, n/64, k/16)
        --->
    A_tile_copy[o0,o1,o2,e0,e1]:  A_tile[o0,o1,o2,e0,e1] = A[64 o0 + e0, 16 o2 + e1]
    S[m,n,k]:  C[m,n] += A_tile[m/64, n/64, k/16, m - 64(m/64), k - 16(k/16)] * B[k,n]

The copy is a statement like any other: the dependences say that it runs before its readers, in the
same iteration if the outer loops are shared.  Then placement drops the dimensions o, and a tile of
one iteration is left, in registers or in shared memory.  The copy brings the box around the
elements that the iteration reads, as far as they exist; so the readers need none of the guards that
the box's border would.  A padded tile has zeros for what does not exist:

    A_tile_copy[..]:  A_tile[..] = 64 o0 + e0 < M ? A[64 o0 + e0, 16 o2 + e1] : 0

Legal iff every read is known (no gathered subscript), and nothing writes the array between the copy
and its last reader.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    Size,
    indices_in,
)
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.ranges.size_functions import extent_expr
from tcdsl.lang.rewrite import minus as minus_expr
from tcdsl.lang.rewrite import plus as plus_expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32, INT64
from tcdsl.poly.accesses import access, builder_of, elements_in
from tcdsl.poly.footprints import Box, Use, box_hull, outer_map
from tcdsl.poly.isl_utils import dim_bounds, minus, plus, within_bounds
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import assignment, element, with_own_accesses, with_own_reads

Outer = Mapping[str, tuple[AnyCoordinate, ...]]  # statement -> the outer loops' coordinates
Subscripts = tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cached:
    """The new scop, and what is needed to place the copy in a loop tree."""

    scop: Scop
    array: str  # the tile
    copy: str  # the statement that fills it
    outer: tuple[int, ...]  # positions of the copy's dimensions: the outer loops' coordinates
    elements: tuple[int, ...]  # those of the box, in the order of the array's dimensions
    box: Box  # of the array, an iteration

    @property
    def sizes(self) -> tuple[int, ...]:
        """The extents of the dimensions *elements*."""
        return self.box.sizes


@dataclass(frozen=True, slots=True)
class Buffer:
    """The new array: its *name*, and how the box lies in it.

    *order*: of the array's dimensions in the tile, outermost first; as in the array if empty.
    *is_padded*: it has all of the box, zeros where the array has no element.
    *told*: outer coordinates that the others tell, so that it has no dimension for them.
    """

    name: str
    order: Sequence[int] = ()
    is_padded: bool = False
    told: Collection[int] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """The *box* of the array *source* is in *tile*, its dimensions in *order*.

    *kept*: the outer coordinates that the tile has dimensions for.
    """

    source: Array
    tile: Array
    box: Box
    order: Sequence[int]
    kept: Sequence[int]


def why_not_cached(
    scop: Scop, array: str, outer: Outer, only: Collection[Subscripts] | None = None
) -> str | None:
    """Return why *array* is not served to the readers from a tile, or None if it may be."""
    readers = list(outer)
    assert len({len(outer[name]) for name in readers}) == 1, "the outer loops are shared"
    uses = _uses(scop, array, outer, only)
    if not uses:
        return f"{array} is not read"
    if any(use.statement.kind is Kind.FOLD for use in uses):
        return "a fold reads all lanes of its partial at once"
    if any(not use.access.is_exact for use in uses):
        return f"a subscript of {array} is gathered"
    if reason := why_not_copied_before(scop, array, readers):
        return reason
    if all(use.access.relation.is_empty() for use in uses):
        return f"no element of {array} is read"
    if box_hull(scop, uses) is None:
        return f"what an iteration reads of {array} has no constant size"
    return None


def cache_read(
    scop: Scop,
    array: str,
    outer: Outer,
    into: Buffer,
    only: Collection[Subscripts] | None = None,
) -> Cached:
    """Serve the reads of *array* in some statements from a new array.

    :arg outer: for every reader the coordinates of the loops around it and the copy.
    :arg only: the subscripts of the loads that are served; None for all loads of *array*.
    """
    reason = why_not_cached(scop, array, outer, only)
    assert reason is None, reason
    uses = _uses(scop, array, outer, only)
    box = box_hull(scop, uses)
    assert box is not None
    statements = [scop.by_name[reader] for reader in outer]
    iterations = _iterations(statements, outer)
    order = into.order or range(len(box.sizes))
    kept = [d for d in range(iterations.dim(isl.dim_type.set)) if d not in into.told]
    tile = _tile(scop, scop.arrays[array], iterations, [box.sizes[d] for d in order], into.name)
    tile = _without(tile, into.told)
    assert into.name not in scop.arrays, f"there is an array {into.name} already"
    wide = replace(scop, arrays={**scop.arrays, into.name: tile})
    move = _Move(scop.arrays[array], tile, box, order, kept)
    first = min(statements, key=lambda statement: scop.position(statement.name))
    copy = _copy(wide, move, iterations, first)
    if into.is_padded:
        copy = _whole(wide, copy, iterations, box)
    assert copy.name not in scop.by_name, f"there is a statement {copy.name} already"
    served = {use.access.subscripts for use in uses}
    new = {s.name: _reading(wide, s, move, outer[s.name], served) for s in statements}
    result = [new.get(statement.name, statement) for statement in scop.statements]
    result.insert(insertion(scop, list(outer)), copy)
    n_outer, rank = iterations.dim(isl.dim_type.set), len(box.sizes)
    return Cached(
        replace(wide, statements=tuple(result)),
        into.name,
        copy.name,
        tuple(range(n_outer)),
        tuple(range(n_outer, n_outer + rank)),
        box,
    )


def _uses(scop: Scop, array: str, outer: Outer, only: Collection[Subscripts] | None) -> list[Use]:
    return [
        Use(scop.by_name[name], read, around)
        for name, around in outer.items()
        for read in scop.by_name[name].reads
        if read.array == array and (only is None or read.subscripts in only)
    ]


def why_not_copied_before(scop: Scop, array: str, readers: Sequence[str]) -> str | None:
    """Return why a copy of *array* before the first of *readers* does not serve all, or None."""
    last = max(map(scop.position, readers))
    for statement in scop.statements[insertion(scop, readers) : last + 1]:
        if any(write.array == array for write in statement.writes):
            return f"{statement.name} writes {array} before its last reader"
    return None


def insertion(scop: Scop, readers: Sequence[str]) -> int:
    """Return where the copy goes: before the first reader, and before what initialises its target.

    An initialisation that stands directly before its updates is known to belong to them.
    """
    position = min(scop.position(name) for name in readers)
    source = scop.statements[position].source_name
    while position > 0:
        before = scop.statements[position - 1]
        if before.kind is not Kind.INIT or before.source_name != source:
            break
        position -= 1
    return position


def _iterations(readers: Sequence[Statement], outer: Outer) -> isl.Set:
    """Return { [o] }: the iterations that run an instance of a reader."""
    when = [s.domain.apply(outer_map(s, outer[s.name])) for s in readers]
    iterations = when[0]
    for other in when[1:]:
        iterations = iterations.union(other)
    return iterations.coalesce().remove_redundancies()


def _tile(scop: Scop, array: Array, iterations: isl.Set, sizes: Sequence[int], name: str) -> Array:
    """Return the array of all iterations' boxes, which have these *sizes*."""
    n_outer = iterations.dim(isl.dim_type.set)
    bounds = [dim_bounds(iterations, dim, scop.context) for dim in range(n_outer)]
    origin = (*(low for low, _ in bounds), *(0 for _ in sizes))
    shape = (*(minus(end, low) for low, end in bounds), *sizes)
    return Array(name, array.dtype, origin, shape, Storage.SCRATCH, is_narrow=array.is_narrow)


def _without(array: Array, dims: Collection[int]) -> Array:
    kept = [dim for dim in range(array.rank) if dim not in dims]
    origin, shape = ([of[dim] for dim in kept] for of in (array.origin, array.shape))
    return replace(array, origin=tuple(origin), shape=tuple(shape))


def _copy(scop: Scop, move: _Move, iterations: isl.Set, reader: Statement) -> Statement:
    """Return ``tile[o, e] = array[offset(o) + e]``, wherever that element exists."""
    array, box = move.source, move.box
    name = f"{move.tile.name}_copy"
    outer = tuple(f"o{dim}" for dim in range(iterations.dim(isl.dim_type.set)))
    elements = tuple(f"e{dim}" for dim in range(len(box.sizes)))
    builder = builder_of((*outer, *elements), name, scop.sizes)
    values = [Index(index) for index in outer]
    subscripts = tuple(
        plus_expr(_aff_expression(offset, values), Index(element))
        for offset, element in zip(box.offsets, elements, strict=True)
    )
    domain = iterations.add_dims(isl.dim_type.set, len(elements)).set_tuple_name(name)
    domain = domain.align_params(builder.space)
    for dim, size in enumerate(box.sizes, len(outer)):
        domain = within_bounds(domain, dim, 0, size)
    everything = access(builder, array.name, subscripts, scop.arrays, domain).relation
    inside = elements_in(array, everything.get_space().range())
    domain = everything.intersect_range(inside).domain().coalesce()
    around = (outer[dim] for dim in move.kept)
    at = tuple(map(Index, (*around, *(elements[dim] for dim in move.order))))
    target, value = Load(move.tile.name, at, move.tile.dtype), element(array, subscripts)
    return assignment(scop, domain, (*outer, *elements), target, value, reader)


def _whole(scop: Scop, copy: Statement, iterations: isl.Set, box: Box) -> Statement:
    """Return *copy* of the whole *box* in all *iterations*, zeros where it has no element yet."""
    builder = builder_of(copy.indices, copy.name, scop.sizes)
    n_outer = iterations.dim(isl.dim_type.set)
    domain = iterations.add_dims(isl.dim_type.set, len(box.sizes)).set_tuple_name(copy.name)
    domain = domain.align_params(builder.space)
    for dim, size in enumerate(box.sizes, n_outer):
        domain = within_bounds(domain, dim, 0, size)
    read, value = copy.reads[0], copy.value
    assert value is not None, "a copy"
    bounds = _bounds(scop.arrays[read.array], read.subscripts)
    needed = [bound for bound in bounds if not domain.is_subset(builder.truth(bound).below)]
    if needed:
        condition = reduce(lambda one, other: Binary("&&", one, other, BOOL), needed)
        zero = Const(0.0 if value.dtype.is_float else 0, value.dtype)
        value = Select(condition, value, zero, value.dtype)
    done = replace(copy, domain=domain, value=value)
    return with_own_accesses(scop, done, copy.write.array, copy.write.subscripts)


def _bounds(array: Array, subscripts: Sequence[Expr]) -> Iterator[Expr]:
    """Yield the conditions under which *array* has an element at *subscripts*."""
    for subscript, origin, extent in zip(subscripts, array.origin, array.shape, strict=True):
        yield Binary(">=", subscript, extent_expr(origin), BOOL)
        yield Binary("<", subscript, extent_expr(plus(origin, extent)), BOOL)


def _reading(
    scop: Scop,
    statement: Statement,
    move: _Move,
    outer: tuple[AnyCoordinate, ...],
    served: Collection[Subscripts],
) -> Statement:
    """Return *statement* with its loads of the array at the subscripts *served* from the tile."""
    array, tile, box = move.source.name, move.tile, move.box
    values = [coordinate_expression(coordinate, statement.indices) for coordinate in outer]
    builder = builder_of(statement.indices, statement.name, scop.sizes)

    def change(node: Expr) -> Expr:
        if not (isinstance(node, Load) and node.tensor == array and node.subscripts in served):
            return node
        inside = [
            Const(0, INT32) if size == 1
            else _plain(builder, _distance(s, _aff_expression(offset, values)), statement, size)
            for s, offset, size in zip(node.subscripts, box.offsets, box.sizes, strict=True)
        ]  # fmt: skip
        around = (values[dim] for dim in move.kept)
        subscripts = (*around, *(inside[dim] for dim in move.order))
        return Load(tile.name, subscripts, tile.dtype, node.span)

    def changed(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(rewrite(expr, change) for expr in exprs)

    def rewritten(write: Access) -> Access:
        return replace(write, subscripts=changed(write.subscripts))

    ends = statement.checked_range
    if ends is not None:
        lower, upper = rewrite(ends.lower, change), rewrite(ends.upper, change)
        ends = replace(ends, lower=lower, upper=upper)
    new = replace(
        statement,
        value=None if statement.value is None else rewrite(statement.value, change),
        conditions=changed(statement.conditions),
        checked_range=ends,
        checked=tuple((dim, rewrite(expr, change)) for dim, expr in statement.checked),
        write=rewritten(statement.write),
        companion=None if statement.companion is None else rewritten(statement.companion),
    )
    return with_own_reads(scop, new)


def _distance(subscript: Expr, offset: Expr) -> Expr:
    """Return ``subscript - offset``, in a type that holds negative numbers."""
    if subscript.dtype not in (INT32, INT64):
        subscript = Cast(subscript, INT32 if subscript.dtype.size_bytes < 4 else INT64)
    return minus_expr(subscript, offset)


def _plain(builder: Builder, expr: Expr, statement: Statement, size: int) -> Expr:
    """Return the index that *expr* always is, or else *expr*: registers are found by indices.

    Of several indices it may be one's remainder by the *size* of the box.
    """
    function = builder.affine(expr)
    if function is None or isinstance(expr, Index):
        return expr
    names = indices_in(expr)
    for name in sorted(names):
        index = builder.affine(Index(name))
        if index is not None and function.plain_is_equal(index):
            return Index(name)
    for name in sorted(names) if len(names) > 1 else ():
        digit = Binary("%", Index(name), Const(size, INT32), INT32)
        own = builder.affine(digit)
        if own is not None and statement.domain.is_subset(function.eq_set(own)):
            return digit
    return expr


def coordinate_expression(coordinate: AnyCoordinate, indices: Sequence[str]) -> Expr:
    """Return *coordinate* as an expression of a statement's *indices*."""
    match coordinate:
        case Coordinate(position=position):
            expr: Expr = Index(indices[position])
        case AffineCoordinate(terms=terms):
            expr = _sum([(a, coordinate_expression(term, indices)) for a, term in terms], 0)
    expr = _plus_constant(expr, -coordinate.shift)
    if coordinate.div > 1:
        expr = Binary("/", expr, Const(coordinate.div, INT32), INT32)
    return Binary("%", expr, Const(coordinate.mod, INT32), INT32) if coordinate.mod else expr


def _aff_expression(aff: isl.Aff, values: Sequence[Expr]) -> Expr:
    """Return *aff* with *values* for its variables, floored if it has a denominator."""
    denominator = aff.get_denominator_val()

    def factor(kind: isl.dim_type, position: int) -> int:
        return int((aff.get_coefficient_val(kind, position) * denominator).to_python())

    in_, param, div = isl.dim_type.in_, isl.dim_type.param, isl.dim_type.div
    terms = [(factor(in_, d), value) for d, value in enumerate(values)]
    terms += [(factor(param, d), Size(str(n))) for d, n in enumerate(aff.get_var_names(param))]
    # Each division knows all of them: of those without a factor here, one would be itself.
    terms += [
        (factor(div, d), _aff_expression(aff.get_div(d), values))
        for d in range(aff.dim(div))
        if factor(div, d)
    ]
    total = _sum(terms, int((aff.get_constant_val() * denominator).to_python()))
    divisor = int(denominator.to_python())
    return total if divisor == 1 else Binary("/", total, Const(divisor, INT32), INT32)


def _sum(terms: Sequence[tuple[int, Expr]], constant: int) -> Expr:
    """Return the sum of factors times terms, those with positive factors first."""
    total: Expr = Const(0, INT32)
    for factor, term in sorted(terms, key=lambda item: item[0] < 0):
        if factor == 0:
            continue
        size = abs(factor)
        scaled = term if size == 1 else Binary("*", Const(size, INT32), term, INT32)
        total = plus_expr(total, scaled) if factor > 0 else Binary("-", total, scaled, INT32)
    return _plus_constant(total, constant)


def _plus_constant(expr: Expr, constant: int) -> Expr:
    if constant >= 0:
        return plus_expr(expr, Const(constant, INT32))
    return minus_expr(expr, Const(-constant, INT32))
