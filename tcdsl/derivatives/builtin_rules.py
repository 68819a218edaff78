"""The derivatives of the builtin functions, as expressions of the language.

    f(x, y):  df/dx | df/dy          y = f(x, y)  --->  dx += dy * df/dx

A derivative that is 0 everywhere is written ``0``: nothing flows there.  Where a function has a
kink, the derivative is that of one side, or their mean (docs/derivatives.md).
"""

from functools import cache
from math import isnan

from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Select, Unary
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.parser import parse_statements
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import BOOL, DType
from tcdsl.source import Source

_RULES = """
abs: sign(x)
acos: -rsqrt((1 - x) * (1 + x))
acosh: 1 / sqrt((x - 1) * (x + 1))
asin: rsqrt((1 - x) * (1 + x))
asinh: rsqrt(x * x + 1)
atan: 1 / (1 + x * x)
atan2: x / (x * x + y * y) | -(y / (x * x + y * y))
atanh: 1 / ((1 - x) * (1 + x))
cbrt: 1 / (3 * cbrt(x) * cbrt(x))
ceil: 0
copysign: copysign(1.0, x) * copysign(1.0, y) | 0
cos: -sin(x)
cosh: sinh(x)
cospi: -(3.141592653589793 * sinpi(x))
cyl_bessel_i0: cyl_bessel_i1(x)
cyl_bessel_i1: x == 0 ? 0.5 : cyl_bessel_i0(x) - cyl_bessel_i1(x) / x
erf: 1.1283791670955126 * exp(-(x * x))
erfc: -(1.1283791670955126 * exp(-(x * x)))
erfcinv: -(0.886226925452758 * exp(erfcinv(x) * erfcinv(x)))
erfcx: 2 * x * erfcx(x) - 1.1283791670955126
erfinv: 0.886226925452758 * exp(erfinv(x) * erfinv(x))
exp: exp(x)
exp10: 2.302585092994046 * exp10(x)
exp2: 0.6931471805599453 * exp2(x)
expm1: exp(x)
fabs: sign(x)
fdim: x > y ? 1 : 0 | x > y ? -1 : 0
floor: 0
fma: y | x | 1
fmax: x > y || isnan(y) ? 1 : (x == y ? 0.5 : 0) | y > x || isnan(x) ? 1 : (x == y ? 0.5 : 0)
fmin: x < y || isnan(y) ? 1 : (x == y ? 0.5 : 0) | y < x || isnan(x) ? 1 : (x == y ? 0.5 : 0)
fmod: 1 | -trunc(x / y)
hypot: x / hypot(x, y) | y / hypot(x, y)
j0: -j1(x)
j1: x == 0 ? 0.5 : j0(x) - j1(x) / x
log: 1 / x
log10: 0.4342944819032518 / x
log1p: 1 / (1 + x)
log2: 1.4426950408889634 / x
logb: 0
max: x > y ? 1 : (x == y ? 0.5 : 0) | y > x ? 1 : (x == y ? 0.5 : 0)
min: x < y ? 1 : (x == y ? 0.5 : 0) | y < x ? 1 : (x == y ? 0.5 : 0)
nextafter: 1 | 0
norm3d: x / norm3d(x, y, z) | y / norm3d(x, y, z) | z / norm3d(x, y, z)
norm4d: x / norm4d(x, y, z, t) | y / norm4d(x, y, z, t) | z / norm4d(x, y, z, t) \
 | t / norm4d(x, y, z, t)
normcdf: 0.3989422804014327 * exp(-0.5 * x * x)
normcdfinv: 2.5066282746310002 * exp(0.5 * normcdfinv(x) * normcdfinv(x))
pow: y == 0 ? 0 : y * pow(x, y - 1) | x == 0 && y >= 0 ? 0 : pow(x, y) * log(x)
rcbrt: -(rcbrt(x) / (3 * x))
relu: x > 0 ? 1 : 0
remainder: 1 | (remainder(x, y) - x) / y
rhypot: -(x * rhypot(x, y) * rhypot(x, y) * rhypot(x, y)) \
 | -(y * rhypot(x, y) * rhypot(x, y) * rhypot(x, y))
rnorm3d: -(x * rnorm3d(x, y, z) * rnorm3d(x, y, z) * rnorm3d(x, y, z)) \
 | -(y * rnorm3d(x, y, z) * rnorm3d(x, y, z) * rnorm3d(x, y, z)) \
 | -(z * rnorm3d(x, y, z) * rnorm3d(x, y, z) * rnorm3d(x, y, z))
rnorm4d: -(x * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t)) \
 | -(y * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t)) \
 | -(z * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t)) \
 | -(t * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t) * rnorm4d(x, y, z, t))
round: 0
rsqrt: -0.5 * rsqrt(x) * rsqrt(x) * rsqrt(x)
sigmoid: sigmoid(x) * (1 - sigmoid(x))
sign: 0
sin: cos(x)
sinh: cosh(x)
sinpi: 3.141592653589793 * cospi(x)
sqrt: 0.5 / sqrt(x)
tan: 1 + tan(x) * tan(x)
tanh: 1 - tanh(x) * tanh(x)
trunc: 0
y0: -y1(x)
y1: y0(x) - y1(x) / x
"""


