"""What the interpreter computes with: the interface, and its plain form in NumPy.

The oracle walks a comprehension once, for whichever arithmetic it is given; :class:`Plain` computes
every node in its own type, ``error_bounds.Bounded`` computes it together with a bound on its error.
Conventions (LANGUAGE.md, and the docstrings of ``lang/comprehension.py``):

    integers    wrap; / and % floor; x / 0 = x % 0 = 0; a shift by a count < 0 or >= the width
                gives 0, or -1 for a negative x >> count
    floats      IEEE; x % y has the sign of y; min and max propagate NaN, fmin and fmax drop it
    casts       float to integer truncates, saturates, NaN gives 0; integer to integer wraps; to
                bool is != 0; to a narrow float rounds by way of float32, in which they are computed
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from tcdsl.interp.special_functions import SCALAR
from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.dtypes import BOOL, INT64, DType

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class Accumulator(Protocol[V]):
    """The running result of a reduction, one for each of its elements."""

    def add(self, elements: Array, values: V, runs: Array, first: int | Array) -> None:
        """Combine ``values[l, r]`` into element ``elements[l]`` wherever ``runs[l, r]``.

        *first* is the offset of column 0 in the reduced range (what argmin counts from), a number
        or one for each row.
        """

    def result(self) -> V:
        """Return all elements."""


class Arithmetic(Protocol[V]):
    """Operations on values of one representation; every *dtype* is that of the result."""

    def exact(self, values: Any, dtype: DType) -> V: ...
    def numbers(self, v: V) -> Array:
        """Return the values themselves, for subscripts and conditions."""

    def doubtful(self, v: V) -> Array:
        """Return where a bool or an integer might differ from :meth:`numbers`."""

    def blurred(self, v: V, doubt: Array) -> V:
        """Return *v*, known to be nothing certain where *doubt* holds."""

    def unary(self, op: str, v: V, dtype: DType) -> V: ...
    def binary(self, op: str, a: V, b: V, dtype: DType, operands: DType) -> V: ...
    def select(self, condition: V, if_true: V, if_false: V) -> V: ...
    def cast(self, v: V, source: DType, dtype: DType) -> V: ...
    def call(self, function: str, args: tuple[V, ...], dtype: DType) -> V: ...
    def spread(self, v: V, shape: Shape, new_shape: Shape) -> V:
        """Return *v* broadcast to *shape*, then reshaped."""

    def take(self, v: V, positions: Any) -> V:
        """Return the elements of the flat *v* at *positions*."""

    def put(self, v: V, positions: Any, values: V) -> None:
        """Assign to elements of the flat *v*; *positions* are distinct."""

    def accumulator(
        self, operator: Operator, dtype: DType, held: V, *, is_own: bool
    ) -> Accumulator[V]: ...


def vectorised(function: Callable[..., float]) -> Callable[..., Array]:
    """Return *function* on arrays: computed in float64, returned in its arguments' type."""
    over_doubles = np.vectorize(function, otypes=[np.float64])

    def on_arrays(*args: Any) -> Array:
        doubles = over_doubles(*(np.asarray(arg, np.float64) for arg in args))
        return np.asarray(doubles).astype(np.result_type(*args))

    return on_arrays


def pi(like: Array) -> Any:
    """Return the number pi in the type of *like*."""
    return np.longdouble("3.14159265358979323846264338327950288").astype(like.dtype)


def half_turns(x: Array, shift: int) -> Array:
    """Return ``sin(pi (x + shift / 2))``, exact at multiples of one half."""
    x = np.fmod(x, x.dtype.type(2))
    quarter = np.rint(2 * x)
    rest = (x - quarter / 2) * pi(x)
    phase = (np.where(np.isfinite(quarter), quarter, 0).astype(np.int64) + shift) % 4
    size = np.where(phase % 2 == 0, np.sin(rest), np.cos(rest))
    signed = np.where(phase < 2, size, -size)
    return np.asarray(np.where(np.isnan(rest), rest, signed))


def round_half_away(x: Array) -> Array:
    """Return C's ``round``; adding 0.5 first would be wrong just below one half."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Return ``x y + z``, the product in twice the precision (where this machine has it)."""
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    result: Array = x.astype(wide) * y.astype(wide) + z.astype(wide)
    return result.astype(x.dtype)


