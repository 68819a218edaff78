"""How an error of its arguments grows through a builtin, and how wrong its result may be itself.

Argument errors are not linearised: the bound is rigorous for errors of any size.

    monotone f      max |f(x +- e) - f(x)|, and the extrema between x - e and x + e
    Lipschitz f     L e
    two arguments   at the corners for pow, by hand for the others
"""

import math
from collections.abc import Callable

import numpy as np

from tcdsl.interp.arithmetic import FUNCTIONS, Array

# Units in the last place by which a library may be wrong.  CUDA promises at most 4 for most of
# its functions, and up to 10 for these (CUDA C++ Programming Guide, "Mathematical Functions").
ULPS_USUAL = 8
ULPS: dict[str, int] = dict.fromkeys(
    ("erfcinv", "erfcx", "erfinv", "lgamma", "tgamma", "normcdf", "normcdfinv", "j0", "j1", "y0",
     "y1", "cyl_bessel_i0", "cyl_bessel_i1", "sigmoid"),
    32,
)  # fmt: skip
# These are exact; the basic operations below round once.
EXACT = frozenset(
    ("abs", "ceil", "copysign", "fabs", "floor", "fmax", "fmin", "fmod", "logb", "max", "min",
     "nextafter", "relu", "remainder", "round", "sign", "trunc")
)  # fmt: skip
BASIC = frozenset(("fdim", "fma", "sqrt"))

# Near their zeros these are only accurate absolutely: roundoffs of the type, and for float64 the
# 5e-12 that CUDA promises of the Bessel functions at large arguments.
_ABSOLUTE = frozenset(("j0", "j1", "y0", "y1", "lgamma"))

_LIPSCHITZ = {
    "sin": 1.0, "cos": 1.0, "sinpi": math.pi, "cospi": math.pi, "j0": 0.59, "j1": 0.5,
}  # fmt: skip
_RANGE = 2.0  # how far two of their values can be apart
# Interior extrema of functions that are monotone otherwise.
_EXTREMA = {"cosh": 0.0, "cyl_bessel_i0": 0.0, "abs": 0.0, "fabs": 0.0,
            "lgamma": 1.4616321449683622, "tgamma": 1.4616321449683622}  # fmt: skip
_ONLY_POSITIVE = frozenset(("lgamma", "tgamma", "y0", "y1"))
_POLE_AT_ZERO = frozenset(("rcbrt", "logb"))


def absolute_error(function: str, unit_roundoff: float) -> float:
    """Return the part of *function*'s own error that does not shrink with its value."""
    return 64 * unit_roundoff + 1e-11 * (unit_roundoff < 1e-12) if function in _ABSOLUTE else 0.0


