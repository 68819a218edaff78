"""Computed factors: what a product multiplies is computed once an element, not once a use.

    C(m,n) +=! fmax(A(m,k), 0) * B(k,n)             F(m,k) = fmax(A(m,k), 0)
                                           --->     C(m,n) +=! F(m,k) * B(k,n)

    C(m,n) +=! A(i(m),k) * float32(W(k,n))          F(m,k) = A(i(m),k),  G(k,n) = bfloat16(W(k,n))
                                           --->     C(m,n) +=! F(m,k) * G(k,n)

Tensor cores multiply elements of one type as they lie in memory.  A factor that is not one is
computed into an array of its own, over the indices that it mentions: of a half type that holds its
values exactly, if the other factor has one too (relu, masks, signs; int8 and float8 beside
bfloat16), else of float32, and the other one with it.  Of sums of int32 it is int8 or uint8, of
those of float64 that type.  Every element is used many times.

A window is computed once an element, too: with u = h+r and v = w+s

    O(h,w,f) +=! relu(I(h+r,w+s,c)) * K(f,r,s,c)    F(u,v,c) = relu(I(u,v,c))
                                           --->     O(h,w,f) +=! F(h+r,w+s,c) * K(f,r,s,c)

What is 0 around an image is such a factor, (h+r > 0 && .. ? I(h+r-1,..) : 0), if it is neither of a
half type nor of float32: tiles of those have the zeros (``templates/tile_implicit``).

Legal iff the sum's instances are a box, each index of a factor is a subscript, in one that is
gathered by, or only in subscripts that are windows, it has far fewer values than the sum has
instances, and the sum does not write what it reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import frexp, isinf, prod

import islpy as isl
import numpy as np

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Unary,
    indices_in,
    walk,
)
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    UINT8,
    DType,
)
from tcdsl.lang.types.dtypes import Kind as TypeKind
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.isl_utils import constant_bounds, points_of_box
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.packing import factor_of
from tcdsl.rewrites.scop.repacking import LEAST_USES, wide_strides
from tcdsl.rewrites.scop.stored_operands import Operand, Stored, over_windows, stored

# Of a type: bits of a number, the least and greatest exponents of normal ones, from 1/2 on.
_NUMBERS = {BFLOAT16: (8, -125, 128), FLOAT16: (11, -13, 16), FLOAT32: (24, -125, 128)}
_SUMS = (FLOAT32, INT32, FLOAT64)  # that tensor cores make
_SELECTING = ("max", "min", "relu")  # an argument, or 0
_PICKING = ("fmax", "fmin", "fabs", "relu", "max", "min", "abs")  # an argument, or its negation


@dataclass(frozen=True, slots=True)
class Computed:
    """A factor, and the type in which it is multiplied."""

    operand: Operand
    dtype: DType


def why_not_computed_first(scop: Scop, statement: Statement) -> str | None:
    """Return why no factor of *statement* is computed first, or None."""
    if reason := why_not_computed(scop, statement):
        return reason
    found = computed_factors(scop, statement)
    if any(_is_used_little(scop, statement, factor) for factor in found):
        return "its factors are used a few times"
    return None


def why_not_computed(scop: Scop, statement: Statement) -> str | None:
    """Return why no factor of *statement* is an array of its own, or None."""
    reduction, value = statement.reduction, statement.value
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return "it is no reduction"
    is_product = isinstance(value, Binary) and value.op == "*" and value.dtype in _SUMS
    if reduction.operator is not Operator.ADD or not is_product:
        return "it is no sum of products of a type that tensor cores add"
    if statement.conditions:
        return "a condition says which terms there are"
    if points_of_box(statement.domain) is None or not statement.domain.is_box():
        return "its instances are no box of a known size"
    found = computed_factors(scop, statement)
    if not found:
        return "its factors are elements as they are multiplied"
    for factor in found:
        if reason := _why_not(statement, factor.operand):
            return reason
    return None


def computed_first(scop: Scop, name: str) -> Scop:
    """Return *scop* with the factors of the sum *name* that are no elements in arrays."""
    assert why_not_computed_first(scop, scop.by_name[name]) is None
    return with_factors(scop, name, "factor")


def with_factors(scop: Scop, name: str, what: str) -> Scop:
    """Return *scop* with such factors in arrays, which are called *what* they are."""
    statement, found = scop.by_name[name], list[Stored]()
    for number, factor in enumerate(computed_factors(scop, statement)):
        operand = factor.operand
        own = _ranges(scop, statement, operand.subscripts)
        shape = tuple(end - low for low, end in own)
        label = f"{operand.tensor}.{what}{number}{name}"
        origin, strides = tuple(low for low, _ in own), wide_strides(shape, factor.dtype)
        array = Array(label, factor.dtype, origin, shape, Storage.SCRATCH, strides=strides)
        found.append((operand, array, f"{label}_copy"))
    return stored(scop, name, found)


# --- which factors ---------------------------------------------------------------------------


def computed_factors(scop: Scop, statement: Statement) -> list[Computed]:
    """Return the factors of *statement* that are no elements of the type that is multiplied."""
    return list(_computed(scop, statement))


def _computed(scop: Scop, statement: Statement) -> Iterator[Computed]:
    """Yield the factors of *statement* that are no elements of the type that is multiplied."""
    value = statement.value
    assert isinstance(value, Binary)
    factors = (value.left, value.right)
    if value.dtype == INT32:
        yield from _of_integers(scop, statement, factors)
        return
    dtype = value.dtype if value.dtype == FLOAT64 else _type_of(factors)
    is_exact = {read.array: read.is_exact for read in statement.reads}
    elements = [_element(factor, is_exact) for factor in factors]
    types = {element.dtype for element in elements if element is not None}
    if None not in elements and (types == {dtype} or not dtype.is_half):
        return  # `widening` is for those of float32
    # A square's factors are one.
    for factor, element in dict(zip(factors, elements, strict=True)).items():
        if not any(isinstance(node, Load) for node in walk(factor)):
            return
        if element is None or element.dtype != dtype:
            yield _in_dims(scop, factor, dtype)


def _of_integers(scop: Scop, statement: Statement, factors: Sequence[Expr]) -> Iterator[Computed]:
    """Yield those of *factors* that are no elements; nothing, if bytes do not hold one of them."""
    gathered = {read.array for read in statement.reads if not read.is_exact}
    types = [next((t for t in (INT8, UINT8) if _holds(f, t)), None) for f in factors]
    for factor, dtype in dict(zip(factors, types, strict=True)).items():
        element = _uncast(factor)
        if isinstance(element, Load) and element.tensor not in gathered:
            continue
        if dtype is None or None in types:
            return
        if any(isinstance(node, Load) for node in walk(factor)):
            yield _in_dims(scop, factor, dtype)


def _element(factor: Expr, is_exact: Mapping[str, bool]) -> Load | None:
    """Return the float that *factor* is, in whatever type it is converted to, or None.

    :arg is_exact: whether elements of an array are read where they lie.
    """
    element = _uncast(factor)
    is_read = isinstance(element, Load) and element.dtype.is_float and is_exact[element.tensor]
    return element if isinstance(element, Load) and is_read else None


def _uncast(factor: Expr) -> Expr:
    """Return what *factor* is, whatever exact conversions are made of it."""
    while isinstance(factor, Cast) and _holds(factor.operand, factor.dtype):
        factor = factor.operand
    return factor


def _type_of(factors: Sequence[Expr]) -> DType:
    """Return the type that factors are multiplied in: a half type that holds both, or float32."""
    halves = [dtype for dtype in (BFLOAT16, FLOAT16) if all(_holds(f, dtype) for f in factors)]
    stored = [factor.dtype for factor in map(_uncast, factors) if isinstance(factor, Load)]
    return next((dtype for dtype in halves if dtype in stored), (*halves, FLOAT32)[0])


def _holds(expr: Expr, dtype: DType) -> bool:
    """Return whether *dtype* has every value of *expr*."""
    if dtype.is_integer and not _is_integer_held(expr):
        return False
    match expr:
        case Load():
            return _is_within(expr.dtype, dtype)
        case Const(value=value):
            return _has_number(dtype, float(value))
        case Cast(operand=inner):
            # Other conversions than exact ones wrap, saturate, truncate or round up.
            is_exact = _holds(inner, expr.dtype)
            return _is_within(expr.dtype, dtype) or (is_exact and _holds(inner, dtype))
        case Unary(op="-", operand=Const(value=value)):
            return _has_number(dtype, -float(value))
        case Unary(op="-", operand=inner):
            return _holds(inner, dtype)
        case Select(if_true=one, if_false=other):
            return _holds(one, dtype) and _holds(other, dtype)
        case Call(function=function, args=args) if function in _PICKING:
            return all(_holds(argument, dtype) for argument in args)
    return _is_within(expr.dtype, dtype)


def _is_integer_held(expr: Expr) -> bool:
    """Return whether *expr* may be held as its operands are: -128 has no negation in int8."""
    match expr:
        case Call(function=function):
            return function in _SELECTING
        case Unary(operand=operand):
            return isinstance(operand, Const)
    return isinstance(expr, Load | Const | Cast | Select)


def _has_number(dtype: DType, value: float) -> bool:
    """Return whether *dtype* has *value*, as a normal number."""
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return value.is_integer() and info.min <= value <= info.max
    if value == 0 or (isinf(value) and dtype.has_infinities):
        return True
    bits, least, most = _NUMBERS.get(dtype, (0, 0, 0))
    fraction, exponent = frexp(value)
    return least <= exponent <= most and (fraction * 2.0**bits).is_integer()


def _is_within(dtype: DType, other: DType) -> bool:
    """Return whether the type *other* has every value of *dtype*."""
    if dtype == other:
        return True
    is_wider = dtype.size_bytes < other.size_bytes
    if dtype.is_integer and other.is_integer:
        return is_wider and (dtype.kind == TypeKind.UNSIGNED or other.kind == TypeKind.SIGNED)
    if not (dtype.is_float and other.is_float):  # up to 256 in eight bits
        return is_wider and dtype in (INT8, UINT8) and other.is_float
    return is_wider


def _in_dims(scop: Scop, factor: Expr, dtype: DType) -> Computed:
    """Return *factor* with the dimensions of its array: those of its largest element last."""
    main, found = main_load(scop, factor), dict[Expr, str]()
    taken = indices_in(factor)
    for number, subscript in enumerate(main.subscripts):
        if _is_window(subscript):
            found[subscript] = fresh_name(f"e{number}", taken)
        else:
            found |= {n: n.name for n in walk(subscript) if isinstance(n, Index)}
    inside = indices_in(*found)
    others = {n: n.name for n in walk(factor) if isinstance(n, Index) and n.name not in inside}
    dims = others | found
    value = over_windows(factor, dims)
    return Computed(Operand(factor, main.tensor, tuple(dims), tuple(dims.values()), value), dtype)


def _is_window(subscript: Expr) -> bool:
    """Return whether *subscript* is computed of several indices, and gathers nothing."""
    nodes = list(walk(subscript))
    names = {node.name for node in nodes if isinstance(node, Index)}
    return len(names) > 1 and not any(isinstance(node, Load) for node in nodes)


def main_load(scop: Scop, factor: Expr) -> Load:
    """Return the load of *factor* that is of the most dimensions, none of what is gathered by.

    Of those the one with the most indices for subscripts: a scale s(n, k / 32) has fewer elements.
    """
    loads = [node for node in walk(factor) if isinstance(node, Load)]
    gathers = _gathers(loads)
    own = [load for load in loads if load not in gathers]

    def size_of(load: Load) -> tuple[int, int, bool]:
        plain = sum(isinstance(subscript, Index) for subscript in load.subscripts)
        return scop.arrays[load.tensor].rank, plain, load.dtype.is_float

    return max(own, key=size_of)


def _gathers(loads: Sequence[Load]) -> list[Load]:
    """Return those of *loads* that are subscripts, or parts of such."""
    nodes = (node for load in loads for s in load.subscripts for node in walk(s))
    return [node for node in nodes if isinstance(node, Load)]


def _why_not(statement: Statement, factor: Operand) -> str | None:
    loads = [node for node in walk(factor.expr) if isinstance(node, Load)]
    if any(load.tensor == statement.write.array for load in loads):
        return f"it updates {statement.write.array}"
    if not factor.dims:
        return "a factor is one number, whatever the indices"
    if not indices_in(factor.value) <= set(factor.dims):
        return "an index of a factor is in a window, and elsewhere"
    guarded = factor_of(factor.expr)
    if guarded is not None and any(map(_is_window, factor.subscripts)):
        stored = guarded.load.dtype
        if stored.is_half or stored == FLOAT32:
            return "its factors are windows, or 0"
    return None


def _is_used_little(scop: Scop, statement: Statement, factor: Computed) -> bool:
    """Return whether each value of *factor* is multiplied a few times."""
    instances = points_of_box(statement.domain)
    values = prod(end - low for low, end in _ranges(scop, statement, factor.operand.subscripts))
    return instances is not None and instances < LEAST_USES * values


def _ranges(scop: Scop, statement: Statement, subscripts: Sequence[Expr]) -> list[tuple[int, int]]:
    """Return the range [from, to) of each of *subscripts* over the instances of *statement*."""
    builder, found = builder_of(statement.indices, statement.name, scop.sizes), []
    for subscript in subscripts:
        function = builder.affine(subscript)
        assert function is not None, "a window is affine"
        bounds = constant_bounds(statement.domain.apply(isl.Map.from_pw_aff(function)), 0)
        assert bounds is not None, "a box of a known size"
        found.append((bounds[0], bounds[1] + 1))
    return found
