"""Typed expressions as C.

Arithmetic that C leaves undefined, or defines otherwise than the language, goes through functions
of the device library (``tc_div_i32`` floors, ``tc_add_i32`` wraps, ...); the rest is C's own.
Subscripts and other index arithmetic are exact 64-bit integers.
"""

import math
from collections.abc import Callable, Mapping

from tcdsl.codegen.ast import nodes as c
from tcdsl.codegen.ast.build import binary, call, cast, choice, negated, paren
from tcdsl.codegen.ast.build import number as number_of
from tcdsl.codegen.ast.nodes import Code, Literal
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Size,
    Unary,
    children,
    walk,
)
from tcdsl.lang.comprehension import fold as fold_expression
from tcdsl.lang.types.dtypes import BOOL, FLOAT32, INT32, INT64, DType, Kind, summed
from tcdsl.records import dataclass

# Exponents that take a few operations.
_POWERS: dict[float | None, str] = {
    2.0: "pow_2", 3.0: "pow_3", 4.0: "pow_4", -1.0: "pow_m1", 0.5: "pow_1_2", 1.5: "pow_3_2",
    -0.5: "pow_m1_2",
}  # fmt: skip
_C_TYPES = {
    "bool": "uint8_t", "float8_e4m3": "uint8_t", "float8_e5m2": "uint8_t",
    "float16": "uint16_t", "bfloat16": "uint16_t",
    "float32": "float", "float64": "double",
    "compensated32": "tc_c32", "compensated64": "tc_c64",
}  # fmt: skip
_SUFFIXES = {
    "bool": "b", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "compensated32": "c32", "compensated64": "c64",
}  # fmt: skip
_INTEGER_OPS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "mod",
    "<<": "shl",
    ">>": "shr",
}
_OPERATOR_NAMES = {
    Operator.ADD: "add", Operator.MUL: "mul", Operator.MIN: "min", Operator.MAX: "max",
}  # fmt: skip


def c_type(dtype: DType) -> str:
    """Return the C type that stores a *dtype*."""
    return _C_TYPES.get(dtype.name) or f"{dtype.name}_t"


def suffix(dtype: DType) -> str:
    """Return the device library's suffix for *dtype*: ``f32``, ``i64``, ``b``, ..."""
    if dtype.name in _SUFFIXES:
        return _SUFFIXES[dtype.name]
    return f"{'u' if dtype.kind is Kind.UNSIGNED else 'i'}{8 * dtype.size_bytes}"


def literal(value: bool | int | float, dtype: DType) -> Code:
    """Return *value* as an exact C literal of *dtype*."""
    if dtype.is_narrow_float and (value != 0 or math.copysign(1, value) < 0):  # stored as bits
        return cast_code(literal(value, FLOAT32), FLOAT32, dtype)
    return Literal(_literal(value, dtype))


def _literal(value: bool | int | float, dtype: DType) -> str:
    if dtype == BOOL:
        return "1" if value else "0"
    if dtype.is_integer:
        return _integer_literal(int(value), dtype)
    number = float(value)
    tail = "f" if dtype.name == "float32" else ""
    if not math.isfinite(number):
        what = "NAN" if math.isnan(number) else "INF"
        text = f"TC_{what}_{suffix(dtype).upper()}"
        return f"(-{text})" if number < 0 else text
    if number == int(number) and abs(number) < 1e6 and math.copysign(1, number) > 0:
        return f"{int(number)}.0{tail}"
    text = f"{number.hex()}{tail}"
    return f"({text})" if text.startswith("-") else text


def _integer_literal(value: int, dtype: DType) -> str:
    if dtype.kind is Kind.UNSIGNED:
        return f"(({c_type(dtype)}){value}u{'ll' if dtype.size_bytes == 8 else ''})"
    if dtype.size_bytes < 8 and value != -(2**31):
        return f"({value})" if value < 0 else str(value)
    if value == -(2**63):
        return "(-9223372036854775807ll - 1)"
    return f"(({c_type(dtype)}){value}ll)"


def identity(operator: Operator, dtype: DType) -> Code:
    """Return the identity of *operator* on *dtype*; for arg reductions, of the comparison."""
    if dtype.is_compensated:
        return cast_code(literal(0, summed(dtype)), summed(dtype), dtype)
    return literal(identity_of(operator, dtype), dtype)


def identity_of(operator: Operator, dtype: DType) -> bool | int | float:
    """Return the number that :func:`identity` writes; *dtype* is no compensated type."""
    match operator:
        case Operator.ADD | Operator.OR:
            return 0
        case Operator.MUL | Operator.AND:
            return 1
    smallest = operator in (Operator.MAX, Operator.ARGMAX)
    if dtype.is_float:
        return -math.inf if smallest else math.inf
    if dtype == BOOL:
        return not smallest
    bits = 8 * dtype.size_bytes
    if dtype.kind is Kind.UNSIGNED:
        return 0 if smallest else (1 << bits) - 1
    return -(1 << bits - 1) if smallest else (1 << bits - 1) - 1


