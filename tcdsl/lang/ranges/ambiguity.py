"""What to say of indices whose range cannot be inferred, and of guards that decide nothing.

y(i) = i >= 2 && i < N - 2 ? x(i - 2) : 0.0     error: only a guarded read mentions i
y(i) = x(i - 1) + (i >= 1 ? x(i - 1) : 0.0)     warning: i >= 1 holds for all i in [1, N + 1)
"""

import re
from collections.abc import Iterator, Mapping

import islpy as isl

from tcdsl.errors import AMBIGUOUS, TCError
from tcdsl.lang.comprehension import Binary, Comprehension, Load, Size, Statement, walk
from tcdsl.lang.ranges.data_ranges import clause_text
from tcdsl.lang.ranges.linear import Interval
from tcdsl.lang.ranges.reads import Guard, first_use, index_names, nodes, reads
from tcdsl.lang.ranges.rounds import Access, Solution, Space
from tcdsl.lang.ranges.size_functions import text
from tcdsl.lang.syntax.other_languages import number_hint
from tcdsl.lang.syntax.spelling import did_you_mean


def ambiguous(comprehension: Comprehension, statement: Statement, solution: Solution) -> TCError:
    """Return the error for indices without a range; it says why, and proposes ranges."""
    read = {v for access in solution.constraints for v in access.indices}
    unread = [v for v in solution.open if v not in read]
    blamed = unread or solution.open
    why, proposed = _why(statement, solution, unread, blamed)
    ends = _ends(comprehension, statement, solution, proposed)
    proposal = ", ".join(
        f"{v} in {_proposed_range(v, comprehension, solution, ends[v])}" for v in proposed
    )
    advice = f"give the range: where {proposal} (bounds are numbers or sizes)"
    data = next((b for b in statement.data_ranges if b.index in blamed), None)
    if data is not None:
        clause, name = clause_text(comprehension.source, data), data.index
        end = _ends(comprehension, statement, solution, [name])[name]
        advice = (
            f"'{clause}' reads its bounds, so that all values of {name} must be known besides: read"
            f" a tensor at {name}, or write where {name} in 0:{end}, {clause}"
        )
    known = (*comprehension.tensors, *comprehension.sizes)
    close = next(
        filter(None, (did_you_mean(v, (*known, *statement.indices)) for v in unread)), None
    )
    numbers = [v for v in unread if is_used_as_number(statement, v)]
    if len(blamed) == 1 and (zeros := _zero_factors(solution, blamed[0])):
        are = "is 0" if len(zeros) == 1 else "are 0"
        why = f"{' and '.join(zeros)} {are}, so that no read bounds it"
        advice = f"call it with {' and '.join(zeros)} above 0, or {advice}"
    if numbers:
        advice = f"{number_hint(numbers[0], comprehension.source.text)}; if an index, {advice}"
    if close is not None:
        advice = f"{close} Otherwise {advice}"
    return AMBIGUOUS(
        comprehension.source, first_use(statement, blamed[0]), indices=", ".join(blamed), why=why,
        advice=advice,
    )  # fmt: skip


def _zero_factors(solution: Solution, index: str) -> list[str]:
    """Return the sizes that are 0, and that *index* is multiplied by in a subscript."""
    values = solution.space.sizes.fixed or {}
    products = (
        node
        for access in solution.constraints
        for node in walk(access.subscript)
        if isinstance(node, Binary) and node.op == "*" and index in index_names(node)
    )
    factors = (side for node in products for side in (node.left, node.right))
    found = (node.name for side in factors for node in walk(side) if isinstance(node, Size))
    return list(dict.fromkeys(name for name in found if values.get(name) == 0))


def is_used_as_number(statement: Statement, name: str) -> bool:
    """Return whether *name* is in no subscript and has no range: a value that nobody declared."""
    loads = (node for node in nodes(statement) if isinstance(node, Load))
    subscripts = (subscript for load in loads for subscript in load.subscripts)
    given = {bounds.index for bounds in (*statement.explicit, *statement.data_ranges)}
    return name not in {*statement.left, *index_names(*subscripts), *given}


def _ends(
    comprehension: Comprehension, statement: Statement, solution: Solution, proposed: list[str]
) -> dict[str, str]:
    """Return an end of the range to propose for each index: a size of the def where it has some.

    The size of the index's own letter, else one that no other index of the statement ranges over,
    else that of a dimension that the index helps to subscript, else any.
    """
    # Statements without a header have sizes with names that nobody wrote.
    written = set(re.findall(r"\w+", comprehension.source.text))
    sizes = [size for size in comprehension.sizes if size in written]
    ranges = (access.interval.upper for access in solution.constraints)
    used = {text(upper) for upper in ranges}
    free = [size for size in sizes if size not in used]
    ends: dict[str, str] = {}
    for index in proposed:
        own = [text(access.interval.upper) for access in _mentions(solution, index)]
        letter = [size for size in sizes if size == index.upper()]
        candidates = [*letter, *free, *(end for end in own if end in sizes), *sizes, "10"]
        ends[index] = next((end for end in candidates if end not in ends.values()), candidates[0])
    return ends


