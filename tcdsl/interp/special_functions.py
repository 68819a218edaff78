"""The builtins that neither NumPy nor the ``math`` module has, as scalar functions of doubles.

Each is accurate to a few units in the last place of float64, the Bessel functions to about 1e-15
absolute.  They are slow and short: they define what fast code is compared with.
Formulas after Abramowitz and Stegun, Handbook of Mathematical Functions (1964), chapters 7 and 9.
"""

import math
from collections.abc import Callable

import numpy as np

_EULER = 0.5772156649015328606
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_SQRT_HALF = np.sqrt(np.longdouble(0.5))
# Hankel's expansion has terms down to e^(-2x): at 25 it is exact to double precision.
_ASYMPTOTIC_FROM = 25.0


def lgamma(x: float) -> float:
    """Return ``ln |gamma(x)|``, +inf at the poles (as C does)."""
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def tgamma(x: float) -> float:
    """Return ``gamma(x)``: +-inf at +-0, NaN at the other poles and at -inf (as C does)."""
    if x == 0:
        return math.copysign(math.inf, x)
    if x < 0 and (math.isinf(x) or x == math.floor(x)):
        return math.nan
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf if x > 0 or math.floor(x) % 2 == 0 else -math.inf


def remainder(x: float, y: float) -> float:
    """Return ``x - n y`` for the integer n nearest to ``x / y``, ties to even."""
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return math.nan
    return math.remainder(x, y)


