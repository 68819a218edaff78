"""The reads of a statement's own target: which meet old values, and which those that it wrote.

    y(i) = y(N - 1 - i)    --->    y_1(i) = N - 1 - i < i ? y_1(N - 1 - i) : y(N - 1 - i)

Instances run in the lexicographic order of the left-hand indices.  Where isl knows that all that a
read meets is still to be written, it reads the version *before*; where all is written already, the
new version.  Else the comparison of the elements decides at each instance: if each dimension of the
left side is ``c v + rest``, with an index v of its own, then a smaller index means a smaller
element (c > 0) or a greater one (c < 0).  What the statement does not write is the same in both:
the new version starts as a copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import field

import islpy as isl

from tcdsl.lang.comprehension import Binary, Expr, Load, Select, Statement
from tcdsl.lang.ranges.elements import element_map
from tcdsl.lang.ranges.linear import linear
from tcdsl.lang.ranges.reads import reads
from tcdsl.lang.ranges.rounds import Space
from tcdsl.lang.ranges.size_functions import SizeSpace
from tcdsl.lang.types.dtypes import BOOL
from tcdsl.records import dataclass

Refuse = Callable[[str, str], Exception]  # what, advice


@dataclass(slots=True, eq=False)
class OwnReads:
    """The reads of the target: of *old* values, of *final* ones, and *mixed*: of either."""

    old: set[Load] = field(default_factory=set)
    final: set[Load] = field(default_factory=set)
    mixed: set[Load] = field(default_factory=set)

    @property
    def meets_old(self) -> bool:
        """Whether some read meets old values."""
        return bool(self.old or self.mixed)

    @property
    def meets_final(self) -> bool:
        """Whether some read meets what an earlier instance wrote."""
        return bool(self.final or self.mixed)

    def rewritten(self, change: Callable[[Load], Load]) -> "OwnReads":
        """Return the reads with *change* applied to each."""
        return OwnReads(*(set(map(change, found)) for found in (self.old, self.final, self.mixed)))


def own_reads(
    space: Space, statement: Statement, known: isl.Set, sizes: SizeSpace, refuse: Refuse
) -> OwnReads:
    """Return the reads of the target of *statement*.

    :arg known: the sizes that a call can have.
    """
    found, elsewhere = OwnReads(), set[Load]()
    writes = element_map(space, statement.target, statement.subscripts)
    is_ordered = statement.domain is not None and bool(directions(statement.subscripts, sizes))
    for read in reads(statement):
        load = read.load
        if load.tensor != statement.target or not read.happens:
            continue
        if statement.domain is None and load.subscripts == statement.subscripts:
            found.old.add(load)
            continue
        touched = element_map(space, statement.target, load.subscripts)
        if touched is None and is_ordered:
            found.mixed.add(load)
            continue
        if touched is None or writes is None or statement.domain is None:
            what = f"it reads {statement.target} at subscripts that data give, and updates it"
            raise refuse(what, "read a copy of it")
        where = statement.domain.intersect(space.guarded(read.guards))
        touched = touched.intersect_domain(where.intersect_params(known))
        written = writes.intersect_domain(statement.domain)
        pairs = space.builder.space.map_from_set()
        earlier = isl.Map.lex_gt_first(pairs, statement.n_left).apply_range(written)
        further = isl.Map.lex_le_first(pairs, statement.n_left).apply_range(written)
        done, kept = touched.intersect(earlier), touched.subtract_range(written.range())
        if not done.intersect(further).is_empty():
            what = f"it reads elements of {statement.target} that it goes on to change"
            raise refuse(what, "write to a tensor of another name")
        if touched.is_subset(kept):
            elsewhere.add(load)
        elif done.is_empty():
            found.old.add(load)
        elif touched.is_subset(done.union(kept)):
            found.final.add(load)
        elif is_ordered:
            found.mixed.add(load)
        else:
            what = f"some instances read old elements of {statement.target}, others new ones"
            raise refuse(what, "write to a tensor of another name")
    # What is not written is no part of a recurrence; without one both versions are the same.
    (found.old if found.meets_final else found.final).update(elsewhere)
    found.mixed |= found.old & found.final
    found.old -= found.mixed
    found.final -= found.mixed
    return found


def chosen(
    before: Load, after: Load, left: Sequence[Expr], sizes: SizeSpace
) -> Select:  # of the mixed reads
    """Return the read *after* where an earlier instance wrote it, else *before*.

    :arg left: the left side of the statement, of which both read other elements.
    """
    signs = directions(left, sizes)
    assert signs, "reads of other statements are not mixed"
    condition: Expr | None = None
    for own, at, sign in reversed(list(zip(left, after.subscripts, signs, strict=True))):
        if not sign or at == own:  # where they are equal the other dimensions tell
            continue
        is_before = Binary("<" if sign > 0 else ">", at, own, BOOL)
        if condition is None:
            condition = is_before
        else:
            tie = Binary("&&", Binary("==", at, own, BOOL), condition, BOOL)
            condition = Binary("||", is_before, tie, BOOL)
    assert condition is not None
    return Select(condition, after, before, after.dtype)


def directions(left: Sequence[Expr], sizes: SizeSpace) -> tuple[int, ...]:
    """Return the sign of the index in each dimension, 0 of a fixed one; empty: *left* is others."""
    signs: list[int] = []
    seen: set[str] = set()
    for subscript in left:
        form = linear(subscript, sizes)
        if form is None or len(form.coefficients) > 1 or not seen.isdisjoint(form.coefficients):
            return ()
        seen.update(form.coefficients)
        signs.append(next((1 if c > 0 else -1 for c in form.coefficients.values()), 0))
    return tuple(signs) if any(signs) else ()
