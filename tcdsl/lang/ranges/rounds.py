"""The ranges of one statement's indices, found in rounds.

Every read gives ``lower <= subscript < upper``.  In a round, for each index that is still open:
take the constraints in which it is the only open one, put the solved indices at their worst
corners (the constraint must hold for *all* their values), and intersect.  If that bounds the index
on both sides, it is solved after the round; if no round solves one, the program is ambiguous.

    O(h) +=! I(h + k) * W(k)      round 1: W gives k in [0, K)
                                  round 2: I gives h + 0 >= 0 and h + K - 1 < H: h in [0, H-K+1)

``where v in a:b`` fixes v.  Which reads count:

- a plain subscript, ``x(i)``, guarded or not;
- any other affine subscript if the read is unguarded.  A guard never changes a range: a guarded
  ``x(i - k)`` is checked under its guard once the ranges are known, and bounds nothing;
- of the tensor that the statement assigns, only the lower end: ``y(i - 1)`` starts i above the
  first element that is there, and never ends it, for the statement writes the elements to come.

When a round makes no progress, the left side bounds what is open: by the declared extents of the
target or, where the statement updates elements in place (``y(i) = 2 * y(i)``), by the box so far.

The rounds are those of range inference in Tensor Comprehensions: Vasilache et al., 2018,
arXiv:1802.04730, section 3.4.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import reduce

import islpy as isl

from tcdsl.lang.comprehension import Expr, IndexBounds, Load, Statement
from tcdsl.lang.ranges.affine import Builder, constant_value, instance_space
from tcdsl.lang.ranges.linear import Form, Interval, linear
from tcdsl.lang.ranges.reads import Guard, Read, index_names, reads
from tcdsl.lang.ranges.size_functions import SizeSpace, ceil_div, floor_div
from tcdsl.lang.types.dtypes import INT32
from tcdsl.records import dataclass

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One subscript of a read: it lies in *interval*, the tensor's dimension *position*."""

    read: Read
    position: int
    subscript: Expr
    interval: Interval
    form: Form | None
    indices: frozenset[str]  # those of the subscript
    is_own: bool  # of the tensor that the statement assigns

    @property
    def bounds_ranges(self) -> bool:
        """Whether the read counts in the inference: it is plain, or under no guard."""
        return self.plain is not None or not self.read.guards

    @property
    def plain(self) -> str | None:
        """The index that the subscript is, and nothing else (but perhaps its conversion)."""
        return _plain_index(self.form)


def _plain_index(form: Form | None) -> str | None:
    if form is None or set(form.coefficients.values()) != {1} or len(form.coefficients) > 1:
        return None
    return next(iter(form.coefficients)) if constant_value(form.rest) == 0 else None


@dataclass(slots=True, eq=False)
class Space:
    """A statement's instances, and what is known of them: everything that isl needs."""

    statement: Statement
    sizes: SizeSpace
    builder: Builder = field(init=False)
    ranges: Mapping[str, Interval] = field(default_factory=dict)  # once they are known

    def __post_init__(self) -> None:
        space = instance_space(self.statement.indices, self.statement.name, self.sizes.sizes)
        self.builder = Builder(space, self.sizes.sizes)

    def embedded(self, function: isl.PwAff) -> isl.PwAff:
        """Return a function of the sizes as one of the instance."""
        return function.insert_domain(self.builder.space)

    def index_set(self, index: str, interval: Interval) -> isl.Set:
        """Return the instances whose *index* lies in *interval*."""
        return self.inside(self.builder.index(index), interval)

    def inside(self, value: isl.PwAff, interval: Interval) -> isl.Set:
        """Return the instances where *value* lies in *interval*."""
        ceilings = (value.lt_set(self.embedded(ceiling)) for ceiling in interval.ceilings)
        return reduce(isl.Set.intersect, ceilings, self.above(value, interval))

    def above(self, value: isl.PwAff, interval: Interval) -> isl.Set:
        """Return the instances where *value* is at or above the start of *interval*."""
        floors = (value.ge_set(self.embedded(floor)) for floor in interval.floors)
        return reduce(isl.Set.intersect, floors)

    def box(self, ranges: Mapping[str, Interval]) -> isl.Set:
        """Return the instances whose indices lie in *ranges*."""
        where = isl.Set.universe(self.builder.space)
        for index, interval in ranges.items():
            where = where.intersect(self.index_set(index, interval))
        return where

    def guarded(self, guards: tuple[Guard, ...]) -> isl.Set:
        """Return a superset of the instances where all of *guards* hold; exact where affine."""
        where = isl.Set.universe(self.builder.space)
        for guard in guards:
            truth = self.builder.truth(guard.condition)
            where = where.intersect(truth.above if guard.holds else truth.below.complement())
        return where


