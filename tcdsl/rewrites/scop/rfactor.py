"""rfactor: a reduction's terms go to partial accumulators, which are then folded.

    S[l, r]:  t[l] op= f(l, r)         P_init[l, c]:  p[l, c]       = identity
                                --->   S[l, r]:       p[l, c(l, r)] op= f(l, r)
                                       S_fold[l(,c)]: t[l]          op= p[l, c]

where ``c`` are coordinates of the reduced indices: a chunk of the range (one a thread), the lane of
a vector, or nothing at all (an accumulator of its own, in the reduction's type).  Legal for every
associative and commutative operator, whose terms may be combined in any order and grouping, in a
statement that does not read its own target: the fold of all elements comes after all updates.
Where S initialises its target, and the fold runs once an element, the fold assigns and the
initialisation is dropped.

Data may say which accumulators there are, if C(l), read from arrays.  There are partials of these::

    S_init[l]:  t[l]  = id   if C(l)         P_init[l, c]:  p[l, c]       = id         if C(l)
    S[l, r]:    t[l] op= f   if C(l), D   -> S[l, r]:       p[l, c(l, r)] op= f        if C(l), D
                                             S_fold[l(,c)]: t[l]          op= p[l, c]  if C(l)

All three evaluate C and so read what it reads, whatever loops keep of it: a fold without would read
partials that nobody has begun, and store results that nobody has asked for.  Legal iff what S
updates has been begun (C is among the conditions of S), and C is the same for all three: nothing
from S_init to S_fold writes what C reads.  C has no index but l, so that all who fold together
agree on it.

After Suriana, Adams, Kamil, "Parallel Associative Reductions in Halide", CGO 2017,
doi:10.1109/CGO.2017.7863747.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Reduction, are_indices
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import access, builder_of, guarded_reads
from tcdsl.poly.data_ranges import is_scattered_by_range
from tcdsl.poly.isl_utils import Extent, dim_bounds, minus, within, within_bounds
from tcdsl.poly.scop import (
    Access,
    Array,
    Kind,
    Scop,
    Statement,
    Storage,
    in_place_of,
    loads_of,
)
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Partial:
    """One coordinate of the partial accumulators.

    ``((index - shift) / div) % mod`` takes *extent* values, or any *function* of all indices; lanes
    are folded as a tree by one statement instance, other coordinates by a loop, in order.
    """

    index: str
    shift: int
    div: int
    mod: int
    extent: int
    is_lane: bool
    function: Expr | None = None

    def expression(self) -> Expr:
        if self.function is not None:
            return self.function
        expr: Expr = Index(self.index)
        for op, operand in (("-", self.shift), ("/", self.div), ("%", self.mod)):
            if operand not in ((0,) if op != "/" else (1,)):
                expr = Binary(op, expr, Const(operand, INT32), INT32)
        return expr


def coordinate_name(statement: Statement, number: int, *, is_lane: bool) -> str:
    """Return the name of a coordinate of partial accumulators, which no index of *statement* has.

    :arg number: of the coordinate among those of one rewrite.
    """
    return fresh_name(f"{'l' if is_lane else 'c'}{number}", statement.indices)


def why_not_rfactored(statement: Statement) -> str | None:
    """Return why *statement* has no partial accumulators, or None if it may have any."""
    if statement.reduction is not None and statement.reduction.operator.is_arg:
        return "an argmin or argmax keeps pairs: it is split into lanes only"
    return why_not_laned(statement)


def why_not_laned(statement: Statement) -> str | None:
    """Return why *statement* has no accumulators in lanes, or None if it may have them."""
    if statement.kind is not Kind.UPDATE or statement.reduction is None:
        return "it is no reduction"
    if any(read.array == statement.write.array for read in statement.reads):
        return "it is a recurrence: a partial accumulator would be stored after it is read"
    if not statement.write.is_exact:
        return "its target is scattered"
    if is_scattered_by_range(statement):
        return "the indices that it reduces say which elements it updates"
    is_partial = ".part" in statement.write.array
    if not is_partial and not are_indices(statement.write.subscripts):
        return "its target's subscripts are not plain indices, each another one"
    return None


class Rfactored(NamedTuple):
    """A scop, and its new statements: what initialises partial accumulators, what folds them."""

    scop: Scop
    init: Statement
    fold: Statement


def rfactor(
    scop: Scop,
    name: str,
    partials: Sequence[Partial],
    innermost: str | None = None,
    *,
    keeps_init: bool = False,
) -> Rfactored:
    """Give the updates of statement *name* partial accumulators along *partials*.

    :arg innermost: the left-hand index whose accumulators are neighbours; None for the last one.
    :arg keeps_init: the initialisation stays, for a kernel has it already.
    """
    statement = scop.by_name[name]
    is_laned = bool(partials) and all(partial.is_lane for partial in partials)
    reason = why_not_laned(statement) if is_laned else why_not_rfactored(statement)
    assert reason is None, reason
    reduction = statement.reduction
    assert reduction is not None
    init = initialisation(scop, statement)
    assert init is None or not (broken := why_conditions_differ(scop, init, statement)), broken
    layout = _layout(statement, innermost)
    part = _partial_array(scop, statement, partials, layout)
    arrays = {**scop.arrays, part.name: part}
    if reduction.operator.is_arg:
        # The lanes keep the index in one array, and the value that it belongs to in another.
        arrays[_values_of(part.name)] = replace(
            part, name=_values_of(part.name), dtype=reduction.dtype
        )
    wide = replace(scop, arrays=arrays)
    rewriter = _Rewriter(wide, statement, part, tuple(partials), reduction, layout)
    drops_init = init is not None and not keeps_init and all(p.is_lane for p in partials)
    new, fold = rewriter.init(), rewriter.fold(assigns=drops_init)
    replaced = (statement, init if drops_init else None)
    done = in_place_of(wide, replaced, [new, rewriter.update(), fold])
    return Rfactored(done, done.by_name[new.name], done.by_name[fold.name])


def needs_own_type(scop: Scop, name: str) -> bool:
    """Return whether the sums of statement *name* would be rounded to the target's half type."""
    statement = scop.by_name[name]
    if statement.kind is not Kind.UPDATE or why_not_rfactored(statement) is not None:
        return False
    if statement.library:
        return False
    assert statement.reduction is not None
    return scop.arrays[statement.write.array].dtype != statement.reduction.dtype


