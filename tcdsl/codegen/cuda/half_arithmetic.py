"""Sums, differences and products of two halves that are rounded to their type: one instruction.

    d = (bfloat16)((float)c + (float)b)     --->     d = tc_add_bf16(c, b)

The result is the same: float32 has 24 bits, two more than twice the 11 of float16 (8 of bfloat16),
so that rounding to it first changes no sum, difference or product (S. A. Figueroa, "When is double
rounding innocuous?", SIGNUM Newsletter 30(3), 1995, doi:10.1145/221332.221334).  Products of
bfloat16 below 2^-126 alone may differ, by the smallest number: of these float32 has fewer bits.

CUDA's compiler makes one instruction of two neighbours, where float32 takes eight: two conversions
of each operand, two sums, two roundings.
"""

from tcdsl.codegen.c.expressions import suffix
from tcdsl.lang.comprehension import Binary, Cast, Expr
from tcdsl.lang.types.dtypes import FLOAT32, DType

_NAMES = {"+": "add", "-": "sub", "*": "mul"}


def half_operation(value: Expr | None, dtype: DType) -> tuple[str, Expr, Expr] | None:
    """Return the function of the device library that rounds *value* to *dtype*, and its operands.

    None if it is nothing of two numbers of that type.
    """
    if not dtype.is_half or not isinstance(value, Binary) or value.op not in _NAMES:
        return None
    operands = value.left, value.right
    halves = [one.operand for one in operands if isinstance(one, Cast) and one.dtype == FLOAT32]
    if len(halves) < len(operands) or any(half.dtype != dtype for half in halves):
        return None
    return f"tc_{_NAMES[value.op]}_{suffix(dtype)}", halves[0], halves[1]
