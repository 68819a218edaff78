"""Specialisation: what a comprehension's functions of the sizes are at given ones.

At many sizes each function is compiled to one of Python once:

    [N, K] -> { [(N - K + 1)] }     --->     lambda v: ((v[0] - v[1]) + 1,)

isl evaluates a function at a point in some microseconds, and a program has dozens of them; Python
takes a tenth of one.  The first sizes are left to isl: most functions never see others.
"""

from collections.abc import Iterable, Mapping, Sequence

import islpy as isl

from tcdsl.errors import TCError
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
from tcdsl.lang.ranges.evaluators import Evaluator, evaluator
from tcdsl.lang.ranges.index_checks import Narrowing, narrowings, require_fitting
from tcdsl.lang.ranges.isl_bounds import ISL_LOCK
from tcdsl.lang.ranges.size_functions import evaluate, holds_at, set_to_expr, to_expr
from tcdsl.records import dataclass

Values = Sequence[int]  # of the size symbols, in order


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

    def of_values(
        self, values: Mapping[str, str], guard: str, integers: Sequence[str], names: Sequence[str]
    ) -> Evaluator:
        """Return ``s -> (integers, the shapes of the tensors names)``, two tuples.

        None where *guard* or a precondition does not hold.

        :arg values: the text of each size's value, as *guard* and *integers* an expression of what
            ``s`` is.
        """
        c = self._comprehension
        with ISL_LOCK:
            holds = [python_text(set_to_expr(p.holds), values) for p in c.preconditions]
            shapes = [_tuple_text(c.tensors[name].extents, values) for name in names]
        if narrowings(c):  # they depend on the ranges of indices
            holds.append(f"fits({_tuple_of(values[name] for name in c.sizes)})")
        found = f"({_tuple_of(integers)}, {_tuple_of(shapes)})"
        text = f"{found} if {' and '.join((guard, *holds))} else None"
        return evaluator(text, "s", fits=self._fits)

    def _fits(self, sizes: Values) -> bool:
        """Return whether what becomes an int32 fits at *sizes*, in order."""
        try:
            self(dict(zip(self._comprehension.sizes, sizes, strict=True)))
        except TCError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The functions: conditions, (lower, upper) by index and statement, boxes by tensor."""

    holds: Evaluator  # whether all conditions do
    conditions: tuple[Evaluator, ...]
    ranges: tuple[tuple[tuple[str, Evaluator], ...], ...]
    origins: Mapping[str, Evaluator]
    shapes: Mapping[str, Evaluator]
    narrowings: tuple[Narrowing, ...]

    def _require(self, c: Comprehension, values: Values, sizes: Mapping[str, int]) -> None:
        if self.holds(values):
            return
        for holds, precondition in zip(self.conditions, c.preconditions, strict=True):
            if not holds(values):
                raise precondition.error(sizes)

    def at(self, c: Comprehension, sizes: Mapping[str, int]) -> Specialisation:
        values = [sizes[name] for name in c.sizes]
        self._require(c, values, sizes)
        special = Specialisation(
            sizes=dict(sizes),
            ranges=tuple(
                {index: range(*bounds(values)) for index, bounds in each} for each in self.ranges
            ),
            origins={name: origin(values) for name, origin in self.origins.items()},
            shapes={name: shape(values) for name, shape in self.shapes.items()},
        )
        require_fitting(c, self.narrowings, special)
        return special


def _compiled(c: Comprehension) -> _Compiled:
    places = {name: f"v[{position}]" for position, name in enumerate(c.sizes)}

    def values(functions: Sequence[isl.PwAff]) -> Evaluator:
        return evaluator(_tuple_text(functions, places))

    conditions = [python_text(set_to_expr(p.holds), places) for p in c.preconditions]
    tensors = c.tensors.values()
    return _Compiled(
        evaluator(" and ".join(conditions) or "True"),
        tuple(map(evaluator, conditions)),
        tuple(
            tuple((index, values(both)) for index, both in zip(s.indices, s.ranges, strict=True))
            for s in c.statements
        ),
        {t.name: values(t.origin) for t in tensors},
        {t.name: values(t.extents) for t in tensors},
        narrowings(c),
    )


def _tuple_text(functions: Sequence[isl.PwAff], places: Mapping[str, str]) -> str:
    """Return the tuple of *functions* of sizes, where *places* are the sizes' values."""
    return _tuple_of(python_text(to_expr(function), places) for function in functions)


def _tuple_of(texts: Iterable[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts)})"


def python_text(expr: Expr, places: Mapping[str, str]) -> str:
    """Return *expr*, an expression of sizes, as one of Python.

    :arg places: the text for each size.
    """

    def node(expr: Expr, operands: tuple[str, ...]) -> str:
        match expr:
            case Const(value=value):
                return str(int(value))
            case Size(name=name):
                return places[name]
            case Binary(op=op):
                return f"({operands[0]} {_OPERATORS[op]} {operands[1]})"
            case Call(function="min" | "max" as name):
                return f"{name}({', '.join(operands)})"
            case Select():
                where, a, b = operands
                return f"({a} if {where} else {b})"
            case _:
                raise AssertionError(f"{expr!r} is no function of sizes")

    return fold(expr, node)


_OPERATORS = {
    "+": "+", "-": "-", "*": "*", "/": "//", "==": "==", ">=": ">=", "&&": "and", "||": "or",
}  # fmt: skip