def with_own_accumulators(scop: Scop) -> Scop:
    """Give every sum into a half type an accumulator in the type of its arithmetic."""
    for statement in scop.statements:
        if needs_own_type(scop, statement.name):
            scop = rfactor(scop, statement.name, ()).scop
    return scop


def initialisation(scop: Scop, statement: Statement) -> Statement | None:
    """Return the statement that initialises the accumulators of *statement*, if there is one."""
    for candidate in scop.statements:
        same = candidate.write.array == statement.write.array
        if candidate.kind is Kind.INIT and same and candidate.source_name == statement.source_name:
            return candidate
    return None


def why_conditions_differ(scop: Scop, init: Statement, statement: Statement) -> str | None:
    """Return why what *init* begins is not what *statement* updates and a fold reads, or None."""
    if not init.conditions:
        return None
    if not {*init.conditions} <= {*statement.conditions}:
        return f"{statement.name} updates what {init.name} has not begun"
    read = {load.tensor for load in loads_of(*init.conditions)}
    for other in scop.statements[scop.position(init.name) : scop.position(statement.name) + 1]:
        if any(write.array in read for write in other.writes):
            return f"{other.name} writes what the conditions of {init.name} read"
    return None


def has_terms(scop: Scop, statement: Statement) -> bool:
    """Return whether every accumulator that is initialised is updated by *statement*.

    y(m) of 0 <= m < 96 is not, if x(m,k) is added to it where m < 66: tiles that are whole in m
    would add more.
    """
    init = initialisation(scop, statement)
    if init is None:
        return True
    known = _have_terms.get(statement)
    if known is None or known[0] is not init:
        written = (s.write.relation.range() for s in (init, statement))
        known = _have_terms[statement] = init, bool(next(written).is_subset(next(written)))
    return known[1]


_have_terms: WeakKeyDictionary[Statement, tuple[Statement, bool]] = WeakKeyDictionary()


def _values_of(part: str) -> str:
    return f"{part}.best"


def _layout(statement: Statement, innermost: str | None) -> tuple[int, ...]:
    """Return the accumulators' dimensions in the order in which they are stored."""
    dims = range(len(statement.write.subscripts))
    last = [
        d
        for d in dims
        if isinstance(s := statement.write.subscripts[d], Index) and s.name == innermost
    ]
    return (*(d for d in dims if d not in last), *last)