def accesses(
    statement: Statement, boxes: Mapping[str, tuple[Interval, ...]], sizes: SizeSpace
) -> Iterator[Access]:
    """Yield every subscript of every read of a tensor whose box is known."""
    for read in reads(statement):
        is_own = read.load.tensor == statement.target
        for position, interval in enumerate(boxes.get(read.load.tensor, ())):
            subscript = read.load.subscripts[position]
            indices = frozenset(index_names(subscript))
            form = linear(subscript, sizes)
            yield Access(read, position, subscript, interval, form, indices, is_own)


def target_accesses(
    statement: Statement,
    boxes: Mapping[str, tuple[Interval, ...]],
    declared: Collection[str],
    sizes: SizeSpace,
) -> tuple[Access, ...]:
    """Return the subscripts of the left side that bound indices which no read bounds.

    Those of a declared target; else the plain ones at which every read of the target has the same
    index: there the statement updates what exists.
    """
    load = Load(statement.target, statement.subscripts, INT32, statement.target_span)
    own = [read.load for read in reads(statement) if read.load.tensor == statement.target]
    found = []
    for position, interval in enumerate(boxes.get(statement.target, ())):
        subscript = statement.subscripts[position]
        plain = _plain_index(linear(subscript, sizes))
        in_place = plain is not None and own and all(
            _plain_index(linear(other.subscripts[position], sizes)) == plain for other in own
        )  # fmt: skip
        if statement.target in declared or in_place:
            indices = frozenset(index_names(subscript))
            form = linear(subscript, sizes)
            found.append(
                Access(Read(load, ()), position, subscript, interval, form, indices, False)
            )
    return tuple(found)


@dataclass(slots=True, eq=False)
class Solution:
    """The ranges found, in the order found, and the reads that may bound them."""

    space: Space
    constraints: tuple[Access, ...]
    on_the_left: tuple[Access, ...] = ()  # see target_accesses
    ranges: dict[str, Interval] = field(default_factory=dict)

    @property
    def open(self) -> list[str]:
        """The indices that have no range yet."""
        return [v for v in self.space.statement.indices if v not in self.ranges]


def solve(
    space: Space, constraints: tuple[Access, ...], on_the_left: tuple[Access, ...] = ()
) -> Solution:
    """Return the ranges of the statement's indices; some stay open if it is ambiguous."""
    solution = Solution(space, constraints, on_the_left)
    counted = tuple(access for access in constraints if access.bounds_ranges)
    while solution.open:
        found = _round(solution, counted) or _round(solution, (*counted, *on_the_left))
        if not found:
            break
        solution.ranges.update(found)
    return solution


def _round(solution: Solution, counted: tuple[Access, ...]) -> dict[str, Interval]:
    found: dict[str, Interval] = {}
    for index in solution.open:
        explicit = [b for b in solution.space.statement.explicit if b.index == index]
        interval = _fixed(solution, explicit) if explicit else _inferred(solution, index, counted)
        if interval is not None:
            found[index] = interval
    return found


def _fixed(solution: Solution, explicit: list[IndexBounds]) -> Interval | None:
    """Return the hull of the explicit range, or None while it depends on an open index."""
    sizes = solution.space.sizes
    lowers, uppers = [], []
    depends = False
    for bounds in explicit:
        if not set(index_names(bounds.lower, bounds.upper)) <= solution.ranges.keys():
            return None
        lowers.append(extremes(solution.space, bounds.lower, solution.ranges)[0])
        uppers.append(extremes(solution.space, bounds.upper, solution.ranges)[1])
        depends = depends or bool(index_names(bounds.lower, bounds.upper))
    interval = Interval.between(lowers, uppers, sizes)
    if not depends:
        return interval
    # An empty outer range has corners that cross; the inner one is then empty, not negative.
    return Interval(interval.lower, sizes.largest([interval.lower, interval.upper]))


