"""isl's expressions as nodes, with the parentheses that C needs.

min(c0, floord(c1, 32))    --->    tc_imin(c0, tc_floordiv(c1, 32))    in CUDA
"""

from typing import Any

import islpy as isl

from tcdsl.codegen.ast.nodes import Binary, Call, Choice, Code, Literal, Name, Paren, Unary
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Macros:
    """What isl's functions are called in a target."""

    floor_quotient: str
    least: str
    greatest: str


C = Macros("floord", "min", "max")
CUDA = Macros("tc_floordiv", "tc_imin", "tc_imax")

_OPS: Any = isl.ast_expr_op_type
_BINARY: dict[object, tuple[str, int]] = {  # operator, precedence
    _OPS.mul: ("*", 5), _OPS.div: ("/", 5), _OPS.pdiv_q: ("/", 5), _OPS.pdiv_r: ("%", 5),
    _OPS.zdiv_r: ("%", 5), _OPS.add: ("+", 6), _OPS.sub: ("-", 6), _OPS.lt: ("<", 8),
    _OPS.le: ("<=", 8), _OPS.gt: (">", 8), _OPS.ge: (">=", 8), _OPS.eq: ("==", 9),
    _OPS.and_: ("&&", 13), _OPS.and_then: ("&&", 13), _OPS.or_: ("||", 14),
    _OPS.or_else: ("||", 14),
}  # fmt: skip
_MINUS, _CHOICE = 3, 15
# What isl writes in parentheses for people's sake.
_APART = {(op, kind) for op in "+-" for kind in (_OPS.div, _OPS.pdiv_r, _OPS.zdiv_r)}
_APART |= {("*", kind) for kind in (_OPS.div, _OPS.pdiv_q, _OPS.pdiv_r, _OPS.zdiv_r)}
_APART |= {("||", _OPS.and_), ("||", _OPS.and_then)}
_PRECEDENCE = dict(_BINARY.values())


class IslCode:
    """Converts expressions; most of a kernel's are alike."""

    def __init__(self, macros: Macros) -> None:
        self._macros = macros
        self._known: dict[str, Code] = {}

    def __call__(self, expr: isl.AstExpr) -> Code:
        key = expr.to_C_str()  # takes a hundredth of the time
        if key not in self._known:
            self._known[key] = code_of(expr, self._macros)
        return self._known[key]


def code_of(expr: isl.AstExpr, macros: Macros) -> Code:
    """Return *expr* as a node."""
    kind: object = expr.get_type()
    if kind == isl.ast_expr_type.id:
        return Name(expr.id_get_id().get_name())
    if kind == isl.ast_expr_type.int:
        return Literal(expr.int_get_val().to_str())
    op: object = expr.op_get_type()
    arguments = [expr.op_get_arg(n) for n in range(expr.op_get_n_arg())]
    operands = [code_of(argument, macros) for argument in arguments]
    if op in _BINARY:
        text, precedence = _BINARY[op]
        left, right = (
            Paren(operand)
            if (text, _kind(argument)) in _APART
            else _within(operand, precedence, is_first=operand is operands[0])
            for operand, argument in zip(operands, arguments, strict=True)
        )
        return Binary(text, left, right)
    match op:
        case _OPS.minus:
            return Unary("-", _within(operands[0], _MINUS))
        case _OPS.fdiv_q:
            return Call(macros.floor_quotient, tuple(operands))
        case _OPS.min | _OPS.max:
            function = macros.least if op == _OPS.min else macros.greatest
            first, *rest = operands
            for operand in rest:
                first = Call(function, (first, operand))
            return first
        case _OPS.cond | _OPS.select:
            # Of two choices the second may be the other one's last operand.
            condition = _within(operands[0], _CHOICE, is_first=False)
            return Choice(condition, operands[1], operands[2])
    raise AssertionError(f"isl made {expr.to_C_str()}")


def _kind(expr: isl.AstExpr) -> object:
    kind: object = expr.get_type()
    return expr.op_get_type() if kind == isl.ast_expr_type.op else None


def _within(operand: Code, around: int, *, is_first: bool = True) -> Code:
    """Return *operand* of an operator with the precedence *around*, in parentheses if need be."""
    match operand:
        case Binary(op=op):
            own = _PRECEDENCE[op]
        case Unary():
            own = _MINUS
        case Choice():
            own = _CHOICE
        case _:
            return operand
    is_apart = own > around or (own == around and not is_first)
    return Paren(operand) if is_apart else operand