def _partial_array(
    scop: Scop, statement: Statement, partials: Sequence[Partial], layout: tuple[int, ...]
) -> Array:
    assert statement.reduction is not None
    found = _accumulator_box(scop, statement)
    box = [found[d] for d in layout]
    chunks = [p.extent for p in partials if not p.is_lane]
    lanes = [p.extent for p in partials if p.is_lane]
    origin = [0] * len(chunks) + [low for low, _ in box] + [0] * len(lanes)
    shape = [*chunks, *(minus(end, low) for low, end in box), *lanes]
    number = sum(".part" in array for array in scop.arrays)
    name = f"{statement.write.array.partition('.part')[0]}.part{number}"
    dtype = statement.reduction.dtype
    if statement.reduction.operator.is_arg:
        dtype = scop.arrays[statement.write.array].dtype
    return Array(name, dtype, tuple(origin), tuple(shape), Storage.SCRATCH)


def _accumulator_box(scop: Scop, statement: Statement) -> list[tuple[Extent, Extent]]:
    """Return ``[low, end)`` around the subscripts of the accumulators in each dimension.

    That is what was initialised (larger than what the updates touch, where some sums are empty),
    or without an initialisation what the updates touch.
    """
    init = initialisation(scop, statement)
    if init is not None:
        return [dim_bounds(init.domain, dim, scop.context) for dim in range(len(init.indices))]
    dims = [
        statement.indices.index(s.name) for s in statement.write.subscripts if isinstance(s, Index)
    ]
    return [dim_bounds(statement.domain, dim, scop.context) for dim in dims]


