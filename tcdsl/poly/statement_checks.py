"""Checks of data that choose elements: statements that record what is out of range.

    Y(i) = X(I(i))    --->    S0_check0: { S0_check0[i] }   0 <= I(i) < the extent of X
                              S0:        { S0[i] }          Y(i) = X(I(i))

A check runs once for all values of the indices that its subscripts and conditions do not mention.
There is none where integers are known to lie within the array (:mod:`tcdsl.poly.known_values`).
"""

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import Expr, Index, IndexBounds
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.ranges.data_ranges import checked_with, clause_text
from tcdsl.lang.ranges.reads import index_names
from tcdsl.poly.accesses import (
    Guards,
    affine_range,
    first_load,
    guarded_loads,
    guarded_reads,
    spans_of_loads,
)
from tcdsl.poly.data_ranges import comparisons
from tcdsl.poly.known_values import is_value_inside, named_values
from tcdsl.poly.scop import Access, Kind, RangeCheck, Statement
from tcdsl.poly.sized_statement import SizedStatement

Checked = dict[tuple[str, tuple[Expr, ...]], list[Guards]]  # { array, subscripts }


def checks_of(sized: SizedStatement, body: Statement) -> list[Statement]:
    """Return the statements that check ranges from data and gathered subscripts.

    What the bounds of a range gather is checked for all values that these bounds mention, what
    a condition gathers where the conditions before it hold, and all else where all hold.
    """
    ranges = sized.statement.data_ranges
    checks: list[Statement] = []
    known: Checked = {}
    for number, bounds in enumerate(ranges):
        check = _range_check(sized, number, bounds)
        checks += _gather_checks(
            sized, check, (bounds.lower, bounds.upper), check.conditions, known
        )
        checks.append(check)
    for n in range(2 * len(ranges), len(body.conditions)):  # behind the comparisons of ranges
        one = body.conditions[n : n + 1]
        checks += _gather_checks(sized, body, one, body.conditions[:n], known)
    assert body.value is not None
    exprs = (*body.write.subscripts, body.value)
    return [*checks, *_gather_checks(sized, body, exprs, body.conditions, known)]


def _gather_checks(
    sized: SizedStatement,
    body: Statement,
    exprs: Sequence[Expr],
    conditions: Guards,
    known: Checked,
) -> list[Statement]:
    """Return a check for each access of *exprs* whose subscripts isl cannot bound.

    It runs once for all values of the indices that the subscripts (and the conditions under
    which the access happens) do not mention.

    :arg body: evaluates *exprs* where *conditions* hold; where all of its do, it writes, too.
    :arg known: accesses with the conditions under which they have been checked: grows.
    """
    checks = []
    guarded, spans = guarded_loads(*exprs), spans_of_loads(*exprs)
    writes = (body.write,) if conditions == body.conditions else ()
    for touched in (*writes, *body.reads):
        place = touched.array, touched.subscripts
        alternatives = guarded.get(place, [()] if touched is body.write else [])
        for guards in alternatives if _dims_outside(sized, touched) else ():
            under = (*conditions, *guards)
            if any(set(before) <= set(under) for before in known.get(place, ())):
                continue
            number = len(sized.statement.data_ranges) + sum(map(len, known.values()))
            known.setdefault(place, []).append(under)
            name = f"{sized.statement.name}_check{number}"
            check = _gather_check(sized, name, body, touched, under)
            span = spans.get(place, sized.statement.target_span)
            checks.append(replace(check, span=span))
    return checks


def _dims_outside(sized: SizedStatement, touched: Access) -> list[int]:
    """Return the dimensions along which data may choose an element that is not there."""
    named, array = named_values(sized.bounds, sized.sizes), sized.arrays[touched.array]
    return [
        dim
        for dim in sorted(touched.inexact)
        if not is_value_inside(touched.subscripts[dim], array, dim, named, sized.arrays)
    ]


def _gather_check(
    sized: SizedStatement, name: str, body: Statement, access_: Access, guards: tuple[Expr, ...]
) -> Statement:
    checked = tuple((dim, access_.subscripts[dim]) for dim in _dims_outside(sized, access_))
    used = {
        node.name
        for expr in (*guards, *(subscript for _, subscript in checked))
        for node in tc.walk(expr)
        if isinstance(node, Index)
    }
    kept = tuple(index for index in body.indices if index in used)
    builder = sized.builder(kept, name)
    domain = body.domain
    for position in reversed(range(len(body.indices))):
        if body.indices[position] not in used:
            domain = domain.project_out(isl.dim_type.set, position, 1)
    domain = domain.set_tuple_name(name)
    for guard in guards:
        domain = domain.intersect(builder.truth(guard).above)
    exprs = (*guards, *(subscript for _, subscript in checked))
    return replace(
        _empty_check(sized, builder, domain, kept, access_.array, exprs),
        conditions=guards,
        checked=checked,
        checked_loads=tuple(first_load(subscript) for _, subscript in checked),
        span=body.span,
    )


def _range_check(sized: SizedStatement, number: int, bounds: IndexBounds) -> Statement:
    """Return the check that the range *bounds*, where it is not empty, is one of its index.

    It runs for all values of the indices that the bounds mention.
    """
    statement, name = sized.statement, f"{sized.statement.name}_range{number}"
    guards = [c for other in checked_with(statement, bounds) for c in comparisons(other)]
    used = set(index_names(bounds.lower, bounds.upper, *guards))
    kept = tuple(index for index in statement.indices if index in used)
    builder = sized.builder(kept, name)
    domain = sized.box(builder, kept, sized.bounds)
    for other in statement.explicit:
        if {other.index, *index_names(other.lower, other.upper)} <= used:
            domain = domain.intersect(affine_range(builder, other))
    low, high = sized.bounds[bounds.index]
    clause = clause_text(sized.source, bounds)
    exprs = (*guards, bounds.lower, bounds.upper)
    return replace(
        _empty_check(sized, builder, domain, kept, statement.target, exprs),
        conditions=tuple(guards),
        checked_range=RangeCheck(bounds.lower, bounds.upper, low, high, clause),
        span=bounds.span,
    )


def _empty_check(
    sized: SizedStatement,
    builder: Builder,
    domain: isl.Set,
    kept: tuple[str, ...],
    array: str,
    exprs: tuple[Expr, ...],
) -> Statement:
    """Return a check that reads *exprs* over *domain*, of indices *kept*, and compares none."""
    return Statement(
        name=domain.get_tuple_name(),
        domain=domain.coalesce(),
        indices=kept,
        n_left=len(kept),
        kind=Kind.CHECK,
        write=_nothing(array, domain),
        value=None,
        reads=guarded_reads(builder, domain, exprs, sized.arrays),
        source_name=sized.statement.name,
    )


def _nothing(array: str, domain: isl.Set) -> Access:
    """Return an access that names *array* and touches nothing."""
    space = domain.get_space()
    return Access(array, (), isl.Map.empty(space.map_from_domain_and_range(space)))


def without_repeated_checks(statements: Sequence[Statement]) -> list[Statement]:
    """Return *statements*, of checks of one range the first alone, unless its bounds change."""
    written = {write.array for statement in statements for write in statement.writes}
    seen: set[object] = set()
    found = []
    for statement in statements:
        ends = statement.checked_range
        if ends is not None and not written & {read.array for read in statement.reads}:
            where = statement.domain.set_tuple_name("").to_str()
            bounds = ends.lower, ends.upper, str(ends.start), str(ends.end)
            key = statement.conditions, bounds, where
            if key in seen:
                continue
            seen.add(key)
        found.append(statement)
    return found
