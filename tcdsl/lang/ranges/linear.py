"""Subscripts as linear forms: ``2*i - k + N - 1``  --->  ``{i: 2, k: -1}`` and ``N - 1``.

Over a box of the indices, a form is smallest and largest at corners; with the corners' coordinates
functions of the sizes, so are those values.  This is much cheaper than eliminating the indices by
projection, and it stays a total function of the sizes where the box is empty.
"""

from collections.abc import Mapping, Sequence

import islpy as isl

from tcdsl.lang.comprehension import Binary, Cast, Expr, Index, Unary, fold
from tcdsl.lang.ranges.affine import Truth, Value, constant_value, is_exact_cast
from tcdsl.lang.ranges.size_functions import SizeSpace, scaled
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The integers from *lower* up to but not including *upper*, functions of the sizes.

    *lower* is the largest of :attr:`floors`, *upper* the smallest of :attr:`ceilings`.  Those are
    kept because ``v < a and v < b`` is one convex set, and ``v < min(a, b)`` a union of two: with
    a dozen of them, isl would not come back.
    """

    lower: isl.PwAff
    upper: isl.PwAff
    _floors: tuple[isl.PwAff, ...] = ()
    _ceilings: tuple[isl.PwAff, ...] = ()

    @classmethod
    def between(
        cls, floors: Sequence[isl.PwAff], ceilings: Sequence[isl.PwAff], sizes: SizeSpace
    ) -> "Interval":
        """Return the integers at or above all of *floors* and below all of *ceilings*."""
        floors, ceilings = distinct(floors), distinct(ceilings)
        lower, upper = sizes.largest(floors), sizes.smallest(ceilings)
        return cls(lower, upper, _unless_simple(lower, floors), _unless_simple(upper, ceilings))

    @property
    def floors(self) -> tuple[isl.PwAff, ...]:
        """Functions whose maximum is *lower*."""
        return self._floors or (self.lower,)

    @property
    def ceilings(self) -> tuple[isl.PwAff, ...]:
        """Functions whose minimum is *upper*."""
        return self._ceilings or (self.upper,)


def distinct(functions: Sequence[isl.PwAff]) -> tuple[isl.PwAff, ...]:
    """Return *functions* without those that isl sees at once to be repeated."""
    kept: list[isl.PwAff] = []
    for function in functions:
        if not any(function.plain_is_equal(other) for other in kept):
            kept.append(function)
    return tuple(kept)


def is_same_interval(one: Interval, other: Interval) -> bool:
    """Return whether two intervals are the same functions of the sizes."""
    return _is_same(one.lower, other.lower) and _is_same(one.upper, other.upper)


def _is_same(one: isl.PwAff, other: isl.PwAff) -> bool:
    # Comparing the pieces settles most, and costs little.
    return bool(one.plain_is_equal(other) or one.is_equal(other))


def _unless_simple(extreme: isl.PwAff, functions: tuple[isl.PwAff, ...]) -> tuple[isl.PwAff, ...]:
    return () if extreme.n_piece() == 1 else functions


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """``sum(coefficients[v] * v) + rest``; no coefficient is 0; *rest* is a function of sizes."""

    coefficients: Mapping[str, int]
    rest: isl.PwAff

    def minimum(self, box: Mapping[str, Interval], sizes: SizeSpace) -> isl.PwAff:
        """Return the smallest value over *box*, which has an interval for every index."""
        total = self.rest
        for index, factor in self.coefficients.items():
            interval = box[index]
            corner = interval.lower if factor > 0 else interval.upper.sub(sizes.one)
            total = total.add(scaled(corner, factor))
        return total

    def maximum(self, box: Mapping[str, Interval], sizes: SizeSpace) -> isl.PwAff:
        """Return the largest value over *box*."""
        return self.negated().minimum(box, sizes).neg()

    def negated(self) -> "Form":
        """Return ``-self``."""
        return Form({v: -a for v, a in self.coefficients.items()}, self.rest.neg())

    def without(self, index: str) -> "Form":
        """Return the form less its term in *index*."""
        return Form({v: a for v, a in self.coefficients.items() if v != index}, self.rest)

    def plus(self, other: "Form") -> "Form":
        """Return ``self + other``."""
        sums = dict(self.coefficients)
        for index, factor in other.coefficients.items():
            sums[index] = sums.get(index, 0) + factor
        return Form({v: a for v, a in sums.items() if a}, self.rest.add(other.rest))

    def times(self, factor: int) -> "Form":
        """Return ``factor * self``."""
        products = {v: a * factor for v, a in self.coefficients.items() if factor}
        return Form(products, self.rest.scale_val(isl.Val(factor)))


def linear(expr: Expr, sizes: SizeSpace) -> Form | None:
    """Return *expr* as a linear form, or None: it is not affine, or only piecewise or with a floor.

    (Divisions, minima and the like of sizes alone are part of ``rest``.)
    """
    result = fold(expr, lambda node, operands: _combine(node, operands, sizes))
    return result if isinstance(result, Form) else None


_Value = Form | Truth | None


def _combine(node: Expr, operands: tuple[_Value, ...], sizes: SizeSpace) -> _Value:
    if isinstance(node, Index):
        return Form({node.name: 1}, sizes.zero)
    if not any(operand is None or _has_index(operand) for operand in operands):
        values = tuple(op.rest if isinstance(op, Form) else op for op in operands)
        return _wrapped(sizes.builder.combine(node, values))
    forms = [operand for operand in operands if isinstance(operand, Form)]
    if len(forms) < len(operands):
        return None
    match node:
        case Binary(op="+"):
            return forms[0].plus(forms[1])
        case Binary(op="-"):
            return forms[0].plus(forms[1].negated())
        case Binary(op="*"):
            return _product(forms[0], forms[1])
        case Unary(op="-"):
            return forms[0].negated()
        case Cast(dtype=to) if is_exact_cast(node.operand.dtype, to):
            return forms[0]
        case _:
            return None


def _has_index(value: _Value) -> bool:
    return isinstance(value, Form) and bool(value.coefficients)


def _wrapped(value: Value) -> _Value:
    return Form({}, value) if isinstance(value, isl.PwAff) else value


def _product(left: Form, right: Form) -> Form | None:
    for form, other in ((left, right), (right, left)):
        factor = None if form.coefficients else constant_value(form.rest)
        if factor is not None:
            return other.times(factor)
    return None
