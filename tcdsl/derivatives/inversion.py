"""The adjoint of an affine read over the indices of what is read: a gather, and no scatter.

    O(h) +=! X(h + k) * W(k)        dX(h + k) += dO(h) * W(k)
                             --->   dX(h) += (h - k >= 0 && h - k < H - K + 1 ? dO(h - k) : 0) W(k)

In each dimension of X one index v of the statement is solved for: ``c v + rest = x`` gives ``v = (x
- rest) / c`` where c divides it.  Of several, a left-hand index is taken, so that the sum is over
the window.  A window that tiles its stride, ``c v + u`` with u in 0:c, gives both, ``v = x / c``
and ``u = x % c``.

Legal iff each dimension has an index of its own that no other dimension needs; what cannot be
solved stays a scatter.  The ranges of what was solved for become guards, of which isl drops those
that always hold.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from tcdsl.derivatives import terms
from tcdsl.derivatives.lines import Box, BoxOfInstances, Instances, Range, Ranges
from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Select, Unary, children
from tcdsl.lang.ranges.affine import constant_value
from tcdsl.lang.ranges.linear import Form, linear
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.ranges.size_functions import SizeSpace, to_expr
from tcdsl.lang.rewrite import rewrite, with_operands
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a def, and what is known of them."""

    space: SizeSpace
    known: isl.Set


@dataclass(slots=True)
class _Solution:
    """How the indices of a statement follow from those of an element."""

    forms: Sequence[Form]
    ranges: Ranges
    box: Box | None
    preferred: Sequence[str]
    left: list[Expr] = field(default_factory=list)
    values: dict[str, Expr] = field(default_factory=dict)  # of the indices solved for
    new_ranges: dict[str, Range] = field(default_factory=dict)
    guards: list[Expr] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def solve(self) -> bool:
        """Solve every dimension; return whether that was possible."""
        plain = [_plain_index(form) for form in self.forms]
        taken = [name for name in plain if name is not None]
        if len(set(taken)) < len(taken):
            return False
        for position, (form, name) in enumerate(zip(self.forms, plain, strict=True)):
            if name is not None:
                self.left.append(Index(name))
            elif not form.coefficients:
                self.left.append(to_expr(form.rest))
            elif not self._solve(position, form, taken):
                return False
        return True

    def _solve(self, position: int, form: Form, taken: list[str]) -> bool:
        if self.box is None or None in self.ranges.values():
            return False
        others = {v for p, other in enumerate(self.forms) if p != position for v in
                  other.coefficients}  # fmt: skip
        free = [v for v in form.coefficients if v not in others and v not in taken]
        if not free:
            return False
        v = min(free, key=lambda v: (self._rank(v), -abs(form.coefficients[v])))
        factor = form.coefficients[v]
        rest = form.without(v)
        inner = next((u for u in free if u != v and self._tiles(u, form, abs(factor))), None)
        if inner is not None and factor > 0:
            rest = rest.without(inner)
        numerator = _difference(v, rest) if factor > 0 else _difference(v, rest, negate=True)
        if inner is not None and factor > 0:
            self.values[inner] = Binary("%", numerator, Const(factor, INT32), INT32)
            self._require_in_range(inner)
            self.gone.add(inner)
        self._divide(v, abs(factor), numerator, exact=inner is None or factor < 0)
        self.left.append(Index(v))
        self.new_ranges[v] = self.box[position]
        return True

    def _rank(self, v: str) -> int:
        return 0 if v in self.preferred else 1

    def _tiles(self, u: str, form: Form, factor: int) -> bool:
        """Return whether *u* runs within 0:factor with coefficient 1."""
        run = self.ranges[u]
        assert run is not None
        lower, upper = map(constant_value, run)
        fits = lower is not None and upper is not None and lower >= 0 and upper <= factor
        return form.coefficients[u] == 1 and fits and factor > 1

    def _divide(self, v: str, divisor: int, numerator: Expr, exact: bool) -> None:
        if divisor == 1:
            self.values[v] = numerator
        else:
            by = Const(divisor, INT32)
            if exact:
                remainder = Binary("%", numerator, by, INT32)
                self.guards.append(Binary("==", remainder, Const(0, INT32), BOOL))
            self.values[v] = Binary("/", numerator, by, INT32)
        self._require_in_range(v)

    def _require_in_range(self, v: str) -> None:
        run = self.ranges[v]
        assert run is not None
        lower, upper = run
        self.guards.append(Binary(">=", self.values[v], to_expr(lower), BOOL))
        self.guards.append(Binary("<", self.values[v], to_expr(upper), BOOL))


