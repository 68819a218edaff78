"""A guard in the domain of a sum of products as a mask of a factor: its instances become a box.

    C(m,n) +=! A(m,k) * B(k,n)  where k <= m
    --->
    C(m,n) +=! (k <= m ? A(m,k) : 0) * B(k,n)                           masked: all k
    V(m)    max= C(m,n) is NaN ? 1 : 0                                  found with the results
    R(m,n)  =  0                where n < (V(m) ? N : 0)
    R(m,n)  += A(m,k) * B(k,n)  where n < (V(m) ? N : 0), k <= m, k < (C(m,n) is NaN ? K : 0)
    C(m,n)  =  R(m,n)           where n < (V(m) ? N : 0), C(m,n) is NaN

A sum over a triangle, a band or the inside of an image becomes a product like others, whose
operands tiles or copies hold, zeros outside.  0 is what a sum begins with, so that the terms that
are added are nothing, but for one case: 0 times an infinity or NaN is NaN.  No later term takes a
NaN away.  So a sum that is none had no such term, and a sum that is NaN is made again of the terms
as written: these are right whatever the operands hold.  Integers need no second sum.  A flag for
each row says whether it has one: what makes the results has them at hand (``strategies/tile_folds``
begins the maximum with the product), so that nobody reads them all for a NaN.

What a masked sum adds for a factor that a guard makes 0 it may leave out again: tiles of which a
guard holds nowhere (``strategies/live_steps``).

The box is that of all results, also of those that have no terms: tiles are of these.

Legal iff the instances are one convex set without quotients in a box; each of its constraints that
the box does not have is on indices of one factor; what the box initialises or reads besides there
is; and the result of sums of floats is a float, which can be NaN.
"""

from collections.abc import Mapping, Sequence
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
    Operator,
    Reduction,
    Select,
    indices_in,
)
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.linear_forms import of_linear
from tcdsl.lang.types.dtypes import BOOL, INT32, DType, arithmetic
from tcdsl.poly.accesses import access, box, builder_of, elements_in
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.assignment import assignment, element, with_own_accesses, with_own_reads
from tcdsl.rewrites.scop.rfactor import initialisation, why_not_rfactored


def why_not_masked(scop: Scop, statement: Statement) -> str | None:
    """Return why guards in the domain of *statement* are no masks of its factors, or None."""
    value, reduction = statement.value, statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return "it is no reduction"
    is_product = isinstance(value, Binary) and value.op == "*"
    if reduction.operator is not Operator.ADD or not is_product:
        return "it is no sum of products"
    if statement.n_left < 2:
        return "it is no product of matrices"
    if statement.conditions or why_not_rfactored(statement) is not None:
        return "data say which terms there are"
    if statement.domain.is_empty() or statement.domain.dim(isl.dim_type.param):
        return "it has no instances, or a size is open"
    if reduction.dtype.name.startswith("compensated"):
        return "its sums are pairs"
    if initialisation(scop, statement) is None:
        return "it adds to what its target holds"
    if reduction.dtype.is_float and not scop.arrays[statement.write.array].dtype.is_float:
        return "its result has no NaN that tells of one"
    own = _constraints(scop, statement)
    if not own:
        return "its instances are a box" if own == [] else "its instances are no convex set"
    masks = _masks(statement, own)
    if masks is None:
        return "a guard is on indices of several factors"
    done = _masked(scop, statement)
    return _why_not_there(scop, done)


def masked(scop: Scop, name: str) -> Scop:
    """Return *scop* with the sum *name* over a box, and of floats what is NaN made again."""
    statement = scop.by_name[name]
    done = _masked(scop, statement)
    assert statement.reduction is not None
    more: list[Statement] = []
    if statement.reduction.dtype.is_float:
        scop, more = _again(scop, statement)
    statements: list[Statement] = []
    for old in scop.statements:
        statements += [done, *more] if old is statement else [old]
    return scop.with_statements(tuple(statements))


def _ends(scop: Scop, statement: Statement) -> dict[str, tuple[int, int]]:
    """Return the range of each index over all results, also those that have no terms."""
    init = initialisation(scop, statement)
    assert init is not None, "why_not_masked"
    found = _bounds(statement)
    if statement.indices[: len(init.indices)] != init.indices:
        return found
    for index, (low, end) in _bounds(init).items():
        own = found[index]
        found[index] = min(low, own[0]), max(end, own[1])
    return found


def _bounds(statement: Statement) -> dict[str, tuple[int, int]]:
    bounds = (constant_bounds(statement.domain, dim) for dim in range(len(statement.indices)))
    return {i: (b[0], b[1] + 1) for i, b in zip(statement.indices, bounds, strict=True) if b}


def _box(scop: Scop, statement: Statement) -> isl.Set:
    """Return the least box around the instances, and those of all results."""
    builder = builder_of(statement.indices, statement.name, {})
    return box(builder, statement.indices, _ends(scop, statement))