def norm(*components: Array) -> Array:
    """Return the Euclidean norm, without overflow of the squares."""
    total = np.abs(components[0])
    for component in components[1:]:
        total = np.hypot(total, component)
    return total


def positive_difference(x: Array, y: Array) -> Array:
    """Return C's ``fdim``: max(x - y, 0), NaN if either is."""
    return np.where(x <= y, np.zeros_like(x), x - y)


def binary_exponent(x: Array) -> Array:
    """Return C's ``logb``: the floor of log2 |x|, exact also for subnormal numbers."""
    exponent = (np.frexp(x)[1] - 1).astype(x.dtype)
    special = np.where(x == 0, -np.inf, np.where(np.isinf(x), np.inf, x)).astype(x.dtype)
    return np.where((x == 0) | ~np.isfinite(x), special, exponent)


def power(x: Array, y: Array) -> Array:
    """Return C's ``pow``: where all of *y* is 0.5 NumPy takes square roots, also of -0 and -inf."""
    is_other = (y == 0.5) & ((x == 0) | (x == -np.inf))
    return np.power(np.where(is_other, np.abs(x), x), y)


def inverse(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return ``1 / function``."""
    return lambda *args: 1 / function(*args)


# Each takes arrays of one type, and gives that type (isnan and isinf give bool).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: vectorised(function) for name, function in SCALAR.items()},
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt,
    "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh,
    "cospi": lambda x: half_turns(x, 1), "sinpi": lambda x: half_turns(x, 0),
    "exp": np.exp, "exp10": lambda x: np.power(x.dtype.type(10), x), "exp2": np.exp2,
    "expm1": np.expm1, "fabs": np.abs, "fdim": positive_difference, "floor": np.floor,
    "fma": fused_multiply_add, "fmax": np.fmax, "fmin": np.fmin, "fmod": np.fmod,
    "hypot": np.hypot, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "logb": binary_exponent, "nextafter": np.nextafter, "norm3d": norm, "norm4d": norm,
    "pow": power, "rcbrt": inverse(np.cbrt), "rhypot": inverse(norm),
    "rnorm3d": inverse(norm), "rnorm4d": inverse(norm), "round": round_half_away,
    "rsqrt": inverse(np.sqrt), "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan,
    "tanh": np.tanh, "trunc": np.trunc,
    "min": np.minimum, "max": np.maximum, "abs": np.abs, "sign": np.sign,
    "relu": lambda x: np.where(x < 0, x.dtype.type(0), x),  # keeps NaN and -0.0, as the targets do
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "isnan": np.isnan, "isinf": np.isinf,
}  # fmt: skip


def floor_divide(a: Array, b: Array) -> Array:
    """Return integers' ``floor(a / b)``, 0 where b = 0; the lowest number / -1 is itself."""
    usual = np.floor_divide(a, np.where((b == 0) | (_minus_one(b)), _one(b), b))
    return np.where(b == 0, np.zeros_like(usual), np.where(_minus_one(b), np.negative(a), usual))


def floor_remainder(a: Array, b: Array) -> Array:
    """Return integers' ``a - b floor(a / b)``, 0 where b = 0."""
    usual = np.remainder(a, np.where((b == 0) | (_minus_one(b)), _one(b), b))
    return np.where((b == 0) | _minus_one(b), np.zeros_like(usual), usual)


def _minus_one(b: Array) -> Array:
    return (b == -1) if b.dtype.kind == "i" else np.zeros(b.shape, bool)


def _one(b: Array) -> Any:
    return b.dtype.type(1)


def shift_left(a: Array, count: Array) -> Array:
    """Return ``a << count``; a count < 0 or >= the width gives 0."""
    width = 8 * a.dtype.itemsize
    fits = (count >= 0) & (count < width)
    shifted = np.left_shift(a, np.where(fits, count, 0).astype(a.dtype))
    return np.asarray(np.where(fits, shifted, np.zeros_like(shifted)))


def shift_right(a: Array, count: Array) -> Array:
    """Return ``a >> count`` with the sign filled in; any other count gives 0 or the sign."""
    width = 8 * a.dtype.itemsize
    fits = (count >= 0) & (count < width)
    shifted = np.right_shift(a, np.where(fits, count, width - 1).astype(a.dtype))
    return np.asarray(np.where(fits | (a < 0), shifted, np.zeros_like(shifted)))


_BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.remainder,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal, "&&": np.logical_and, "||": np.logical_or,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": shift_left, ">>": shift_right,
}  # fmt: skip
_INTEGER_DIVISION = {"/": floor_divide, "%": floor_remainder}
COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))


