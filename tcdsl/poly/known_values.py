"""Between which integers an array's elements lie, whatever the data: what needs no check.

    bin(i) = min(63, max(0, int32(x(i))))      bin in [0, 63]
    first(i) argmax=! p(i,j)                   first in [0, N - 1], N > 0
    lut(image(i)), image of uint8              image in [0, 255]

A gathered or scattered subscript whose values all lie within the array is checked nowhere, and
code neither guards nor clamps it: nothing then parts the loads of one iteration from the next.
What is known is interval arithmetic over values that are computed (lang/ranges/index_bounds); every
step that might leave its type wraps, so that nothing is known of it but the type.
"""

from collections.abc import Mapping
from dataclasses import replace

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Unary,
    fold,
)
from tcdsl.lang.comprehension import Statement as Written
from tcdsl.lang.ranges.index_bounds import UNKNOWN, Values, result_of
from tcdsl.lang.types.dtypes import BOOL, UINT8, DType, Kind
from tcdsl.poly.isl_utils import Extent, constant_bounds
from tcdsl.poly.scop import Access, Array, Scop, Statement

Bounds = Mapping[str, tuple[Extent, Extent]]  # index -> [lower, upper)
Named = Mapping[str, Values]  # of indices and sizes
_OPERATORS = frozenset(("+", "-", "*", "/", "%", "&", "|", "^", "~"))
_FUNCTIONS = frozenset(("min", "max", "abs", "relu", "sign"))


def with_known_values(
    arrays: Mapping[str, Array], statement: Written, named: Named
) -> Mapping[str, Array]:
    """Return *arrays* with what *statement*, which alone writes its target, tells of its values."""
    target = arrays[statement.target]
    known = None if target.is_input else _stored(statement, named, arrays)
    if known is None or not _is_within(known, range_of(target.dtype)):
        return arrays
    return {**arrays, target.name: replace(target, values=known)}


def _stored(statement: Written, named: Named, arrays: Mapping[str, Array]) -> Values | None:
    """Return between which integers what *statement* stores lies, None if that is not known.

    The place of an extreme value is counted from the first candidate; it is -1 where there is none,
    as for elements of the initialised box that no instance writes.
    """
    reduction = statement.reduction
    if not arrays[statement.target].dtype.is_integer:
        return None
    if reduction is None:
        return values_of(statement.value, named, arrays)
    is_conditional = bool(statement.conditions or statement.explicit or statement.data_ranges)
    is_whole = all(isinstance(subscript, Index) for subscript in statement.subscripts)
    is_place = reduction.operator.is_arg and reduction.initialise and len(statement.reduced) == 1
    if is_conditional or not (is_place and is_whole):
        return None
    candidates = named.get(statement.reduced[0])
    return None if candidates is None else Values(0, candidates.high - candidates.low)


def named_values(bounds: Bounds, sizes: Mapping[str, int | None]) -> Named:
    """Return the values of indices and sizes, of those that are numbers."""
    found = {name: Values(size, size) for name, size in sizes.items() if size is not None}
    for name, (low, high) in bounds.items():
        if isinstance(low, int) and isinstance(high, int) and low < high:
            found[name] = Values(low, high - 1)
    return found


def is_surely_inside(scop: Scop, statement: Statement, access: Access, dim: int) -> bool:
    """Return whether the subscript along *dim* of *access* lies within its array, for any data."""
    bounds: dict[str, tuple[Extent, Extent]] = {}
    for position, name in enumerate(statement.indices):
        found = constant_bounds(statement.domain, position)
        if found is not None:
            bounds[name] = (found[0], found[1] + 1)
    named = named_values(bounds, scop.sizes)
    return is_value_inside(
        access.subscripts[dim], scop.arrays[access.array], dim, named, scop.arrays
    )


def is_value_inside(
    subscript: Expr, array: Array, dim: int, named: Named, arrays: Mapping[str, Array]
) -> bool:
    """Return whether *subscript* lies within *array* along *dim*, indices and sizes as *named*."""
    origin, extent = array.origin[dim], array.shape[dim]
    if not (isinstance(origin, int) and isinstance(extent, int)):
        return False
    return _is_within(values_of(subscript, named, arrays), Values(origin, origin + extent - 1))


def values_of(expr: Expr, named: Named, arrays: Mapping[str, Array]) -> Values:
    """Return between which integers *expr* lies, indices and sizes as *named*."""

    def combine(node: Expr, operands: tuple[Values, ...]) -> Values:
        match node:
            case Const(value=value, dtype=dtype) if not dtype.is_float:
                return Values(int(value), int(value))
            case Index(name=name) | Size(name=name) if name in named:
                return named[name]
            case Load(tensor=name):
                own = arrays[name]
                # A caller's bool may be any byte.
                return own.values or range_of(UINT8 if own.dtype == BOOL else own.dtype)
        every = range_of(node.dtype)
        found = _result(node, operands)
        return found if _is_within(found, every) else every

    return fold(expr, combine)


def range_of(dtype: DType) -> Values:
    """Return the integers of *dtype*; of a float any."""
    if dtype == BOOL:
        return Values(0, 1)
    bits = 8 * dtype.size_bytes
    if dtype.kind is Kind.UNSIGNED:
        return Values(0, 2**bits - 1)
    return Values(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_integer else UNKNOWN


def _result(node: Expr, operands: tuple[Values, ...]) -> Values:
    """Return the values of *node* in exact integers, if it is an operation on them."""
    if not node.dtype.is_integer:
        return UNKNOWN
    match node:
        case Cast():
            return operands[0]
        case Select():
            return result_of(node, operands[1:])
        case Unary(op=op) | Binary(op=op) if op in _OPERATORS:
            return result_of(node, operands)
        case Call(function=function) if function in _FUNCTIONS:
            return result_of(node, operands)
    return UNKNOWN


def _is_within(one: Values, other: Values) -> bool:
    return other.low <= one.low and one.high <= other.high
