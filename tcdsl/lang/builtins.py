"""The builtin functions: how many arguments each takes, and the type of what it gives.

    kind        arguments                            result
    FLOAT       promoted, starting from float32      that type
    ANY         promoted                             that type; integers stay integers
    TEST        promoted, starting from float32      bool

No builtin takes a bool: convert it first.
"""

from dataclasses import dataclass
from enum import StrEnum


class BuiltinKind(StrEnum):
    """How a builtin's type follows from its arguments' (see the module's docstring)."""

    FLOAT = "float"
    ANY = "any"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Builtin:
    """A builtin function of *arity* arguments."""

    name: str
    arity: int
    kind: BuiltinKind


_UNARY = (
    "acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi erf erfc erfcinv erfcx erfinv exp "
    "exp10 exp2 expm1 fabs floor j0 j1 cyl_bessel_i0 cyl_bessel_i1 lgamma log log10 log1p log2 "
    "logb normcdf normcdfinv rcbrt round rsqrt sigmoid sin sinh sinpi sqrt tan tanh tgamma trunc "
    "y0 y1"
)
_BINARY = "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder rhypot"

BUILTINS: dict[str, Builtin] = {
    builtin.name: builtin
    for builtin in (
        *(Builtin(name, 1, BuiltinKind.FLOAT) for name in _UNARY.split()),
        *(Builtin(name, 2, BuiltinKind.FLOAT) for name in _BINARY.split()),
        *(Builtin(name, 3, BuiltinKind.FLOAT) for name in ("fma", "norm3d", "rnorm3d")),
        *(Builtin(name, 4, BuiltinKind.FLOAT) for name in ("norm4d", "rnorm4d")),
        *(Builtin(name, 1, BuiltinKind.ANY) for name in ("abs", "sign", "relu")),
        *(Builtin(name, 2, BuiltinKind.ANY) for name in ("min", "max")),
        *(Builtin(name, 1, BuiltinKind.TEST) for name in ("isnan", "isinf")),
    )
}