def extremes(
    space: Space, expr: Expr, ranges: Mapping[str, Interval]
) -> tuple[isl.PwAff, isl.PwAff]:
    """Return the smallest and the largest value of an affine *expr* over the box *ranges*."""
    form = linear(expr, space.sizes)
    if form is not None:
        simplified = space.sizes.simplified
        low, high = form.minimum(ranges, space.sizes), form.maximum(ranges, space.sizes)
        return simplified(low), simplified(high)
    value = space.builder.affine(expr)
    assert value is not None, "extremes of what is not affine"
    # Of other indices the range may be empty where that of the expression's is not.
    own = space.box({index: ranges[index] for index in index_names(expr)})
    return set_extremes(space, value, own.intersect_params(space.sizes.sane))


def set_extremes(space: Space, value: isl.PwAff, where: isl.Set) -> tuple[isl.PwAff, isl.PwAff]:
    """Return the smallest and the largest value of *value* on the bounded set *where*."""
    image = where.apply(isl.Map.from_pw_aff(value))
    extended = space.sizes.extended
    return extended(image.dim_min(0).coalesce()), extended(image.dim_max(0).coalesce())


def _inferred(solution: Solution, index: str, counted: tuple[Access, ...]) -> Interval | None:
    lowers: list[isl.PwAff] = []
    uppers: list[isl.PwAff] = []
    for access in counted:
        if index not in access.indices or not access.indices - {index} <= solution.ranges.keys():
            continue
        add = _add_projection if access.form is None else _add_corners
        # What lies above the elements already there is what this statement writes.
        add(access, index, solution, lowers, [] if access.is_own else uppers)
    if not lowers or not uppers:
        return None
    return Interval.between(lowers, uppers, solution.space.sizes)


def _add_corners(
    access: Access,
    index: str,
    solution: Solution,
    lowers: list[isl.PwAff],
    uppers: list[isl.PwAff],
) -> None:
    """Add what ``interval.lower <= a * index + rest < interval.upper`` says of *index*."""
    assert access.form is not None
    factor = access.form.coefficients.get(index, 0)
    if factor == 0 or (access.is_own and factor < 0):  # as in A(i - i), or y(n - i)
        return
    sizes, others = solution.space.sizes, access.form.without(index)
    least, most = (
        others.minimum(solution.ranges, sizes),
        others.maximum(solution.ranges, sizes).add(sizes.one),
    )
    low = [floor.sub(least) for floor in access.interval.floors]
    high = [ceiling.sub(most) for ceiling in access.interval.ceilings]
    # max(low) <= factor * index <= min(high)
    if factor < 0:
        low, high, factor = [f.neg() for f in high], [f.neg() for f in low], -factor
    lowers += [ceil_div(function, factor) for function in low]
    uppers += [floor_div(function, factor).add(sizes.one) for function in high]


def _add_projection(
    access: Access,
    index: str,
    solution: Solution,
    lowers: list[isl.PwAff],
    uppers: list[isl.PwAff],
) -> None:
    """Add the bounds of ``{ index : in bounds, for all values of solved indices }``."""
    space = solution.space
    value = space.builder.affine(access.subscript)
    if value is None:
        return
    inside = space.above(value, access.interval) if access.is_own else (
        space.inside(value, access.interval))  # fmt: skip
    others = access.indices - {index}
    solved = {v: own for v, own in solution.ranges.items() if v in others}
    box = space.box(solved)
    good = _projected(inside.complement().intersect(box), space, index).complement()
    # Where the box of solved indices is empty the constraint is void; its bounds are then those
    # that it has elsewhere.
    good = good.intersect_params(box.params().intersect(space.sizes.sane))
    # (dim_has_lower_bound takes a bound on an existential for one: it is true of all odd numbers.)
    if good.upper_bound_val(_SET, 0, isl.Val(0)).is_bounded():
        lowers.append(space.sizes.extended(good.dim_min(0).coalesce()))
    if good.lower_bound_val(_SET, 0, isl.Val(0)).is_bounded():
        uppers.append(space.sizes.extended(good.dim_max(0).coalesce()).add(space.sizes.one))


def _projected(where: isl.Set, space: Space, index: str) -> isl.Set:
    """Return the values of *index* on *where*: a set of one dimension."""
    position = space.statement.indices.index(index)
    after = len(space.statement.indices) - position - 1
    return where.project_out(_SET, position + 1, after).project_out(_SET, 0, position)
