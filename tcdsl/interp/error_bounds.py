"""Running error analysis: a comprehension's values with bounds on how far any backend may be off.

A value is a pair (v, e): every correct implementation computes some a with |a - v| <= e.  v is
computed in twice the precision (float64 for float32 and narrower types, long double for float64).
With u the unit roundoff of the type that the program asks for, and k the units in the last place
that a function may be wrong by:

    x + y     e = ex + ey                   + rounding
    x y       e = |x| ey + |y| ex + ex ey   + rounding
    f(x)      e = max |f(x +- ex) - f(x)|   + 2 k u |f(x)|
    sum       e = sum ei                    + gamma_(n-1) sum |xi|,  gamma_n = n u / (1 - n u)
              (where sums may be reassociated, xi = a b + c d is of the size |a b| + |c d|)
              or, if it is compensated,     + u |sum xi| + 2 gamma_n gamma_3n sum |xi|
    ? :       where the condition is undecided, the hull of both branches

With ``precision="float16x3"`` a product of float32 loses more, and a sum of n of them has gamma_3n
(``_in_parts``, rewrites/scop/float16_parts.py).  With "tf32" and "bfloat16" factors of float32 may
be rounded (``_as_tf32``, ``_as_bfloat16``); with "float8" sums of products of float8 are truncated
(``_truncated``).

Rounding is u (|v| + e), or, if the operands are exact, what rounding v itself loses: whole numbers
stay exact.  This holds for every order of summation, and with or without contraction to fused
multiply-adds.  Beyond a type's largest number the bound is infinite: there a fused operation or
another order may give a number or an infinity.  Integers and bools are exact (e = 0) unless an
undecided condition or cast made them; infinities and NaNs that are certain have e = 0.

The bound of a compensated sum: n terms lose at most gamma_n sum |xi| in all, for any order of
summation; what they lose is known exactly, and is added up in at most 3 n additions.

After Wilkinson's running error analysis: N. J. Higham, Accuracy and Stability of Numerical
Algorithms, SIAM 2002, sections 3.3 and 4.2, doi:10.1137/1.9780898718027.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tcdsl.interp.arithmetic import (
    COMPARISONS,
    FUNCTIONS,
    Array,
    Shape,
    binary,
    convert,
    to_integer,
    to_narrow,
    unary,
)
from tcdsl.interp.bounded_folds import Approximate, Folded, accumulator
from tcdsl.interp.derivatives import (
    BASIC,
    EXACT,
    FLOORED,
    ULPS,
    ULPS_USUAL,
    absolute_error,
    propagated,
    quotient_error,
)
from tcdsl.interp.oracle import interpret
from tcdsl.interp.precision import largest, settled, smallest, unit_roundoff, working
from tcdsl.lang.comprehension import Comprehension, Operator, Specialisation
from tcdsl.lang.types.dtypes import BFLOAT16, BOOL, FLOAT8, FLOAT32, DType
from tcdsl.options import Options, is_reassociated

FLOAT16_PARTS = 3  # products for one


def evaluate_with_bounds(
    c: Comprehension,
    s: Specialisation,
    inputs: Mapping[str, Array],
    out: Mapping[str, Array] | None = None,
    options: Options | None = None,
) -> dict[str, tuple[Array, Array]]:
    """Return (value, bound) of each output: floats in the working precision, others as they are.

    :arg options: how sums are taken, and what products of float32 may be; None for a plain sum of
        the terms as written.
    :raises LaunchError: TC080, an index out of range.
    """
    arithmetic = (
        Bounded()
        if options is None
        else Bounded(
            is_compensated=options.summation == "compensated",
            is_reassociated=is_reassociated(options),
            precision=options.precision,
        )
    )
    results = interpret(c, s, inputs, out or {}, arithmetic)
    return {name: (result.value, result.bound) for name, result in results.items()}


def inexact(*bounds: Array) -> Array:
    """Return where any of *bounds* is not 0."""
    return np.asarray(sum(bounds) > 0)


def unless_exact(exact: Array, bound: Array) -> Array:
    """Return *bound*, or 0 where *exact* holds, or inf where *bound* is NaN."""
    return np.where(exact, 0.0, np.where(np.isnan(bound), np.inf, bound))


def rounded(value: Array, bound: Array, exact: Array, dtype: DType) -> Approximate:
    """Return *value* with what one rounding to *dtype* adds to *bound*.

    Where the operands are *exact* the one rounding is known; a subnormal result may lose more
    than its relative share.
    """
    lost = known = np.abs(value - value.astype(dtype.numpy))
    if not exact.all():
        usual = unit_roundoff(dtype) * (np.abs(value) + bound) + smallest(dtype)
        lost = np.where(exact, known, usual)
    lost = np.where(np.isfinite(value), lost, 0)
    return settled(value, bound + lost, dtype)


def narrowed(a: Approximate, dtype: DType) -> Approximate:
    """Return *a* rounded to the narrower *dtype*: rounding is monotone, so its ends bound it.

    A narrow float may have been rounded twice, by way of float32, or once.
    """
    routes: list[Any] = [lambda x: convert(x, dtype)]
    if dtype.is_narrow_float:
        routes.append(lambda x: x.astype(FLOAT32.numpy).astype(dtype.numpy))
    ends = [
        route(np.asarray(end)).astype(working(dtype))
        for end in (a.value, a.value - a.bound, a.value + a.bound)
        for route in routes
    ]
    value = ends[0]
    # Equal infinities differ by NaN.
    gaps = [np.where(end == value, 0, np.abs(end - value)) for end in ends]
    bound = np.where(np.isinf(a.bound), np.inf, np.max(gaps, axis=0))
    return Approximate(value, unless_exact(np.isnan(value) & (a.bound == 0), bound))


class Bounded:
    """The arithmetic of :class:`Approximate` values (see the module's docstring)."""

    def __init__(
        self,
        *,
        is_compensated: bool = False,
        is_reassociated: bool = False,
        precision: str = "float32",
    ) -> None:
        self._is_compensated, self._is_reassociated = is_compensated, is_reassociated
        self._is_tf32 = precision == "tf32"
        self._is_bfloat16 = precision == "bfloat16" and not is_compensated
        self._is_in_parts = precision == "float16x3" and not is_compensated
        self._is_float8 = precision == "float8" and not is_compensated

    def exact(self, values: Any, dtype: DType) -> Approximate:
        stored = np.asarray(values).astype(dtype.numpy).astype(working(dtype))
        return Approximate(stored, np.zeros(stored.shape))

    def numbers(self, v: Approximate) -> Array:
        return v.value

    def doubtful(self, v: Approximate) -> Array:
        return np.asarray(v.bound > 0)

    def blurred(self, v: Approximate, doubt: Array) -> Approximate:
        return replace(v, bound=np.where(doubt, np.inf, v.bound)) if doubt.any() else v

    def unary(self, op: str, v: Approximate, dtype: DType) -> Approximate:
        return Approximate(unary(op, v.value), v.bound)

    def binary(
        self, op: str, a: Approximate, b: Approximate, dtype: DType, operands: DType
    ) -> Approximate:
        value = binary(op, a.value, b.value, operands.is_float)
        if op in COMPARISONS:
            return Approximate(value, _undecided(a, b).astype(np.float64))
        if op in ("&&", "||"):
            return Approximate(value, _undecided_logic(op, a, b).astype(np.float64))
        if not operands.is_float:
            return Approximate(value, np.where(inexact(a.bound, b.bound), np.inf, 0.0))
        if self._is_tf32 and op == "*" and operands == FLOAT32:
            a, b = _as_tf32(a), _as_tf32(b)
        if self._is_bfloat16 and op == "*" and operands == FLOAT32:
            a, b = _as_bfloat16(a), _as_bfloat16(b)
        bound = _operand_errors(op, a, b, value)
        exact = ~inexact(a.bound, b.bound)
        result = rounded(value, bound, exact, dtype)
        if self._is_in_parts and op == "*" and operands == FLOAT32:
            result = _in_parts(a, b, result)
        if self._is_float8 and op == "*" and operands == FLOAT32:
            result = _truncated(a, b, result)
        if self._is_reassociated:
            result = _of_products(op, a, b, result)
        if op == "%":  # where the signs differ y is added to the C remainder, and that rounds
            shift = np.where(np.isfinite(value), unit_roundoff(dtype) * np.abs(b.value), 0)
            result = settled(value, result.bound + np.where(value == 0, 0, shift), dtype)
        return result

    def select(self, condition: Approximate, if_true: Approximate, if_false: Approximate) -> Any:
        holds = condition.value
        value = np.where(holds, if_true.value, if_false.value)
        other = np.where(holds, if_false.value, if_true.value)
        bound = np.where(holds, if_true.bound, if_false.bound)
        if (condition.bound > 0).any():
            apart = np.where(value == other, 0.0, np.abs(_float(other) - _float(value)))
            hull = np.maximum(bound, apart + np.where(holds, if_false.bound, if_true.bound))
            hull = np.where(np.isnan(hull), np.inf, hull)
            bound = np.where(condition.bound > 0, hull, bound)
        return Approximate(value, bound, _largest_of(if_true, if_false))

    def cast(self, v: Approximate, source: DType, dtype: DType) -> Approximate:
        if source == dtype:
            return v
        if source.is_float and dtype.is_float:
            narrower = dtype.is_narrow_float or dtype.size_bytes < source.size_bytes
            return narrowed(v, dtype) if narrower else _widened(v, dtype)
        if dtype == BOOL:
            undecided = (v.bound > 0) & ~(np.abs(_float(v.value)) > v.bound)
            return Approximate(convert(v.value, dtype), undecided.astype(np.float64))
        if source.is_float:
            return _to_integer(v, dtype)
        value = convert(v.value, dtype).astype(working(dtype))
        if dtype.is_narrow_float and v.bound.size and source != BOOL:
            direct = to_narrow(v.value.astype(np.float64), dtype).astype(np.float64)
            twice = np.where(direct == value, 0.0, np.abs(direct - value))
            return Approximate(value, v.bound * 2 + twice)
        if dtype.is_float:
            moved = np.where(v.bound > 0, np.abs(value - v.value.astype(value.dtype)), 0)
            return rounded(value, (v.bound + moved).astype(np.float64), v.bound == 0, dtype)
        wraps = dtype.size_bytes < source.size_bytes or dtype.kind != source.kind
        unknown = np.where(v.bound > 0, np.inf, 0.0) if wraps and source != BOOL else v.bound
        return Approximate(value, unknown)

    def call(self, function: str, args: tuple[Approximate, ...], dtype: DType) -> Approximate:
        values, bounds = tuple(a.value for a in args), tuple(a.bound for a in args)
        value = np.asarray(FUNCTIONS[function](*values))
        if dtype == BOOL:  # isnan, isinf
            return Approximate(value, np.isinf(bounds[0]).astype(np.float64))
        if not dtype.is_float:
            return Approximate(value, np.where(inexact(*bounds), np.inf, 0.0))
        if function == "nextafter":
            return _nextafter(values, bounds, dtype)
        bound, exact = propagated(function, values, bounds, value), ~inexact(*bounds)
        if function in EXACT:
            return settled(value, bound, dtype)
        if function in BASIC:
            result = rounded(value, bound, exact, dtype)
            if function != "fma":
                return result
            product = np.abs(values[0] * values[1])  # not fused, its product is rounded as well
            return rounded(value, bound + unit_roundoff(dtype) * product, exact & False, dtype)
        u, k = unit_roundoff(dtype), ULPS.get(function, ULPS_USUAL)
        own = 2 * k * u * (np.abs(value) + bound) + absolute_error(function, u)
        # Below the normal numbers a unit in the last place is the smallest number.
        own = own + np.where((value == 0) & exact, 0.0, 2 * k * smallest(dtype))
        return settled(value, bound + np.where(np.isfinite(value), own, 0), dtype)

    def spread(self, v: Approximate, shape: Shape, new_shape: Shape) -> Approximate:
        parts = v.value, v.bound, v.value if v.size is None else v.size
        value, bound, size = (np.broadcast_to(p, shape).reshape(new_shape) for p in parts)
        return replace(v, value=value, bound=bound, size=None if v.size is None else size)

    def take(self, v: Approximate, positions: Any) -> Approximate:
        largest = _largest_size(v) if self._is_in_parts else None
        return Approximate(np.asarray(v.value[positions]), np.asarray(v.bound[positions]), largest)

    def put(self, v: Approximate, positions: Any, values: Approximate) -> None:
        v.value[positions] = values.value
        v.bound[positions] = values.bound

    def accumulator(
        self, operator: Operator, dtype: DType, held: Approximate, *, is_own: bool
    ) -> Folded:
        return accumulator(operator, dtype, held, is_compensated=is_own and self._is_compensated)


def _as_tf32(a: Approximate) -> Approximate:
    """Return *a*, which may be rounded to the 11 bits of tf32, or to an infinity."""
    size = np.abs(a.value) + a.bound
    lost = np.where(np.isfinite(a.value), size * 2.0**-11 + smallest(FLOAT32) * 2.0**13, 0.0)
    overflows = np.isfinite(a.value) & (size >= largest(FLOAT32) * (1 - 2.0**-12))
    return replace(a, bound=np.where(overflows, np.inf, a.bound + lost))


def _as_bfloat16(a: Approximate) -> Approximate:
    """Return *a*, which may be rounded to bfloat16, to an infinity too; a bfloat16 stays itself.

    Rounding is monotone: what is between two numbers is rounded to what is between these rounded.
    """
    rounded_ends = (convert(end, BFLOAT16) for end in (a.value - a.bound, a.value + a.bound))
    ends = [end.astype(working(FLOAT32)) for end in rounded_ends]
    gaps = [np.where(end == a.value, 0.0, np.abs(end - a.value)) for end in ends]
    bound = np.maximum(a.bound, np.max(gaps, axis=0))
    return replace(a, bound=unless_exact(np.isnan(a.value) & (a.bound == 0), bound))


def _truncated(a: Approximate, b: Approximate, product: Approximate) -> Approximate:
    """Return the *product* of *a* and *b*, numbers of float8, with what a sum of it may lose.

    An instruction adds up to 32 of them and the sum of a step so far, each cut at 2^-13 of the
    largest: 33 2^-13 of the sizes.  A step has four: 2^-5 is a bound.  That 14 bits are kept is
    from DeepSeek-V3, Technical report, arXiv:2412.19437, section 3.5.2; not measured by us.
    """
    are_float8 = [
        np.any([convert(v.value, dtype) == v.value for dtype in FLOAT8], axis=0) & (v.bound == 0)
        for v in (a, b)
    ]
    lost = np.where(np.logical_and(*are_float8), 2.0**-5 * np.abs(product.value), 0.0)
    return replace(product, bound=product.bound + np.where(np.isfinite(lost), lost, 0.0))


def _largest_size(v: Approximate) -> float:
    sizes = np.abs(v.value.astype(np.float64)) + v.bound
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def _largest_of(*branches: Approximate) -> float | None:
    """Return the largest size of elements, or of zeros in their place, that *branches* are."""
    known = [v.largest if np.any(v.value) else 0.0 for v in branches]
    return None if None in known else max(size for size in known if size is not None)


def _in_parts(a: Approximate, b: Approximate, product: Approximate) -> Approximate:
    """Return the *product* of *a* and *b*, which may be made of parts of float16.

    Of elements alone, and of their products: what rewrites/scop/float16_parts.py derives, which
    also holds for sums of products as factors.  Then largest sizes count once a term of these.
    """
    if a.largest is None or b.largest is None:
        return product
    x, y = (np.where(np.isfinite(v.value), np.abs(v.value) + v.bound, 0.0) for v in (a, b))
    f, g = (2.0**-39 * max(largest, 2.0**-112) for largest in (a.largest, b.largest))
    lost = 3.25 * 2.0**-22 * x * y + 1.25 * (f * y + g * x) + 6 * f * g
    bound = product.bound + np.where((x > 0) & (y > 0), lost, 0.0)
    return Approximate(product.value, bound, a.largest * b.largest, FLOAT16_PARTS)


def _of_products(op: str, a: Approximate, b: Approximate, result: Approximate) -> Approximate:
    """Return *result*, products or a sum of such, with their size."""
    if op == "*":
        one, other = ((np.abs(v.value) if v.size is None else v.size) + v.bound for v in (a, b))
        return replace(result, size=one * other)
    if op == "+" and a.size is not None and b.size is not None:
        return replace(result, size=a.size + b.size, parts=max(a.parts, b.parts))
    return result


def _float(v: Array) -> Array:
    return v if v.dtype.kind == "f" else v.astype(np.float64)


def _undecided(a: Approximate, b: Approximate) -> Array:
    """Return where the intervals of *a* and *b* overlap, so that a comparison may go either way."""
    either = a.bound + b.bound
    if not either.any():
        return np.zeros(np.broadcast_shapes(a.value.shape, b.value.shape), bool)
    x, y = _float(a.value), _float(b.value)
    nan = (np.isnan(x) | np.isnan(y)) & np.isfinite(either)  # certain: every comparison fails
    return np.asarray((either > 0) & ~(np.abs(x - y) > either) & ~nan)


def _undecided_logic(op: str, a: Approximate, b: Approximate) -> Array:
    """Return where neither operand decides ``&&`` (by being false) or ``||`` (by being true)."""
    decisive = op == "||"
    decided = ((a.value == decisive) & (a.bound == 0)) | ((b.value == decisive) & (b.bound == 0))
    return np.asarray(inexact(a.bound, b.bound) & ~decided)


def _operand_errors(op: str, a: Approximate, b: Approximate, value: Array) -> Array:
    """Return what the errors of its operands add to the error of ``a op b`` on floats."""
    (x, ex), (y, ey) = (a.value, a.bound), (b.value, b.bound)
    if not ex.any() and not ey.any():  # products of what is given: most of the terms that there are
        return np.zeros(np.broadcast_shapes(x.shape, ex.shape, y.shape, ey.shape))
    sign_known = (np.abs(y) > ey) | (ey == 0)
    match op:
        case "+" | "-":
            bound, certain = ex + ey, np.ones((), bool)
        case "*":
            bound = np.abs(x) * ey + np.abs(y) * ex + ex * ey
            certain = sign_known & ((np.abs(x) > ex) | (ex == 0))
        case "/":
            bound, certain = quotient_error((x, y), (ex, ey)), sign_known
        case _:
            bound, certain = FLOORED((x, y), (ex, ey), value), np.zeros((), bool)
    # An operand that is certainly infinite or NaN decides the result, if the other's sign is known.
    special = ~(np.isfinite(x) & np.isfinite(y))
    bound = np.where(special, np.where(certain, 0.0, np.inf), bound)
    unknown = np.isinf(ex) | np.isinf(ey)
    bound = np.where(unknown, np.inf, bound)
    return unless_exact(~inexact(ex, ey), bound).astype(np.float64)


def _widened(v: Approximate, dtype: DType) -> Approximate:
    return Approximate(v.value.astype(working(dtype)), v.bound)


def _to_integer(v: Approximate, dtype: DType) -> Approximate:
    """Return *v* truncated; truncation is monotone, so its ends bound it."""
    value = to_integer(v.value, dtype)
    if not v.bound.any():
        return Approximate(value, np.zeros(value.shape))
    # Neighbouring 64-bit integers are one float64: their distance is taken in a wider type.
    ends = [to_integer(v.value + s * v.bound, dtype).astype(np.longdouble) for s in (-1, 1)]
    gaps = np.max([np.abs(end - value.astype(np.longdouble)) for end in ends], axis=0)
    gaps = gaps.astype(np.float64)
    bound = np.where(np.isinf(v.bound), np.inf, np.where(v.bound > 0, gaps, 0.0))
    return Approximate(value, bound)


def _nextafter(values: tuple[Array, ...], bounds: tuple[Array, ...], dtype: DType) -> Approximate:
    """Return the neighbour in *dtype*, whatever precision is computed in here."""
    own = np.asarray(np.nextafter(*(v.astype(dtype.numpy) for v in values)))
    value, exact = own.astype(working(dtype)), ~inexact(*bounds)
    step = 4 * unit_roundoff(dtype) * np.abs(value) + 4 * smallest(dtype)
    return settled(value, unless_exact(exact, bounds[0] + bounds[1] * 0 + step), dtype)


__all__ = ["Approximate", "Bounded", "evaluate_with_bounds"]
