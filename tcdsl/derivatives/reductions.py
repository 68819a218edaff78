"""The adjoints of products, minima and maxima.

    T(l) max=! e     n(l) +=! e == T(l) ? 1 : 0
                     de = e == T(l) ? dT(l) / n(l) : 0

    T(l) *=! e       p(l) *=! e == 0 ? 1 : e
                     z(l) +=! e == 0 ? 1 : 0
                     s(l) +=! e == 0 ? e : 0
                     de = dT(l) * (e != 0 ? T(l) / e : p(l) * (z(l) == 1 ? 1 : z(l) == 2 ? s(l) - e
                          : pow(s(l), 1.5)))

All terms that attain an extreme share its adjoint equally: the mean of the subgradients that have
one, which does not depend on the order of the terms.  The derivative of a product by a term is the
product of the others: T / e, and at a zero p times the product of the other zeros.  That of one
other is s - e: it is 0, but has its derivative.  That of more is 0, as the first two derivatives of
``pow(s, 1.5)`` are: the second derivatives of T are right, and the third are, where there are three
zeros, not finite and not wrong.  Without ``!`` what the target held before is a term too.

    T(I(n)) = e      last(I(n)) max= n           last: -1 before
                     de = n == last(I(n)) ? dT(I(n)) : 0

Of several assignments to one element the last counts.
"""

from collections.abc import Sequence

from tcdsl.derivatives import terms
from tcdsl.derivatives.lines import Instances, Line
from tcdsl.derivatives.names import Names
from tcdsl.derivatives.versions import Step
from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Index, Load, Select
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.lang.types.dtypes import BOOL, INT64
from tcdsl.records import dataclass

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
    counts, before = [count(value, line.subscripts)], None
    if old is not None:
        counts.append(count(old, _left(step)))
        before = share(old, _whole_seed(seed, step), _left(step))
    lines = _accumulated(ties, "+", zero, step, box, counts)
    return Found(lines, share(value, seed, line.subscripts), before)


def product(step: Step, seed: Expr, names: Names, box: Left) -> Found:
    """Return the rule for ``*=``."""
    line, value = step.line, step.line.value
    dtype = value.dtype
    one, zero = terms.number(1.0, dtype), terms.number(0.0, dtype)

    def is_zero(term: Expr) -> Expr:
        return Binary("==", term, zero, BOOL)

    def quotient(term: Expr, adjoint: Expr, subscripts: tuple[Expr, ...]) -> Expr:
        whole = terms.product(adjoint, Load(line.target, subscripts, dtype))
        return Binary("/", whole, term, dtype)

    old = _old(step)
    seeds = [(value, seed, line.subscripts)]
    if old is not None:
        seeds.append((old, _whole_seed(seed, step), _left(step)))
    if all(_is_never_zero(term) for term, _, _ in seeds):
        return Found((), *(quotient(*each) for each in seeds))
    rest, zeros, total = (names.fresh(f"{kind}_{line.target}") for kind in ("rest", "zeros", "sum"))

    def others(term: Expr, adjoint: Expr, subscripts: tuple[Expr, ...]) -> Expr:
        product, count, sum_ = (Load(name, subscripts, dtype) for name in (rest, zeros, total))
        by_rest = terms.product(adjoint, product)

        def beside(number: float, factor: Expr, otherwise: Expr) -> Expr:
            is_count = Binary("==", count, terms.number(number, dtype), BOOL)
            return Select(is_count, terms.product(by_rest, factor), otherwise, dtype)

        flat = Call("pow", (sum_, terms.number(1.5, dtype)), dtype)
        two = beside(2.0, Binary("-", sum_, term, dtype), terms.product(by_rest, flat))
        at_zero = beside(1.0, one, two)
        return Select(is_zero(term), at_zero, quotient(term, adjoint, subscripts), dtype)

    def accumulated(
        name: str, operator: str, identity: Expr, zero_term: Expr | None, other: Expr | None
    ) -> tuple[Line, ...]:
        """Return the lines of a reduction of *zero_term* of zeros and *other* of other terms."""
        values = [Select(is_zero(term), zero_term or term, other or term, dtype)
                  for term, _, _ in seeds]  # fmt: skip
        return _accumulated(name, operator, identity, step, box, values)

    lines = (
        *accumulated(rest, "*", one, one, None),
        *accumulated(zeros, "+", zero, one, zero),
        *accumulated(total, "+", zero, None, zero),
    )
    return Found(lines, *(others(*each) for each in seeds))


def _is_never_zero(term: Expr) -> bool:
    """Return whether *term* is ``e == 0 ? 1 : e``."""
    match term:
        case Select(Binary("==", left=left, right=right), if_true, if_false):
            return terms.is_number(right, 0) and terms.is_number(if_true, 1) and left == if_false
    return False


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
    if isinstance(seed, Const):
        return seed
    assert isinstance(seed, Load)
    return Load(seed.tensor, _left(step), seed.dtype)


def _accumulated(
    name: str,
    operator: str,
    identity: Expr,
    step: Step,
    box: Left,
    values: Sequence[Expr],
) -> tuple[Line, ...]:
    """Return the lines that reduce a term over the instances of *step*, after an old one if any."""
    line, (term, *old) = step.line, values
    if old:
        assert step.copy is not None
        first = Line(name, step.copy.subscripts, "=", old[0], step.copy.instances)
    elif any(not isinstance(subscript, Index) for subscript in line.subscripts):
        first = Line(name, box[0], "=", identity, box[1])
    else:
        return (Line(name, line.subscripts, f"{operator}=!", term, line.instances),)
    return (first, Line(name, line.subscripts, f"{operator}=", term, line.instances))
