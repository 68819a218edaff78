"""The place of an extreme value, found after the value: both are sums that blocks may share.

    y(j) argmax=! x(i,j)      --->      top(j)   max=! x(i,j)
                                        place(j) min=! x(i,j) == top(j) || x(i,j) != x(i,j) ? i : N
                                        y(j) = place(j) == N ? -1 : place(j)

An argmax keeps pairs, for which there are neither atomics nor partial sums over chunks: where there
are few results, few threads find them.  A maximum has both, and so has the least place at which it
stands; it costs another reading.  The first of equal elements is meant, and a NaN counts as the
extreme, which makes the maximum a NaN: the first NaN is found as x != x.  A maximum of the same
elements that the program has anyway is read instead of another one, and places are of 32 bits where
the index is: of half types a thread compares as many values as it can keep.

Legal iff the terms are elements of an array, at most converted: computed twice, they might differ
by the rounding of a contraction.  Nothing may write that array between the two.
"""

from dataclasses import replace

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
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32, INT64, DType
from tcdsl.poly.isl_utils import constant_bounds, is_unbounded
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, in_place_of
from tcdsl.rewrites.scop.assignment import with_own_accesses
from tcdsl.rewrites.scop.rfactor import initialisation

LAST = {INT32: 2**31 - 1, INT64: 2**63 - 1}  # no place


def why_no_place(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* finds no place along one index from a known first one, or None."""
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or not reduction.operator.is_arg:
        return "it finds no place"
    if len(statement.reduced) != 1 or statement.conditions or not statement.write.is_exact:
        return "it is not along one index, for all of it"
    if tuple(statement.write.subscripts) != tuple(map(Index, statement.left)):
        return "its target's subscripts are not the left-hand indices"
    if not isinstance(statement.arg_origin, int) or is_unbounded(scop.context):
        return "where its range begins is not known"
    return None


def why_not_after(scop: Scop, statement: Statement) -> str | None:
    """Return why the place that *statement* finds is not found after the value, or None."""
    if reason := why_no_place(scop, statement):
        return reason
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
    arrays = {n: a for n, a in scop.arrays.items() if not is_companion(statement, n)}
    target, place = arrays[statement.write.array], f"{name}.place"
    wide = place_type(statement)
    arrays[place] = Array(place, wide, target.origin, target.shape, Storage.SCRATCH)
    is_largest = reduction.operator is Operator.ARGMAX
    extreme = Reduction(Operator.MAX if is_largest else Operator.MIN, True, reduction.dtype)
    first = Reduction(Operator.MIN, True, wide)
    top = _known_extreme(scop, statement, extreme.operator)
    is_known = top is not None
    if top is None:
        top = f"{name}.top"
        arrays[top] = Array(top, reduction.dtype, target.origin, target.shape, Storage.SCRATCH)
    wider, made = replace(scop, arrays=arrays), list[Statement]()
    if not is_known:
        made = [
            started(wider, init, f"{name}_top", extreme, top),
            summed(wider, statement, f"{name}_top", extreme, value, top),
        ]
    own = as_type(Load(top, statement.write.subscripts, arrays[top].dtype), reduction.dtype)
    term = as_type(value, reduction.dtype)
    is_there = Binary("==", term, own, BOOL)
    if reduction.dtype.is_float:
        # Not "||", which compilers make a branch of: of 200 values of a thread 400 branches.
        is_there = Binary("|", is_there, Binary("!=", term, term, BOOL), BOOL)
    where = as_type(Index(statement.reduced[0]), wide)
    if origin:
        where = Binary("-", where, Const(origin, wide), wide)
    found = Select(is_there, where, Const(LAST[wide], wide), wide)
    least = Load(place, init.write.subscripts, wide)
    is_none = Binary("==", least, Const(LAST[wide], wide), BOOL)
    result = Select(is_none, Const(-1, wide), least, wide)
    made += [
        started(wider, init, f"{name}_place", first, place),
        summed(wider, statement, f"{name}_place", first, found, place),
        assigned(wider, init, name, result),
    ]
    return in_place_of(wider, (statement, init), made)


def place_type(statement: Statement) -> DType:
    """Return the type of places: of 32 bits if the index, from any origin, has as many."""
    bounds = constant_bounds(statement.domain, statement.indices.index(statement.reduced[0]))
    is_short = bounds is None or max(map(abs, bounds)) < LAST[INT32] // 2
    return INT32 if is_short else INT64


def _known_extreme(scop: Scop, statement: Statement, operator: Operator) -> str | None:
    """Return the array of which an earlier statement has the extremes of the same elements.

    That is stored as exactly as the elements, and by no other.
    """
    value = _unconverted(statement.value)
    assert isinstance(value, Load) and statement.reduction is not None
    for other in scop.statements[: scop.position(statement.name)]:
        reduction, array = other.reduction, other.write.array
        if other.kind is not Kind.UPDATE or reduction is None or reduction.operator != operator:
            continue
        writers = {s.name for s in scop.writers_of(array)}
        init = initialisation(scop, other)
        is_whole = init is not None and writers == {init.name, other.name}
        is_exact = scop.arrays[array].dtype in (value.dtype, statement.reduction.dtype)
        if is_whole and is_exact and _is_of_same(other, statement, value):
            return array
    return None


def _is_of_same(other: Statement, statement: Statement, value: Expr) -> bool:
    """Return whether *other* reduces *value*, of the elements of *statement*, as this does."""
    if len(other.indices) != len(statement.indices) or other.conditions or other.value is None:
        return False
    names = dict(zip(other.indices, map(Index, statement.indices), strict=True))
    own = rewrite(other.value, lambda e: names.get(e.name, e) if isinstance(e, Index) else e)
    return (
        other.n_left == statement.n_left
        and tuple(other.write.subscripts) == tuple(map(Index, other.left))
        and _unconverted(own) == value
        and bool(other.domain.set_tuple_name(statement.name).is_equal(statement.domain))
    )


def as_type(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else Cast(value, dtype)


def is_companion(statement: Statement, array: str) -> bool:
    return statement.companion is not None and statement.companion.array == array


def started(scop: Scop, init: Statement, owner: str, kind: Reduction, array: str) -> Statement:
    """Return the initialisation of *array*, which *owner* reduces into."""
    name = f"{owner}_init"
    done = replace(
        init, name=name, domain=init.domain.set_tuple_name(name), value=None, reduction=kind,
        companion=None, source_name=owner,
    )  # fmt: skip
    return with_own_accesses(scop, done, array, init.write.subscripts)


def summed(
    scop: Scop, statement: Statement, name: str, kind: Reduction, value: Expr, array: str
) -> Statement:
    """Return the updates *name* of an array by *value*, for each instance of *statement*."""
    done = replace(
        statement, name=name, domain=statement.domain.set_tuple_name(name), value=value,
        reduction=kind, companion=None, arg_origin=0, source_name=name,
    )  # fmt: skip
    return with_own_accesses(scop, done, array, statement.write.subscripts)


def assigned(scop: Scop, init: Statement, name: str, value: Expr) -> Statement:
    """Return the statement *name* that stores *value* where *init* stored -1."""
    done = replace(
        init, name=name, domain=init.domain.set_tuple_name(name), kind=Kind.ASSIGN,
        value=as_type(value, scop.arrays[init.write.array].dtype), reduction=None, companion=None,
    )  # fmt: skip
    return with_own_accesses(scop, done, init.write.array, init.write.subscripts)
