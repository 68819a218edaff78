"""A sum whose terms are there for some remainders of an index: a sum for each remainder.

    D(y,c) +=! ((y+1-r) % 2 == 0 && g ? O((y+1-r)/2, f) : 0) * K(f,r,c)
    --->                                          y = 2 y' + a,  r = 2 r' + (a+1) % 2
    Z(a,c)       +=! (a+1-r) % 2 == 0 ? 0 : 0 * K(f,r,c)
    P0(y',c)     +=! (g ? O(y' - r', f) : 0) * K(f, 2 r' + 1, c)
    D(2 y',c)      = P0(y',c) + Z(0,c)
    P1(y',c)     +=! (g ? O(y' - r' + 1, f) : 0) * K(f, 2 r', c)
    D(2 y'+1,c)    = P1(y',c) + Z(1,c)

Of the terms with a stride s along an index all but one of s are products with 0.  In a sum for one
remainder the others are all there is, and subscripts have no quotients, so that each is a product
like others.  Z is 0, or NaN where 0 is multiplied by an infinity or NaN: sums are those as written.

Legal iff the instances are a box that begins at 0, and the other factor has no index of which
remainders are taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from math import gcd

from tcdsl.lang.comprehension import (
    Binary,
    Const,
    Expr,
    Index,
    Load,
    Select,
    conjuncts,
    indices_in,
    walk,
)
from tcdsl.lang.linear_forms import linear, of_linear
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, ends_of, in_place_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_accesses
from tcdsl.rewrites.scop.index_classes import why_not_merged
from tcdsl.rewrites.scop.packing import factor_of
from tcdsl.rewrites.scop.rfactor import initialisation, why_not_rfactored

MOST_SUMS = 16
TRUE = Const(True, BOOL)


@dataclass(frozen=True, slots=True)
class Strided:
    """A condition ``(a y + b r + c) % stride == 0``: *left* is y, *reduced* is r."""

    condition: Expr
    left: str
    reduced: str
    of_left: int
    of_reduced: int
    constant: int
    stride: int

    @property
    def period(self) -> int:
        """How far values of the reduced index are apart for which the condition holds."""
        return self.stride // gcd(self.of_reduced, self.stride)

    def first(self, remainder: int) -> int | None:
        """Return the least value of the reduced index with which the *remainder* of y has terms."""
        rest = self.of_left * remainder + self.constant
        own = range(self.period)
        return next((r for r in own if (rest + self.of_reduced * r) % self.stride == 0), None)


def why_not_by_remainders(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is not a sum for each remainder of an index, or None."""
    if statement.reduction is None or why_not_rfactored(statement) is not None:
        return "it adds nothing up"
    if statement.reduction.dtype.name.startswith("compensated"):
        return "its sums are pairs, and it would add one that is none"
    found = _strided(statement)
    if not found:
        return "no condition is on remainders"
    if reason := why_not_merged(statement):
        return reason
    if statement.conditions or statement.library or initialisation(scop, statement) is None:
        return "it has conditions, or adds to what its target holds"
    if tuple(statement.write.subscripts) != tuple(map(Index, statement.left)):
        return "its target's subscripts are not the left-hand indices"
    own = [name for one in found for name in (one.left, one.reduced)]
    if len(set(own)) < len(own) or indices_in(_other(statement)) & {one.left for one in found}:
        return "an index is in several conditions, or in the other factor"
    count = 1
    for one in found:
        count *= one.stride
    return f"{count} remainders are too many" if count > MOST_SUMS else None


def by_remainders(scop: Scop, name: str) -> Scop:
    """Return *scop* with a sum for each combination of remainders instead of *name*."""
    statement = scop.by_name[name]
    assert why_not_by_remainders(scop, statement) is None
    return _Split(scop, statement).done()


def _strided(statement: Statement) -> tuple[Strided, ...]:
    """Return the conditions on remainders under which a factor of *statement* is not 0."""
    value = statement.value
    if not (isinstance(value, Binary) and value.op == "*"):
        return ()
    for operand in (value.left, value.right):
        factor = factor_of(operand)
        if factor is None or factor.condition is None:
            continue
        found = (_of_condition(one, statement) for one in conjuncts(factor.condition))
        if own := tuple(one for one in found if one is not None):
            return own
    return ()


