"""Values made of indices and sizes: exact integers, in 32 bits only where these hold them.

    float64(i * N + j)   --->   i, N and j in 64 bits, where i * N + j may exceed 2^31 - 1
    y(i) = i             --->   y(i) = int32(int64(i)), where i may

An *index value* is an int32 expression of indices, sizes and integers alone.  It is computed as by
64-bit integers, whatever the sizes are; where an int32 is asked for (beside an int32 tensor's
elements, or as a result), it wraps as any conversion does.  At given ranges most fit 32 bits, and
so does every step of their computation: those are left as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import (
    INT32,
    INT64,
    Binary,
    Call,
    Cast,
    Comprehension,
    Const,
    Expr,
    Index,
    IndexBounds,
    Let,
    Load,
    Select,
    Size,
    Statement,
    Unary,
    fold,
)
from tcdsl.lang.ranges.index_bounds import UNKNOWN, Values, result_of
from tcdsl.lang.ranges.open_sizes import AnySpecialisation, Extent, OpenRange, context_of
from tcdsl.lang.rewrite import with_operands
from tcdsl.lang.types.dtypes import Kind
from tcdsl.lang.types.head import MAX_OPEN
from tcdsl.records import dataclass

Leaves = Callable[[Index | Size], Values]

_OPERATORS = frozenset(("+", "-", "*", "/", "%", "&", "|", "^"))
_SHIFTS = frozenset(("<<", ">>"))
_FUNCTIONS = frozenset(("min", "max", "abs", "relu", "sign"))
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))


@dataclass(frozen=True, slots=True)
class Part:
    """An expression: *narrow* is its value in its own type.

    Of an index value (and of an integer, which may be part of one) *wide* is the exact value, and
    *values* are those that it takes; *fits* if 32 bits hold it and all that it is computed from.
    """

    narrow: Expr
    wide: Expr | None = None
    values: Values = UNKNOWN
    fits: bool = True
    has_index: bool = False

    @property
    def exact(self) -> Expr:
        """The exact value, in 32 bits if they hold it."""
        return self.narrow if self.wide is None or self.fits else self.wide

    @property
    def must_widen(self) -> bool:
        return self.has_index and not self.fits


def is_index_operation(node: Expr, operands: tuple[Part, ...]) -> bool:
    """Return whether *node* makes an index value of those that its operands are."""
    if node.dtype != INT32:
        return False
    match node:
        case Binary(op=op, right=Const(value=count)) if op in _SHIFTS:
            return operands[0].wide is not None and 0 <= count < 31
        case Binary(op=op) if op not in _OPERATORS:
            return False
        case Unary() | Binary():
            pass
        case Call(function=function):
            if function not in _FUNCTIONS:
                return False
        case Select():
            operands = operands[1:]
        case _:
            return False
    return all(operand.wide is not None for operand in operands)


def part_of(expr: Expr, leaves: Leaves | None) -> Part:
    """Return *expr* with its index values exact.

    :arg leaves: the values of an index or a size; None: no index value is known to fit 32 bits.
    """
    return fold(expr, lambda node, operands: _part(node, operands, leaves))


def _part(node: Expr, operands: tuple[Part, ...], leaves: Leaves | None) -> Part:
    match node:
        case Const(value=value, dtype=dtype) if dtype == INT32:
            own = Values(int(value), int(value), is_attained=True)
            return Part(node, replace(node, dtype=INT64), own, own.fits)
        case Index() | Size() if node.dtype == INT32:
            own = UNKNOWN if leaves is None else leaves(node)
            wide = replace(node, dtype=INT64)
            narrow = node if own.fits else Cast(wide, INT32, node.span)
            return Part(narrow, wide, own, own.fits, has_index=True)
        case Load():
            return Part(with_operands(node, tuple(part.exact for part in operands)))
        case Cast() if operands[0].must_widen and operands[0].wide is not None:
            return Part(replace(node, operand=operands[0].wide))
        case Binary(op=op) if op in _COMPARISONS and any(part.must_widen for part in operands):
            left, right = (_wide(part) for part in operands)
            return Part(replace(node, left=left, right=right))
    plain = with_operands(node, tuple(part.narrow for part in operands))
    if not is_index_operation(node, operands):
        return Part(plain)
    return _operation(node, plain, operands)


def _operation(node: Expr, plain: Expr, operands: tuple[Part, ...]) -> Part:
    """Return the part of an index operation; *plain* is it over the operands as they are."""
    chosen = operands[1:] if isinstance(node, Select) else operands
    wides = tuple(part.wide for part in chosen if part.wide is not None)
    if isinstance(node, Select):
        wides = (operands[0].narrow, *wides)
    wide = replace(with_operands(node, wides), dtype=INT64)
    values = result_of(node, tuple(part.values for part in chosen))
    fits = values.fits and all(part.fits for part in chosen)
    has_index = any(part.has_index for part in chosen)
    narrow = Cast(wide, INT32, node.span) if has_index and not fits else plain
    return Part(narrow, wide, values, fits, has_index)


def _wide(part: Part) -> Expr:
    """Return *part*, an int32, as an int64."""
    return Cast(part.narrow, INT64, part.narrow.span) if part.wide is None else part.wide


def is_index_value(expr: Expr) -> bool:
    """Return whether *expr* is an int32 of indices and sizes (one at least) and integers alone."""
    return id(expr) in index_values_in(expr)


def index_values_in(expr: Expr) -> frozenset[int]:
    """Return the ids of the nodes of *expr* that are index values."""
    found: set[int] = set()

    def part(node: Expr, operands: tuple[Part, ...]) -> Part:
        made = _part(node, operands, None)
        if made.has_index and made.wide is not None:
            found.add(id(node))
        return made

    fold(expr, part)
    return frozenset(found)


def exact_subscript(expr: Expr) -> Expr:
    """Return the subscript *expr* with its sums in 64 bits: index arithmetic does not wrap.

        T(a(i) * 2 + j)   --->   T(int64(a(i)) * 2 + int64(j)), where a is of int32

    These are signed sums, differences and products, and choices of them, that are no operand of
    another operation; a quotient or a minimum of data is computed in its own type.
    """
    match expr:
        case Binary(op="+" | "-" | "*") if _is_signed(expr):
            left, right = exact_subscript(expr.left), exact_subscript(expr.right)
            return replace(expr, left=left, right=right, dtype=INT64)
        case Unary(op="-") if _is_signed(expr):
            return replace(expr, operand=exact_subscript(expr.operand), dtype=INT64)
        case Select(if_true=yes, if_false=no):
            yes, no = exact_subscript(yes), exact_subscript(no)
            return replace(expr, if_true=yes, if_false=no, dtype=INT64)
        case Cast(operand=operand) if _is_signed(expr) and _is_signed(operand):
            if expr.dtype.size_bytes >= operand.dtype.size_bytes:
                return exact_subscript(operand)
    return expr if expr.dtype == INT64 else Cast(expr, INT64, expr.span)


def _is_signed(expr: Expr) -> bool:
    return expr.dtype.kind is Kind.SIGNED


# --- statements ----------------------------------------------------------------------------------
def with_exact_indices(c: Comprehension) -> Comprehension:
    """Return *c* with all its index values in 64 bits: what it means, at any sizes."""
    return replace(c, statements=tuple(_rewritten(s, None) for s in c.statements))


def with_wide_indices(c: Comprehension, special: AnySpecialisation) -> Comprehension:
    """Return *c* with those index values in 64 bits that may leave 32 at the sizes of *special*."""
    statements = tuple(
        _rewritten(s, leaves_in(ranges, special))
        for s, ranges in zip(c.statements, special.ranges, strict=True)
    )
    if all(new is old for new, old in zip(statements, c.statements, strict=True)):
        return c
    return replace(c, statements=statements)


def _rewritten(statement: Statement, leaves: Leaves | None) -> Statement:
    def narrow(expr: Expr) -> Expr:
        return part_of(expr, leaves).narrow

    def exact(expr: Expr) -> Expr:
        return part_of(expr, leaves).exact

    def ranges(clauses: tuple[IndexBounds, ...]) -> tuple[IndexBounds, ...]:
        return tuple(IndexBounds(b.index, exact(b.lower), exact(b.upper), b.span) for b in clauses)

    new = replace(
        statement,
        subscripts=tuple(map(exact, statement.subscripts)),
        value=narrow(statement.value),
        conditions=tuple(map(narrow, statement.conditions)),
        bounds=tuple(map(exact, statement.bounds)),
        explicit=ranges(statement.explicit),
        data_ranges=ranges(statement.data_ranges),
        lets=tuple(Let(let.name, narrow(let.value)) for let in statement.lets),
    )
    return statement if _expressions(new) == _expressions(statement) else new


def _expressions(s: Statement) -> tuple[object, ...]:
    return (s.subscripts, s.value, s.conditions, s.bounds, s.explicit, s.data_ranges)


def leaves_in(
    ranges: Mapping[str, range | OpenRange], special: AnySpecialisation, is_box: bool = False
) -> Leaves:
    """Return the values that the indices of a statement with these *ranges*, and sizes, take.

    :arg is_box: whether its instances are all points of the ranges.
    """

    def leaf(node: Index | Size) -> Values:
        if isinstance(node, Size):
            size = special.sizes[node.name]
            return Values(0, MAX_OPEN) if size is None else Values(size, size, is_attained=True)
        found = ranges[node.name]
        if isinstance(found, range):
            ends = (found.start, found.stop - 1) if found else (0, 0)
            return Values(*ends, is_attained=is_box, names=frozenset((node.name,)))
        lower, upper = _extreme(found.start, special, -1), _extreme(found.stop, special, 1)
        return UNKNOWN if lower is None or upper is None else Values(lower, upper - 1)

    return leaf


def _extreme(extent: Extent, special: AnySpecialisation, sign: int) -> int | None:
    """Return the largest (*sign* 1) or the smallest (-1) value of *extent*, None if unbounded."""
    if isinstance(extent, int):
        return extent
    sizes = context_of(special)
    for position in range(sizes.dim(isl.dim_type.param)):
        sizes = sizes.upper_bound_val(isl.dim_type.param, position, isl.Val(MAX_OPEN))
    function = extent.intersect_params(sizes)
    value = (function if sign > 0 else function.neg()).max_val()
    return sign * int(value.to_python()) if value.is_int() else None