def combine(operator: Operator, dtype: DType, accumulator: Code, term: Code) -> Code:
    """Return ``accumulator op term``, both of *dtype*."""
    if operator in (Operator.AND, Operator.OR):
        return paren(binary(accumulator, "&" if operator is Operator.AND else "|", term))
    is_plain = dtype.is_float and not dtype.is_compensated
    if is_plain and operator in (Operator.ADD, Operator.MUL):
        return paren(binary(accumulator, operator.value, term))
    return call(f"tc_{_OPERATOR_NAMES[operator]}_{suffix(dtype)}", accumulator, term)


def fold(operator: Operator, dtype: DType, lanes: str) -> Code:
    """Return the values of one vector at the pointer *lanes*, combined."""
    name = {Operator.AND: "and", Operator.OR: "or"}.get(operator) or _OPERATOR_NAMES[operator]
    return call(f"tc_fold_{name}_{suffix(dtype)}", lanes)


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names in an expression stand for where it is printed."""

    index: Callable[[str], Code]
    size: Callable[[str], Code]
    element: Callable[[Load, tuple[Code, ...]], Code]  # a load, its subscripts of 64 bits


def branched(operands: tuple[Code, ...]) -> Code:
    """Return the choice of a condition and two values, of which one is computed."""
    return paren(choice(*operands))


class ExpressionPrinter:
    """Prints expressions in one :class:`Scope`."""

    def __init__(
        self,
        scope: Scope,
        known: Mapping[Expr, Code] | None = None,
        index_type: str = "i64",
        is_common: Callable[[Expr], bool] = lambda _: False,
        chosen: Callable[[Select, tuple[Code, ...]], Code] = lambda _, operands: branched(operands),
    ) -> None:
        """Print in *scope*; the expressions in *known* have been computed under those names.

        :arg index_type: of index arithmetic, as a suffix of the device library.
        :arg is_common: whether a divisor, or what is compared, is that of many instances.
        :arg chosen: a choice, of its condition and its two values.
        """
        self.is_common = is_common
        self.chosen = chosen
        self.scope = scope
        self.known = known or {}
        self.index_type = index_type

    def value(self, expr: Expr) -> Code:
        """Return *expr* as C of its own type."""
        return fold_expression(expr, self._node)

    def subscript(self, expr: Expr) -> Code:
        """Return the integer *expr* as 64-bit index arithmetic, exact but where data say not.

        Of what reads data, quotients, extremes and the like are computed in their own type, where
        they may wrap; sums and products that are no operand of these are exact (semantics, 5).
        """
        return fold_expression(expr, self._index_node)

    def _node(self, expr: Expr, operands: tuple[Code, ...]) -> Code:
        if self.known and expr in self.known:
            return self.known[expr]
        match expr:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Index(name=name, dtype=dtype):
                return paren(cast(c_type(dtype), self.scope.index(name)))
            case Size(name=name, dtype=dtype):
                return paren(cast(c_type(dtype), self.scope.size(name)))
            case Load():
                return self.scope.element(expr, tuple(self.subscript(s) for s in expr.subscripts))
            case Unary(op=op):
                return self._unary(op, operands[0], expr.dtype)
            case Binary(op="/", dtype=dtype) if (power := self._power_of_two(expr)) is not None:
                return paren(binary(operands[0], "*", literal(1 / power, dtype)))  # the same
            case Binary(op="/", dtype=dtype) if dtype == FLOAT32 and self.is_common(expr.right):
                return call("tc_div_f32", *operands)
            case Binary(op="==" | "!=") if (equality := self._narrow_equality(expr)) is not None:
                return equality
            case Binary(op=op):
                return self._binary(op, operands, expr.left.dtype)
            case Select():
                return self.chosen(expr, operands)
            case Cast(dtype=dtype):
                return cast_code(operands[0], expr.operand.dtype, dtype)
            case Call(function="pow", args=(_, y)) if short := _POWERS.get(_number(y)):
                return call(f"tc_{short}_{suffix(expr.dtype)}", operands[0])
            case Call(function=function):
                # Predicates take their type from the operand.
                return call(f"tc_{function}_{suffix(expr.args[0].dtype)}", *operands)

    def _narrow_equality(self, comparison: Binary) -> Code | None:
        """Return whether a load of 64 bits, the same for many instances, equals 32-bit numbers.

        Whether it fits 32 bits is asked once, outside of the loops, and each number is compared by
        one instruction: ``labels(b) == v ? ...`` in the gradients of a loss.
        """
        for wide, other in (
            (comparison.left, comparison.right), (comparison.right, comparison.left)
        ):  # fmt: skip
            if not isinstance(other, Cast) or other.operand.dtype != INT32:
                continue
            if not isinstance(wide, Load) or wide.dtype != INT64 or not self.is_common(wide):
                continue
            all_bits, number = self.value(wide), self.value(other.operand)
            low = cast("int32_t", all_bits)
            fits = binary(cast("int64_t", low), "==", all_bits)
            is_same = paren(binary(fits, "&&", binary(low, "==", number)))
            return is_same if comparison.op == "==" else paren(negated(is_same))
        return None

    def _power_of_two(self, quotient: Binary) -> float | None:
        """Return the divisor of floats if it is a power of two whose reciprocal is no subnormal."""
        if not quotient.dtype.is_float:
            return None
        divisor = quotient.right
        number = _number(divisor)
        if number is None:
            size = divisor.operand if isinstance(divisor, Cast) else divisor
            known = number_of(self.scope.size(size.name)) if isinstance(size, Size) else None
            if known is None:
                return None
            number = float(known)
        is_power = abs(math.frexp(number)[0]) == 0.5 and 2.0**-100 <= abs(number) <= 2.0**100
        return number if is_power else None

    def _unary(self, op: str, operand: Code, dtype: DType) -> Code:
        if op == "!" or (op == "~" and dtype == BOOL):
            return paren(negated(operand))
        if op == "~":
            return paren(cast(c_type(dtype), c.Unary("~", operand)))
        if dtype.is_float:
            return paren(c.Unary("-", operand))
        return call(f"tc_neg_{suffix(dtype)}", operand)

    def _binary(self, op: str, operands: tuple[Code, ...], dtype: DType) -> Code:
        left, right = operands
        if op in ("&", "|", "^"):
            return paren(cast(c_type(dtype), paren(binary(left, op, right))))
        if op == "%" or (dtype.is_integer and op in _INTEGER_OPS):
            return call(f"tc_{_INTEGER_OPS[op]}_{suffix(dtype)}", left, right)
        return paren(binary(left, op, right))

    def _index_node(self, expr: Expr, operands: tuple[Code, ...]) -> Code:
        if not _is_exact_in_subscripts(expr):
            stored = self._node(expr, tuple(map(self.value, children(expr))))
            return paren(cast("int64_t", stored))
        match expr:
            case Const(value=value):
                return Literal(str(int(value)) if value >= 0 else f"({int(value)})")
            case Index(name=name):
                return self.scope.index(name)
            case Size(name=name):
                return self.scope.size(name)
            case Unary(op="-"):
                return paren(c.Unary("-", operands[0]))
            case Binary(op="+" | "-" | "*" as op):
                return paren(binary(operands[0], op, operands[1]))
            case Binary(op="/" | "%" as op):
                return call(f"tc_{_INTEGER_OPS[op]}_{self.index_type}", *operands)
            case Select():
                return paren(choice(self.value(expr.condition), operands[1], operands[2]))
            case Cast():
                return operands[0]
            case Call(function=function):
                return call(f"tc_{function}_{self.index_type}", *operands)
            case _:
                raise AssertionError(expr)


def _is_exact(source: DType, dtype: DType) -> bool:
    """Return whether the numbers that matter, small or powers of two, stay what they are."""
    return source.is_integer or (source.is_float and source.size_bytes < dtype.size_bytes)


def _number(expr: Expr) -> float | None:
    """Return the number that *expr* is, if it is one as written."""
    if isinstance(expr, Cast) and _is_exact(expr.operand.dtype, expr.dtype):
        expr = expr.operand
    if isinstance(expr, Unary) and expr.op == "-" and expr.dtype.kind is not Kind.UNSIGNED:
        number = _number(expr.operand)
        return None if number is None else -number
    return float(expr.value) if isinstance(expr, Const) else None


def _is_exact_in_subscripts(expr: Expr) -> bool:
    """Return whether *expr*, a part of a subscript, is computed in exact integers.

    Of indices and sizes everything that index arithmetic has.  Of what reads data choices, signed
    sums, differences and products, and conversions that keep all values; the rest wraps.
    """
    match expr:
        case Const(dtype=dtype):
            return not dtype.is_float  # one of a condition, that may be infinite
        case Index() | Size() | Select():
            return True
        case Unary(op="-") | Binary(op="+" | "-" | "*"):
            return expr.dtype.kind is Kind.SIGNED or not _reads_data(expr)
        case Binary(op="/" | "%"):
            return not _reads_data(expr)
        case Call(function="min" | "max"):
            return expr.dtype.is_integer and not _reads_data(expr)
        case Cast(operand=operand, dtype=to):
            is_wide = to.kind is Kind.SIGNED and to.size_bytes >= 4
            if not (is_wide and operand.dtype.is_integer):
                return False
            return not _reads_data(expr) or _holds_all(operand.dtype, to)
    return False


def _reads_data(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def _holds_all(source: DType, to: DType) -> bool:
    """Return whether the signed type *to* has all values of the integers *source*."""
    return to.size_bytes > source.size_bytes or to == source


def cast_code(operand: Code, from_: DType, to: DType) -> Code:
    """Return the conversion of *operand*."""
    if from_ == to:
        return operand
    if summed(from_) != from_ and to != summed(from_):
        return cast_code(cast_code(operand, from_, summed(from_)), summed(from_), to)
    if summed(to) != to and from_ != summed(to):
        return cast_code(cast_code(operand, from_, summed(to)), summed(to), to)
    return call(f"tc_cast_{suffix(from_)}_{suffix(to)}", operand)