class _Rewriter:
    """Builds the three statements of one rfactored reduction."""

    def __init__(
        self,
        scop: Scop,
        statement: Statement,
        part: Array,
        partials: tuple[Partial, ...],
        reduction: Reduction,
        layout: tuple[int, ...],
    ) -> None:
        self.layout = layout
        self.scop = scop
        self.statement = statement
        self.part = part
        self.partials = partials
        self.reduction = reduction
        self.box = _accumulator_box(scop, statement)
        # An accumulator's dimensions: the target's indices, or (for partials of partials) those
        # of the statement that initialises them.
        before = initialisation(scop, statement)
        self.left = tuple(s.name for s in statement.write.subscripts if isinstance(s, Index))
        is_plain = len(set(self.left)) == len(statement.write.subscripts)
        if before is not None and (before.conditions or not is_plain):
            self.left = before.indices

    def _in_order(self, left: Sequence[Expr], of_partials: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the subscripts of a partial: chunks outermost, so that threads stay apart.

        Then the accumulators' dimensions in their layout, and the lanes.
        """
        pairs = list(zip(self.partials, of_partials, strict=True))
        chunks = [expr for partial, expr in pairs if not partial.is_lane]
        lanes = [expr for partial, expr in pairs if partial.is_lane]
        return (*chunks, *(left[d] for d in self.layout), *lanes)

    def _coordinate_name(self, d: int) -> str:
        return coordinate_name(self.statement, d, is_lane=self.partials[d].is_lane)

    @property
    def _conditions(self) -> tuple[Expr, ...]:
        """The conditions under which there are accumulators at all."""
        before = initialisation(self.scop, self.statement)
        return () if before is None else before.conditions

    def init(self) -> Statement:
        """``p[l, c] = identity`` wherever a fold may read it."""
        coordinates = [Index(self._coordinate_name(d)) for d in range(len(self.partials))]
        subscripts = self._in_order([Index(name) for name in self.left], coordinates)
        # In the order of the array's dimensions: a further rewrite counts on it.
        names = tuple(s.name for s in subscripts if isinstance(s, Index))
        builder = builder_of(names, f"{self.statement.name}_{self._suffix()}_init", self.scop.sizes)
        domain = isl.Set.universe(builder.space).intersect_params(self.scop.context)
        bounds = dict(zip(self.left, self.box, strict=True))
        for d, partial in enumerate(self.partials):
            bounds[self._coordinate_name(d)] = (0, partial.extent)
        for position, index in enumerate(names):
            domain = within_bounds(domain, position, *bounds[index])
        return Statement(
            name=builder.space.get_tuple_name(isl.dim_type.set),
            domain=domain,
            indices=names,
            n_left=len(names),
            kind=Kind.INIT,
            write=self._access(builder, self.part.name, subscripts, domain),
            companion=self._values(builder, subscripts, domain),
            value=None,
            reads=guarded_reads(builder, domain, self._conditions, self.scop.arrays),
            conditions=self._conditions,
            reduction=self.reduction,
            source_name=self.statement.source_name,
            span=self.statement.span,
        )

    def update(self) -> Statement:
        """``p[l, c(l, r)] op= f(l, r)``, with the statement's own name and domain."""
        statement = self.statement
        builder = builder_of(statement.indices, statement.name, self.scop.sizes)
        subscripts = self._in_order(
            statement.write.subscripts, [p.expression() for p in self.partials]
        )
        write = self._access(builder, self.part.name, subscripts, statement.domain)
        companion = self._values(builder, subscripts, statement.domain)
        return replace(statement, write=write, companion=companion)

    def _values(
        self, builder: Builder, subscripts: tuple[Expr, ...], domain: isl.Set
    ) -> Access | None:
        """Return the access to the values beside an arg reduction's indices."""
        if not self.reduction.operator.is_arg:
            return None
        return self._access(builder, _values_of(self.part.name), subscripts, domain)

    def fold(self, *, assigns: bool) -> Statement:
        """``t[l] op= p[l, c]``: lanes at once, other coordinates one instance each."""
        looped = [d for d, p in enumerate(self.partials) if not p.is_lane]
        names = (*self.left, *map(self._coordinate_name, looped))
        builder = builder_of(names, f"{self.statement.name}_{self._suffix()}_fold", self.scop.sizes)
        domain = self._left_box(builder)
        for position, d in enumerate(looped, len(self.left)):
            domain = within(domain, isl.dim_type.set, position, 0, self.partials[d].extent - 1)
        lanes = next((p.extent for p in self.partials if p.is_lane), 0)
        of_partials: list[Expr] = [
            Const(0, INT32) if partial.is_lane else Index(self._coordinate_name(d))
            for d, partial in enumerate(self.partials)
        ]
        part_subscripts = self._in_order([Index(name) for name in self.left], of_partials)
        reads = [self._part_read(builder, self.part.name, part_subscripts, domain)]
        if self.reduction.operator.is_arg:
            values = _values_of(self.part.name)
            reads.append(self._part_read(builder, values, part_subscripts, domain))
        reads += guarded_reads(builder, domain, self._conditions, self.scop.arrays)
        kind = Kind.FOLD if lanes else Kind.UPDATE
        if assigns and not lanes:
            kind = Kind.ASSIGN
        value: Expr = Load(self.part.name, part_subscripts, self.part.dtype)
        target = self.statement.write
        return Statement(
            name=builder.space.get_tuple_name(isl.dim_type.set),
            domain=domain,
            indices=names,
            n_left=len(self.left),
            kind=kind,
            write=self._access(builder, target.array, tuple(Index(n) for n in self.left), domain),
            value=value,
            reads=tuple(reads),
            reduction=replace(self.reduction, initialise=assigns),
            conditions=self._conditions,
            lanes=lanes,
            source_name=self.statement.source_name,
            span=self.statement.span,
        )

    def _suffix(self) -> str:
        return self.part.name.rpartition(".")[2]

    def _left_box(self, builder: Builder) -> isl.Set:
        """Return the accumulators' box in *builder*'s space."""
        init = initialisation(self.scop, self.statement)
        domain = self.statement.domain if init is None else init.domain
        image = isl.Set.universe(builder.space).intersect_params(domain.params())
        for position, (low, end) in enumerate(self.box):
            image = within_bounds(image, position, low, end)
        return image

    def _part_read(
        self, builder: Builder, array: str, subscripts: tuple[Expr, ...], domain: isl.Set
    ) -> Access:
        read = self._access(builder, array, subscripts, domain)
        lanes = [partial for partial in self.partials if partial.is_lane]
        for position, partial in enumerate(lanes, len(subscripts) - len(lanes)):
            # All lanes are read: free the lane's dimension within its extent.
            relation = read.relation.drop_constraints_involving_dims(isl.dim_type.out, position, 1)
            relation = within(relation, isl.dim_type.out, position, 0, partial.extent - 1)
            read = replace(read, relation=relation)
        return read

    def _access(
        self, builder: Builder, array: str, subscripts: tuple[Expr, ...], domain: isl.Set
    ) -> Access:
        return access(builder, array, subscripts, self.scop.arrays, domain)
