"""Reductions of approximate values: bounds that hold for every order of combination."""

from typing import Protocol

import numpy as np

from tcdsl.interp.arithmetic import FOLDS, Array, PlainArg, PlainFold
from tcdsl.interp.precision import Approximate, settled, smallest, unit_roundoff, working
from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.dtypes import DType

# Sums of multiples of 1/256 are exact in any order while they fit the significand.
_QUANTUM = 256
PARTS_LARGER = 1 + 2.0**-8


class Folded(Protocol):
    """A running reduction (``arithmetic.Accumulator`` of approximate values)."""

    def add(
        self, elements: Array, values: Approximate, runs: Array, first: int | Array
    ) -> None: ...
    def result(self) -> Approximate: ...


def accumulator(
    operator: Operator, dtype: DType, held: Approximate, *, is_compensated: bool = False
) -> Folded:
    """Return the reduction by *operator* that starts from *held*.

    :arg is_compensated: whether a sum is.
    """
    if operator.is_arg:
        return Arg(operator, dtype, held.value.size)
    if not dtype.is_float:
        return Exact(operator, dtype, held)
    match operator:
        case Operator.ADD:
            return Sum(dtype, held, is_compensated=is_compensated)
        case Operator.MUL:
            return Product(dtype, held)
        case _:
            return Extreme(operator, dtype, held)


def gamma(n: Array, u: float) -> Array:
    """Return ``n u / (1 - n u)``, the relative error of n roundings in a chain."""
    return np.where(n * u < 0.5, n * u / (1 - n * u), np.inf)


class Sum:
    """``|computed - exact| <= sum e + gamma_(n-1) sum (|x| + e)`` for n terms.

    What n terms lose is at most ``gamma_n sum |x|``.  A compensated sum knows it exactly, and adds
    it up in at most 3 n additions: an error of ``gamma_n gamma_3n``, and one rounding at the end.

    Terms that are added in parts are so many more, and together as large but for PARTS_LARGER.
    """

    def __init__(self, dtype: DType, held: Approximate, *, is_compensated: bool = False) -> None:
        self._dtype, self._is_compensated = dtype, is_compensated
        shape = held.value.shape
        self._value = np.zeros(shape, working(dtype))
        self._error, self._size, self._terms = (np.zeros(shape) for _ in range(3))
        self._rough = np.zeros(shape)  # terms that are no multiples of 1 / QUANTUM
        used = (held.value != 0) | (held.bound > 0)
        self.add(np.arange(held.value.size), _column(held), used[:, None], 0)

    def add(self, elements: Array, values: Approximate, runs: Array, first: int | Array) -> None:
        x, e = _where(runs, values.value), _where(runs, values.bound)
        own = np.abs(x) + e if values.size is None else _where(runs, values.size)
        if values.parts > 1:
            own = PARTS_LARGER * own
        # Infinities and NaNs decide the value, not the size.
        finite, quanta = np.isfinite(x), x * _QUANTUM
        size = _where(finite, own).astype(np.float64, copy=False)
        rough = (e > 0) | (finite & (np.rint(quanta) != quanta))
        for total, terms in (
            (self._value, x),
            (self._error, e),
            (self._size, size),
        ):
            np.add.at(total, elements, terms.sum(axis=1))
        np.add.at(self._terms, elements, values.parts * np.count_nonzero(runs, axis=1))
        np.add.at(self._rough, elements, np.count_nonzero(rough, axis=1))

    def result(self) -> Approximate:
        u = unit_roundoff(self._dtype)
        exact = (self._rough == 0) & (self._size * _QUANTUM < 0.5 / u)
        spread = gamma(np.maximum(self._terms - 1, 0), u) * self._size
        if self._is_compensated:
            second = 2 * gamma(self._terms, u) * gamma(3 * self._terms, u) * self._size
            once = u * (np.abs(self._value) + self._error + second) + smallest(self._dtype)
            # What is computed here is rounded, too.
            second = second + np.finfo(self._value.dtype).eps * self._terms * self._size
            spread = np.where(np.isfinite(self._value), second + once, spread)
        bound = self._error + np.where(exact, 0.0, spread)
        # A partial sum in some order may overflow although the whole does not.
        over = settled(self._size, bound, self._dtype).bound == np.inf
        return settled(self._value, np.where(over, np.inf, bound), self._dtype)


