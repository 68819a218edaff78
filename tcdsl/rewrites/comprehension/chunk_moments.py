"""Mean and squares about it in one pass: sums of chunks about an element of each.

    m(c) +=! x(p,c)                               t(q,c)   +=! x(L*q+r,c)
    u(c)  = m(c) / P                              a(q,c)   +=! x(L*q+r,c) - x(L*q,c)
    v(c) +=! (x(p,c) - u(c))^2          --->      b(q,c)   +=! (x(L*q+r,c) - x(L*q,c))^2
                                                  m(c)     +=! t(q,c)
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
whose chunks are about their means: these are on no grid.  The mean is as it was, also infinite; a
sum of squares overflows from a 4 L th of the largest float32 on.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
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
    p = special.ranges[pair.total][total.reduced[0]]
    taken = {*total.indices, *squares.indices}
    q = fresh_name("q", taken)
    chunks = _Chunks(found[0], squares, pair.length, q, fresh_name("r", {*taken, q}))
    sums = chunks.sums(total, {*c.tensors}, {s.name for s in c.statements})
    of_total, about, of_squares = (made.target for made in sums)
    e = _float("-", chunks.first(squares), found[1])
    twice = _float("*", Const(2.0, FLOAT32), chunks.load(squares, about))
    inner = _float("+", twice, _float("*", Const(float(pair.length), FLOAT32), e))
    moved = _float("+", chunks.load(squares, of_squares), _float("*", e, inner))
    instead = {
        pair.total: [*sums, _over_chunks(total, q, chunks.load(total, of_total))],
        pair.squares: [_over_chunks(squares, q, moved)],
    }
    statements, ranges = list[Statement](), list[Mapping[str, range]]()
    for position, statement in enumerate(c.statements):
        known = dict(special.ranges[position])
        known |= {q: range(len(p) // pair.length), chunks.r: range(pair.length)}
        for new in instead.get(position, [statement]):
            statements.append(new)
            ranges.append({name: known[name] for name in new.indices})
    tensors, shapes = dict(c.tensors), dict(special.shapes)
    for made, own in zip(sums, ranges[pair.total :], strict=False):
        tensors[made.target] = Tensor(made.target, FLOAT32, (None,) * made.n_left, False, False)
        shapes[made.target] = tuple(own[name].stop for name in made.left)
    origins = {**special.origins, **{made.target: (0,) * made.n_left for made in sums}}
    done = replace(c, statements=tuple(statements), tensors=tensors)
    return done, Specialisation(special.sizes, shapes, tuple(ranges), origins)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks *q* of *length* values *r* of the term *x* of *squares*."""

    x: Expr
    squares: Statement
    length: int
    q: str
    r: str

    def sums(
        self, total: Statement, tensors: Collection[str], taken: Collection[str]
    ) -> list[Statement]:
        """Return the sums of each chunk, as *total* reads x: of x, about k, and of its squares."""
        away = _float("-", self._at(total, self._place), self.first(total))
        values = {
            "total": self._at(total, self._place), "sum": away, "squares": _float("*", away, away),
        }  # fmt: skip
        left = self._left(total)
        return [
            replace(
                total, name=fresh_name(f"{total.name}_{what}", taken),
                target=fresh_name(f"{total.target}.{what}", tensors),
                subscripts=tuple(map(Index, left)), indices=(*left, self.r), n_left=len(left),
                value=value, domain=None, ranges=(),
            )
            for what, value in values.items()
        ]  # fmt: skip

    def first(self, statement: Statement) -> Expr:
        """Return k, as *statement* reads x."""
        return self._at(statement, self._first)

    def load(self, statement: Statement, target: str) -> Load:
        """Return what *statement* reads of the sums in *target*."""
        return Load(target, tuple(map(Index, self._left(statement))), FLOAT32)

    @property
    def _first(self) -> Expr:
        return Binary("*", Const(self.length, INT32), Index(self.q), INT32)

    @property
    def _place(self) -> Expr:
        return Binary("+", self._first, Index(self.r), INT32)

    def _left(self, statement: Statement) -> tuple[str, ...]:
        """Return the indices of a chunk's sums: neighbours stay the last ones."""
        return *statement.left[:1], self.q, *statement.left[1:]

    def _at(self, statement: Statement, place: Expr) -> Expr:
        """Return x with *place* for p, and the indices of *statement* for the others."""
        names = dict(zip(self.squares.indices, map(Index, statement.indices), strict=True))
        x = _with_indices(self.x, {**names, self.squares.reduced[0]: place})
        return x if x.dtype == FLOAT32 else Cast(x, FLOAT32)


def _over_chunks(statement: Statement, q: str, value: Expr) -> Statement:
    """Return the sum *statement* of *value* over chunks."""
    indices = (*statement.left, q)
    return replace(statement, indices=indices, value=value, domain=None, ranges=())


def _float(op: str, left: Expr, right: Expr) -> Binary:
    return Binary(op, left, right, FLOAT32)


def _with_indices(value: Expr, places: Mapping[str, Expr]) -> Expr:
    return rewrite(value, lambda n: places.get(n.name, n) if isinstance(n, Index) else n)
