"""The place of an extreme value, found after the value: both are sums that blocks may share.

    y(j) argmax=! x(i,j)      --->      top(j)   max=! x(i,j)
                                        place(j) min=! x(i,j) == top(j) || x(i,j) != x(i,j) ? i : N
                                        y(j) = place(j) == N ? -1 : place(j)

An argmax keeps pairs, for which there are neither atomics nor partial sums over chunks: where there
are few results, few threads find them.  A maximum has both, and so has the least place at which it
stands; it costs another reading.  The first of equal elements is meant, and a NaN counts as the
extreme, which makes the maximum a NaN: the first NaN is found as x != x.

Legal iff the terms are elements of an array, at most converted: computed twice, they might differ
by the rounding of a contraction.  Nothing may write that array between the two.
"""

from dataclasses import replace

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
)
from tcdsl.lang.types.dtypes import BOOL, INT64
from tcdsl.poly.lowering import access, builder_of, guarded_reads
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.rfactor import initialisation

LAST = 2**63 - 1  # no place


def why_not_after(scop: Scop, statement: Statement) -> str | None:
    """Return why the place that *statement* finds is not found after the value, or None."""
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or not reduction.operator.is_arg:
        return "it finds no place"
    if len(statement.reduced) != 1 or statement.conditions or not statement.write.is_exact:
        return "it is not along one index, for all of it"
    if tuple(statement.write.subscripts) != tuple(map(Index, statement.left)):
        return "its target's subscripts are not the left-hand indices"
    if not isinstance(statement.arg_origin, int) or scop.context.dim(isl.dim_type.param):
        return "where its range begins is not known"
    if not isinstance(_unconverted(statement.value), Load):
        return "its terms are computed"
    if initialisation(scop, statement) is None:
        return "it begins with what its target holds"
    return None


def _unconverted(value: Expr | None) -> Expr | None:
    while isinstance(value, Cast):
        value = value.operand
    return value


def place_after(scop: Scop, name: str) -> Scop:
    """Return *scop* with the place that the statement *name* finds found after the value."""
    statement = scop.by_name[name]
    assert why_not_after(scop, statement) is None
    init = initialisation(scop, statement)
    reduction, value = statement.reduction, statement.value
    origin = statement.arg_origin
    assert init is not None and reduction is not None and value is not None
    assert isinstance(origin, int)
    arrays = {n: a for n, a in scop.arrays.items() if not _is_companion(statement, n)}
    target = arrays[statement.write.array]
    top, place = f"{name}.top", f"{name}.place"
    for array, dtype in ((top, reduction.dtype), (place, INT64)):
        arrays[array] = Array(array, dtype, target.origin, target.shape, Storage.SCRATCH)
    is_largest = reduction.operator is Operator.ARGMAX
    extreme = Reduction(Operator.MAX if is_largest else Operator.MIN, True, reduction.dtype)
    first = Reduction(Operator.MIN, True, INT64)
    own = Load(top, statement.write.subscripts, reduction.dtype)
    term = value if value.dtype == reduction.dtype else Cast(value, reduction.dtype)
    is_there = Binary("==", term, own, BOOL)
    if reduction.dtype.is_float:
        is_there = Binary("||", is_there, Binary("!=", term, term, BOOL), BOOL)
    where: Expr = Cast(Index(statement.reduced[0]), INT64)
    if origin:
        where = Binary("-", where, Const(origin, INT64), INT64)
    found = Select(is_there, where, Const(LAST, INT64), INT64)
    least = Load(place, init.write.subscripts, INT64)
    is_none = Binary("==", least, Const(LAST, INT64), BOOL)
    result = Select(is_none, Const(-1, INT64), least, INT64)
    made = [
        _started(scop, init, f"{name}_top", extreme, top, arrays),
        _summed(scop, statement, f"{name}_top", extreme, value, top, arrays),
        _started(scop, init, f"{name}_place", first, place, arrays),
        _summed(scop, statement, f"{name}_place", first, found, place, arrays),
        _assigned(scop, init, name, result, arrays),
    ]
    statements: list[Statement] = []
    for old in scop.statements:
        if old is statement:
            statements += made
        elif old is not init:
            statements.append(old)
    return replace(scop, arrays=arrays, statements=tuple(statements))


def _is_companion(statement: Statement, array: str) -> bool:
    return statement.companion is not None and statement.companion.array == array


def _started(
    scop: Scop, init: Statement, owner: str, kind: Reduction, array: str, arrays: dict[str, Array]
) -> Statement:
    """Return the initialisation of *array*, which *owner* reduces into."""
    name = f"{owner}_init"
    builder, domain = builder_of(init.indices, name, scop.sizes), init.domain.set_tuple_name(name)
    return replace(
        init, name=name, domain=domain, value=None, reduction=kind, companion=None,
        write=access(builder, array, init.write.subscripts, arrays, domain), source_name=owner,
    )  # fmt: skip


def _summed(
    scop: Scop,
    statement: Statement,
    name: str,
    kind: Reduction,
    value: Expr,
    array: str,
    arrays: dict[str, Array],
) -> Statement:
    """Return the updates *name* of an array by *value*, for each instance of *statement*."""
    builder = builder_of(statement.indices, name, scop.sizes)
    domain = statement.domain.set_tuple_name(name)
    return replace(
        statement, name=name, domain=domain, value=value, reduction=kind, companion=None,
        write=access(builder, array, statement.write.subscripts, arrays, domain),
        reads=guarded_reads(builder, domain, (value,), arrays), arg_origin=0, source_name=name,
    )  # fmt: skip


def _assigned(
    scop: Scop, init: Statement, name: str, value: Expr, arrays: dict[str, Array]
) -> Statement:
    """Return the statement *name* that stores *value* where *init* stored -1."""
    builder, domain = builder_of(init.indices, name, scop.sizes), init.domain.set_tuple_name(name)
    dtype = arrays[init.write.array].dtype
    value = value if dtype == INT64 else Cast(value, dtype)
    return replace(
        init, name=name, domain=domain, kind=Kind.ASSIGN, value=value, reduction=None,
        companion=None,
        write=access(builder, init.write.array, init.write.subscripts, arrays, domain),
        reads=guarded_reads(builder, domain, (value,), arrays),
    )  # fmt: skip
