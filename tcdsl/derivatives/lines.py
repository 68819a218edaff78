"""Statements in the making: what is assigned, for which instances, before it is text.

A :class:`Line` is a statement whose ranges are known, whatever its text will say of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import islpy as isl

from tcdsl.lang.comprehension import Const, Expr, Index, IndexBounds, Load, Statement, walk
from tcdsl.lang.ranges.affine import Builder, instance_space
from tcdsl.lang.ranges.reads import index_names, reads
from tcdsl.lang.ranges.size_functions import SizeSpace, dim_expr
from tcdsl.lang.rewrite import rewrite, rewrite_ranges
from tcdsl.lang.types.dtypes import INT32
from tcdsl.lang.types.head import Dim
from tcdsl.records import dataclass

Range = tuple[isl.PwAff, isl.PwAff]  # from the first up to but not including the second
Box = tuple[Range, ...]
Ranges = Mapping[str, Range | None]  # None: of a deferred def (lang/ranges/deferral), at each call


@dataclass(frozen=True, slots=True)
class Instances:
    """The points of a box for which a statement runs: *ranges*, cut by the rest.

    *bounds* are reads that give the ranges which are None.
    """

    ranges: Ranges
    dependent: tuple[IndexBounds, ...] = ()
    data_ranges: tuple[IndexBounds, ...] = ()
    conditions: tuple[Expr, ...] = ()
    bounds: tuple[Expr, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the ranges are known before a call."""
        return None not in self.ranges.values()

    @property
    def is_box(self) -> bool:
        """Whether all points of the box run."""
        return not (self.dependent or self.data_ranges or self.conditions)

    def rewritten(self, change: Callable[[Expr], Expr]) -> "Instances":
        """Return the instances with *change* applied to every node of every expression."""
        return Instances(
            self.ranges,
            rewrite_ranges(self.dependent, change),
            rewrite_ranges(self.data_ranges, change),
            tuple(rewrite(condition, change) for condition in self.conditions),
            tuple(rewrite(bound, change) for bound in self.bounds),
        )

    def exprs(self) -> Iterator[Expr]:
        """Yield the outermost expressions."""
        for bounds in (*self.dependent, *self.data_ranges):
            yield from (bounds.lower, bounds.upper)
        yield from self.conditions
        yield from self.bounds


def instances_of(statement: Statement) -> Instances:
    """Return the instances of *statement*, whose ranges are known."""
    return Instances(
        dict(zip(statement.indices, statement.ranges, strict=True)),
        tuple(b for b in statement.explicit if index_names(b.lower, b.upper)),
        statement.data_ranges,
        statement.conditions,
    )


def deferred_instances(statement: Statement, dims: Sequence[Dim | None]) -> Instances | str:
    """Return the instances of a statement whose ranges its text gives at each call, or why not.

    The reads that bound its indices do so as ``exists`` clauses; *dims*, the declared extents of
    its target, bound those that no read does.
    """
    found: dict[Load, None] = {}
    for read in reads(statement):
        if read.load.tensor == statement.target:
            continue
        if not read.guards:
            found.setdefault(read.load)
        elif any(isinstance(subscript, Index) for subscript in read.load.subscripts):
            return "products of sizes and a guarded read give its ranges together"
    bounded = {*index_names(*found), *(bounds.index for bounds in statement.explicit)}
    explicit = [*statement.explicit]
    for subscript, dim in zip(statement.subscripts, dims, strict=True):
        if isinstance(subscript, Index) and subscript.name not in bounded and dim is not None:
            explicit.append(IndexBounds(subscript.name, Const(0, INT32), dim_expr(dim)))
    return Instances(
        dict.fromkeys(statement.indices), tuple(explicit), statement.data_ranges,
        statement.conditions, tuple(load for load in found if load.subscripts),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """``target(subscripts) op value`` for *instances*; *op* is as written: ``=``, ``+=!``, ..."""

    target: str
    subscripts: tuple[Expr, ...]
    op: str
    value: Expr
    instances: Instances

    @property
    def reduced(self) -> tuple[str, ...]:
        """The indices that the left side does not have."""
        left = index_names(*self.subscripts)
        return tuple(index for index in self.instances.ranges if index not in left)

    def exprs(self) -> Iterator[Expr]:
        """Yield the outermost expressions."""
        yield from self.subscripts
        yield self.value
        yield from self.instances.exprs()

    def nodes(self) -> Iterator[Expr]:
        """Yield every node of every expression."""
        for expr in self.exprs():
            yield from walk(expr)

    def rewritten(self, change: Callable[[Expr], Expr]) -> "Line":
        """Return the line with *change* applied to every node of every expression."""
        return Line(
            self.target,
            tuple(rewrite(subscript, change) for subscript in self.subscripts),
            self.op,
            rewrite(self.value, change),
            self.instances.rewritten(change),
        )


def is_same_range(one: Range, other: Range) -> bool:
    """Return whether two ranges are the same functions of the sizes."""
    return all(a.plain_is_equal(b) or a.is_equal(b) for a, b in zip(one, other, strict=True))


def fills(subscripts: tuple[Expr, ...], ranges: Ranges, box: Box | None) -> bool:
    """Return whether *subscripts* are distinct indices that run over all of *box*."""
    if not subscripts:
        return True
    names = [subscript.name for subscript in subscripts if isinstance(subscript, Index)]
    if len(set(names)) < len(subscripts) or box is None:
        return False
    runs = [ranges[name] for name in names]
    return all(run is not None and is_same_range(run, dim)
               for run, dim in zip(runs, box, strict=True))  # fmt: skip


@dataclass(slots=True, eq=False)
class BoxOfInstances:
    """The isl set of a box of indices, to decide what holds everywhere in it.

    *known* are the sizes that a call can have.
    """

    ranges: Ranges
    sizes: SizeSpace
    known: isl.Set
    builder: Builder = field(init=False)
    points: isl.Set = field(init=False)

    def __post_init__(self) -> None:
        space = instance_space(tuple(self.ranges), "S", self.sizes.sizes)
        self.builder = Builder(space, self.sizes.sizes)
        self.points = isl.Set.universe(space)
        for name, run in self.ranges.items():
            assert run is not None, "the ranges are known"
            lower, upper = run
            value = self.builder.index(name)
            above = value.ge_set(lower.insert_domain(space))
            self.points = self.points.intersect(above.intersect(
                value.lt_set(upper.insert_domain(space))))  # fmt: skip
        self.points = self.points.intersect_params(self.known)

    def always(self, condition: Expr) -> bool | None:
        """Return the value of *condition* if it is the same at all points, else None."""
        truth = self.builder.truth(condition)
        if self.points.is_subset(truth.below):
            return True
        return False if self.points.intersect(truth.above).is_empty() else None

    def contains(self, subscript: Expr, run: Range) -> bool:
        """Return whether *subscript* is in *run* at all points, or is not affine."""
        value = self.builder.affine(subscript)
        if value is None:
            return True
        space = self.builder.space
        lower, upper = (bound.insert_domain(space) for bound in run)
        inside = value.ge_set(lower).intersect(value.lt_set(upper))
        return bool(self.points.is_subset(inside))
