"""The boxes of the tensors of a def: declared, or the hull of all writes.

T(i) = ... where i in 1:N;  T(2*i) = ... where i in 0:4     --->    T: [min(1, 0), max(N, 7))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import reduce

import islpy as isl

from tcdsl.lang.comprehension import Expr, Statement
from tcdsl.lang.ranges.affine import constant_value
from tcdsl.lang.ranges.linear import Interval, is_same_interval, linear
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.ranges.rounds import Space, extremes
from tcdsl.lang.ranges.size_functions import SizeSpace
from tcdsl.records import dataclass

Box = tuple[Interval, ...]


@dataclass(slots=True, eq=False)
class Boxes:
    """What is known of each tensor's box while a def's statements are taken in order."""

    sizes: SizeSpace
    known: dict[str, Box] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    # Per statement: the hull of its writes, None in a data-dependent dimension.
    images: dict[str, tuple[Interval | None, ...]] = field(default_factory=dict)

    def declare(self, tensor: str, extents: Sequence[isl.PwAff]) -> None:
        """Fix the box of *tensor* to ``[0, extent)`` in every dimension."""
        self.known[tensor] = tuple(Interval(self.sizes.zero, extent) for extent in extents)
        self.declared.add(tensor)

    def record_write(
        self, statement: Statement, space: Space, ranges: Mapping[str, Interval]
    ) -> None:
        """Keep the hull of the writes of *statement*, whose target's box is declared."""
        self.images[statement.name] = image(statement, space, ranges)

    def grow(
        self, statement: Statement, space: Space, ranges: Mapping[str, Interval]
    ) -> int | None:
        """Extend the target's box to the hull with the writes of *statement*.

        Returns the first dimension whose extent remains unknown, or None.
        """
        self.record_write(statement, space, ranges)
        written = self.images[statement.name]
        before = self.known.get(statement.target)
        grown: list[Interval] = []
        for position, interval in enumerate(written):
            old = None if before is None else before[position]
            if interval is None and old is None:
                return position
            grown.append(self.hull([part for part in (old, interval) if part is not None]))
        self.known[statement.target] = tuple(grown)
        return None

    def hull(self, parts: Sequence[Interval]) -> Interval:
        """Return the smallest interval that contains all of *parts*, at least one."""
        return reduce(self._hull_of_two, parts)

    def _hull_of_two(self, one: Interval, other: Interval) -> Interval:
        """Return the hull of two intervals; an empty one has no say where it would lie."""
        if is_same_interval(one, other):
            return one
        lower = self._unless_empty(one, other, one.lower.min(other.lower), lambda i: i.lower)
        upper = self._unless_empty(one, other, one.upper.max(other.upper), lambda i: i.upper)
        return Interval(lower, upper)

    def _unless_empty(
        self,
        one: Interval,
        other: Interval,
        both: isl.PwAff,
        bound: Callable[[Interval], isl.PwAff],
    ) -> isl.PwAff:
        """Return *both*, but where one of the two is empty the bound of the other."""
        is_one, is_other = one.lower.lt_set(one.upper), other.lower.lt_set(other.upper)
        proper = both.intersect_params(is_one.intersect(is_other))
        only_one = bound(one).intersect_params(is_other.complement())
        only_other = bound(other).intersect_params(is_other.subtract(is_one))
        return self.sizes.extended(proper.union_add(only_one).union_add(only_other).coalesce())


def image(
    statement: Statement, space: Space, ranges: Mapping[str, Interval]
) -> tuple[Interval | None, ...]:
    """Return the hull of the left side of *statement* over the box *ranges*."""
    return tuple(_image(subscript, space, ranges) for subscript in statement.subscripts)


def _image(subscript: Expr, space: Space, ranges: Mapping[str, Interval]) -> Interval | None:
    form = linear(subscript, space.sizes)
    if form is None and space.builder.affine(subscript) is None:
        return None
    if form is not None and form.coefficients and constant_value(form.rest) == 0:
        (index, factor), *others = form.coefficients.items()
        if factor == 1 and not others:
            return ranges[index]
    low, high = extremes(space, subscript, ranges)
    return Interval(low, _upper(low, high.add(space.sizes.one), subscript, space, ranges))


def _upper(
    low: isl.PwAff,
    upper: isl.PwAff,
    subscript: Expr,
    space: Space,
    ranges: Mapping[str, Interval],
) -> isl.PwAff:
    """Return *upper*, but *low* where an index of *subscript* has an empty range.

    (The corners of an empty box may lie anywhere: those of ``O(2*i)`` are 0 and -2.)
    """
    sizes = space.sizes
    filled = isl.Set.universe(sizes.space)
    for index in index_names(subscript):
        filled = filled.intersect(ranges[index].lower.lt_set(ranges[index].upper))
    proper = upper.intersect_params(filled)
    empty = low.intersect_params(filled.complement())
    return sizes.extended(proper.union_add(empty))