def erfinv(x: float) -> float:
    """Return z with ``erf(z) = x``."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    if abs(x) > 0.5:  # 1 - |x| is exact here, and erfc keeps its relative accuracy
        return math.copysign(erfcinv(1 - abs(x)), x)
    z = x / _TWO_OVER_SQRT_PI * (1 + math.pi / 12 * x * x)
    for _ in range(4):  # Halley's iteration: f'' / f' = -2 z
        step = (math.erf(z) - x) / (_TWO_OVER_SQRT_PI * math.exp(-z * z))
        z -= step / (1 + z * step)
    return z


def erfcinv(y: float) -> float:
    """Return z with ``erfc(z) = y``."""
    if not 0 < y < 2:
        return math.inf if y == 0 else -math.inf if y == 2 else math.nan
    if y >= 0.5:
        return erfinv(1 - y) if y <= 1.5 else -erfcinv(2 - y)
    # erfc(z) is about exp(-z^2) / (z sqrt(pi)): Newton on its logarithm, nearly a parabola.
    log_y = math.log(y)
    z = math.sqrt(max(-log_y - 0.5 * math.log(max(-log_y * math.pi, 1.0)), 0.1))
    for _ in range(8):
        scaled = erfcx(z)  # exp(z^2) erfc(z)
        z += (math.log(scaled) - z * z - log_y) * scaled / _TWO_OVER_SQRT_PI
    return z


def erfcx(x: float) -> float:
    """Return ``exp(x^2) erfc(x)``."""
    if x > 10:
        # 1 / (x sqrt(pi)) (1 - 1/(2x^2) + 3/(2x^2)^2 - ...)
        total, term = 1.0, 1.0
        for n in range(1, 30):
            term *= -(2 * n - 1) / (2 * x * x)
            total += term
        return total / math.sqrt(math.pi) / x  # the product of both may overflow
    if x < -27:
        return math.inf
    square = x * x
    # exp multiplies the absolute error of its argument: give it what rounding x*x has lost.
    lost = float(np.longdouble(x) * np.longdouble(x) - np.longdouble(square))
    try:
        return math.exp(square) * (1 + lost) * math.erfc(x)
    except OverflowError:
        return math.inf


def normcdf(x: float) -> float:
    """Return ``erfc(-x / sqrt(2)) / 2``, the normal distribution."""
    if math.isinf(x) or math.isnan(x):
        return float(x > 0) if math.isinf(x) else math.nan
    exact = -np.longdouble(x) * _SQRT_HALF
    z = float(exact)
    # In the far tail the rounding of z alone would cost hundreds of units: correct to first order.
    lost = float(exact - np.longdouble(z))
    slope = -_TWO_OVER_SQRT_PI * math.exp(-z * z) if abs(z) < 27 else 0.0
    return 0.5 * (math.erfc(z) + slope * lost)


def normcdfinv(p: float) -> float:
    """Return z with ``normcdf(z) = p``."""
    return -math.sqrt(2.0) * erfcinv(2 * p)


def _miller(x: float) -> list[float]:
    """Return J_0(x), J_1(x), ... by the backward recurrence, for 0 < x < 25."""
    if x < 1e-3:
        return [1 - x * x / 4, x / 2 * (1 - x * x / 8), x * x / 8, 0.0, 0.0]
    top = 2 * (int(x) // 2) + 40
    values = [0.0] * (top + 2)
    values[top] = 1e-150
    for n in range(top, 0, -1):
        values[n - 1] = 2 * n / x * values[n] - values[n + 1]
    norm = values[0] + 2 * math.fsum(values[2::2])  # J_0 + 2 J_2 + 2 J_4 + ... = 1
    return [value / norm for value in values]


def _hankel(order: int, x: float) -> tuple[float, float]:
    """Return (J, Y) of *order* 0 or 1 at a large x by Hankel's expansion."""
    p, q, term = 1.0, 0.0, 1.0
    for k in range(1, 25):
        term *= (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        sign = (1, 1, -1, -1)[k % 4]
        p, q = (p + sign * term, q) if k % 2 == 0 else (p, q + sign * term)
    # cos and sin of x - pi/4 - order pi/2, without rounding the difference.
    cosine, sine = math.cos(x), math.sin(x)
    c, s = (cosine + sine) * math.sqrt(0.5), (sine - cosine) * math.sqrt(0.5)
    if order == 1:
        c, s = s, -c
    scale = math.sqrt(2 / (math.pi * x))
    return scale * (p * c - q * s), scale * (p * s + q * c)


def _bessel_j(order: int, x: float) -> float:
    if math.isnan(x) or x == 0 or math.isinf(x):
        return math.nan if math.isnan(x) else float(order == 0 and x == 0)
    size = abs(x)
    value = _hankel(order, size)[0] if size >= _ASYMPTOTIC_FROM else _miller(size)[order]
    return -value if order == 1 and x < 0 else value


def j0(x: float) -> float:
    """Return the Bessel function of the first kind of order 0."""
    return _bessel_j(0, x)


def j1(x: float) -> float:
    """Return the Bessel function of the first kind of order 1."""
    return _bessel_j(1, x)


def _bessel_y(order: int, x: float) -> float:
    if math.isnan(x) or x < 0 or math.isinf(x):
        return 0.0 if x == math.inf else math.nan
    if x == 0:
        return -math.inf
    if x >= _ASYMPTOTIC_FROM:
        return _hankel(order, x)[1]
    j = [*_miller(x), 0.0]
    log_term = math.log(x) - math.log(2) + _EULER  # half of the least denormal is 0
    pairs = range(1, (len(j) - 1) // 2)
    if order == 0:  # Neumann's series, and its derivative below
        series = math.fsum((-1) ** k * j[2 * k] / k for k in pairs)
        return 2 / math.pi * (log_term * j[0] - 2 * series)
    series = math.fsum((-1) ** k * (j[2 * k - 1] - j[2 * k + 1]) / k for k in pairs)
    return 2 / math.pi * (log_term * j[1] - j[0] / x + series)


def y0(x: float) -> float:
    """Return the Bessel function of the second kind of order 0."""
    return _bessel_y(0, x)


def y1(x: float) -> float:
    """Return the Bessel function of the second kind of order 1."""
    return _bessel_y(1, x)


def _bessel_i(order: int, x: float) -> float:
    if math.isnan(x) or math.isinf(x):
        return math.nan if math.isnan(x) else (x if order == 1 else math.inf)
    size = abs(x)
    if size > 720:
        value = math.inf
    elif size > 40:
        total, term = 1.0, 1.0
        for k in range(1, 30):
            term *= -(4 * order * order - (2 * k - 1) ** 2) / (8 * k * size)
            total += term
        # exp is split because it overflows before the function does.
        half = math.exp(size / 2)
        value = half * (total / math.sqrt(2 * math.pi * size)) * half
    else:
        value = term = 1.0 if order == 0 else size / 2
        for k in range(1, 90):  # all terms are positive: nothing cancels
            term *= (size / 2) / k * ((size / 2) / (k + order))
            value += term
    return -value if order == 1 and x < 0 else value


def cyl_bessel_i0(x: float) -> float:
    """Return the modified Bessel function of the first kind of order 0."""
    return _bessel_i(0, x)


def cyl_bessel_i1(x: float) -> float:
    """Return the modified Bessel function of the first kind of order 1."""
    return _bessel_i(1, x)


SCALAR: dict[str, Callable[..., float]] = {
    "erf": math.erf, "erfc": math.erfc, "erfinv": erfinv, "erfcinv": erfcinv, "erfcx": erfcx,
    "lgamma": lgamma, "tgamma": tgamma, "normcdf": normcdf, "normcdfinv": normcdfinv,
    "remainder": remainder, "j0": j0, "j1": j1, "y0": y0, "y1": y1,
    "cyl_bessel_i0": cyl_bessel_i0, "cyl_bessel_i1": cyl_bessel_i1,
}  # fmt: skip
