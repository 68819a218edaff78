"""Interval arithmetic on index values: between which integers an expression of indices lies.

i in [0, 4], N = 10    --->    i * N + 3 in [3, 43]
"""

from itertools import product

from tcdsl.lang.comprehension import Binary, Call, Expr, Select, Unary
from tcdsl.records import dataclass

_LEAST, _LARGEST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Values:
    """Integers from *low* to *high*; *is_attained* if both are values of some instance.

    *names* are the indices that they depend on: what depends on different ones varies freely.
    """

    low: int
    high: int
    is_attained: bool = False
    names: frozenset[str] = frozenset()

    @property
    def fits(self) -> bool:
        """Whether all of them are values of an int32."""
        return self.low >= _LEAST and self.high <= _LARGEST


UNKNOWN = Values(-(2**127), 2**127)


def result_of(node: Expr, operands: tuple[Values, ...]) -> Values:
    """Return the values of the index operation *node*, given those of its operands."""
    names = frozenset[str]().union(*(operand.names for operand in operands))
    is_free = sum(len(operand.names) for operand in operands) == len(names)
    corners, is_monotone = _corners(node, operands)
    is_attained = is_monotone and is_free and all(operand.is_attained for operand in operands)
    return Values(min(corners), max(corners), is_attained, names)


def _corners(node: Expr, operands: tuple[Values, ...]) -> tuple[list[int], bool]:
    """Return numbers around the values of *node*, and whether they are values at the ends."""
    ends = [(operand.low, operand.high) for operand in operands]
    match node:
        case Unary(op="-"):
            return [-end for end in ends[0]], True
        case Unary(op="~"):
            return [~end for end in ends[0]], True
        case Binary(op="+"):
            return [a + b for a, b in product(*ends)], True
        case Binary(op="-"):
            return [a - b for a, b in product(*ends)], True
        case Binary(op="*"):
            return [a * b for a, b in product(*ends)], True
        case Binary(op="/"):
            return _quotients(*ends)
        case Binary(op="%"):
            dividends, divisors = ends
            if dividends[0] == dividends[1] and divisors[0] == divisors[1] != 0:
                return [dividends[0] % divisors[0]], True
            return [0, min(0, divisors[0] + 1), max(0, divisors[1] - 1)], False
        case Binary(op="<<"):
            return [a << b for a, b in product(*ends)], True
        case Binary(op=">>"):
            return [a >> b for a, b in product(*ends)], True
        case Binary(op="&") if masks := [high for low, high in ends if low >= 0]:
            return [0, min(masks)], False
        case Binary():
            return _powers_around(ends), False
        case Call(function="min"):
            return [min(a, b) for a, b in product(*ends)], True
        case Call(function="max"):
            return [max(a, b) for a, b in product(*ends)], True
        case Call(function="relu"):
            return [max(a, 0) for a in ends[0]], True
        case Call(function="sign"):
            return [-1, 1], False
        case Call(function="abs"):
            around = ends[0][0] < 0 < ends[0][1]
            return [*map(abs, ends[0]), *([0] if around else [])], not around
        case Select():
            return [end for pair in ends for end in pair], False
        case _:
            return [UNKNOWN.low, UNKNOWN.high], False


def _quotients(dividends: tuple[int, int], divisors: tuple[int, int]) -> tuple[list[int], bool]:
    if divisors[0] > 0 or divisors[1] < 0:
        return [a // b for a, b in product(dividends, divisors)], True
    size = max(map(abs, dividends))  # by -1, by 1, or by 0, which gives 0
    return [-size, 0, size], False


def _powers_around(ends: list[tuple[int, int]]) -> list[int]:
    """Return the ends of what so many bits hold: bit operations need no more."""
    bits = max(end.bit_length() for pair in ends for end in pair)
    lowest = -(1 << bits) if any(low < 0 for low, _ in ends) else 0
    return [lowest, (1 << bits) - 1]
