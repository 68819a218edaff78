"""Sums that are 0 for all inputs, by algebra: their adjoints are not computed.

    m(i) +=! x(i, j)   a(i) = m(i) / N      sum over j of x(i, j) - a(i)     --->  0
    t(i) +=! e(i, j)   d(i) = g(i) / t(i)   g(i) - d(i) * sum over j of e(i, j)  --->  0

The first is how a variance depends on its mean, the second a softmax on what is subtracted before
its exponentials.  An expression is written as a polynomial, with negative powers, of *atoms*:
reads, calls, choices, sizes, and sums of products of atoms.  What one statement assigns to all
elements is replaced by its value, and a sum by its terms.  Where two polynomials look different
nothing follows; where all terms cancel the expression is 0 as a function of real numbers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any

from tcdsl.derivatives.contributions import Contribution, renamed
from tcdsl.derivatives.lines import Range
from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Index, Load, Unary
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.records import dataclass

Atom = Any  # an expression, or a Sum
Monomial = frozenset[tuple[Atom, int]]  # powers
Polynomial = Mapping[Monomial, Fraction]

_MOST_TERMS = 48
_MOST_DEPTH = 12
_MOST_READS = 100  # of a question
_ONE: Monomial = frozenset()


class TooLarge(Exception):
    """An expression has too many terms to be looked at."""


class Exhausted(Exception):
    """A question has taken too many steps."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of *terms* for all values of the indices that are called ``$0``, ``$1``, ..."""

    terms: Monomial
    ranges: tuple[str, ...]


@dataclass(slots=True)
class Algebra:
    """Polynomials of expressions over the arrays that *assigned* knows."""

    assigned: Callable[[str], Contribution | None]  # what all elements of an array are: one line
    _fresh: int = 0
    _reads: int = 0
    _open: list[str] = field(default_factory=list)

    def is_zero(self, found: Iterable[Contribution]) -> bool:
        """Return whether the sum of *found*, to one array, is 0 everywhere."""
        total: Polynomial = {}
        for contribution in found:
            rank = len(contribution.left)
            value = self.value(contribution, tuple(Index(f"%{d}") for d in range(rank)))
            if value is None or len(total) > _MOST_TERMS:
                return False
            total = _plus(total, value)
        return not total

    def value(self, found: Contribution, at: tuple[Expr, ...]) -> Polynomial | None:
        """Return what *found* adds to the element *at*, or None: that is too much to look at."""
        self._reads = 0
        try:
            return self._summed(found, at)
        except (TooLarge, Exhausted):
            return None

    def _summed(self, found: Contribution, at: tuple[Expr, ...]) -> Polynomial | None:
        names = [s.name for s in found.left if isinstance(s, Index)]
        if not found.instances.is_box or not found.instances.is_known:
            return None
        if len(set(names)) < len(found.left):
            return None
        new: dict[Expr, Expr] = dict(zip(found.left, at, strict=True))
        summed: dict[str, Range] = {}
        for name in found.reduced:
            run = found.instances.ranges[name]
            assert run is not None
            self._fresh += 1
            summed[f"${self._fresh}"] = run
            new[Index(name)] = Index(f"${self._fresh}")
        terms = self.of(renamed(found.value, new))
        total: dict[Monomial, Fraction] = {}
        for monomial, factor in terms.items():
            over = self._over(monomial, summed)
            total = _plus(total, {m: f * factor for m, f in over.items()})
        return total

    def _over(self, monomial: Monomial, summed: Mapping[str, Range]) -> Polynomial:
        """Return the sum of *monomial* over the indices *summed*."""
        inside = frozenset((atom, power) for atom, power in monomial
                           if not set(summed).isdisjoint(_indices(atom)))  # fmt: skip
        used = {name for atom, _ in inside for name in _indices(atom)} & set(summed)
        result: Polynomial = {monomial - inside: Fraction(1)}
        for name in (one for one in summed if one not in used):
            lower, upper = summed[name]
            result = _times(result, self.of(to_expr(upper.sub(lower))))
        if inside:
            atom = _canonical(inside, {name: str(summed[name]) for name in summed if name in used})
            result = _times(result, {frozenset({(atom, 1)}): Fraction(1)})
        return result

    # --- expressions ----------------------------------------------------------------------------
    def of(self, expr: Expr) -> Polynomial:
        """Return *expr* as a polynomial.

        :raises TooLarge: it has too many terms.
        """
        match expr:
            case Const(value=value) if not isinstance(value, bool) and abs(value) < float("inf"):
                return {_ONE: Fraction(value)} if value else {}
            case Cast(operand=operand) if _is_exact(expr):
                return self.of(operand)
            case Unary(op="-", operand=operand):
                return _scaled(self.of(operand), Fraction(-1))
            case Binary(op="+" | "-" as op, left=left, right=right):
                sign = Fraction(1 if op == "+" else -1)
                return _small(_plus(self.of(left), _scaled(self.of(right), sign)))
            case Binary(op="*", left=left, right=right):
                return _times(self.of(left), self.of(right))
            case Binary(op="/", left=left, right=right) if expr.dtype.is_float:
                return _times(self.of(left), self._inverse(right))
            case Load():
                return self._value(expr)
            case _:
                return {frozenset({(expr, 1)}): Fraction(1)}

    def _inverse(self, expr: Expr) -> Polynomial:
        found = self.of(expr)
        if len(found) != 1:
            return {frozenset({(expr, -1)}): Fraction(1)}
        ((monomial, factor),) = found.items()
        return {frozenset((atom, -power) for atom, power in monomial): 1 / factor}

    def _value(self, load: Load) -> Polynomial:
        found = None
        self._reads += 1
        if self._reads > _MOST_READS:
            raise Exhausted
        if load.tensor not in self._open and len(self._open) < _MOST_DEPTH:
            found = self.assigned(load.tensor)
        if found is not None:
            self._open.append(load.tensor)
            try:
                inner = self._summed(found, load.subscripts)
            except TooLarge:
                inner = None
            finally:
                self._open.pop()
            if inner is not None:
                return inner
        return {frozenset({(load, 1)}): Fraction(1)}


