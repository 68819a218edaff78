"""Typed expressions as isl objects: quasi-affine functions and conditions of a statement's indices.

    i / 2 + N - 1       --->    [N] -> { S0[i, j] -> [(floor(i/2) + N - 1)] }
    i < j && N > 3      --->    [N] -> { S0[i, j] : i < j and N > 3 }

Affine are: integer literals, indices, sizes, ``+ - min max abs``, a product with a constant,
``/`` and ``%`` by a constant (both floor; by zero they give 0), shifts by a constant, and a choice
between affine branches under an affine condition.  Anything else (a load, a product of two
indices, a product of an index with a size that is still a parameter, a float) is not, and gives
None.

Index arithmetic is exact: it is that of the integers, and never wraps.  (A conversion to a type
that might wrap is therefore not affine.)
"""

from collections.abc import Mapping

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Select,
    Size,
    Unary,
    fold,
)
from tcdsl.lang.types.dtypes import BOOL, DType, Kind
from tcdsl.records import dataclass

_MAX_SHIFT = 30  # of an int32: more would wrap, or give 0


@dataclass(frozen=True, slots=True)
class Truth:
    """Where a bool expression holds, from below and from above: ``below <= true set <= above``.

    The bounds are the same object iff the expression is affine, and then they are exact.
    """

    below: isl.Set
    above: isl.Set

    @property
    def exact(self) -> isl.Set | None:
        return self.above if self.below is self.above else None


Value = isl.PwAff | Truth | None


def instance_space(
    indices: tuple[str, ...], tuple_name: str, sizes: Mapping[str, int | None]
) -> isl.Space:
    """Return the space ``[params] -> { tuple_name[indices] }``; the open sizes are the params."""
    params = [name for name, value in sizes.items() if value is None]
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(indices), params=params)
    return space.set_tuple_name(isl.dim_type.set, tuple_name)


def affine(
    expr: Expr, indices: tuple[str, ...], tuple_name: str, sizes: Mapping[str, int | None]
) -> isl.PwAff | None:
    """Return *expr* as a total ``[params] -> { tuple_name[indices] -> [(...)] }``, or None.

    *sizes* maps every size symbol to its value, or to None if it stays a parameter; the
    parameters stand in the order of the mapping.  A size with a value is a constant, so that
    ``size * index`` becomes affine.  None means that *expr* is not affine, or is a bool.
    """
    value = Builder(instance_space(indices, tuple_name, sizes), sizes).evaluate(expr)
    return value if isinstance(value, isl.PwAff) else None


def condition(
    expr: Expr, indices: tuple[str, ...], tuple_name: str, sizes: Mapping[str, int | None]
) -> isl.Set | None:
    """Return the instances where the bool *expr* holds, or None if it is not affine."""
    value = Builder(instance_space(indices, tuple_name, sizes), sizes).evaluate(expr)
    return value.exact if isinstance(value, Truth) else None


def condition_hull(
    expr: Expr, indices: tuple[str, ...], tuple_name: str, sizes: Mapping[str, int | None]
) -> isl.Set:
    """Return a superset of where the bool *expr* holds: what is not affine may hold anywhere."""
    builder = Builder(instance_space(indices, tuple_name, sizes), sizes)
    value = builder.evaluate(expr)
    return value.above if isinstance(value, Truth) else isl.Set.universe(builder.space)


