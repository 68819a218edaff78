"""The builtin functions: what each takes, the type of its result, and what it computes.

    kind        arguments                            result
    FLOAT       promoted, starting from float32      that type
    ANY         promoted                             that type; integers stay integers
    TEST        promoted, starting from float32      bool

No builtin takes a bool: convert it first.
"""

from collections.abc import Iterator
from enum import StrEnum

from tcdsl.records import dataclass


class BuiltinKind(StrEnum):
    """How a builtin's type follows from its arguments' (see the module's docstring)."""

    FLOAT = "float"
    ANY = "any"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Builtin:
    """A builtin function of *parameters*; *meaning* says what it computes of them."""

    name: str
    kind: BuiltinKind
    parameters: tuple[str, ...]
    meaning: str

    @property
    def arity(self) -> int:
        return len(self.parameters)


def name_and_meaning(builtin: Builtin) -> str:
    """Return ``pow(x, y): x to the power y``."""
    return f"{builtin.name}({', '.join(builtin.parameters)}): {builtin.meaning}"


_FLOAT = """
acos(x): arc cosine, in [0, pi]
acosh(x): inverse hyperbolic cosine
asin(x): arc sine, in [-pi/2, pi/2]
asinh(x): inverse hyperbolic sine
atan(x): arc tangent, in [-pi/2, pi/2]
atan2(y, x): angle of the point (x, y), in [-pi, pi]
atanh(x): inverse hyperbolic tangent
cbrt(x): cube root
ceil(x): least integer that is not below x
copysign(x, y): |x| with the sign of y; either sign if y is NaN
cos(x): cosine
cosh(x): hyperbolic cosine
cospi(x): cos(pi x)
cyl_bessel_i0(x): modified Bessel function of the first kind, order 0
cyl_bessel_i1(x): modified Bessel function of the first kind, order 1
erf(x): error function
erfc(x): 1 - erf(x), accurate for large x
erfcinv(x): inverse of erfc
erfcx(x): exp(x^2) erfc(x), accurate for large x
erfinv(x): inverse of erf
exp(x): e^x
exp10(x): 10^x
exp2(x): 2^x
expm1(x): e^x - 1, accurate near 0
fabs(x): |x|
fdim(x, y): x - y where x > y, else 0
floor(x): greatest integer that is not above x
fma(x, y, z): x y + z, rounded once
fmax(x, y): the greater; a NaN is ignored
fmin(x, y): the lesser; a NaN is ignored
fmod(x, y): remainder of x / y truncated, with the sign of x
hypot(x, y): sqrt(x^2 + y^2) without overflow in between
j0(x): Bessel function of the first kind, order 0
j1(x): Bessel function of the first kind, order 1
lgamma(x): ln |Gamma(x)|
log(x): natural logarithm
log10(x): logarithm of base 10
log1p(x): ln(1 + x), accurate near 0
log2(x): logarithm of base 2
logb(x): exponent of x: floor(log2(|x|))
nextafter(x, y): next number of the type after x towards y
norm3d(x, y, z): sqrt(x^2 + y^2 + z^2)
norm4d(x, y, z, t): sqrt(x^2 + y^2 + z^2 + t^2)
normcdf(x): cumulative distribution function of the standard normal distribution
normcdfinv(x): inverse of normcdf
pow(x, y): x^y
rcbrt(x): 1 / cbrt(x)
remainder(x, y): x - n y with n the integer nearest to x / y
rhypot(x, y): 1 / hypot(x, y)
rnorm3d(x, y, z): 1 / norm3d(x, y, z)
rnorm4d(x, y, z, t): 1 / norm4d(x, y, z, t)
round(x): nearest integer, halves away from 0
rsqrt(x): 1 / sqrt(x)
sigmoid(x): 1 / (1 + e^-x)
sin(x): sine
sinh(x): hyperbolic sine
sinpi(x): sin(pi x)
sqrt(x): square root
tan(x): tangent
tanh(x): hyperbolic tangent
tgamma(x): gamma function
trunc(x): x without its fraction
y0(x): Bessel function of the second kind, order 0
y1(x): Bessel function of the second kind, order 1
"""
_ANY = """
abs(x): |x|
max(x, y): the greater; NaN if one is NaN
min(x, y): the lesser; NaN if one is NaN
relu(x): max(x, 0)
sign(x): -1, 0 or 1; NaN if x is NaN
"""
_TEST = """
isinf(x): whether x is an infinity
isnan(x): whether x is NaN
"""


def _builtins(text: str, kind: BuiltinKind) -> Iterator[Builtin]:
    """Yield the builtins that *text* lists, one a line: ``name(parameters): meaning``."""
    for line in text.strip().splitlines():
        head, meaning = line.split(": ", 1)
        name, parameters = head.rstrip(")").split("(")
        yield Builtin(name, kind, tuple(parameters.split(", ")), meaning)


BUILTINS: dict[str, Builtin] = {
    builtin.name: builtin
    for text, kind in (
        (_FLOAT, BuiltinKind.FLOAT), (_ANY, BuiltinKind.ANY), (_TEST, BuiltinKind.TEST),
    )
    for builtin in _builtins(text, kind)
}  # fmt: skip