@cache
def rules() -> dict[str, tuple[str, ...]]:
    """Return the derivatives of each builtin that has one, by its arguments in order, as text."""
    lines = (line.split(":", 1) for line in _RULES.replace("\\\n", "").strip().splitlines())
    return {name: tuple(map(str.strip, _alternatives(text))) for name, text in lines}


def _alternatives(text: str) -> list[str]:
    return text.replace("||", "\0").replace(" | ", "\1").replace("\0", "||").split("\1")


def derivative(call: Call, position: int) -> Expr | None:
    """Return the derivative of *call* by its argument *position*; None where it is 0.

    :raises KeyError: the language cannot express it.
    """
    syntax = _syntax(rules()[call.function][position])
    if isinstance(syntax, ast.Number) and syntax.value == 0:
        return None
    names = BUILTINS[call.function].parameters
    return _typed(syntax, dict(zip(names, call.args, strict=True)), call.dtype)


@cache
def _syntax(text: str) -> ast.Expr:
    (statement,) = parse_statements(Source(f"derivative = {text}"))
    assert isinstance(statement, ast.Assign)
    return statement.value


def _typed(node: ast.Expr, args: dict[str, Expr], dtype: DType) -> Expr:
    """Return the formula *node* of *args* in the type *dtype*."""

    def typed(child: ast.Expr) -> Expr:
        return _typed(child, args, dtype)

    match node:
        case ast.Number(value=value):
            return Const(float(value), dtype)
        case ast.Name(id=name):
            return args[name]
        case ast.Apply(id=name, args=operands):
            values = tuple(map(typed, operands))
            if name == "isnan" and isinstance(values[0], Const):
                return Const(isnan(values[0].value), BOOL)
            return Call(name, values, BOOL if name.startswith("is") else dtype)
        case ast.Unary(op=op, operand=operand):
            return Unary(op, typed(operand), dtype)
        case ast.Binary(op=op, left=left, right=right):
            kind = dtype if op in "+-*/" else BOOL
            return _folded(Binary(op, typed(left), typed(right), kind))
        case ast.Select(condition=condition, if_true=if_true, if_false=if_false):
            decision = typed(condition)
            if isinstance(decision, Const):
                return typed(if_true if decision.value else if_false)
            return Select(decision, typed(if_true), typed(if_false), dtype)
        case _:
            raise AssertionError(node)


def _folded(expr: Binary) -> Expr:
    """Return *expr*, if it is one of numbers (the exponent of ``pow``) its value."""
    match expr:
        case Binary(op="==", left=Const(value=one), right=Const(value=other)):
            return Const(one == other, BOOL)
        case Binary(op="-", left=Const(value=one), right=Const(value=other)):
            return Const(one - other, expr.dtype)
        case Binary(op="||", left=left, right=Const(value=False)):
            return left
        case _:
            return expr
