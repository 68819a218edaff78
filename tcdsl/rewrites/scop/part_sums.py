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

from tcdsl.lang.comprehension import Expr, Index, Load
from tcdsl.poly.accesses import access, box, builder_of, guarded_reads
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage, in_place_of
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
    arrays = {**scop.arrays, array.name: array}
    left = (*statement.left, last)
    rest = tuple(index for index in statement.reduced if index != last)
    subscripts = tuple(map(Index, left))
    part = _over(scop, statement, own, (*left, *rest), len(left))
    part_init = _over(scop, statement, f"{own}_init", left, len(left))
    whole = _over(scop, statement, name, left, len(statement.left))
    load = Load(array.name, subscripts, reduction.dtype)
    made = [
        replace(
            _reading(scop, part_init, (), arrays), kind=Kind.INIT, value=None, source_name=own,
            write=_write(scop, part_init, array.name, subscripts, arrays),
        ),
        replace(
            _reading(scop, part, (value,), arrays), source_name=own,
            write=_write(scop, part, array.name, subscripts, arrays),
        ),
        init,
        replace(
            _reading(scop, whole, (load,), arrays), value=load,
            write=_write(scop, whole, target.name, statement.write.subscripts, arrays),
        ),
    ]  # fmt: skip
    return in_place_of(replace(scop, arrays=arrays), (statement, init), made)


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


def _reading(
    scop: Scop, statement: Statement, exprs: tuple[Expr, ...], arrays: dict[str, Array]
) -> Statement:
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    return replace(statement, reads=guarded_reads(builder, statement.domain, exprs, arrays))


def _write(
    scop: Scop,
    statement: Statement,
    array: str,
    subscripts: tuple[Expr, ...],
    arrays: dict[str, Array],
) -> Access:
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    return access(builder, array, subscripts, arrays, statement.domain)
