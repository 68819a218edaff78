"""Widening: a factor of a half type beside one of float32 is converted to float32 first.

    C(m,n) +=! A(m,k) * float32(B(k,n))        A of float32, B of bfloat16
        --->
    B.wide(k,n) = float32(B(k,n))
    C(m,n) +=! A(m,k) * B.wide(k,n)            both of float32: two products of tf32

Tensor cores multiply factors of one type; without the copy such a product, as derivatives of
layers of half types have, runs on fused multiply-adds.  The conversion is exact.  An element is
used many times, and converted once.  Numbers of half types have 11 bits at most, as those of tf32
have: the copy is *narrow*, its elements have no low parts, and of the three products of parts there
are two (codegen/device/cuda/wgmma_f32).

Legal iff the copy is (``factor_copies``).
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Operator
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.factor_copies import in_copy, why_not_in_copy
from tcdsl.rewrites.scop.packing import Factor, factor_of


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
    return why_not_in_copy(scop, narrow.load.tensor, [statement.name])


def widened(scop: Scop, name: str) -> Scop:
    """Return *scop* with the factor of a half type of the sum *name* in a copy of float32."""
    assert why_not_widened(scop, scop.by_name[name]) is None
    narrow = _narrow(scop.by_name[name])
    assert narrow is not None
    array = narrow.load.tensor
    copy = f"{array}.wide{name}"
    done = in_copy(scop, array, [name], copy, FLOAT32)
    return replace(done, arrays={**done.arrays, copy: replace(done.arrays[copy], is_narrow=True)})


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