def _plain_index(form: Form) -> str | None:
    """Return v if *form* is the index v alone."""
    if list(form.coefficients.values()) == [1] and constant_value(form.rest) == 0:
        return next(iter(form.coefficients))
    return None


def _difference(v: str, rest: Form, negate: bool = False) -> Expr:
    """Return ``v - rest``, or ``rest - v``."""
    form = rest if negate else rest.negated()
    return written(Form({v: -1 if negate else 1, **form.coefficients}, form.rest))


def written(form: Form) -> Expr:
    """Return *form* as an expression: indices first, unless the first of them is subtracted."""
    parts = sorted(form.coefficients.items(), key=lambda part: part[1] < 0)
    result: Expr | None = None
    constant = to_expr(form.rest)
    if not parts or parts[0][1] < 0:
        result, constant = constant, Const(0, INT32)
    for name, factor in parts:
        index: Expr = Index(name)
        term = index if abs(factor) == 1 else Binary("*", Const(abs(factor), INT32), index, INT32)
        op = "+" if factor > 0 else "-"
        result = term if result is None else Binary(op, result, term, INT32)
    assert result is not None
    return _added(result, constant)


def tidied(expr: Expr, sizes: SizeSpace) -> Expr:
    """Return *expr* with its subscripts and comparisons of them written as short sums."""

    def short(node: Expr) -> Expr:
        form = linear(node, sizes) if node.dtype.is_integer and index_names(node) else None
        return node if form is None else written(form)

    def change(node: Expr) -> Expr:
        match node:
            case Load(subscripts=subscripts):
                return replace(node, subscripts=tuple(map(short, subscripts)))
            case Binary(op="<" | "<=" | ">" | ">=" | "==" | "%" | "/") if node.left.dtype == INT32:
                return replace(node, left=short(node.left))
            case _:
                return node

    return short(rewrite(expr, change))


def _added(left: Expr, right: Expr) -> Expr:
    """Return ``left + right`` without parentheses."""
    match right:
        case Const(value=int(value)):
            if value == 0:
                return left
            return Binary("+" if value > 0 else "-", left, Const(abs(value), INT32), INT32)
        case Binary(op="+" | "-" as op, left=first, right=second):
            return Binary(op, _added(left, first), second, INT32)
        case Unary(op="-", operand=operand) | Binary("*", Const(value=-1), operand):
            return Binary("-", left, operand, INT32)
        case _:
            return Binary("+", left, right, INT32)


@dataclass(frozen=True, slots=True)
class Inverse:
    """``left += value`` for *instances*, all over the indices of the element."""

    left: tuple[Expr, ...]
    value: Expr
    instances: Instances


def inverted(
    subscripts: Sequence[Expr], value: Expr, instances: Instances, box: Box | None,
    preferred: Sequence[str], sizes: Sizes,
) -> Inverse | None:  # fmt: skip
    """Return ``dX(subscripts) += value`` over the elements of X, or None: it stays a scatter.

    :arg box: that of X.
    :arg preferred: the indices to solve for where there is a choice.
    """
    forms = [linear(subscript, sizes.space) for subscript in subscripts]
    if any(form is None for form in forms):
        return None
    solution = _Solution([f for f in forms if f is not None], instances.ranges, box, preferred)
    if not solution.solve():
        return None
    return _applied(solution, subscripts, value, instances, sizes)


