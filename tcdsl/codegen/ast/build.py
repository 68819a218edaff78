"""Short ways to write nodes: a text is a name, an integer a literal.

index("x", plus(times("c0", 4), "c1"))    --->    x[c0 * 4 + c1]
"""

from collections.abc import Iterable, Mapping
from functools import reduce

from tcdsl.codegen.ast.nodes import (
    Binary,
    Call,
    Cast,
    Choice,
    Code,
    Index,
    Literal,
    Member,
    Name,
    Paren,
    Type,
    Unary,
)
from tcdsl.codegen.ast.walk import names

Codeable = Code | str | int

ZERO = Literal("0")
ONE = Literal("1")


def code(value: Codeable) -> Code:
    """Return *value* as an expression."""
    match value:
        case str():
            return Name(value)
        case int():
            return Literal(str(value))
        case _:
            return value


def binary(left: Codeable, op: str, right: Codeable) -> Binary:
    """Return ``left op right``."""
    return Binary(op, code(left), code(right))


def chain(op: str, terms: Iterable[Codeable]) -> Code:
    """Return the *terms*, of which there are some, with *op* between them."""
    return reduce(lambda left, right: Binary(op, left, right), map(code, terms))


def both(conditions: Iterable[Code]) -> Code:
    """Return that all of *conditions* hold."""
    first, *rest = conditions
    if not rest:
        return first
    return chain("&&", (Paren(c) if is_either(c) else c for c in (first, *rest)))


def is_either(condition: Code) -> bool:
    """Return whether *condition* is one of several without parentheses around them."""
    return isinstance(condition, Binary) and condition.op == "||"


def call(function: str, *arguments: Codeable) -> Call:
    """Return ``function(arguments)``."""
    return Call(function, tuple(map(code, arguments)))


def template(function: str, types: Iterable[Type | str | int], *arguments: Codeable) -> Call:
    """Return ``function<types>(arguments)``."""
    return Call(function, tuple(map(code, arguments)), tuple(map(type_, types)))


def type_(value: Type | str | int) -> Type:
    """Return *value* as a type, or as an argument of a template."""
    return value if isinstance(value, Type) else Type(str(value))


def vector_type(element: Type | str, width: int) -> Type:
    """Return ``tc_vec<element, width>``."""
    return Type("tc_vec", (type_(element), type_(width)))


def cast(to: str, operand: Codeable) -> Cast:
    """Return ``(to)operand``."""
    return Cast(Type(to), code(operand))


def paren(inner: Codeable) -> Paren:
    """Return ``(inner)``."""
    return Paren(code(inner))


def index(array: Codeable, at: Codeable) -> Index:
    """Return ``array[at]``."""
    return Index(code(array), code(at))


def member(structure: str, field: str) -> Member:
    """Return ``structure.field``."""
    return Member(Name(structure), field)


def address(of: Codeable) -> Unary:
    """Return ``&of``."""
    return Unary("&", code(of))


def negated(condition: Codeable) -> Unary:
    """Return ``!condition``."""
    return Unary("!", code(condition))


def choice(condition: Codeable, then: Codeable, otherwise: Codeable) -> Choice:
    """Return ``condition ? then : otherwise``."""
    return Choice(code(condition), code(then), code(otherwise))


def as_factor(value: Codeable) -> Code:
    """Return *value* as it may stand beside a ``*``."""
    factor = code(value)
    inner = factor.inner if isinstance(factor, Paren) else factor
    is_word = isinstance(inner, Name) or (isinstance(inner, Literal) and inner.text.isalnum())
    return factor if is_word else Paren(factor)


def as_term(value: Codeable) -> Code:
    """Return *value* as it may stand beside a ``+``: a choice would take what is before it."""
    term = code(value)
    return Paren(term) if isinstance(term, Choice) else term


def number(value: Code | None) -> int | None:
    """Return the integer that *value* is, if it is one as written."""
    text = value.text if isinstance(value, Literal) else ""
    return int(text) if text.removeprefix("-").isdigit() else None


def mentions(value: Code, name: str) -> bool:
    """Return whether *name* is in *value*."""
    return name in names(value)


def substituted(value: Code, values: Mapping[str, Code]) -> Code:
    """Return *value*, which isl made, with *values* in place of names."""
    match value:
        case Name(text):
            return values.get(text, value)
        case Binary(op, left, right):
            return Binary(op, substituted(left, values), substituted(right, values))
        case Unary(op, operand):
            return Unary(op, substituted(operand, values))
        case Paren(inner):
            return Paren(substituted(inner, values))
        case Choice(condition, then, otherwise):
            parts = (substituted(part, values) for part in (condition, then, otherwise))
            return Choice(*parts)
        case Call(function, arguments):
            return Call(function, tuple(substituted(a, values) for a in arguments))
        case _:
            return value


def simplified(value: Code) -> Code:
    """Return *value*, which isl made, without what adds or multiplies 0, and with fewer digits.

    (2 * c) / 8, (2 * c) % 8    --->    c / 4, 2 * (c % 4)        isl divides nothing below 0
    """
    match value:
        case Binary(op, left, right):
            left, right = simplified(left), simplified(right)
            if op == "+" and ZERO in (left, right):
                return right if left == ZERO else left
            if op == "-" and right == ZERO:
                return left
            if op == "+":
                return Binary(op, _as_term(left), _as_term(right))
            is_nothing = (op == "*" and ZERO in (left, right)) or (op in "/%" and left == ZERO)
            return ZERO if is_nothing else _divided(op, left, right)
        case Paren(inner):
            inner = simplified(inner)
            return inner if isinstance(inner, Literal | Name | Paren) else Paren(inner)
        case Call(function, arguments):
            return Call(function, tuple(map(simplified, arguments)))
        case _:
            return value


def _as_term(value: Code) -> Code:
    """Return *value* as it may stand beside a ``+``."""
    match value:
        case Paren(inner=Binary(op="*") as inner):
            return inner
        case _:
            return value


def _divided(op: str, left: Code, right: Code) -> Code:
    """Return ``left op right``, the quotient or remainder of a multiple without what both have."""
    product, divisor = left.inner if isinstance(left, Paren) else left, number(right)
    match product:
        case Binary(op="*", left=Literal() as one, right=rest) if op in "/%" and divisor:
            factor = number(one)
            if factor and factor > 1 and divisor > factor and divisor % factor == 0:
                part = Binary(op, as_factor(rest), Literal(str(divisor // factor)))
                return part if op == "/" else Binary("*", one, Paren(part))
    return Binary(op, left, right)