def _is_exact(cast: Cast) -> bool:
    """Return whether *cast* is the same number: a wider float, or a size as a float."""
    source = cast.operand.dtype
    if source.is_float:
        return cast.dtype.is_float and cast.dtype.size_bytes >= source.size_bytes
    return cast.dtype.is_float and source.is_integer and not index_names(cast.operand)


def _indices(atom: Atom) -> frozenset[str]:
    if isinstance(atom, Sum):
        return frozenset(name for inner, _ in atom.terms for name in _indices(inner))
    return frozenset(index_names(atom))


def _canonical(terms: Monomial, ranges: Mapping[str, str]) -> Sum:
    """Return the sum of *terms*, its indices named by where they appear first."""
    plain = dict.fromkeys(ranges, "$")
    order = sorted(terms, key=lambda part: (repr(_with_names(part[0], plain)), part[1]))
    names: dict[str, str] = {}
    for atom, _ in order:
        for name in _ordered_indices(atom):
            if name in ranges:
                names.setdefault(name, f"${len(names)}.")
    renamed_terms = frozenset((_with_names(atom, names), power) for atom, power in terms)
    return Sum(renamed_terms, tuple(ranges[name] for name in names))


def _ordered_indices(atom: Atom) -> Iterable[str]:
    if isinstance(atom, Sum):
        parts = sorted(atom.terms, key=lambda part: (repr(part[0]), part[1]))
        return [name for inner, _ in parts for name in _ordered_indices(inner)]
    return index_names(atom)


def _with_names(atom: Atom, names: Mapping[str, str]) -> Atom:
    if isinstance(atom, Sum):
        terms = frozenset((_with_names(inner, names), power) for inner, power in atom.terms)
        return Sum(terms, atom.ranges)
    return renamed(atom, {Index(old): Index(new) for old, new in names.items()})


# --- polynomials ------------------------------------------------------------------------------


def _plus(one: Polynomial, other: Polynomial) -> dict[Monomial, Fraction]:
    result = dict(one)
    for monomial, factor in other.items():
        value = result.pop(monomial, Fraction(0)) + factor
        if value:
            result[monomial] = value
    return result


def _scaled(polynomial: Polynomial, by: Fraction) -> Polynomial:
    return {monomial: by * factor for monomial, factor in polynomial.items()}


def _times(one: Polynomial, other: Polynomial) -> Polynomial:
    result: dict[Monomial, Fraction] = {}
    for left, by in one.items():
        for right, factor in other.items():
            powers = dict(left)
            for atom, power in right:
                powers[atom] = powers.get(atom, 0) + power
            monomial = frozenset((atom, power) for atom, power in powers.items() if power)
            result = _plus(result, {monomial: by * factor})
    return _small(result)


def _small(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > _MOST_TERMS:
        raise TooLarge
    return polynomial