def _constraints(scop: Scop, statement: Statement) -> list[Expr] | None:
    """Return what the domain says besides its box, None if that is no list of constraints."""
    rest = statement.domain.coalesce().gist(_box(scop, statement)).coalesce()
    parts = rest.get_basic_sets()
    if len(parts) != 1 or parts[0].dim(isl.dim_type.div):
        return None
    return [_condition(one, statement.indices) for one in parts[0].get_constraints()]


def _condition(constraint: isl.Constraint, indices: Sequence[str]) -> Expr:
    """Return *constraint* as a comparison: what is negative in it on the other side."""
    kind = isl.dim_type.set
    factors = {
        index: int(constraint.get_coefficient_val(kind, dim).to_python())
        for dim, index in enumerate(indices)
    }
    constant = int(constraint.get_constant_val().to_python())
    more = {index: n for index, n in factors.items() if n > 0}
    less = {index: -n for index, n in factors.items() if n < 0}
    left = of_linear(more, max(constant, 0))
    right = of_linear(less, max(-constant, 0))
    return Binary("==" if constraint.is_equality() else ">=", left, right, BOOL)


def _masks(statement: Statement, constraints: Sequence[Expr]) -> list[list[Expr]] | None:
    """Return the constraints that each factor is masked by, None if one is on none of them alone.

    Those of both factors' indices mask both: neither is read where there is no term.
    """
    assert isinstance(statement.value, Binary)
    own = [indices_in(side) for side in (statement.value.left, statement.value.right)]
    found = [[c for c in constraints if indices_in(c) <= indices] for indices in own]
    taken = {id(c) for side in found for c in side}
    return found if len(taken) == len(constraints) else None


def _masked(scop: Scop, statement: Statement) -> Statement:
    """Return *statement* over its box, with masks."""
    masks, value = _masks(statement, _constraints(scop, statement) or []), statement.value
    assert isinstance(value, Binary) and masks is not None
    sides = [
        _with_mask(side, mask) for side, mask in zip((value.left, value.right), masks, strict=True)
    ]
    domain = _box(scop, statement)
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    write = access(builder, statement.write.array, statement.write.subscripts, scop.arrays, domain)
    wide = replace(
        statement, domain=domain, write=write, value=replace(value, left=sides[0], right=sides[1]),
        is_masked=_may_skip(scop, statement),
    )  # fmt: skip
    return with_own_reads(scop, wide)


def _may_skip(scop: Scop, statement: Statement) -> bool:
    """Return whether a factor that is 0 is one because of a mask: 0 times NaN of others counts.

    It is not where *statement*, which has no masks yet, has such factors.
    """
    assert statement.reduction is not None
    has_own = not statement.domain.is_subset(unmasked(scop, statement))
    return not has_own or not statement.reduction.dtype.is_float


def unmasked(scop: Scop, statement: Statement) -> isl.Set:
    """Return the instances of *statement* at which no factor is 0 because of a condition.

    Of a factor that an array has, those whose element is not 0 because of the one that stored it.
    """
    domain, value = statement.domain, statement.value
    if not isinstance(value, Binary):
        return domain
    for factor in (value.left, value.right):
        domain = domain.intersect(_unmasked(scop, statement, factor))
    return domain


def _unmasked(scop: Scop, statement: Statement, factor: Expr) -> isl.Set:
    factor = _uncast(factor)
    if isinstance(factor, Select):
        if not _is_zero(factor.if_false):
            return statement.domain
        builder = builder_of(statement.indices, statement.name, scop.sizes)
        return statement.domain.intersect(builder.truth(factor.condition).above)
    if not isinstance(factor, Load):
        return statement.domain
    writers = [s for s in scop.users.get(factor.tensor, ()) if _writes(s, factor.tensor)]
    if len(writers) != 1 or writers[0].kind is not Kind.ASSIGN or writers[0].conditions:
        return statement.domain
    (writer,) = writers
    if writer.value is None or not isinstance(_uncast(writer.value), Load | Select):
        return statement.domain
    elements = writer.write.relation.intersect_domain(_unmasked(scop, writer, writer.value)).range()
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    read = access(builder, factor.tensor, factor.subscripts, scop.arrays, statement.domain)
    return read.relation.intersect_range(elements).domain()


def _is_zero(expr: Expr) -> bool:
    expr = _uncast(expr)
    return isinstance(expr, Const) and expr.value == 0


def _writes(statement: Statement, array: str) -> bool:
    return any(write.array == array for write in statement.writes)


def _uncast(expr: Expr) -> Expr:
    return _uncast(expr.operand) if isinstance(expr, Cast) else expr


def _with_mask(factor: Expr, mask: Sequence[Expr]) -> Expr:
    if not mask:
        return factor
    zero = Const(0.0 if factor.dtype.is_float else 0, factor.dtype)
    condition = reduce(lambda one, other: Binary("&&", one, other, BOOL), mask)
    return Select(condition, factor, zero, factor.dtype)


def _why_not_there(scop: Scop, done: Statement) -> str | None:
    """Return why *done* reads or adds to what is not there, or None."""
    init = initialisation(scop, done)
    assert init is not None
    written = done.write.relation.range()
    if not written.is_subset(init.write.relation.range()):
        return "results outside of its instances are not initialised"
    for read in done.reads:
        there = elements_in(scop.arrays[read.array], read.relation.get_space().range())
        if not read.relation.range().is_subset(there):
            return f"{read.array} has no elements where its terms are masked"
    return None