class Product:
    """``|computed - exact| <= prod (|x| + e) (1 + gamma_(n-1)) - prod |x|`` for n factors."""

    def __init__(self, dtype: DType, held: Approximate) -> None:
        self._dtype = dtype
        shape = held.value.shape
        self._value, self._size, self._upper = (np.ones(shape, working(dtype)) for _ in range(3))
        # The largest and the smallest product of any subset: what a partial product may reach.
        self._most, self._least = (np.ones(shape, working(dtype)) for _ in range(2))
        self._terms, self._rough, self._special = (np.zeros(shape) for _ in range(3))
        used = (held.value != 1) | (held.bound > 0)
        self.add(np.arange(held.value.size), _column(held), used[:, None], 0)

    def add(self, elements: Array, values: Approximate, runs: Array, first: int | Array) -> None:
        x, e = np.where(runs, values.value, 1), np.where(runs, values.bound, 0.0)
        finite = np.isfinite(x)
        size = np.where(finite, np.abs(x), 1)
        for total, factors in (
            (self._value, x),
            (self._size, size),
            (self._upper, size + e),
            (self._most, np.maximum(size + e, 1)),
            (self._least, np.where(size > 0, np.minimum(np.maximum(size - e, 0), 1), 1)),
        ):
            np.multiply.at(total, elements, np.multiply.reduce(factors, axis=1))
        for count, flags in (
            (self._terms, runs),
            (self._rough, (e > 0) | (finite & (np.rint(x) != x))),
            (self._special, ~finite),
        ):
            np.add.at(count, elements, flags.sum(axis=1).astype(np.float64))

    def result(self) -> Approximate:
        u, n = unit_roundoff(self._dtype), np.maximum(self._terms - 1, 0)
        exact = (self._rough == 0) & (self._most < 0.5 / u)
        spread = self._upper - self._size + (gamma(n, u) + n * 2.0**-52) * self._upper
        # Each rounding may also lose half the smallest number, grown by the factors to come.
        tiny = self._least < smallest(self._dtype) / u
        spread = spread + np.where(tiny, n * smallest(self._dtype) * self._most, 0)
        spread = np.where(np.isnan(spread), np.inf, spread)
        # With infinities among the factors only an exact and moderate rest keeps the result.
        rest = exact | ((self._upper == self._size) & ~tiny)
        bound = np.where(self._special > 0, np.where(rest, 0.0, np.inf), np.where(exact, 0, spread))
        over = settled(self._most, self._most * gamma(n, u), self._dtype).bound == np.inf
        return settled(self._value, np.where(over, np.inf, bound), self._dtype)


class Extreme:
    """min and max are monotone: folding the lower and the upper ends bounds the result."""

    def __init__(self, operator: Operator, dtype: DType, held: Approximate) -> None:
        self._ufunc = FOLDS[operator]
        self._identity = np.inf if operator is Operator.MIN else -np.inf
        self._value, self._low, self._high = (part.copy() for part in _ends(held))

    def add(self, elements: Array, values: Approximate, runs: Array, first: int | Array) -> None:
        ends = (self._value, self._low, self._high)
        for total, terms in zip(ends, _ends(values), strict=True):
            rows = self._ufunc.reduce(np.where(runs, terms, self._identity), axis=1)
            self._ufunc.at(total, elements, rows.astype(total.dtype))

    def result(self) -> Approximate:
        ends = (self._low, self._high)
        gaps = [np.where(end == self._value, 0, np.abs(end - self._value)) for end in ends]
        # A NaN that is certain is one in all three.
        nan = np.isnan(self._value) & np.isnan(self._low) & np.isnan(self._high)
        bound = np.where(nan, 0.0, np.maximum(*gaps))
        return Approximate(self._value, np.where(np.isnan(bound), np.inf, bound).astype(np.float64))


