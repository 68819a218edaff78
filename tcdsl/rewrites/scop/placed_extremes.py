"""The place of an extreme value as a part of the value: one maximum of integers of 64 bits.

    y(j) argmax=! x(i,j)      --->      best(j) max=! placed_max(x(i,j), i)
                                        y(j) = place_of(best(j))

    placed_max(x, i) = rank(x) * 2^32 + (2^32 - 1 - i)     place_of(b) = 2^32 - 1 - b % 2^32

An argmax keeps pairs, which no reduction in parts has (``rfactor``): rows and columns of a product
are reduced while its results are in registers (``strategies/tile_folds``) where they are sums and
extremes.  A maximum of such numbers is one.  The rank is an integer of 32 bits that is ordered as x
is, with 0 for both zeros and the largest for NaN, and its complement for an argmin; of equal ranks
the first place is the largest number.  What nothing was compared with is -2^63, whose place is -1.

Legal iff values are compared as float32 or int32 and places have 32 bits.  Worth it where x is what
a product computes: elsewhere threads compare pairs in fewer instructions.
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Call, Const, Index, Load, Operator, Reduction
from tcdsl.lang.types.dtypes import FLOAT32, INT32, INT64
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, in_place_of, loads_of
from tcdsl.rewrites.scop.extreme_places import (
    as_type,
    assigned,
    is_companion,
    place_type,
    started,
    summed,
    why_no_place,
)
from tcdsl.rewrites.scop.rfactor import initialisation

RANKED = (FLOAT32, INT32)


def why_not_placed(scop: Scop, statement: Statement) -> str | None:
    """Return why the place that *statement* finds is no part of its value, or None."""
    if reason := why_no_place(scop, statement):
        return reason
    reduction = statement.reduction
    assert reduction is not None
    if reduction.dtype not in RANKED or place_type(statement) != INT32:
        return "a value and its place have more than 64 bits"
    if initialisation(scop, statement) is None:
        return "it begins with what its target holds"
    return None if _is_of_product(scop, statement) else "its terms are not what a product computes"


def _is_of_product(scop: Scop, statement: Statement) -> bool:
    """Return whether *statement* reads what a product computes, at once or through others."""
    assert statement.value is not None
    wanted, seen = [load.tensor for load in loads_of(statement.value)], set[str]()
    while wanted:
        array = wanted.pop()
        seen.add(array)
        for writer in scop.statements:
            if writer is statement or all(w.array != array for w in writer.writes):
                continue
            reads = {read.array for read in writer.reads} - {array}
            if writer.kind is Kind.UPDATE and writer.reduced and len(reads) > 1:
                return True
            wanted += [] if writer.reduced else reads - seen
    return False


def with_place(scop: Scop, name: str) -> Scop:
    """Return *scop* with the place that the statement *name* finds as a part of the value."""
    statement = scop.by_name[name]
    assert why_not_placed(scop, statement) is None
    init = initialisation(scop, statement)
    reduction, value, origin = statement.reduction, statement.value, statement.arg_origin
    assert init is not None and reduction is not None and value is not None
    assert isinstance(origin, int)
    arrays = {n: a for n, a in scop.arrays.items() if not is_companion(statement, n)}
    target, best = arrays[statement.write.array], f"{name}.placed"
    arrays[best] = Array(best, INT64, target.origin, target.shape, Storage.SCRATCH)
    wider = replace(scop, arrays=arrays)
    where = as_type(Index(statement.reduced[0]), INT32)
    if origin:
        where = Binary("-", where, Const(origin, INT32), INT32)
    way = "max" if reduction.operator is Operator.ARGMAX else "min"
    term = Call(f"placed_{way}", (as_type(value, reduction.dtype), where), INT64)
    largest = Reduction(Operator.MAX, True, INT64)
    place = Call("place_of", (Load(best, init.write.subscripts, INT64),), INT64)
    made = [
        started(wider, init, f"{name}_placed", largest, best),
        summed(wider, statement, f"{name}_placed", largest, term, best),
        assigned(wider, init, name, place),
    ]
    return in_place_of(wider, (statement, init), made)
