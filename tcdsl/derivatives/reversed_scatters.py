"""The adjoint of a recurrence whose reads have no inverse: a scatter, from the last instance on.

    y(i) = y(i / 2) * x(i)       --->    dy(i / 2) += dy(i) * x(i)
    y(i) = y(i - 1) * x(i) + y(3)
                                 --->    dy(i >= 0 && n == 0 ? i - 1 : 3) += n == 0 ? dy(i) * x(i)
                                         : dy(i)     where n in 0:2

(The caller turns the order round, i becomes N - 1 - i.)  The instances of a statement run in the
order of the indices of its left side, so this is reverse mode to the letter, for any subscripts,
those that data give too.  Several reads become one statement over their number n, because one
instance has to serve all of them before the next one runs.

Legal iff the indices whose order means something come first in the left side, in their order, but
for those of dimensions that every read has in common with what is written: a condition that always
holds names them where a subscript would not.  A read that does not happen adds 0 to the first
element; where the scatter is not run then, since the subscripts are data, they stay as they are,
and so does the parallelism along them::

    y(b,i) = (I(i) < i ? y(b,I(i)) : 1) * x(b,i)
                                 --->    dy(b,I(i)) += dy(b,i) * x(b,i)   exists I(i) < i

The left side has to stay in the box for all sizes, and not only those that a call can have: ranges
are shortened first, so that what the recurrence wrote is in the box, and what it read is guarded.
At the sizes of a call neither changes anything.

    y(2 * i) = y(2 * i - 2) * x(i) where i in 1:3
                                 --->    dy(2 * i - 2) += dy(2 * i) * x(i)
                                         where i in 1:min(3, (N + 1) / 2)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

from tcdsl.derivatives import terms
from tcdsl.derivatives.clipping import clip_range
from tcdsl.derivatives.contributions import unguarded
from tcdsl.derivatives.inversion import Inverse, Sizes
from tcdsl.derivatives.lines import Box, BoxOfInstances, Line, Range
from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Select, Unary, walk
from tcdsl.lang.ranges.reads import Guard, guarded_loads, index_names
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.records import dataclass


@dataclass(slots=True)
class Scatter:
    """``d(left) += value`` for the reads *own* of the target of *line*, whose box is *box*."""

    line: Line
    own: Mapping[Load, Expr]
    box: Box
    sizes: Sizes
    fresh: Callable[[str], str]
    free: Sequence[str] = ()  # indices of the dimensions in which all reads are as what is written
    number: str = field(init=False)  # the index that counts the reads
    where: BoxOfInstances = field(init=False)

    def __post_init__(self) -> None:
        self.line = _clipped(self.line, self.box, self.sizes)
        self.number = self.fresh("n") if len(self.own) > 1 else ""
        # What is in bounds for all sizes needs no guard, and a guard would move the left side.
        self.where = BoxOfInstances(
            self.line.instances.ranges, self.sizes.space, self.sizes.space.sane
        )

    def over(self, ordered: Sequence[str]) -> Inverse | None:
        """Return the scatter, the indices *ordered* first in its left side; None: see above."""
        value = self._by_number(list(self.own.values()))
        left = self._unguarded(value) or [
            self._by_number([self._subscript(load, position) for load in self.own])
            for position in range(len(self.box))
        ]
        names = [name for name in index_names(*left) if name not in self.free]
        if names[: len(ordered)] != list(ordered):
            left[0] = self._named(left[0], ordered)
        instances = self.line.instances
        ranges = dict(instances.ranges)
        if self.number:
            space = self.sizes.space
            ranges[self.number] = space.zero, space.constant(len(self.own))
        where = BoxOfInstances(ranges, self.sizes.space, self.sizes.space.sane)
        for subscripts in (left, self.line.subscripts):
            if not all(map(where.contains, subscripts, self.box)):
                return None
        ranges = {name: ranges[name] for name in dict.fromkeys((*index_names(*left), *ranges))}
        return Inverse(tuple(left), value, replace(instances, ranges=ranges))

    def _unguarded(self, value: Expr) -> list[Expr] | None:
        """Return the subscripts of the only read, if the scatter of *value* runs where it happens.

        (:func:`contributions.contributed` sees to it where data are subscripts.)  None: it does
        not, or sizes and indices alone may decide what is in bounds.
        """
        (load, *others), (_, conditions) = self.own, unguarded(value)
        guard = self._guard(load)
        if others or guard is None or guard not in conditions:
            return None
        if not all(map(_reads, terms.conjuncts(guard))) or not any(map(_reads, load.subscripts)):
            return None
        if any(map(self._bounds, load.subscripts, self.box)):
            return None
        return list(load.subscripts)

    def _is(self, number: int) -> Expr:
        return Binary("==", Index(self.number), Const(number, INT32), BOOL)

    def _by_number(self, exprs: Sequence[Expr]) -> Expr:
        """Return that of *exprs* which belongs to the read of this instance."""
        if len(set(exprs)) == 1:
            return exprs[0]
        *others, result = exprs
        for number, expr in reversed(list(enumerate(others))):
            result = Select(self._is(number), expr, result, expr.dtype)
        return result

    def _named(self, expr: Expr, ordered: Sequence[str]) -> Expr:
        """Return *expr* after the indices *ordered*."""
        always = []
        for name in ordered:
            run = self.line.instances.ranges[name]
            assert run is not None, "the ranges are known"
            always.append(Binary(">=", Index(name), to_expr(run[0]), BOOL))
        return Select(terms.conjunction(always), expr, to_expr(self.box[0][0]), expr.dtype)

    def _subscript(self, load: Load, position: int) -> Expr:
        """Return the subscript of *load* where it is read, else one that is in the box."""
        subscript, lower = load.subscripts[position], to_expr(self.box[position][0])
        guards = [g for g in (self._guard(load), self._bounds(subscript, self.box[position])) if g]
        if not guards:
            return subscript
        return Select(terms.conjunction(guards), subscript, lower, subscript.dtype)

    def _guard(self, load: Load) -> Expr | None:
        """Return the condition under which *load* is read, None: always."""
        found: dict[Expr, None] = {}
        for read in guarded_loads(self.line.value, ()):
            if read.load == load:
                if not read.guards:
                    return None
                found.setdefault(terms.conjunction(map(_holds, read.guards)))
        return reduce(_either, found)

    def _bounds(self, subscript: Expr, dim: Range) -> Expr | None:
        """Return that *subscript* is in *dim*, None: it is always, or data give it."""
        lower, upper = dim
        above = Binary(">=", subscript, to_expr(lower), BOOL)
        inside = Binary("&&", above, Binary("<", subscript, to_expr(upper), BOOL), BOOL)
        is_affine = self.where.builder.affine(subscript) is not None
        return inside if is_affine and self.where.always(inside) is not True else None


def _clipped(line: Line, box: Box, sizes: Sizes) -> Line:
    """Return *line* without the instances that write outside its *box*: no call has them."""
    ranges = {name: run for name, run in line.instances.ranges.items() if run is not None}
    if len(ranges) < len(line.instances.ranges):
        return line
    for subscript, dim in zip(line.subscripts, box, strict=True):
        where = BoxOfInstances(ranges, sizes.space, sizes.space.sane)
        clip_range(ranges, subscript, where, dim, sizes)
    return replace(line, instances=replace(line.instances, ranges=ranges))


def _reads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def _either(one: Expr, other: Expr) -> Expr:
    return Binary("||", one, other, BOOL)


def _holds(guard: Guard) -> Expr:
    return guard.condition if guard.holds else Unary("!", guard.condition, BOOL)