class Exact:
    """Integers and bools: exact, and where a term is in doubt usually nothing is known."""

    def __init__(self, operator: Operator, dtype: DType, held: Approximate) -> None:
        self._fold = PlainFold(operator, dtype, held.value)
        # One certain false decides an "and", one certain true an "or".
        self._decisive = {Operator.AND: False, Operator.OR: True}.get(operator)
        self._doubt, self._decided = held.bound > 0, self._decides(held)

    def _decides(self, v: Approximate) -> Array:
        if self._decisive is None:
            return np.zeros(v.value.shape, bool)
        return np.asarray((v.value == self._decisive) & (v.bound == 0))

    def add(self, elements: Array, values: Approximate, runs: Array, first: int | Array) -> None:
        self._fold.add(elements, values.value, runs, first)
        np.logical_or.at(self._doubt, elements, (runs & (values.bound > 0)).any(axis=1))
        np.logical_or.at(self._decided, elements, (runs & self._decides(values)).any(axis=1))

    def result(self) -> Approximate:
        bound = np.where(self._doubt & ~self._decided, np.inf, 0.0)
        return Approximate(self._fold.result(), bound)


class Arg:
    """The index is in doubt as far as the terms reach that might be the extreme as well."""

    def __init__(self, operator: Operator, dtype: DType, size: int) -> None:
        self._fold = PlainArg(operator, working(dtype), size)
        self._sign = -1 if operator is Operator.ARGMAX else 1
        self._bound = np.zeros(size)

    def add(self, elements: Array, values: Approximate, runs: Array, first: int | Array) -> None:
        seen = self._fold.index[elements] >= 0
        self._fold.add(elements, values.value, runs, first)
        in_doubt = np.where(runs, values.bound, 0.0).any(axis=1)
        if not in_doubt.any():
            return
        _, place, count = np.unique(elements, return_inverse=True, return_counts=True)
        seen = seen | (count[place] > 1)
        # Of a row that comes in pieces nothing is known; otherwise argmax of x is argmin of -x.
        index = np.maximum(self._fold.index[elements] - first, 0)
        reach = np.where(
            seen, np.inf, self._reach(values, runs, np.minimum(index, runs.shape[1] - 1))
        )
        np.maximum.at(self._bound, elements, np.where(in_doubt, reach, 0.0))

    def _reach(self, values: Approximate, runs: Array, index: Array) -> Array:
        """Return how far the terms that might win lie from the one at *index*."""
        x, e = self._sign * values.value.astype(np.float64), values.bound
        best = np.take_along_axis(x + e, index[:, None], axis=1)
        low, column = x - e, np.arange(x.shape[1])
        # An earlier term wins a tie, a later one does not.
        wins = np.where(column < index[:, None], low <= best, low < best)
        unknown = np.isinf(e) | np.isinf(np.take_along_axis(e, index[:, None], axis=1))
        away = np.where(runs & (wins | unknown), np.abs(column - index[:, None]), 0)
        return np.asarray(away.max(axis=1), np.float64)

    def result(self) -> Approximate:
        return Approximate(self._fold.result(), self._bound)


def _where(kept: Array, terms: Array) -> Array:
    """Return *terms*, and 0 where they are not *kept*: all are, mostly."""
    return terms if terms.shape == kept.shape and kept.all() else np.where(kept, terms, 0)


def _column(v: Approximate) -> Approximate:
    return Approximate(v.value[:, None], v.bound[:, None])


def _ends(v: Approximate) -> tuple[Array, Array, Array]:
    """Return the values, their lower and their upper ends; without bound the infinities."""
    unknown = np.isinf(v.bound)
    low = np.where(unknown, -np.inf, v.value - v.bound)
    return v.value, low, np.where(unknown, np.inf, v.value + v.bound)


__all__ = ["Approximate", "Folded", "accumulator"]