def _applied(
    solution: _Solution, subscripts: Sequence[Expr], value: Expr, instances: Instances,
    sizes: Sizes,
) -> Inverse | None:  # fmt: skip
    if not solution.values:
        return Inverse(tuple(solution.left), value, instances)
    read = dict(zip(subscripts, solution.left, strict=True))
    for bounds in instances.data_ranges:
        if not {bounds.index, *index_names(bounds.lower, bounds.upper)}.isdisjoint(solution.values):
            return None

    def change(node: Expr) -> Expr:
        return solution.values.get(node.name, node) if isinstance(node, Index) else node

    def moved_to(node: Expr) -> Expr:
        return _replaced(node, read, change)

    ranges = {v: solution.new_ranges.get(v, r) for v, r in instances.ranges.items()
              if v not in solution.gone}  # fmt: skip
    where = BoxOfInstances(ranges, sizes.space, sizes.known)
    conditions = [rewrite(condition, change) for condition in instances.conditions]
    kept = []
    for bounds in instances.dependent:
        if {bounds.index, *index_names(bounds.lower, bounds.upper)}.isdisjoint(solution.values):
            kept.append(bounds)
            continue
        at = rewrite(Index(bounds.index), change)
        conditions.append(Binary(">=", at, rewrite(bounds.lower, change), BOOL))
        conditions.append(Binary("<", at, rewrite(bounds.upper, change), BOOL))
    moved = tidied(simplified(moved_to(value), where), sizes.space)
    guards = [guard for guard in solution.guards if where.always(guard) is not True]
    conditions = [tidied(condition, sizes.space) for condition in conditions]
    conditions = [condition for condition in conditions if where.always(condition) is not True]
    if conditions:  # they come first: a condition may read what is there only where guards hold
        conditions = [*guards, *conditions]
    elif guards:
        moved = guarded(terms.conjunction(guards), moved, frozenset(solution.values))
    found = Instances(ranges, tuple(kept), instances.data_ranges, tuple(conditions))
    return Inverse(tuple(solution.left), moved, found)


def _replaced(expr: Expr, read: Mapping[Expr, Expr], change: Callable[[Expr], Expr]) -> Expr:
    """Return *expr* with what stands in *read* replaced whole, and other nodes by *change*."""
    if expr in read:
        return read[expr]
    operands = tuple(_replaced(child, read, change) for child in children(expr))
    return change(with_operands(expr, operands))


def simplified(expr: Expr, where: BoxOfInstances) -> Expr:
    """Return *expr* without the choices that are the same everywhere in *where*."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Select):
            return node
        always = where.always(node.condition)
        if always is None:
            return node
        return node.if_true if always else node.if_false

    return rewrite(expr, change)


def guarded(guard: Expr, value: Expr, moved: frozenset[str]) -> Expr:
    """Return ``guard ? value : 0``, the guard on the factor alone that mentions *moved* indices."""

    def is_fixed(expr: Expr) -> bool:
        return moved.isdisjoint(index_names(expr))

    match value:
        case Binary(op="*", left=left, right=right) if is_fixed(left):
            return Binary("*", left, guarded(guard, right, moved), value.dtype)
        case Binary(op="*" | "/" as op, left=left, right=right) if is_fixed(right):
            return Binary(op, guarded(guard, left, moved), right, value.dtype)
        case Unary(op="-", operand=operand):
            return Unary("-", guarded(guard, operand, moved), value.dtype)
        case Select(condition=condition, if_true=if_true, if_false=if_false) if terms.is_number(
            if_false, 0
        ):
            both = terms.conjunction((guard, condition))
            return Select(both, if_true, if_false, value.dtype)
        case _:
            return Select(guard, value, terms.number(0.0, value.dtype), value.dtype)