def binary(op: str, a: Array, b: Array, is_float: bool) -> Array:
    """Return ``a op b`` on two arrays of one type."""
    function = _BINARY[op] if is_float else _INTEGER_DIVISION.get(op, _BINARY[op])
    return np.asarray(function(a, b))


def unary(op: str, v: Array) -> Array:
    """Return ``op v``; -x negates the sign bit, so that -0.0 is what it says."""
    return np.logical_not(v) if op == "!" else np.invert(v) if op == "~" else np.negative(v)


def to_integer(v: Array, dtype: DType) -> Array:
    """Return floats as integers: truncated, saturated, NaN as 0."""
    info = np.iinfo(dtype.numpy)
    # max + 1 is a power of two, so that it and every comparison with it are exact.
    too_high, too_low = v >= float(int(info.max) + 1), v <= float(info.min)
    inside = np.trunc(np.where(too_high | too_low | np.isnan(v), 0, v)).astype(dtype.numpy)
    return np.where(too_high, info.max, np.where(too_low, info.min, inside)).astype(dtype.numpy)


def to_narrow(v: Array, dtype: DType) -> Array:
    """Return numbers as the nearest ones of the narrow float type *dtype*, rounded once.

    (``astype`` goes by way of float32, and rounds twice.)  Rounded to odd, that is cut, with the
    last bit set where anything was lost, a float32 rounds as the number itself does: S. Boldo,
    G. Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
    odd, IEEE Transactions on Computers 57(4), 2008, doi:10.1109/TC.2007.70819.
    """
    single = v.astype(np.float32)
    if v.dtype.kind == "f" and v.dtype.itemsize > single.itemsize:
        is_over = np.abs(single.astype(v.dtype)) > np.abs(v)
        cut = np.where(is_over, np.nextafter(single, np.float32(0)), single)
        is_cut = cut.astype(v.dtype) != v
        single = np.asarray(np.asarray(cut).view(np.uint32) | is_cut).view(np.float32)
    return single.astype(dtype.numpy)


def convert(v: Array, dtype: DType) -> Array:
    """Return *v* cast to *dtype* (see the module's docstring)."""
    is_float = v.dtype.kind not in "biu"
    if dtype == BOOL:
        return np.asarray(v != 0)
    if dtype.is_integer and is_float:
        if v.dtype.itemsize < 4:
            v = v.astype(np.float32)
        return to_integer(v, dtype)
    if dtype.is_narrow_float:
        return to_narrow(v, dtype)
    return v.astype(dtype.numpy)


def extreme(dtype: DType, largest: bool) -> Any:
    """Return the largest or smallest value of *dtype*: infinities for floats."""
    if dtype.is_float:
        return dtype.numpy.type(np.inf if largest else -np.inf)
    if dtype == BOOL:
        return np.bool_(largest)
    info = np.iinfo(dtype.numpy)
    return dtype.numpy.type(info.max if largest else info.min)


def identity(operator: Operator, dtype: DType) -> Any:
    """Return what ``op=!`` starts from; for argmin and argmax -1, the index of nothing."""
    match operator:
        case Operator.MIN | Operator.MAX:
            return extreme(dtype, operator is Operator.MIN)
        case Operator.ARGMIN | Operator.ARGMAX:
            return INT64.numpy.type(-1)
        case _:
            start = {"+": 0, "*": 1, "and": 1, "or": 0}[operator]
            return dtype.numpy.type(start)


FOLDS: dict[Operator, np.ufunc] = {
    Operator.ADD: np.add, Operator.MUL: np.multiply, Operator.MIN: np.minimum,
    Operator.MAX: np.maximum, Operator.AND: np.logical_and, Operator.OR: np.logical_or,
}  # fmt: skip


class PlainFold:
    """``element = element op term`` in the accumulator's own type, long sums pairwise."""

    def __init__(self, operator: Operator, dtype: DType, held: Array) -> None:
        self._ufunc = FOLDS[operator]
        self._identity = identity(operator, dtype)
        self._elements = held.copy()

    def add(self, elements: Array, values: Array, runs: Array, first: int | Array) -> None:
        terms = np.where(runs, values, self._identity).astype(self._elements.dtype, copy=False)
        rows = self._ufunc.reduce(terms, axis=1, dtype=terms.dtype)
        active = runs.any(axis=1)
        self._ufunc.at(self._elements, elements[active], rows[active])

    def result(self) -> Array:
        return self._elements