def propagated(function: str, xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    """Return a bound on ``|f(x') - value|`` over all x' within *es* of *xs*; NaN is unknown.

    :arg value: ``f(xs)``, at no extra cost.
    """
    if function in _RULES:
        bound = _RULES[function](xs, es, value)
    elif function in _LIPSCHITZ:
        bound = np.minimum(_LIPSCHITZ[function] * es[0], _RANGE)
    elif len(xs) == 1:
        bound = _by_endpoints(function, xs[0], es[0], value)
    else:  # min, max, and their kin: Lipschitz in the largest error
        bound = np.max(np.broadcast_arrays(*es), axis=0)
    exact = (sum(es) == 0) & ~np.any(np.broadcast_arrays(*map(np.isnan, xs)), axis=0)
    unknown = np.any(np.broadcast_arrays(*map(np.isinf, es)), axis=0)
    bound = np.where(exact, 0.0, np.where(unknown, np.inf, bound))
    return np.where(np.isnan(bound), np.inf, bound).astype(np.float64)


def _by_endpoints(function: str, x: Array, e: Array, value: Array) -> Array:
    low, high = x - e, x + e
    f = FUNCTIONS[function]
    bound = np.maximum(np.abs(f(low) - value), np.abs(f(high) - value))
    if function in _EXTREMA:
        at = x.dtype.type(_EXTREMA[function])
        inside = (low < at) & (at < high)
        bound = np.where(inside, np.maximum(bound, np.abs(f(np.asarray(at)) - value)), bound)
    if function in _ONLY_POSITIVE:
        bound = np.where(low > 0, bound, np.inf)
    if function in _POLE_AT_ZERO:
        bound = np.where(np.abs(x) > e, bound, np.inf)
    return np.asarray(bound)


Rule = Callable[[tuple[Array, ...], tuple[Array, ...], Array], Array]


def _bessel_y0(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    # |Y0'| = |Y1| <= 2 / (pi x) + 1
    low = xs[0] - es[0]
    return np.where(low > 0, es[0] * (1 + 1 / low), np.inf)


def _bessel_y1(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    # |Y1'| = |Y0 - Y1 / x| <= |log x| + 1 + (1 / x + 1) / x
    low = xs[0] - es[0]
    slope = np.maximum(0, -np.log(low)) + 1 + (1 + 1 / low) / low
    return np.where(low > 0, es[0] * slope, np.inf)


def _tan(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    # Monotone on a branch, and cos has one sign there.
    low, high = xs[0] - es[0], xs[0] + es[0]
    one_branch = (np.sign(np.cos(low)) == np.sign(np.cos(high))) & (es[0] < 1)
    bound = np.maximum(np.abs(np.tan(low) - value), np.abs(np.tan(high) - value))
    return np.where(one_branch, bound, np.inf)


def _atan2(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    # A point moved by d at distance r turns by at most asin(d / r) <= (pi / 2) d / r.
    (y, x), moved = xs, es[0] + es[1]
    turn = np.where(moved < np.hypot(x, y), np.pi / 2 * moved / np.hypot(x, y), 2 * np.pi)
    on_the_cut = (x - es[1] <= 0) & (np.abs(y) <= es[0])
    return np.where(on_the_cut, 2 * np.pi, turn)


def _copysign(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    # The sign of a NaN is the machine's: 0 * inf is negative on x86, positive on a GPU.
    sign_known = (np.abs(xs[1]) > es[1]) | ((es[1] == 0) & ~np.isnan(xs[1]))
    return np.where(sign_known, es[0], 2 * np.abs(xs[0]) + es[0])


def _fma(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    (x, y, _), (ex, ey, ez) = xs, es
    return np.asarray(np.abs(x) * ey + np.abs(y) * ex + ex * ey + ez)


def _sum(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    return np.asarray(sum(es))  # hypot, the norms and fdim move no faster than their arguments


def _inverse_norm(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    size, moved = 1 / value, sum(es)
    return np.where(size > moved, moved / (size * (size - moved)), np.inf)


def _pow(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
    # For x > 0 it is monotone in each argument, so that the corners are the extrema; for x < 0 it
    # is so in x, if y is certain.
    (x, y), (ex, ey) = xs, es
    f = FUNCTIONS["pow"]
    corners = [f(x + sx * ex, y + sy * ey) for sx in (-1, 1) for sy in (-1, 1)]
    bound = np.max([np.abs(corner - value) for corner in corners], axis=0)
    return np.where((x > ex) | ((ey == 0) & (np.abs(x) > ex)), bound, np.inf)


def quotient_error(xs: tuple[Array, ...], es: tuple[Array, ...]) -> Array:
    """Return a bound on the error of ``x / y``, infinite where y might be 0."""
    (x, y), (ex, ey) = (np.abs(v) for v in xs), es
    return np.where(y > ey, (x * ey + y * ex) / (y * (y - ey)), np.inf)


def remainder_rule(whole: Callable[[Array], Array]) -> Rule:
    """Return the rule of ``x - y whole(x / y)``; any remainder, where the whole is in doubt."""

    def rule(xs: tuple[Array, ...], es: tuple[Array, ...], value: Array) -> Array:
        (x, y), (ex, ey) = xs, es
        quotient, eq = x / y, quotient_error(xs, es)
        margin = eq + np.abs(quotient) * 2.0**-50
        same = whole(quotient - margin) == whole(quotient + margin)
        return np.where(same, ex + np.abs(whole(quotient)) * ey, 2 * (np.abs(y) + ey) + 0 * margin)

    return rule


FLOORED = remainder_rule(np.floor)
_RULES: dict[str, Rule] = {
    "y0": _bessel_y0, "y1": _bessel_y1, "tan": _tan, "atan2": _atan2, "copysign": _copysign,
    "fma": _fma, "hypot": _sum, "norm3d": _sum, "norm4d": _sum, "fdim": _sum,
    "rhypot": _inverse_norm, "rnorm3d": _inverse_norm, "rnorm4d": _inverse_norm, "pow": _pow,
    "fmod": remainder_rule(np.trunc), "remainder": remainder_rule(np.rint),
}  # fmt: skip
