"""Nodes as tests write them: expressions in Python's syntax, which is C's but for && and ||."""

import ast
from collections.abc import Mapping

from tcdsl.codegen.ast import build
from tcdsl.codegen.ast.nodes import (
    Binary,
    Call,
    Choice,
    Code,
    Declare,
    For,
    If,
    Literal,
    Member,
    Name,
    Node,
    Scope,
    Type,
    Unary,
    Variable,
)

_OPS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Mod: "%", ast.Div: "/", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.And: "&&", ast.Or: "||",
}  # fmt: skip
# Which threads wait for one another in a call.
BARRIERS = {"__syncthreads": "xyz", "tc_last_block": "xyz", "fold_x": "x", "fold_xy": "xyz"}


def code(text: str) -> Code:
    """Return ``a if c else b`` as a choice, ``x[i]`` as an element, ``t.x`` as a member, ..."""
    return _code(ast.parse(text, mode="eval").body)


def _code(node: ast.expr) -> Code:
    match node:
        case ast.Name(id=name):
            return Name(name)
        case ast.Constant(value=int() as value):
            return Literal(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return Literal(str(-value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            is_plain = isinstance(operand, ast.Name | ast.Call)
            return Unary("-", _code(operand) if is_plain else build.paren(_code(operand)))
        case ast.BinOp(left=left, op=op, right=right):
            parts = (build.paren(_code(p)) if _is_apart(p, op) else _code(p) for p in (left, right))
            return Binary(_OPS[type(op)], *parts)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Binary(_OPS[type(op)], _code(left), _code(right))
        case ast.BoolOp(op=op, values=values):
            return build.chain(_OPS[type(op)], map(_code, values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return Choice(_code(test), _code(body), _code(orelse))
        case ast.Attribute(value=value, attr=field):
            return Member(_code(value), field)
        case ast.Subscript(value=array, slice=index):
            return build.index(_code(array), _code(index))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            participants = BARRIERS.get(function, "")
            return Call(function, tuple(map(_code, arguments)), participants=participants)
    raise AssertionError(f"not known: {ast.dump(node)}")


def _is_apart(operand: ast.expr, op: ast.operator) -> bool:
    """Return whether a sum is an operand of a product."""
    is_sum = isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Add | ast.Sub)
    return is_sum and not isinstance(op, ast.Add | ast.Sub)


def let(name: str, value: str, type_: str = "int") -> Declare:
    """Return ``const type_ name = value;``"""
    return Declare(Type(type_), (Variable(name, code(value)),), before="const ")


def loop(variable: str, first: str, condition: str, *body: Node) -> For:
    return For(Type("int"), variable, code(first), code(condition), None, body)


def when(condition: str, *then: Node, otherwise: tuple[Node, ...] = ()) -> If:
    return If(code(condition), then, otherwise)


def scope(*body: Node) -> Scope:
    return Scope(body)