class Builder:
    """Builds the isl objects of expressions over *space* (see :func:`affine`).

    *space* is a statement's :func:`instance_space`, or the parameter space of the sizes alone.
    """

    def __init__(self, space: isl.Space, sizes: Mapping[str, int | None]) -> None:
        self.space = space
        self.sizes = sizes
        local = isl.LocalSpace.from_space(space)

        dims = 0 if space.is_params() else space.dim(isl.dim_type.set)
        indices = [space.get_dim_name(isl.dim_type.set, position) for position in range(dims)]
        self._local = local
        self._indices = {
            name: isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, position))
            for position, name in enumerate(indices)
        }
        self._params = {
            name: isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.param, position))
            for position, name in enumerate(n for n, value in sizes.items() if value is None)
        }
        self._unknown = Truth(isl.Set.empty(self.space), isl.Set.universe(self.space))

    def index(self, name: str) -> isl.PwAff:
        """Return the value of the index *name*."""
        return self._indices[name]

    def affine(self, expr: Expr) -> isl.PwAff | None:
        """Return the integer *expr* as a function of the instance, or None if it is not affine."""
        value = self.evaluate(expr)
        return value if isinstance(value, isl.PwAff) else None

    def truth(self, expr: Expr) -> Truth:
        """Return where the bool *expr* holds, from below and from above."""
        value = self.evaluate(expr)
        return value if isinstance(value, Truth) else self._unknown

    def constant(self, value: int) -> isl.PwAff:
        """Return the constant function *value*."""
        number = isl.Val.int_from_si(isl.DEFAULT_CONTEXT, value)
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self._local, number))

    def evaluate(self, expr: Expr) -> Value:
        """Return *expr* as a function (integers) or as a set (bools); None if not affine."""
        return fold(expr, self.combine)

    def combine(self, expr: Expr, operands: tuple[Value, ...]) -> Value:
        """Return the value of *expr*, given those of its direct operands."""
        match expr:
            case Const(value=bool(value)):
                whole = isl.Set.universe(self.space)
                return _truth(whole if value else isl.Set.empty(self.space))
            case Const(value=int(value)) if expr.dtype.is_integer:
                return self.constant(value)
            case Index(name=name):
                return self._indices[name]
            case Size(name=name):
                known = self.sizes[name]
                return self._params[name] if known is None else self.constant(known)
            case Cast(dtype=to):
                return self._cast(expr.operand.dtype, to, operands[0])
            case Select():
                return self._select(operands)
        known_bool = self._logic(expr, operands)
        if known_bool is not None:
            return known_bool
        numbers = [operand for operand in operands if isinstance(operand, isl.PwAff)]
        if len(numbers) < len(operands) or not numbers:
            return self._unknown if expr.dtype == BOOL else None
        return self._arithmetic(expr, numbers)

    def _logic(self, expr: Expr, operands: tuple[Value, ...]) -> Truth | None:
        truths = [operand for operand in operands if isinstance(operand, Truth)]
        if expr.dtype != BOOL or not truths or len(truths) < len(operands):
            return None
        match expr:
            case Unary(op="!" | "~"):
                return _negate(truths[0])
            case Binary(op="&&" | "&"):
                return _both(*truths)
            case Binary(op="||" | "|"):
                return _either(*truths)
            case Binary(op="==" | "!=" | "^" as op):
                same = _either(_both(*truths), _both(*map(_negate, truths)))
                return same if op == "==" else _negate(same)
            case _:
                return None

    def _select(self, operands: tuple[Value, ...]) -> Value:
        where, if_true, if_false = operands
        if not isinstance(where, Truth):
            return None
        if isinstance(if_true, Truth) and isinstance(if_false, Truth):
            return _either(_both(where, if_true), _both(_negate(where), if_false))
        exact = where.exact
        if exact is None or not isinstance(if_true, isl.PwAff):
            return None
        if not isinstance(if_false, isl.PwAff):
            return None
        return _piecewise(exact, if_true, if_false)

    def _cast(self, from_: DType, to: DType, operand: Value) -> Value:
        if to == BOOL and isinstance(operand, isl.PwAff):
            return _truth(operand.ne_set(self.constant(0)))
        if from_ == to:
            return operand
        if not is_exact_cast(from_, to):
            return self._unknown if to == BOOL else None
        if isinstance(operand, Truth):
            exact = operand.exact
            if exact is None:
                return None
            return _piecewise(exact, self.constant(1), self.constant(0))
        return operand

    def _arithmetic(self, expr: Expr, operands: list[isl.PwAff]) -> Value:
        match expr:
            case Unary(op="-"):
                return operands[0].neg()
            case Unary(op="~") if expr.dtype.kind is Kind.SIGNED:
                return operands[0].neg().sub(self.constant(1))
            case Binary(op=op):
                return self._binary(op, *operands)
            case Call(function="min"):
                return operands[0].min(operands[1])
            case Call(function="max"):
                return operands[0].max(operands[1])
            case Call(function="abs"):
                return operands[0].max(operands[0].neg())
            case Call(function="relu"):
                return operands[0].max(self.constant(0))
            case _:
                return self._unknown if expr.dtype == BOOL else None

    def _binary(self, op: str, left: isl.PwAff, right: isl.PwAff) -> Value:
        if op in _COMPARISONS:
            return _truth(getattr(left, _COMPARISONS[op])(right))
        if op == "+":
            return left.add(right)
        if op == "-":
            return left.sub(right)
        factor = constant_value(right)
        if op == "*":
            other = left if factor is not None else right
            factor = factor if factor is not None else constant_value(left)
            return None if factor is None else other.scale_val(_val(factor))
        if factor is None:
            return None
        return self._by_constant(op, left, factor)

    def _by_constant(self, op: str, left: isl.PwAff, right: int) -> isl.PwAff | None:
        if op in ("/", "%"):
            if right == 0:
                return self.constant(0)
            # isl scales down by positive numbers only: floor(a / -c) = floor(-a / c).
            dividend = left if right > 0 else left.neg()
            quotient = dividend.scale_down_val(_val(abs(right))).floor()
            return quotient if op == "/" else left.sub(quotient.scale_val(_val(right)))
        if not 0 <= right <= _MAX_SHIFT:
            return None
        if op == "<<":
            return left.scale_val(_val(2**right))
        if op == ">>":
            return left.scale_down_val(_val(2**right)).floor()
        return None


