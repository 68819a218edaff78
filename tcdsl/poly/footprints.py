"""Footprints: the box of an array's elements that one iteration of some outer loops touches.

    S[m,n,k] reads A[m,k], under o = (m/64, n/64, k/16)
        --->   { [o0,o1,o2] -> A[64 o0 + e0, 16 o2 + e1] : 0 <= e0 < 64, 0 <= e1 < 16 }

A box has constant sizes and, in each dimension, an offset that is quasi-affine in the iteration o.
The offset is found by trial: any quasi-affine f gives a box if e - f(o) is bounded over the
footprint { [o] -> A[e] }, of size max(e - f(o)) - min(e - f(o)) + 1; the smallest is taken.  Tried
are 0, and the least and largest elements of an iteration: at the borders of the domain these are
clipped, and another function in every piece, but elsewhere they move as the box does.  Where an
iteration has a number for several indices, which isl takes apart piece by piece, its digits, too::

    o = 8 k + l / 64    --->    l is at 64 (o % 8)

After Verdoolaege et al., "Polyhedral Parallel Code Generation for CUDA", ACM TACO 9(4), 2013,
doi:10.1145/2400682.2400713, who take the offsets from the constraints.
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import islpy as isl

from tcdsl.poly.isl_utils import along, constant_bounds, val
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate
from tcdsl.poly.scop import Access, Scop, Statement
from tcdsl.records import dataclass

_MAX_PIECES = 8  # of a bound: what has more is not the bound of one moving box


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """An access of *statement*, whose instances run in the iteration *outer* of shared loops."""

    statement: Statement
    access: Access
    outer: tuple[AnyCoordinate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """``[offset(o), offset(o) + size)`` in each dimension; *offsets*: { [o] -> [(f)] }."""

    offsets: tuple[isl.Aff, ...]
    sizes: tuple[int, ...]


def outer_map(statement: Statement, outer: Sequence[AnyCoordinate]) -> isl.Map:
    """Return { S[i] -> [o] }: the iteration of the outer loops that runs each instance."""
    space = statement.domain.get_space()
    when = isl.Map.from_domain(isl.Set.universe(space))
    for coordinate in outer:
        function = isl.PwAff.from_aff(coordinate.function(space))
        when = when.flat_range_product(isl.Map.from_pw_aff(function))
    return when


def footprint_of(uses: Sequence[Use]) -> isl.Map:
    """Return { [o] -> A[e] }: what an iteration touches of the array, over all *uses* of it."""
    maps = [
        outer_map(use.statement, use.outer).reverse().apply_range(use.access.relation)
        for use in uses
    ]
    return reduce(isl.Map.union, maps)


def box_hull(scop: Scop, uses: Sequence[Use]) -> Box | None:
    """Return the smallest box found around what *uses* of one array touch in an iteration.

    None where nothing is touched, or no box has a constant size.
    """
    footprint = footprint_of(uses).intersect_params(scop.context).coalesce()
    if footprint.is_empty():
        return None
    shift = scop.arrays[uses[0].access.array].shift
    if shift is not None:
        footprint = footprint.apply_range(_whole_vectors(footprint, shift.width)).coalesce()
    offsets, sizes = [], []
    for dim in range(footprint.dim(isl.dim_type.out)):
        found = _interval(along(footprint, dim), uses[0].outer)
        if found is None:
            return None
        offsets.append(found[0])
        sizes.append(found[1])
    return Box(tuple(offsets), tuple(sizes))


def _whole_vectors(footprint: isl.Map, width: int) -> isl.Map:
    """Return { A[.., e] -> A[.., e'] }, all e' in the vector of e, where rows may begin."""
    space = footprint.get_space().range()
    local = isl.LocalSpace.from_space(space)
    kind = isl.dim_type.set
    last = space.dim(kind) - 1
    same = isl.Map.identity(space.map_from_set())
    free = same.project_out(isl.dim_type.out, last, 1).add_dims(isl.dim_type.out, 1)
    free = free.set_tuple_name(isl.dim_type.out, space.get_tuple_name(kind))
    number = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, kind, last))
    number = number.scale_down_val(val(width)).floor()
    vector = isl.Map.from_pw_aff(number)
    return free.intersect(vector.apply_range(vector.reverse()))


def _interval(elements: isl.Map, outer: Sequence[AnyCoordinate]) -> tuple[isl.Aff, int] | None:
    """Return the offset and the size of the smallest interval found, None if none is bounded."""
    found = []
    for guess in (*_guesses(elements), *_digits(elements.get_space().domain(), outer)):
        distance = elements.sum(isl.Map.from_aff(guess.neg())).range()  # { [e - f(o)] }
        bounds = constant_bounds(distance, 0)
        if bounds is not None:
            low, high = bounds
            found.append((guess.add_constant_val(val(low)), high - low + 1))
    return min(found, key=lambda interval: interval[1], default=None)


def _guesses(elements: isl.Map) -> Iterator[isl.Aff]:
    """Yield quasi-affine functions that may move with the elements, the simplest first."""
    yield isl.Aff.zero_on_domain(isl.LocalSpace.from_space(elements.get_space().domain()))
    for bound in (elements.dim_min(0), elements.dim_max(0)):
        for _, aff in bound.get_pieces()[:_MAX_PIECES]:
            yield aff


def _digits(space: isl.Space, outer: Sequence[AnyCoordinate]) -> Iterator[isl.Aff]:
    """Yield where the digits of iterations' numbers begin: *space* is that of the iterations."""
    local = isl.LocalSpace.from_space(space)
    for position, coordinate in enumerate(outer):
        if isinstance(coordinate, Coordinate):
            continue
        number = isl.Aff.var_on_domain(local, isl.dim_type.set, position)
        above = 0
        for factor, term in sorted(_summands(coordinate, 1), key=lambda one: -one[0]):
            digit = number.scale_down_val(val(factor)).floor()
            if above and above % factor == 0:
                digit = digit.mod_val(val(above // factor))
            above = factor
            yield digit.scale_val(val(term.div))


def _summands(coordinate: AnyCoordinate, factor: int) -> Iterator[tuple[int, Coordinate]]:
    """Yield what *factor* times *coordinate* adds up, as far as it is a sum and no part of one."""
    match coordinate:
        case Coordinate():
            yield factor, coordinate
        case AffineCoordinate(terms=terms, shift=0, div=1, mod=0):
            for own, term in terms:
                if own > 0:  # a number has no other digits
                    yield from _summands(term, factor * own)
