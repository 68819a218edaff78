"""The contributions to one adjoint array, together: few statements, and sums of little.

    d_m(i) +=! dy(i, j) * r(i)          d_m_sum(i) +=! dy(i, j)
    d_x(i, j) = dy(i, j) * r(i)   --->  d_x(i, j) = dy(i, j) * r(i) + d_m_sum(i) * r(i) / n
    d_x(i, j) += d_m(i) / n

Factors that are the same for all terms of a sum go in front of it: the sum does not wait for them,
and may be one that the forward pass has made.  Contributions to all elements become one assignment.
A scatter along one dimension, as of the label that a loss reads, is a comparison in it:

    d_x(b, label(b)) += e(b)      --->  ... + (v == label(b) ? e(b) : 0)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tcdsl.derivatives import terms
from tcdsl.derivatives.lines import Box, Instances, Line, fills
from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Select, Unary, walk
from tcdsl.lang.ranges.affine import constant_value
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Contribution:
    """``d_version(left) += value`` for *instances*."""

    version: str
    left: tuple[Expr, ...]
    value: Expr
    instances: Instances

    @property
    def reduced(self) -> tuple[str, ...]:
        """The indices that the left side does not have."""
        return Line("", self.left, "+=", self.value, self.instances).reduced

    def is_whole(self, box: Box | None) -> bool:
        """Return whether it is an assignment to all elements of *box*."""
        return (
            not self.reduced and self.instances.is_box
            and fills(self.left, self.instances.ranges, box)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Combination:
    """How the contributions to an array of *box* are written."""

    box: Box
    fresh: Callable[[str], str]  # a new name
    known_sum: Callable[[Contribution], Load | None]  # what is the same, or of which it is the sum

    def __call__(self, found: Sequence[Contribution]) -> list[Contribution | Line]:
        """Return statements that have the sum of *found*, in the order in which they run."""
        lines: list[Contribution | Line] = []
        parts = []
        for contribution in found:
            sums, part = self._factored(contribution)
            lines += sums
            parts.append(part)
        whole = [part for part in parts if part.is_whole(self.box)]
        if whole:
            parts = [compared(p, whole[0].left, self.box) or p if p not in whole else p
                     for p in parts]  # fmt: skip
            whole = [part for part in parts if part.is_whole(self.box)]
        others = [part for part in parts if part not in whole]
        filling = [part for part in others if fills(part.left, part.instances.ranges, self.box)]
        rest = [part for part in others if part not in filling]
        joined = [_joined(whole)] if whole else []
        return [*lines, *filling, *joined, *rest]

    def _factored(self, found: Contribution) -> tuple[list[Line], Contribution]:
        """Return *found* with what is the same for all of its terms before the sum."""
        reduced = frozenset(found.reduced)
        plain = tuple(s for s in found.left if isinstance(s, Index))
        # (Where conditions leave instances out, what goes in front might be no number.)
        if not reduced or not found.instances.is_box or len(set(plain)) < len(found.left):
            return [], found
        outer, inner = split(found.value, reduced)
        found_sum = replace(found, value=inner.product(found.value.dtype))
        known = self.known_sum(found_sum)
        lines, summand = ([], found_sum) if known else self._nested(found_sum, inner)
        if isinstance(known, Load) and not reduced.isdisjoint(index_names(known)):
            lines, summand, known = [], _over(found_sum, known), None
        if known is None and (all(isinstance(f, Const) for f in outer.all) or not inner.all):
            value = Factors(outer.sign, (*outer.above, summand.value), outer.below)
            is_same = summand is found_sum
            whole = replace(summand, value=value.product(found.value.dtype))
            return lines, found if is_same else whole
        if known is None:
            name = self.fresh(f"d_{found.version}_sum")
            known = Load(name, plain, found.value.dtype)
            lines.append(Line(name, plain, "+=!", summand.value, summand.instances))
        value = Factors(outer.sign, (*outer.above, known), outer.below)
        ranges = {s.name: found.instances.ranges[s.name] for s in plain}
        return lines, replace(
            found, value=value.product(found.value.dtype), instances=Instances(ranges)
        )

    def _nested(self, found: Contribution, inner: "Factors") -> tuple[list[Line], Contribution]:
        """Return *found*, the sum of *inner*, as a sum of sums if some factor has few indices.

        One factor must have all of them: then the sum inside reads it once, as the whole does.
        """
        reduced = set(found.reduced)
        every = {*found.instances.ranges}
        owns = {factor: reduced.intersection(index_names(factor)) for factor in inner.all}
        least: set[str] = min(owns.values(), key=len, default=reduced)
        is_full = any(every.issubset(index_names(factor)) for factor in inner.all)
        if not is_full or least == reduced or _is_short(found.instances, reduced - least):
            return [], found
        above, below = (tuple(f for f in side if owns[f] <= least)
                        for side in (inner.above, inner.below))  # fmt: skip
        rest = Factors(1, tuple(f for f in inner.above if f not in above),
                       tuple(f for f in inner.below if f not in below))  # fmt: skip
        dtype = found.value.dtype
        left = tuple(Index(v) for v in found.instances.ranges if v not in reduced - least)
        inside = replace(found, left=left, value=rest.product(dtype))
        load, lines = self.known_sum(inside), []
        if load is None or not (reduced - least).isdisjoint(index_names(load)):
            load = Load(self.fresh(f"d_{found.version}_part"), left, dtype)
            lines = [Line(load.tensor, left, "+=!", inside.value, found.instances)]
        return lines, _over(found, Factors(1, (*above, load), below).product(dtype))


_SHORT = 8


def _is_short(instances: Instances, indices: Iterable[str]) -> bool:
    """Return whether sums over *indices* are known to have few terms."""
    terms_of_sum = 1
    for index in indices:
        run = instances.ranges[index]
        extent = None if run is None else constant_value(run[1].sub(run[0]))
        if extent is None:
            return False
        terms_of_sum *= extent
    return terms_of_sum < _SHORT


def _over(found: Contribution, value: Expr) -> Contribution:
    """Return the sum of *value* over what of the indices of *found* it and the left side have."""
    names = index_names(*found.left, value)
    ranges = {v: run for v, run in found.instances.ranges.items() if v in names}
    return replace(found, value=value, instances=Instances(ranges))


@dataclass(frozen=True, slots=True)
class Factors:
    """``sign * above / below``, the products of these."""

    sign: int = 1
    above: tuple[Expr, ...] = ()
    below: tuple[Expr, ...] = ()

    @property
    def all(self) -> tuple[Expr, ...]:
        """All factors, whether above or below."""
        return (*self.above, *self.below)

    def product(self, dtype: object) -> Expr:
        """Return the product as an expression."""
        result: Expr | None = None
        for factor in self.above:
            result = factor if result is None else terms.product(result, factor)
        for factor in self.below:
            result = Binary("/", result or terms.number(1.0, factor.dtype), factor, factor.dtype)
        if result is None:
            result = terms.number(1.0, dtype)  # type: ignore[arg-type]
        return terms.negative(result) if self.sign < 0 else result


def split(expr: Expr, indices: frozenset[str]) -> tuple[Factors, Factors]:
    """Return the factors of *expr* without *indices*, and those with them."""
    whole = factors(expr)

    def chosen(has: bool, sign: int) -> Factors:
        above, below = (
            tuple(f for f in side if (not indices.isdisjoint(index_names(f))) == has)
            for side in (whole.above, whole.below)
        )
        return Factors(sign, above, below)

    return chosen(False, whole.sign), chosen(True, 1)


def factors(expr: Expr) -> Factors:
    """Return *expr* as a product."""
    match expr:
        case Unary(op="-", operand=operand):
            found = factors(operand)
            return replace(found, sign=-found.sign)
        case Binary(op="*" | "/" as op, left=left, right=right):
            one, other = factors(left), factors(right)
            above, below = other.above, other.below
            if op == "/":
                above, below = below, above
            return Factors(one.sign * other.sign, one.above + above, one.below + below)
        case _:
            return Factors(1, (expr,))


def contributed(found: Contribution, target: str, op: str) -> Line:
    """Return the statement that adds *found* to *target*, or assigns it.

    A scatter runs only where it adds something: where nothing is read, data may be out of range,
    such as the -1 of a padded index.
    """
    value, instances = found.value, found.instances
    if any(isinstance(node, Load) for subscript in found.left for node in walk(subscript)):
        value, conditions = unguarded(value)
        instances = replace(instances, conditions=(*instances.conditions, *conditions))
    return Line(target, found.left, op, value, instances)


def unguarded(expr: Expr) -> tuple[Expr, tuple[Expr, ...]]:
    """Return *expr* where it is not 0 for sure, and the conditions for that.

    ``(c ? a : 0) * b``  --->  ``a * b``  and  ``c``
    """
    whole, conditions = factors(expr), []
    above: list[Expr] = []
    for factor in whole.above:
        while isinstance(factor, Select):
            condition, taken = factor.condition, factor.if_true
            if terms.is_number(taken, 0):
                condition, taken = Unary("!", condition, BOOL), factor.if_false
            elif not terms.is_number(factor.if_false, 0):
                break
            conditions.append(condition)
            factor = taken
        above.append(factor)
    if not conditions:
        return expr, ()
    return replace(whole, above=tuple(above)).product(expr.dtype), tuple(conditions)


def compared(found: Contribution, left: tuple[Expr, ...], box: Box) -> Contribution | None:
    """Return *found*, a scatter along one dimension of an array of *box*, over all its elements.

    :arg left: names for the indices.
    """
    dims = [d for d, s in enumerate(found.left) if not isinstance(s, Index)]
    names = {s.name for s in found.left if isinstance(s, Index)}
    if len(dims) != 1 or len(names) < len(found.left) - 1 or set(found.instances.ranges) != names:
        return None
    at, new = found.left[dims[0]], left[dims[0]]
    reads = any(isinstance(node, Load) for node in walk(at))
    if not reads or not found.instances.is_box or not isinstance(new, Index) or new.name in names:
        return None
    ranges = {**found.instances.ranges, new.name: box[dims[0]]}
    zero = terms.number(0.0, found.value.dtype)
    value = Select(Binary("==", new, at, BOOL), found.value, zero, found.value.dtype)
    whole = (*found.left[: dims[0]], new, *found.left[dims[0] + 1 :])
    result = Contribution(found.version, whole, value, Instances(ranges))
    return result if result.is_whole(box) else None


def _joined(found: Sequence[Contribution]) -> Contribution:
    """Return the sum of *found*, all of them to all elements, over the indices of the first."""
    first = found[0]
    values = [value_at(other, first.left) for other in found]
    return replace(first, value=terms.total(values))


def value_at(found: Contribution, at: Iterable[Expr]) -> Expr:
    """Return the value of *found*, whose left side are indices, for the element *at*."""
    return renamed(found.value, dict(zip(found.left, at, strict=True)))


def renamed(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Return *expr* with other indices."""
    by_name = {index.name: value for index, value in values.items() if isinstance(index, Index)}
    return rewrite(
        expr, lambda node: by_name.get(node.name, node) if isinstance(node, Index) else node
    )