# --- what is NaN, again ----------------------------------------------------------------------


def _again(scop: Scop, statement: Statement) -> tuple[Scop, list[Statement]]:
    """Return *scop* with more arrays, and the statements that sum up what is NaN again."""
    name = fresh_name(f"{statement.name}_again", scop.by_name)
    target = scop.arrays[statement.write.array]
    result = element(target, statement.write.subscripts)
    is_nan = Binary("!=", result, result, BOOL)
    scop, flags, flag = _flags(scop, statement, name, is_nan)
    scop, again = _sums(scop, statement, name, is_nan, flag)
    return scop, [*flags, *again]


def _scratch(
    name: str, indices: Sequence[str], ends: Mapping[str, tuple[int, int]], dtype: DType
) -> Array:
    """Return an array with an element for each value of *indices*."""
    origin = tuple(ends[i][0] for i in indices)
    shape = tuple(ends[i][1] - ends[i][0] for i in indices)
    return Array(name, dtype, origin, shape, Storage.SCRATCH)


def _flags(
    scop: Scop, statement: Statement, name: str, is_nan: Expr
) -> tuple[Scop, list[Statement], Expr]:
    """Return *scop* with a flag for each row of results, what sets them, and one: of a NaN."""
    *outer, inner = statement.left
    rows, ends = tuple(outer), _ends(scop, statement)
    flags = _scratch(f"{name}.flags", rows, ends, INT32)
    scop = replace(scop, arrays={**scop.arrays, flags.name: flags})
    kind = Reduction(Operator.MAX, True, INT32)
    place = Load(flags.name, tuple(map(Index, rows)), INT32)
    own = f"{name}_flags"
    first = assignment(
        scop, _over(scop, rows, f"{own}_init", ends), rows, place, Const(0, INT32), statement
    )
    first = replace(first, kind=Kind.INIT, value=None, reads=(), reduction=kind, source_name=own)
    flag = Select(is_nan, Const(1, INT32), Const(0, INT32), INT32)
    updates = assignment(
        scop, _over(scop, statement.left, own, ends), statement.left, place, flag, statement
    )
    updates = replace(updates, kind=Kind.UPDATE, n_left=len(rows), reduction=kind, source_name=own)
    assert inner in updates.reduced
    return scop, [first, updates], place


def _over(
    scop: Scop, indices: tuple[str, ...], name: str, ends: dict[str, tuple[int, int]]
) -> isl.Set:
    """Return the instances of *name* for all values of *indices*."""
    own = {index: ends[index] for index in indices}
    return box(builder_of(indices, name, scop.sizes), indices, own)


def _range(index: str, end: tuple[int, int], is_any: Expr) -> tuple[Expr, Expr]:
    """Return the range of *index* as conditions: empty unless *is_any*."""
    upper = Select(is_any, Const(end[1], INT32), Const(end[0], INT32), INT32)
    lower = Const(end[0], INT32)
    return Binary("<=", lower, Index(index), BOOL), Binary("<", Index(index), upper, BOOL)


def _sums(
    scop: Scop, statement: Statement, name: str, is_nan: Expr, flag: Expr
) -> tuple[Scop, list[Statement]]:
    """Return *scop* with another array, and what sums up in it, and stores, results that are NaN.

    :arg flag: whether a result's row has any.
    """
    reduction, left, ends = statement.reduction, statement.left, _ends(scop, statement)
    assert reduction is not None
    sums = _scratch(f"{name}.sum", left, ends, reduction.dtype)
    scop = replace(scop, arrays={**scop.arrays, sums.name: sums})
    place = Load(sums.name, tuple(map(Index, left)), sums.dtype)
    in_row = _range(left[-1], ends[left[-1]], Binary(">", flag, Const(0, INT32), BOOL))

    counted = statement.reduced[0]
    again = replace(
        statement, name=name, domain=statement.domain.set_tuple_name(name), source_name=name,
        is_rare=True, conditions=(*in_row, *_range(counted, ends[counted], is_nan)),
    )  # fmt: skip
    again = with_own_accesses(scop, again, sums.name, place.subscripts)
    zero = Const(0.0, reduction.dtype)
    init = f"{name}_init"
    first = assignment(scop, _over(scop, left, init, ends), left, place, zero, statement)
    first = replace(
        first, kind=Kind.INIT, value=None, reduction=reduction, source_name=name,
        conditions=in_row, is_rare=True,
    )  # fmt: skip
    target = scop.arrays[statement.write.array]
    wide = arithmetic(target.dtype)
    stored: Expr = place if place.dtype == wide else Cast(place, wide)
    to, store = Load(target.name, statement.write.subscripts, target.dtype), f"{name}_store"
    last = assignment(scop, _over(scop, left, store, ends), left, to, stored, statement)
    last = replace(last, conditions=(*in_row, is_nan), source_name=store, is_rare=True)
    return scop, [with_own_reads(scop, one) for one in (first, again, last)]
