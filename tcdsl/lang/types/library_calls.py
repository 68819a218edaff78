"""``C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, B)``: a library is to compute the statement.

What it computes is what the statement says; the name says who.  The statement must be a matrix
product by its indices, each of which is in two of the three tensors, or in all of them:

    batch   C  A  B     rows   C  A     columns   C  B     terms   A  B

Whether the strides are those of matrices is known at a call (strategies/matrix_products).

``Y(n,f,p) +=! (inside ? X(n,c,p+r-1) : 0) * W(f,c,r) <=> cudnn(X, W)``: a convolution, or a
gradient of one.  That it is one is known at a call, too (strategies/convolutions).
"""

from collections.abc import Mapping

from tcdsl.errors import NOT_THE_LIBRARYS
from tcdsl.lang.comprehension import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Operator,
    Select,
    Statement,
)
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.syntax import ast
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    DType,
)
from tcdsl.lang.types.elaborate import Scope

# Name -> the targets that have it; on others the statement is compiled like any other.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cublas": ("cuda", "emulate"), "cudnn": ("cuda", "emulate"), "blas": ("cpu",),
}  # fmt: skip
CONVOLVING = "cudnn"

# Types of operands -> of their sums.
TYPES = {FLOAT32: FLOAT32, FLOAT64: FLOAT64, FLOAT16: FLOAT32, BFLOAT16: FLOAT32}
# What others are computed in: an error names the operand's type, not that it is converted.
_NARROW = {
    *((INT32, narrow) for narrow in (INT8, UINT8, INT16, UINT16)),
    *((FLOAT32, narrow) for narrow in (FLOAT8_E4M3, FLOAT8_E5M2)),
}


def named_library(stmt: ast.Assign, typed: Statement, scope: Scope) -> str:
    """Return the library that *stmt* names, "" if none.

    :raises SemanticError: (TC094) the statement is no product of the library's.
    """
    select = stmt.size_select
    if select is None or select.id in scope.tensors:
        return ""
    operands = [arg.id if isinstance(arg, ast.Name) else "" for arg in select.args]
    why_not = _why_not_convolution if select.id == CONVOLVING else why_not_product
    if reason := why_not(typed) or _why_not_named(typed, operands):
        what, advice = reason
        call = f"{select.id}({', '.join(scope.text(arg.span) for arg in select.args)})"
        raise NOT_THE_LIBRARYS(
            scope.source, select.id_span, call=call, what=what, advice=advice
        )  # fmt: skip
    return select.id


Reason = tuple[str, str]  # what is wrong, and what to do
_DROP = "drop the '<=>': tcdsl compiles the statement itself"


def factors_of(value: Expr) -> tuple[Load, Load] | None:
    """Return the two loads that *value* multiplies, or None.

    Only conversions that keep every value are left out: a library multiplies what is in memory.
    """
    if not (isinstance(value, Binary) and value.op == "*"):
        return None
    left, right = _loaded(value.left), _loaded(value.right)
    return (left, right) if isinstance(left, Load) and isinstance(right, Load) else None


def operands_of(value: Expr) -> tuple[Load, Load] | None:
    """Return the two loads that *value* multiplies, each perhaps 0 under a condition, or None."""
    if not (isinstance(value, Binary) and value.op == "*"):
        return None
    left, right = (_loaded(_guarded(side)) for side in (value.left, value.right))
    return (left, right) if isinstance(left, Load) and isinstance(right, Load) else None


def _guarded(expr: Expr) -> Expr:
    """Return what *expr* is, if it is 0 where a condition does not hold."""
    match expr:
        case Cast(operand=Select() as inner):
            return _guarded(inner)
        case Select(if_true=value, if_false=other):
            zero = _loaded(other)
            return _guarded(value) if isinstance(zero, Const) and zero.value == 0 else expr
    return expr


