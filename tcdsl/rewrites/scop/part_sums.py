"""A sum over two indices, first over one: its parts are columns that neighbouring threads share.

    m(n,g) +=! x(n,p,g,d)     --->     m.part(n,g,d) +=! x(n,p,g,d)
                                       m(n,g)        +=! m.part(n,g,d)

In memory the index g of the result lies between the reduced p and d: of a row that threads share
for one g a few neighbours are in memory at a time.  The parts have g and d together, which are
neighbours, and p is reduced as in any column.

Legal iff the operator may combine in any order, and each index has its whole range for any of the
others: the parts are those of a box.
"""

from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Index, Load
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, in_place_of
from tcdsl.rewrites.scop.assignment import with_own_accesses
from tcdsl.rewrites.scop.rfactor import initialisation, why_not_rfactored


def why_not_in_parts(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is not reduced over all but its last index first, or None."""
    if reason := why_not_rfactored(statement):
        return reason
    if len(statement.reduced) < 2 or statement.conditions or statement.companion is not None:
        return "it reduces one index, or under a condition"
    if tuple(statement.write.subscripts) != tuple(map(Index, statement.left)):
        return "its target's subscripts are not the left-hand indices"
    if initialisation(scop, statement) is None:
        return "it begins with what its target holds"
    is_open = bool(scop.context.dim(isl.dim_type.param))
    return "its domain is no box of numbers" if is_open or not statement.domain.is_box() else None


def in_parts(scop: Scop, name: str) -> Scop:
    """Return *scop* with the reduction *name* over all but its last index first."""
    statement = scop.by_name[name]
    assert why_not_in_parts(scop, statement) is None
    init = initialisation(scop, statement)
    reduction, value = statement.reduction, statement.value
    assert init is not None and reduction is not None and value is not None
    last, own = statement.reduced[-1], f"{name}_part"
    bounds = constant_bounds(statement.domain, statement.indices.index(last))
    target = scop.arrays[statement.write.array]
    assert bounds is not None, "why_not_in_parts"
    low, high = bounds
    array = Array(
        f"{name}.part", reduction.dtype, (*target.origin, low), (*target.shape, high + 1 - low),
        Storage.SCRATCH,
    )  # fmt: skip
    wide = replace(scop, arrays={**scop.arrays, array.name: array})
    left = (*statement.left, last)
    rest = tuple(index for index in statement.reduced if index != last)
    subscripts = tuple(map(Index, left))
    load = Load(array.name, subscripts, reduction.dtype)
    part = replace(_over(scop, statement, own, (*left, *rest), len(left)), source_name=own)
    part_init = replace(
        _over(scop, part, f"{own}_init", left, len(left)), kind=Kind.INIT, value=None
    )
    whole = replace(_over(scop, statement, name, left, len(statement.left)), value=load)
    made = [
        with_own_accesses(wide, part_init, array.name, subscripts),
        with_own_accesses(wide, part, array.name, subscripts),
        init,
        with_own_accesses(wide, whole, target.name, statement.write.subscripts),
    ]
    return in_place_of(wide, (statement, init), made)


def _over(
    scop: Scop, statement: Statement, name: str, indices: tuple[str, ...], n_left: int
) -> Statement:
    """Return *statement* as *name*, over *indices* of its own in that order."""
    builder = builder_of(indices, name, scop.sizes)
    domain = box(builder, indices, {index: _bounds(statement, index) for index in indices})
    return replace(statement, name=name, domain=domain, indices=indices, n_left=n_left)


def _bounds(statement: Statement, index: str) -> tuple[int, int]:
    found = constant_bounds(statement.domain, statement.indices.index(index))
    assert found is not None, "a box"
    return found[0], found[1] + 1
