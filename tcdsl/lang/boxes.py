"""The boxes of the tensors of a def: declared, or the hull of all writes.

T(i) = ... where i in 1:N;  T(2*i) = ... where i in 0:4     --->    T: [min(1, 0), max(N, 7))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl

from tcdsl.lang.affine import constant_value
from tcdsl.lang.comprehension import Expr, Statement
from tcdsl.lang.linear import Interval, is_same_interval, linear
from tcdsl.lang.rounds import Space, extremes
from tcdsl.lang.size_functions import SizeSpace

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
            grown.append(self._hull([part for part in (old, interval) if part is not None]))
        self.known[statement.target] = tuple(grown)
        return None

    def _hull(self, parts: list[Interval]) -> Interval:
        if all(is_same_interval(part, parts[0]) for part in parts[1:]):
            return parts[0]
        lower = self.sizes.smallest([part.lower for part in parts])
        return Interval(lower, self.sizes.largest([part.upper for part in parts]))


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
    upper = space.sizes.simplified(high.add(space.sizes.one))
    steps = [] if form is None else list(form.coefficients.values())
    if form is None or len(steps) > 1 or any(abs(step) != 1 for step in steps):
        # The corners of an empty box may lie further apart than -1; the image is then empty.
        upper = space.sizes.largest([low, upper])
    return Interval(low, upper)
