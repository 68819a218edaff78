"""Specialisation: what a comprehension's functions of the sizes are at given ones.

At many sizes each function is compiled to closures once:

    [N, K] -> { [(N - K + 1)] }     --->     lambda sizes: sizes[0] - sizes[1] + 1

isl evaluates a function at a point in some microseconds, and a program has dozens of them; a
closure takes a tenth of one.  The first sizes are left to isl: most functions never see others.
"""

from collections.abc import Callable, Collection, Mapping

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Comprehension,
    Const,
    Expr,
    Select,
    Size,
    Specialisation,
    fold,
)
from tcdsl.lang.ranges.index_checks import Narrowing, narrowings, require_fitting
from tcdsl.lang.ranges.isl_bounds import ISL_LOCK
from tcdsl.lang.ranges.size_functions import evaluate, holds_at, set_to_expr, to_expr
from tcdsl.records import dataclass

Values = tuple[int, ...]  # of the size symbols, in order
Evaluator = Callable[[Values], int]
Shapes = Mapping[str, tuple[int, ...]]


def specialise(c: Comprehension, sizes: Mapping[str, int]) -> Specialisation:
    """Return the ranges and boxes of *c* at *sizes*.

    :raises RangeError, ShapeError: a precondition does not hold.
    """
    with ISL_LOCK:  # another thread's quota is not for this work
        return _specialise(c, sizes)


def _specialise(c: Comprehension, sizes: Mapping[str, int]) -> Specialisation:
    for precondition in c.preconditions:
        if not holds_at(precondition.holds, sizes):
            raise precondition.error(sizes)
    ranges = tuple(
        {
            index: range(evaluate(lower, sizes), evaluate(upper, sizes))
            for index, (lower, upper) in zip(statement.indices, statement.ranges, strict=True)
        }
        for statement in c.statements
    )
    tensors = c.tensors.values()
    special = Specialisation(
        sizes=dict(sizes),
        ranges=ranges,
        origins={t.name: tuple(evaluate(value, sizes) for value in t.origin) for t in tensors},
        shapes={t.name: tuple(evaluate(value, sizes) for value in t.extents) for t in tensors},
    )
    require_fitting(c, narrowings(c), special)
    return special


class Specialiser:
    """Returns the ranges and boxes of one comprehension at given sizes."""

    def __init__(self, comprehension: Comprehension) -> None:
        self._comprehension = comprehension
        self._compiled: _Compiled | None = None
        self._is_first = True

    def __call__(self, sizes: Mapping[str, int]) -> Specialisation:
        """Return the specialisation at *sizes*.

        :raises RangeError, ShapeError: a precondition does not hold.
        """
        if self._is_first:
            self._is_first = False
            return specialise(self._comprehension, sizes)
        if self._compiled is None:
            self._compiled = _compiled(self._comprehension)
        return self._compiled.at(self._comprehension, sizes)

    def shapes(self, sizes: Mapping[str, int], names: Collection[str]) -> Shapes:
        """Return the shapes of the tensors *names* at *sizes*.

        :raises RangeError, ShapeError: a precondition does not hold.
        """
        if self._compiled is None:
            return self(sizes).shapes
        return self._compiled.shapes_at(self._comprehension, sizes, names)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The closures: conditions, (lower, upper) by index and statement, boxes by tensor."""

    conditions: tuple[Evaluator, ...]
    ranges: tuple[tuple[tuple[str, Evaluator, Evaluator], ...], ...]
    origins: tuple[tuple[str, tuple[Evaluator, ...]], ...]
    shapes: tuple[tuple[str, tuple[Evaluator, ...]], ...]
    narrowings: tuple[Narrowing, ...]

    def shapes_at(
        self, c: Comprehension, sizes: Mapping[str, int], names: Collection[str]
    ) -> Shapes:
        if self.narrowings:  # they depend on the ranges of indices
            return self.at(c, sizes).shapes
        values = tuple([sizes[name] for name in c.sizes])
        self._require(c, values, sizes)
        return {n: tuple([f(values) for f in each]) for n, each in self.shapes if n in names}

    def _require(self, c: Comprehension, values: Values, sizes: Mapping[str, int]) -> None:
        for holds, precondition in zip(self.conditions, c.preconditions, strict=True):
            if not holds(values):
                raise precondition.error(sizes)

    def at(self, c: Comprehension, sizes: Mapping[str, int]) -> Specialisation:
        values = tuple(sizes[name] for name in c.sizes)
        self._require(c, values, sizes)
        special = Specialisation(
            sizes=dict(sizes),
            ranges=tuple(
                {index: range(lower(values), upper(values)) for index, lower, upper in each}
                for each in self.ranges
            ),
            origins={name: tuple(f(values) for f in each) for name, each in self.origins},
            shapes={name: tuple(f(values) for f in each) for name, each in self.shapes},
        )
        require_fitting(c, self.narrowings, special)
        return special


def _compiled(c: Comprehension) -> _Compiled:
    positions = {name: position for position, name in enumerate(c.sizes)}

    def function(value: isl.PwAff) -> Evaluator:
        return evaluator(to_expr(value), positions)

    tensors = c.tensors.values()
    return _Compiled(
        tuple(evaluator(set_to_expr(p.holds), positions) for p in c.preconditions),
        tuple(
            tuple(
                (index, function(lower), function(upper))
                for index, (lower, upper) in zip(s.indices, s.ranges, strict=True)
            )
            for s in c.statements
        ),
        tuple((t.name, tuple(map(function, t.origin))) for t in tensors),
        tuple((t.name, tuple(map(function, t.extents))) for t in tensors),
        narrowings(c),
    )


def evaluator(expr: Expr, positions: Mapping[str, int]) -> Evaluator:
    """Return *expr*, an expression of sizes, as a function of their values.

    :arg positions: where each size's value stands in the argument.
    """

    def node(expr: Expr, operands: tuple[Evaluator, ...]) -> Evaluator:
        return _node(expr, operands, positions)

    return fold(expr, node)


def _node(expr: Expr, operands: tuple[Evaluator, ...], positions: Mapping[str, int]) -> Evaluator:
    match expr:
        case Const(value=value):
            number = int(value)
            return lambda values: number
        case Size(name=name):
            position = positions[name]
            return lambda values: values[position]
        case Binary(op=op):
            return _OPERATORS[op](*operands)
        case Call(function="min"):
            a, b = operands
            return lambda values: min(a(values), b(values))
        case Call(function="max"):
            a, b = operands
            return lambda values: max(a(values), b(values))
        case Select():
            where, a, b = operands
            return lambda values: a(values) if where(values) else b(values)
        case _:
            raise AssertionError(f"{expr!r} is no function of sizes")


_OPERATORS: dict[str, Callable[[Evaluator, Evaluator], Evaluator]] = {
    "+": lambda a, b: lambda values: a(values) + b(values),
    "-": lambda a, b: lambda values: a(values) - b(values),
    "*": lambda a, b: lambda values: a(values) * b(values),
    "/": lambda a, b: lambda values: a(values) // b(values),
    "==": lambda a, b: lambda values: a(values) == b(values),
    ">=": lambda a, b: lambda values: a(values) >= b(values),
    "&&": lambda a, b: lambda values: a(values) and b(values),
    "||": lambda a, b: lambda values: a(values) or b(values),
}