def _why(
    statement: Statement, solution: Solution, unread: list[str], blamed: list[str]
) -> tuple[str, list[str]]:
    """Return why *blamed* have no range, and those for which one is to be proposed."""
    one = len(blamed) == 1
    if unread:
        why = f"no subscript on the right bounds {'it' if one else 'them'}"
        return why, blamed
    if not any(access.bounds_ranges for v in blamed for access in _mentions(solution, v)):
        reads = "a read under a condition, which bounds" if one else (
            "reads under conditions, which bound")  # fmt: skip
        return f"only {reads} nothing, {'mentions it' if one else 'mention them'}", blamed
    if all(access.is_own for v in blamed for access in _counted(solution, v)):
        them = "it" if one else "them"
        return f"the reads of {statement.target!r} itself bound {them} from below alone", blamed
    if one:
        return "no read bounds it on both sides", blamed
    # Where two indices bound each other, the range of one is enough: a reduced one if there is.
    return "each is bounded only through the others", blamed[-1:]


def _mentions(solution: Solution, index: str) -> list[Access]:
    return [access for access in solution.constraints if index in access.indices]


def _counted(solution: Solution, index: str) -> list[Access]:
    return [access for access in _mentions(solution, index) if access.bounds_ranges]


def _proposed_range(index: str, comprehension: Comprehension, solution: Solution, end: str) -> str:
    """Return the range to propose: the dimension that a guarded read has *index* in, else to *end*.

    Where the statement reads its own target at ``i - 1``, the range begins behind what is there; at
    ``i + 1`` it begins with the target.
    """
    counted = _counted(solution, index)
    if not counted and (mentions := _mentions(solution, index)):
        first = mentions[0]
        dim = comprehension.tensors[first.read.load.tensor].dims[first.position]
        if dim is not None:  # as written, also where sizes are known (lang/ranges/deferral)
            return f"0:{dim}"
        return f"{text(first.interval.lower)}:{text(first.interval.upper)}"
    starts = [
        start
        for access in counted
        if access.is_own and access.form and access.form.coefficients == {index: 1}
        for start in (access.interval.lower, access.interval.lower.sub(access.form.rest))
    ]
    if not starts:
        return f"0:{end}"
    return f"{text(solution.space.sizes.largest(starts))}:{end}"


def idle_guards(comprehension: Comprehension, written: Statement, space: Space) -> Iterator[str]:
    """Yield a warning for each guard of a read that holds wherever the inferred ranges reach.

    :arg written: the statement with its conditions as they are in the text.
    """
    given = {bounds.index for bounds in written.explicit}
    guards = (guard for read in reads(written) for guard in read.guards)
    for guard in {(id(guard.condition), guard.holds): guard for guard in guards}.values():
        inferred = [v for v in index_names(guard.condition) if v not in given]
        if inferred and _is_idle(guard, space):
            yield _idle_text(comprehension, guard, inferred, space.ranges)


def _is_idle(guard: Guard, space: Space) -> bool:
    """Return whether *guard* holds on the box of the ranges, but not for all integers."""
    exact = space.builder.truth(guard.condition).exact
    if exact is None:
        return False
    holds = exact if guard.holds else exact.complement()
    everywhere = isl.Set.universe(space.builder.space).intersect_params(space.sizes.sane)
    if everywhere.is_subset(holds):
        return False
    box = space.box(space.ranges).intersect_params(space.sizes.sane)
    return bool(box.is_subset(holds)) and not box.is_empty()


def _idle_text(
    comprehension: Comprehension, guard: Guard, inferred: list[str], ranges: Mapping[str, Interval]
) -> str:
    source, span = comprehension.source, guard.condition.span
    line, column = source.position(span.start)
    found = ", ".join(
        f"{v} in [{text(ranges[v].lower)}, {text(ranges[v].upper)})" for v in inferred
    )
    what = "holds" if guard.holds else "is false"
    proposal = ", ".join(f"{v} in a:b" for v in inferred)
    return (
        f"{source.name}:{line}:{column}: the condition '{source.text[span.start : span.end]}' "
        f"{what} for all {found}, which the reads give: conditions change no range. If "
        f"{' and '.join(inferred)} should take other values, write where {proposal}"
    )
