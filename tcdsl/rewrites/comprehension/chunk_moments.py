"""Mean and squares about it in one pass: sums of chunks about an element of each.

    m(c) +=! x(p,c)                               a(q,c)   +=! x(L*q+r,c) - x(L*q,c)
    u(c)  = m(c) / P                              b(q,c)   +=! (x(L*q+r,c) - x(L*q,c))^2
    v(c) +=! (x(p,c) - u(c))^2          --->      m(c)     +=! a(q,c) + L * x(L*q,c)
                                                  u(c)      = m(c) / P
                                                  v(c)     +=! b(q,c) + e * (2 * a(q,c) + L * e)
                                                                  where e = x(L*q,c) - u(c)

    p    0 1 .. L-1 | L .. 2L-1 | ...      r  within a chunk, q  which chunk, k = x(L*q,c) its first
         k            k

The squares need the mean, and read all of x once more for it.  About an element k of its chunk they
do not: sum (x - u)^2 = sum (x - k)^2 + 2 (k - u) sum (x - k) + L (k - u)^2, whatever u is.

Legal iff both reduce the same index over the same range, x is an input that nothing writes, u does
not depend on p, and sums may be added in any order.

As accurate as the sums that it replaces.  Differences of numbers on a grid (whole ones, say) are on
that grid, and so are their sums and squares: where the sums as written round nothing, these do not
either.  Elsewhere k is one of the values: L (k - u)^2, over all chunks, is at most L times the
whole sum of squares M, so that the error is some L^2 w M, w the unit roundoff.  With L^2 <= P that
is P w M, the bound of a sum of P terms; of P D terms, if D such sums are added up.  After Chan,
Golub and LeVeque's pairwise updating (The American Statistician 37(3), 1983, doi:10.2307/2683386),
whose chunks are about their means: these are on no grid.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isqrt, prod

from tcdsl.lang.comprehension import (
    INT32,
    Binary,
    Cast,
    Comprehension,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Specialisation,
    Statement,
    Tensor,
    walk,
)
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.records import dataclass

LEAST = 16  # values of a chunk: its sums are stored

Why = Callable[[int], str | None]  # of the bytes that a pass reads


@dataclass(frozen=True, slots=True)
class _Pair:
    """The positions of a sum, and of the squares of its terms about something; both reduce p."""

    total: int
    squares: int
    length: int  # of a chunk


def in_moments(
    c: Comprehension, special: Specialisation, why: Why
) -> tuple[Comprehension, Specialisation]:
    """Return *c* with sums and squares in one pass where *why* has a reason."""
    for pair in _pairs(c, special):
        term = _term(c.statements[pair.squares])
        assert term is not None, "_pairs"
        sources = {node.tensor for node in walk(term[0]) if isinstance(node, Load)}
        sizes = [prod(special.shapes[n]) * c.tensors[n].dtype.size_bytes for n in sources]
        if why(sum(sizes)) is not None:
            return _rewritten(c, special, pair)
    return c, special


def _pairs(c: Comprehension, special: Specialisation) -> Iterator[_Pair]:
    """Yield sums, each with the squares of its terms about what may be their mean."""
    for squares, statement in enumerate(c.statements):
        found = _term(statement)
        if found is None or not _is_plain_sum(statement) or not _are_inputs(c, found[0]):
            continue
        totals = (n for n in range(squares) if _is_total(c, special, n, squares))
        total = next(totals, None)
        if total is None:
            continue
        targets = statement.target, c.statements[total].target
        again = min(_added_up(c, special, target) for target in targets)
        length = _length(special.ranges[squares][statement.reduced[0]], again)
        if length is not None:
            yield _Pair(total, squares, length)


def _is_plain_sum(statement: Statement) -> bool:
    """Return whether *statement* adds up one index over a box, in float32, from nothing."""
    reduction = statement.reduction
    return (
        reduction is not None
        and reduction.operator is Operator.ADD
        and reduction.initialise
        and reduction.dtype == FLOAT32
        and len(statement.reduced) == 1
        and not (statement.conditions or statement.explicit or statement.bounds)
        and not (statement.data_ranges or statement.lets or statement.library)
    )


def _term(statement: Statement) -> tuple[Expr, Expr] | None:
    """Return x and u where *statement* adds up ``(x - u) * (x - u)`` and u is free of p."""
    match statement.value:
        case Binary(op="*", left=Binary(op="-", left=x, right=u) as left, right=right) if (
            left == right and len(statement.reduced) == 1
        ):
            is_free = all(node != Index(statement.reduced[0]) for node in walk(u))
            return (x, u) if is_free else None
        case _:
            return None


def _are_inputs(c: Comprehension, value: Expr) -> bool:
    """Return whether *value* is made of what no statement writes."""
    written = {statement.target for statement in c.statements}
    return all(node.tensor not in written for node in walk(value) if isinstance(node, Load))


def _is_total(c: Comprehension, special: Specialisation, total: int, squares: int) -> bool:
    """Return whether one statement adds up what the other has the squares of."""
    one, other = c.statements[total], c.statements[squares]
    found = _term(other)
    if found is None or not _is_plain_sum(one) or len(one.left) != len(other.left):
        return False
    names = dict(zip(other.indices, one.indices, strict=True))
    is_alike = all(special.ranges[squares][a] == special.ranges[total][b] for a, b in names.items())
    moved = _with_indices(found[0], {name: Index(new) for name, new in names.items()})
    return is_alike and _unwidened(moved) == _unwidened(one.value)


def _unwidened(value: Expr) -> Expr:
    """Return *value* without a conversion to float32, which both sums compute in."""
    return value.operand if isinstance(value, Cast) and value.dtype == FLOAT32 else value


def _added_up(c: Comprehension, special: Specialisation, target: str) -> int:
    """Return how many values of *target* every statement that reads it adds up, 1 if some does not.

    A sum of as many sums has a bound that is larger by that.
    """
    found = []
    for statement, ranges in zip(c.statements, special.ranges, strict=True):
        loads = (node for node in walk(statement.value) if isinstance(node, Load))
        if any(load.tensor == target for load in loads):
            reduction = statement.reduction
            is_sum = reduction is not None and reduction.operator is Operator.ADD
            found.append(prod(len(ranges[n]) for n in statement.reduced) if is_sum else 1)
    return min(found, default=1)


def _length(values: range, again: int) -> int | None:
    """Return how many *values* a chunk has: a divisor of all, none so large that errors grow.

    :arg again: so many sums of them are added up.
    """
    if values.start != 0 or values.step != 1:
        return None
    lengths = range(min(isqrt(again * len(values)), len(values) // 2), LEAST - 1, -1)
    return next((length for length in lengths if len(values) % length == 0), None)


def _rewritten(
    c: Comprehension, special: Specialisation, pair: _Pair
) -> tuple[Comprehension, Specialisation]:
    total, squares = c.statements[pair.total], c.statements[pair.squares]
    found = _term(squares)
    assert found is not None, "_pairs"
    ranges = special.ranges[pair.total]
    taken = set(squares.indices) | set(total.indices)
    q = fresh_name("q", taken)
    r = fresh_name("r", {*taken, q})
    count = len(ranges[total.reduced[0]]) // pair.length
    chunk, inside = range(count), range(pair.length)

    def value_at(statement: Statement, place: Expr) -> Expr:
        names = dict(zip(squares.indices, map(Index, statement.indices), strict=True))
        x = _with_indices(found[0], {**names, squares.reduced[0]: place})
        return x if x.dtype == FLOAT32 else Cast(x, FLOAT32)

    first = Binary("*", Const(pair.length, INT32), Index(q), INT32)
    each = Binary("+", first, Index(r), INT32)
    from_first = _float("-", value_at(total, each), value_at(total, first))
    tensors, shapes, made = dict(c.tensors), dict(special.shapes), []
    own: list[str] = []
    for what, value in (("sum", from_first), ("squares", _float("*", from_first, from_first))):
        name = fresh_name(f"{total.target}.{what}", tensors)
        left = (total.left[0], q, *total.left[1:]) if total.left else (q,)
        tensors[name] = Tensor(name, FLOAT32, (None,) * len(left), False, False)
        extents = {**{n: ranges[n].stop for n in total.left}, q: count}
        shapes[name] = tuple(extents[n] for n in left)
        made.append(
            replace(
                total, name=fresh_name(f"{total.name}_{what}", {s.name for s in c.statements}),
                target=name, subscripts=tuple(map(Index, left)), indices=(*left, r),
                n_left=len(left), value=value, domain=None, ranges=(),
            )
        )  # fmt: skip
        own.append(name)

    def load(statement: Statement, name: str) -> Load:
        left = (statement.left[0], q, *statement.left[1:]) if statement.left else (q,)
        return Load(name, tuple(map(Index, left)), FLOAT32)

    length = Const(float(pair.length), FLOAT32)
    sums = load(total, own[0])
    new_total = _over_chunks(
        total, q, _float("+", sums, _float("*", length, value_at(total, first)))
    )
    away = _float("-", value_at(squares, first), found[1])
    twice = _float("*", Const(2.0, FLOAT32), load(squares, own[0]))
    inner = _float("+", twice, _float("*", length, away))
    new_squares = _over_chunks(
        squares, q, _float("+", load(squares, own[1]), _float("*", away, inner))
    )
    statements: list[Statement] = []
    all_ranges: list[Mapping[str, range]] = []
    for position, statement in enumerate(c.statements):
        has = special.ranges[position]
        if position == pair.total:
            statements += [*made, new_total]
            all_ranges += [{**has, q: chunk, r: inside}] * 2 + [{**has, q: chunk}]
        elif position == pair.squares:
            statements.append(new_squares)
            all_ranges.append({**has, q: chunk})
        else:
            statements.append(statement)
            all_ranges.append(has)
    kept = [
        {name: has[name] for name in statement.indices}
        for statement, has in zip(statements, all_ranges, strict=True)
    ]
    origins = {**special.origins, **{name: (0,) * len(shapes[name]) for name in own}}
    new = replace(c, statements=tuple(statements), tensors=tensors)
    return new, Specialisation(special.sizes, shapes, tuple(kept), origins)


def _over_chunks(statement: Statement, q: str, value: Expr) -> Statement:
    """Return the sum *statement* of *value* over chunks."""
    indices = (*statement.left, q)
    return replace(statement, indices=indices, value=value, domain=None, ranges=())


def _float(op: str, left: Expr, right: Expr) -> Binary:
    return Binary(op, left, right, FLOAT32)


def _with_indices(value: Expr, places: Mapping[str, Expr]) -> Expr:
    return rewrite(value, lambda n: places.get(n.name, n) if isinstance(n, Index) else n)
