"""Widening: a factor of a half type beside one of float32 is converted to float32 first.

    C(m,n) +=! A(m,k) * float32(B(k,n))        A of float32, B of bfloat16
        --->
    B.wide(k,n) = float32(B(k,n))
    C(m,n) +=! A(m,k) * B.wide(k,n)            both of float32: three products of tf32

Tensor cores multiply factors of one type; without the copy such a product, as derivatives of
layers of half types have, runs on fused multiply-adds.  The conversion is exact.  An element is
used many times, and converted once.

Legal iff the reads are exact, and nothing writes the operand before the sum.
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Cast, Expr, Load, Operator
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.caching import Buffer, cache_read
from tcdsl.rewrites.scop.packing import Factor, factor_of
from tcdsl.rewrites.scop.repacking import why_not_worth_copies, wide_strides


def why_not_widened(scop: Scop, statement: Statement) -> str | None:
    """Return why no factor of *statement* is converted first, or None."""
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return "it is no reduction"
    if reduction.operator is not Operator.ADD:
        return "it is no sum"
    narrow = _narrow(statement)
    if narrow is None:
        return "it is no product of an element of a half type and one of float32"
    return why_not_worth_copies(scop, statement, [narrow.load.tensor])


def widened(scop: Scop, name: str) -> Scop:
    """Return *scop* with the factor of a half type of the sum *name* in a copy of float32."""
    assert why_not_widened(scop, scop.by_name[name]) is None
    narrow = _narrow(scop.by_name[name])
    assert narrow is not None
    array = narrow.load.tensor
    cached = cache_read(scop, array, {name: ()}, Buffer(f"{array}.wide{name}"))
    tile = cached.scop.arrays[cached.array]
    shape = [extent for extent in tile.shape if isinstance(extent, int)]
    wide = replace(tile, dtype=FLOAT32, strides=wide_strides(shape, FLOAT32))

    def as_wide(node: Expr) -> Expr:
        match node:
            case Load(tensor=wide.name):
                return replace(node, dtype=FLOAT32)
            case Cast(operand=Load(tensor=wide.name) as load, dtype=dtype) if dtype == FLOAT32:
                return load
        return node

    statements = []
    for statement in cached.scop.statements:
        value = statement.value
        if value is not None and any(w.array == wide.name for w in statement.writes):
            statement = replace(statement, value=Cast(value, FLOAT32))
        elif value is not None and any(r.array == wide.name for r in statement.reads):
            statement = replace(statement, value=rewrite(value, as_wide))
        statements.append(statement)
    arrays = {**cached.scop.arrays, wide.name: wide}
    return replace(cached.scop, arrays=arrays, statements=tuple(statements))


def _narrow(statement: Statement) -> Factor | None:
    """Return the factor of a half type of a product with one of float32, or None."""
    value = statement.value
    if not (isinstance(value, Binary) and value.op == "*" and value.dtype == FLOAT32):
        return None
    factors = factor_of(value.left), factor_of(value.right)
    if None in factors:
        return None
    found = [factor for factor in factors if factor is not None and factor.load.dtype.is_half]
    others = [factor for factor in factors if factor is not None and factor.load.dtype == FLOAT32]
    return found[0] if len(found) == len(others) == 1 else None