def _loaded(expr: Expr) -> Expr:
    """Return what *expr* converts, if its type holds every value of that."""
    while isinstance(expr, Cast) and _holds(expr.dtype, expr.operand.dtype):
        expr = expr.operand
    return expr


def _holds(dtype: DType, narrow: DType) -> bool:
    return (
        dtype == narrow
        or (dtype in (FLOAT32, FLOAT64) and narrow.is_half)
        or ((dtype, narrow) == (FLOAT64, FLOAT32))
        or (dtype, narrow) in _NARROW
    )


def why_not_product(statement: Statement) -> Reason | None:
    """Return why *statement* is no sum of products of two tensors by its indices, or None."""
    factors, what = factors_of(statement.value), "the product is not a matrix product"
    if reason := _why_not_multiplied(statement, factors, what, "it is not of two tensors alone"):
        return reason
    assert factors is not None, "_why_not_multiplied"
    if statement.conditions or statement.data_ranges:
        return f"{what} because conditions leave terms out", _DROP
    left, right = (set(index_names(*factor.subscripts)) for factor in factors)
    for index in statement.indices:
        places = (index in statement.left) + (index in left) + (index in right)
        if places < 2:
            names = ((factors[0].tensor, left), (factors[1].tensor, right))
            where = next((name for name, found in names if index in found), statement.target)
            alone = f"{what} because {index} is in {where} alone"
            return alone, f"sum over {index} in a statement before, or {_DROP}"
    return None


def _why_not_convolution(statement: Statement) -> Reason | None:
    """Return why *statement* is no sum of products of two tensors, or 0 outside, or None."""
    factors, what = operands_of(statement.value), "the sum is no convolution"
    others = "its terms are not of two tensors, or 0 outside"
    if reason := _why_not_multiplied(statement, factors, what, others):
        return reason
    if statement.conditions or statement.data_ranges:
        advice = f"write zeros outside, as (0 <= i && i < N ? x(i) : 0), or {_DROP}"
        return f"{what} because conditions leave terms out", advice
    return None


def _why_not_multiplied(
    statement: Statement, factors: tuple[Load, Load] | None, what: str, others: str
) -> Reason | None:
    """Return why *statement* is no sum of products of *factors* that a library knows, or None.

    :arg what: what it is not, then.
    :arg others: what its terms are where there are no such factors.
    """
    reduction = statement.reduction
    if reduction is None or reduction.operator is not Operator.ADD:
        return "the statement is no sum", f"write {statement.target}(...) +=! ..., or {_DROP}"
    if factors is None:
        advice = f"compute operands and what follows in statements of their own, or {_DROP}"
        return f"{what} because {others}", advice
    if reason := _why_not_of_types(factors, reduction.dtype):
        return f"{what} because {reason}", f"convert before, or {_DROP}"
    if statement.target in (factor.tensor for factor in factors):
        return f"{what} because it reads its result {statement.target}", _DROP
    return None


def _why_not_of_types(factors: tuple[Load, Load], summed: DType) -> str | None:
    """Return why no library multiplies *factors* and sums in type *summed*, or None.

    They are of the sums' type, or of a half type with sums of float32.
    """
    left, right = (factor.dtype for factor in factors)
    if left != right:
        return f"{factors[0].tensor} is {left} and {factors[1].tensor} is {right}"
    if left not in TYPES:
        return f"{factors[0].tensor} is {left}, not {' or '.join(map(str, TYPES))}"
    if summed != TYPES[left]:
        return f"its sums are {summed}, not {TYPES[left]}"
    return None


def _why_not_named(statement: Statement, operands: list[str]) -> Reason | None:
    """Return why *operands* are not those of the product, or None."""
    factors = operands_of(statement.value)
    assert factors is not None
    own = [factor.tensor for factor in factors]
    if operands == own:
        return None
    order = " in another order" if sorted(operands) == sorted(own) else ""
    return (
        f"the product is of {own[0]} and {own[1]}{order}",
        f"name its operands as they stand: ({', '.join(own)})",
    )