def _of_condition(condition: Expr, statement: Statement) -> Strided | None:
    match condition:
        case Binary(op="==", left=Binary(op="%", left=inner, right=Const(value=size)),
                    right=Const(value=0)):  # fmt: skip
            form = linear(inner)
        case _:
            return None
    if form is None or int(size) < 2:
        return None
    coefficients, constant = form
    left = [i for i in coefficients if i in statement.left]
    reduced = [i for i in coefficients if i in statement.reduced]
    if len(left) != 1 or len(reduced) != 1 or len(coefficients) != 2:
        return None
    of_left, of_reduced = coefficients[left[0]], coefficients[reduced[0]]
    return Strided(
        condition, left[0], reduced[0], of_left, of_reduced, constant, int(size)
    )  # fmt: skip


def _other(statement: Statement) -> Expr:
    """Return the factor of *statement* without conditions on remainders."""
    value, found = statement.value, _strided(statement)
    assert isinstance(value, Binary) and found
    is_left = any(node is found[0].condition for node in walk(value.left))
    return value.right if is_left else value.left


@dataclass(frozen=True, slots=True)
class _Space:
    """The indices of a statement, and how many values each has."""

    left: tuple[str, ...]
    reduced: tuple[str, ...]
    extents: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Target:
    """What a statement writes."""

    array: str
    subscripts: tuple[Expr, ...]