_COMPARISONS = {
    "<": "lt_set", "<=": "le_set", ">": "gt_set", ">=": "ge_set", "==": "eq_set", "!=": "ne_set",
}  # fmt: skip


def constant_value(function: isl.PwAff) -> int | None:
    """Return the value of *function* if it is one integer everywhere, else None."""
    if function.n_piece() != 1:
        return None
    ((_, aff),) = function.get_pieces()
    if not aff.is_cst():
        return None
    value = aff.get_constant_val()
    return value.to_python() if value.is_int() else None


def _val(number: int) -> isl.Val:
    return isl.Val.int_from_si(isl.DEFAULT_CONTEXT, number)


def _truth(where: isl.Set) -> Truth:
    return Truth(where, where)


def _negate(a: Truth) -> Truth:
    if a.exact is not None:
        return _truth(a.exact.complement())
    return Truth(a.above.complement(), a.below.complement())


def _both(a: Truth, b: Truth) -> Truth:
    above = a.above.intersect(b.above)
    if a.exact is not None and b.exact is not None:
        return _truth(above)
    return Truth(a.below.intersect(b.below), above)


def _either(a: Truth, b: Truth) -> Truth:
    above = a.above.union(b.above)
    if a.exact is not None and b.exact is not None:
        return _truth(above)
    return Truth(a.below.union(b.below), above)


def _piecewise(where: isl.Set, if_true: isl.PwAff, if_false: isl.PwAff) -> isl.PwAff:
    """Return *if_true* on *where* and *if_false* elsewhere."""
    outside = if_false.intersect_domain(where.complement())
    return if_true.intersect_domain(where).union_add(outside)


def is_exact_cast(from_: DType, to: DType) -> bool:
    """Return whether every index value survives the conversion (indices fit in 32 bits)."""
    if not to.is_integer or from_.is_float:
        return False
    if from_ == BOOL:
        return True
    if to.kind is Kind.SIGNED:
        return to.size_bytes >= 4
    return from_.kind is Kind.UNSIGNED and to.size_bytes >= from_.size_bytes
