"""The adjoints of products, minima and maxima.

    T(l) max=! e     n(l) +=! e == T(l) ? 1 : 0
                     de = e == T(l) ? dT(l) / n(l) : 0

    T(l) *=! e       p(l) *=! e == 0 ? 1 : e
                     z(l) +=! e == 0 ? 1 : 0
                     de = z(l) == 0 ? dT(l) * T(l) / e : z(l) == 1 && e == 0 ? dT(l) * p(l) : 0

All terms that attain an extreme share its adjoint equally: the mean of the subgradients that have
one, which does not depend on the order of the terms.  The derivative of a product by a term is the
product of the others: T / e without zeros, p at the only zero, and 0 at two zeros or more.
Without ``!`` what the target held before is a term too.

    T(I(n)) = e      last(I(n)) max= n           last: -1 before
                     de = n == last(I(n)) ? dT(I(n)) : 0

Of several assignments to one element the last counts.
"""

from dataclasses import dataclass

from tcdsl.derivatives import terms
from tcdsl.derivatives.lines import Instances, Line
from tcdsl.derivatives.names import Names
from tcdsl.derivatives.versions import Step
from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Select
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.lang.types.dtypes import BOOL, INT64

Left = tuple[tuple[Expr, ...], Instances]


@dataclass(frozen=True, slots=True)
class Found:
    """What is computed first, and the adjoints of a term and of what was there before."""

    lines: tuple[Line, ...]
    factor: Expr
    before: Expr | None = None


def extreme(step: Step, seed: Expr, names: Names, box: Left) -> Found:
    """Return the rule for ``min=`` and ``max=``."""
    line, value = step.line, step.line.value
    ties = names.fresh(f"ties_{line.target}")
    dtype = value.dtype
    one, zero = terms.number(1.0, dtype), terms.number(0.0, dtype)

    def attains(term: Expr, subscripts: tuple[Expr, ...]) -> Expr:
        return Binary("==", term, Load(line.target, subscripts, dtype), BOOL)

    def share(term: Expr, adjoint: Expr, subscripts: tuple[Expr, ...]) -> Expr:
        among = Binary("/", adjoint, Load(ties, subscripts, dtype), dtype)
        return Select(attains(term, subscripts), among, zero, dtype)

    def count(term: Expr, subscripts: tuple[Expr, ...]) -> Expr:
        return Select(attains(term, subscripts), one, zero, dtype)

    old = _old(step)
    lines = _accumulated(ties, "+", zero, step, box, count(value, line.subscripts),
                         None if old is None else count(old, _left(step)))  # fmt: skip
    before = None
    if old is not None:
        before = share(old, _whole_seed(seed, step), _left(step))
    return Found(lines, share(value, seed, line.subscripts), before)


def product(step: Step, seed: Expr, names: Names, box: Left) -> Found:
    """Return the rule for ``*=``."""
    line, value = step.line, step.line.value
    rest, zeros = names.fresh(f"rest_{line.target}"), names.fresh(f"zeros_{line.target}")
    dtype = value.dtype
    one, zero = terms.number(1.0, dtype), terms.number(0.0, dtype)

    def is_zero(term: Expr) -> Expr:
        return Binary("==", term, zero, BOOL)

    def others(term: Expr, adjoint: Expr, subscripts: tuple[Expr, ...]) -> Expr:
        count = Load(zeros, subscripts, dtype)
        whole = terms.product(adjoint, Load(line.target, subscripts, dtype))
        only = terms.conjunction((Binary("==", count, one, BOOL), is_zero(term)))
        by_rest = terms.product(adjoint, Load(rest, subscripts, dtype))
        return Select(
            is_zero(count), Binary("/", whole, term, dtype),
            Select(only, by_rest, zero, dtype), dtype,
        )  # fmt: skip

    def nonzero(term: Expr) -> Expr:
        return Select(is_zero(term), one, term, dtype)

    def count(term: Expr) -> Expr:
        return Select(is_zero(term), one, zero, dtype)

    old = _old(step)
    lines = (
        *_accumulated(rest, "*", one, step, box, nonzero(value), old and nonzero(old)),
        *_accumulated(zeros, "+", zero, step, box, count(value), old and count(old)),
    )
    before = None
    if old is not None:
        before = others(old, _whole_seed(seed, step), _left(step))
    return Found(lines, others(value, seed, line.subscripts), before)


def last_assignment(step: Step, seed: Expr, names: Names, box: Left) -> Found:
    """Return the rule for ``=`` to elements that data give, perhaps several times."""
    line = step.line
    last, zero = names.fresh(f"last_{line.target}"), terms.number(0.0, seed.dtype)
    lines = [Line(last, box[0], "=", Const(-1, INT64), box[1])]
    (first, *others) = line.instances.ranges.items()
    position: Expr = terms.as_type(Index(first[0]), INT64)
    if others:
        # (A load: an index times a size would make the def one that is analysed at each call.)
        for index, run in others:
            assert run is not None, "a deferred def does not assign twice"
            lower, upper = run
            extent = terms.as_type(to_expr(upper.sub(lower)), INT64)
            position = Binary("*", position, extent, INT64)
            position = Binary("+", position, terms.as_type(Index(index), INT64), INT64)
        order = names.fresh(f"order_{line.target}")
        at = tuple(map(Index, line.instances.ranges))
        lines.append(Line(order, at, "=", position, Instances(line.instances.ranges)))
        position = Load(order, at, INT64)
    lines.append(Line(last, line.subscripts, "max=", position, line.instances))
    is_last = Binary("==", position, Load(last, line.subscripts, INT64), BOOL)
    return Found(tuple(lines), Select(is_last, seed, zero, seed.dtype))


def _old(step: Step) -> Expr | None:
    """Return the read of what the target held before, if that is a term."""
    assert step.reduction is not None
    if step.reduction.initialise:
        return None
    assert step.copy is not None
    return terms.as_type(step.copy.value, step.reduction.dtype)


def _left(step: Step) -> tuple[Expr, ...]:
    assert step.copy is not None
    return step.copy.subscripts


def _whole_seed(seed: Expr, step: Step) -> Expr:
    """Return the adjoint of the target over its whole box."""
    assert isinstance(seed, Load)
    return Load(seed.tensor, _left(step), seed.dtype)


def _accumulated(
    name: str, operator: str, identity: Expr, step: Step, box: Left, term: Expr, old: Expr | None
) -> tuple[Line, ...]:
    """Return the lines that reduce *term* over the instances of *step*, after the term *old*."""
    line = step.line
    if old is not None:
        assert step.copy is not None
        first = Line(name, step.copy.subscripts, "=", old, step.copy.instances)
    elif any(not isinstance(subscript, Index) for subscript in line.subscripts):
        first = Line(name, box[0], "=", identity, box[1])
    else:
        return (Line(name, line.subscripts, f"{operator}=!", term, line.instances),)
    return (first, Line(name, line.subscripts, f"{operator}=", term, line.instances))