class _Split:
    """Makes the sums of one statement."""

    def __init__(self, scop: Scop, statement: Statement) -> None:
        assert statement.reduction is not None
        self.scop = scop
        self.statement = statement
        self.strided = _strided(statement)
        self.dtype = statement.reduction.dtype
        self.extents = ends_of(statement)
        self.arrays = dict(scop.arrays)
        self.made: list[Statement] = []

    def done(self) -> Scop:
        """Return the scop."""
        zeros = self._zeros()
        for number, remainders in enumerate(product(*(range(s.stride) for s in self.strided))):
            self._sum(f"{self.statement.name}_r{number}", remainders, zeros)
        init = initialisation(self.scop, self.statement)
        return in_place_of(
            replace(self.scop, arrays=self.arrays), (self.statement, init), self.made
        )

    def _zeros(self) -> Load:
        """Add what the terms that are left out come to, and return it for remainders a0, a1, .."""
        other = _other(self.statement)
        ways = [f"{one.left}_of" for one in self.strided]
        own = [i for i in self.statement.left if i in indices_in(other)]
        reduced = [
            i for i in self.statement.reduced
            if i in indices_in(other) or i in {one.reduced for one in self.strided}
        ]  # fmt: skip
        here: dict[str, Expr] = {
            one.left: Index(way) for one, way in zip(self.strided, ways, strict=True)
        }
        there = reduce(_both, (_with(one.condition, here) for one in self.strided))
        zero = Const(0.0 if self.dtype.is_float else 0, self.dtype)
        value = Select(there, zero, Binary("*", zero, other, self.dtype), self.dtype)
        extents = {**self.extents, **{w: s.stride for w, s in zip(ways, self.strided, strict=True)}}
        name = f"{self.statement.name}_zeros"
        array = self._array(name, [*ways, *own], extents)
        indices = tuple(map(Index, (*ways, *own)))
        space = _Space((*ways, *own), tuple(reduced), extents)
        self._add(name, space, _Target(array.name, indices), value)
        return Load(array.name, indices, self.dtype)

    def _sum(self, name: str, remainders: Sequence[int], zeros: Load) -> None:
        """Add the sum for *remainders*, and what stores it."""
        extents, values = dict(self.extents), dict[str, Expr]()
        has_terms = True
        for one, remainder in zip(self.strided, remainders, strict=True):
            values[one.left] = _digits(one.left, one.stride, remainder)
            extents[one.left] = -(-(self.extents[one.left] - remainder) // one.stride)
            first = one.first(remainder)
            if first is None or first >= self.extents[one.reduced]:
                has_terms = False
                continue
            values[one.reduced] = _digits(one.reduced, one.period, first)
            extents[one.reduced] = -(-(self.extents[one.reduced] - first) // one.period)
        left = self.statement.left
        if any(extents[index] < 1 for index in left):
            return
        ways = {
            f"{s.left}_of": Const(a, INT32) for s, a in zip(self.strided, remainders, strict=True)
        }
        rest: Expr = _with(zeros, ways)
        if has_terms:
            array = self._array(name, left, extents)
            own = tuple(map(Index, left))
            assert self.statement.value is not None
            value = _with(self.statement.value, values)
            space = _Space(left, self.statement.reduced, extents)
            self._add(name, space, _Target(array.name, own), value)
            rest = Binary("+", Load(array.name, own, self.dtype), rest, self.dtype)
        written = tuple(_with(s, values) for s in self.statement.write.subscripts)
        target = _Target(self.statement.write.array, written)
        self.made.append(self._statement(f"{name}_store", _Space(left, (), extents), target, rest))

    def _array(self, name: str, indices: Sequence[str], extents: Mapping[str, int]) -> Array:
        shape = tuple(extents[index] for index in indices)
        array = Array(f"{name}.sum", self.dtype, (0,) * len(shape), shape, Storage.SCRATCH)
        self.arrays[array.name] = array
        return array

    def _add(self, name: str, space: _Space, target: _Target, value: Expr) -> None:
        """Add the sum of *value* over what *space* reduces, from 0 on."""
        first = self._statement(f"{name}_init", replace(space, reduced=()), target, None)
        sums = self._statement(name, space, target, value)
        own = self.statement.reduction
        self.made += [
            replace(first, source_name=name, kind=Kind.INIT, reduction=own),
            replace(sums, source_name=name, kind=Kind.UPDATE, reduction=own),
        ]

    def _statement(
        self, name: str, space: _Space, target: _Target, value: Expr | None
    ) -> Statement:
        """Return the assignment of *value* to *target*."""
        indices = (*space.left, *space.reduced)
        builder = builder_of(indices, name, self.scop.sizes)
        domain = box(builder, indices, {index: (0, space.extents[index]) for index in indices})
        new = replace(
            self.statement, name=name, domain=domain, indices=indices, n_left=len(space.left),
            kind=Kind.ASSIGN, value=value, source_name=name, reduction=None,
        )  # fmt: skip
        scop = replace(self.scop, arrays=self.arrays)
        return with_own_accesses(scop, new, target.array, target.subscripts)


def _both(one: Expr, other: Expr) -> Expr:
    return Binary("&&", one, other, BOOL)


def _digits(index: str, step: int, first: int) -> Expr:
    """Return ``step * index + first``."""
    return of_linear({index: step}, first)


def _with(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return *expr* with *values* for indices, without quotients and conditions that are idle."""
    return rewrite(expr, lambda node: _simplified(_put(node, values)))


def _put(node: Expr, values: Mapping[str, Expr]) -> Expr:
    return values.get(node.name, node) if isinstance(node, Index) else node


def _simplified(node: Expr) -> Expr:
    match node:
        case Binary(op="/", left=left, right=Const(value=size)) if _is_multiple(left, size):
            form = linear(left)
            assert form is not None
            return of_linear({i: n // int(size) for i, n in form[0].items()}, form[1] // int(size))
        case Binary(op="==", left=Binary(op="%", left=left, right=Const(value=size)),
                    right=Const(value=0)) if _is_multiple(left, size):  # fmt: skip
            return TRUE
        case Binary(op="&&", left=left, right=right) if TRUE in (left, right):
            return right if left == TRUE else left
        case Select(condition=condition, if_true=value) if condition == TRUE:
            return value
        case _:
            return node


def _is_multiple(expr: Expr, size: object) -> bool:
    """Return whether the integer *expr* is a multiple of *size* whatever its indices."""
    form = linear(expr) if expr.dtype.is_integer else None
    if form is None or not isinstance(size, int) or size < 1:
        return False
    return all(n % size == 0 for n in (*form[0].values(), form[1]))