class PlainArg:
    """The first index of the least (or greatest) term; NaN counts as the extreme."""

    def __init__(self, operator: Operator, dtype: np.dtype[Any], size: int) -> None:
        self._largest = operator is Operator.ARGMAX
        self.best = np.zeros(size, dtype)
        self.index = np.full(size, -1, np.int64)

    def add(self, elements: Array, values: Array, runs: Array, first: int | Array) -> None:
        """Add rows in their order: those of the same element one after another."""
        by_element = np.argsort(elements, kind="stable")
        counts = np.unique(elements, return_counts=True)[1]
        if len(counts) == len(elements):
            self._add_once(elements, values, runs, first)
            return
        turn = np.empty(len(elements), np.int64)  # the how manieth row of its element each is
        turn[by_element] = np.concatenate([np.arange(count) for count in counts])
        by_turn = np.argsort(turn, kind="stable")
        for rows in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1):
            start = first[rows] if isinstance(first, np.ndarray) else first
            self._add_once(elements[rows], values[rows], runs[rows], start)

    def _add_once(self, elements: Array, values: Array, runs: Array, first: int | Array) -> None:
        fold = np.maximum if self._largest else np.minimum
        start = extreme_of(values, not self._largest)
        rows = fold.reduce(np.where(runs, values, start), axis=1)
        # Where a row has a NaN its extreme is NaN, equal to nothing: the NaNs are the hits then.
        hits = runs & np.where(is_nan(rows)[:, None], is_nan(values), values == rows[:, None])
        better = rows > self.best[elements] if self._largest else rows < self.best[elements]
        better |= is_nan(rows) & ~is_nan(self.best[elements])
        better = hits.any(axis=1) & (better | (self.index[elements] < 0))
        self.best[elements[better]] = rows[better]
        self.index[elements[better]] = (first + hits.argmax(axis=1))[better]

    def result(self) -> Array:
        return self.index


def is_nan(values: Array) -> Array:
    """Return where *values* are NaN: nowhere for integers and bools."""
    return np.asarray(values != values)


def extreme_of(values: Array, largest: bool) -> Any:
    """Return the largest or smallest number of the type of *values*."""
    if values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        return info.max if largest else info.min
    return np.asarray(largest if values.dtype.kind == "b" else np.inf if largest else -np.inf)


class Plain:
    """Every node in its own type: a value is an array of it."""

    def exact(self, values: Any, dtype: DType) -> Array:
        return np.asarray(values).astype(dtype.numpy)

    def numbers(self, v: Array) -> Array:
        return v

    def doubtful(self, v: Array) -> Array:
        return np.zeros((), bool)

    def blurred(self, v: Array, doubt: Array) -> Array:
        return v

    def unary(self, op: str, v: Array, dtype: DType) -> Array:
        return unary(op, v)

    def binary(self, op: str, a: Array, b: Array, dtype: DType, operands: DType) -> Array:
        return binary(op, a, b, operands.is_float)

    def select(self, condition: Array, if_true: Array, if_false: Array) -> Array:
        return np.where(condition, if_true, if_false)

    def cast(self, v: Array, source: DType, dtype: DType) -> Array:
        return v if source == dtype else convert(v, dtype)

    def call(self, function: str, args: tuple[Array, ...], dtype: DType) -> Array:
        result: Array = np.asarray(FUNCTIONS[function](*args))
        return result

    def spread(self, v: Array, shape: Shape, new_shape: Shape) -> Array:
        return np.broadcast_to(v, shape).reshape(new_shape)

    def take(self, v: Array, positions: Any) -> Array:
        return np.asarray(v[positions])

    def put(self, v: Array, positions: Any, values: Array) -> None:
        v[positions] = values

    def accumulator(
        self, operator: Operator, dtype: DType, held: Array, *, is_own: bool
    ) -> "PlainFold | PlainArg":
        if operator.is_arg:
            return PlainArg(operator, dtype.numpy, held.size)
        return PlainFold(operator, dtype, held)
