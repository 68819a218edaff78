"""Which statements share a kernel: groups with common outer loops.

A group's *axes* are loops that all of its members can share: an axis gives each member one of its
dimensions, such that on every dependence between members the dimensions are equal (distance zero).
Statements join, in textual order, the first group that they may join and that the policy accepts::

    m(i) max=! x(i,j)                 axes {i, j}  --->  group {m} axes {i, j}
    s(i) +=! exp(x(i,j) - m(i))       m -> s: i = i --->  group {m, s} axes {i}

A statement never overtakes what it depends on: it joins no group before those of its predecessors.
An initialisation stands for itself only after grouping; till then its dependences count as those of
the updates that it belongs to.  After FusionStitching (Zheng et al., 2020, arXiv:2009.10924) in
aim, in Megiddo and Sarkar's typed fusion (SPAA 1997, doi:10.1145/258492.258520) in method.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.costmodel.locality import Shape
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Affinities, Alignment


@dataclass(frozen=True, slots=True)
class Group:
    """Statements of one kernel in textual order, and the axes that they share."""

    members: tuple[str, ...]
    axes: tuple[Mapping[str, int], ...]  # one an axis: member -> dimension

    def has_parallel(self, axis: Mapping[str, int], shapes: Mapping[str, Shape]) -> bool:
        return all(shapes[m].roles[d] is Role.PARALLEL for m, d in axis.items())

    def lead(self, shapes: Mapping[str, Shape]) -> str:
        """Return the member with the most instances."""
        return max(self.members, key=lambda name: shapes[name].instances)


def unrelated_parts(members: Sequence[str], shapes: Mapping[str, Shape]) -> list[tuple[str, ...]]:
    """Return *members* in parts, of which none touches what another writes."""
    parts: list[tuple[set[str], set[str], list[str]]] = []  # what each writes, touches, its members
    for name in members:
        statement = shapes[name].statement
        writes = {access.array for access in statement.writes}
        touches = writes | {access.array for access in statement.reads}
        own = [part for part in parts if part[0] & touches or part[1] & writes]
        parts = [part for part in parts if part not in own]
        for other in own:
            writes, touches = writes | other[0], touches | other[1]
        parts.append((writes, touches, [*(n for part in own for n in part[2]), name]))
    return [tuple(sorted(names, key=members.index)) for _, _, names in parts]


def alone(name: str, shapes: Mapping[str, Shape]) -> Group:
    """Return the group of the statement *name* alone, with all of its dimensions as axes."""
    return Group((name,), tuple({name: dim} for dim in range(len(shapes[name].extents))))


Policy = Callable[[Group, Group], str | None]  # (the group, the group if it grew) -> why not


Refused = list[tuple[Group, str, str]]  # a group, the statement that it did not take, and why


def recording(policy: Policy, refused: Refused) -> Policy:
    """Return *policy*, which adds each reason that it gives to *refused*."""

    def why_not(group: Group, grown: Group) -> str | None:
        reason = policy(group, grown)
        if reason is not None:
            refused.append((group, grown.members[-1], reason))
        return reason

    return why_not


# Of two statements: a rewrite leaves most as they are.
_affinities: WeakKeyDictionary[Statement, WeakKeyDictionary[Statement, tuple[Dependence, ...]]]
_affinities = WeakKeyDictionary()


def affinities_of(scop: Scop) -> Affinities:
    """Return what says which reads of two statements are of one array, the earlier's name first.

    As relations { s[x] -> t[y] : same element }, found when they are asked for: of many statements
    that read one array few pairs are.
    """

    def between(one: str, other: str) -> tuple[Dependence, ...]:
        if scop.position(one) >= scop.position(other):
            return ()
        source, sink = scop.by_name[one], scop.by_name[other]
        known = _affinities.setdefault(source, WeakKeyDictionary())
        if sink not in known:
            known[sink] = tuple(_affinities_between(source, sink))
        return known[sink]

    return between


def _affinities_between(source: Statement, sink: Statement) -> Iterator[Dependence]:
    for first in source.reads:
        for second in sink.reads:
            if first.array == second.array and first.is_exact and second.is_exact:
                relation = first.relation.apply_range(second.relation.reverse())
                if not relation.is_empty():
                    yield Dependence(source.name, sink.name, first.array, relation, False, False)


def unit_dependences(scop: Scop, dependences: Dependences) -> list[Dependence]:
    """Return the strict dependences with every initialisation counted as its updates.

    An initialisation's indices are mostly the left-hand ones of its updates, in their positions.
    """
    leader = leaders_of(scop)
    edges = []
    for edge in dependences.strict:
        source, sink = leader.get(edge.source, edge.source), leader.get(edge.sink, edge.sink)
        if source == sink:
            continue
        if (source, sink) == (edge.source, edge.sink):
            edges.append(edge)  # what is known of it stays known
            continue
        relation = edge.relation
        if source != edge.source and not _corresponds(scop, edge.source, source):
            relation = relation.project_out(isl.dim_type.in_, 0, relation.dim(isl.dim_type.in_))
        if sink != edge.sink and not _corresponds(scop, edge.sink, sink):
            relation = relation.project_out(isl.dim_type.out, 0, relation.dim(isl.dim_type.out))
        edges.append(replace(edge, source=source, sink=sink, relation=relation))
    return edges


def _corresponds(scop: Scop, init: str, updates: str) -> bool:
    """Return whether an initialisation has the left-hand indices of its updates, in their order.

    Those of a scattered or computed left side run over elements: they are no index of the updates,
    and align with nothing.
    """
    indices = scop.by_name[init].indices
    return scop.by_name[updates].indices[: len(indices)] == indices


def leaders_of(scop: Scop) -> dict[str, str]:
    """Return, for each initialisation, the updates that it belongs to."""
    leaders = {}
    for position, statement in enumerate(scop.statements):
        if statement.kind is Kind.INIT and position + 1 < len(scop.statements):
            follower = scop.statements[position + 1]
            is_own = follower.source_name == statement.source_name
            if is_own and follower.kind is Kind.UPDATE:  # a sum of nothing has none
                leaders[statement.name] = follower.name
    return leaders


def alignment_of(scop: Scop, dependences: Dependences) -> Alignment:
    """Return what ties the statements of *scop*, each initialisation counted as its updates."""
    edges = unit_dependences(scop, dependences)
    return Alignment(Dependences(tuple(edges)), affinities_of(scop))


def group_statements(
    scop: Scop, alignment: Alignment, shapes: Mapping[str, Shape], policy: Policy
) -> list[Group]:
    """Partition the statements of *scop* (initialisations aside) into kernels, in a legal order."""
    leaders = leaders_of(scop)
    groups: list[Group] = []
    place: dict[str, int] = {}
    for statement in scop.statements:
        if statement.name in leaders:
            continue
        alone = shareable(statement, shapes[statement.name])
        before = [place[p] for p in alignment.predecessors(statement.name) if p in place]
        position = max(before, default=0)
        while position < len(groups):
            grown = _grow(groups[position], statement, shapes, alignment)
            if grown is not None and policy(groups[position], grown) is None:
                groups[position] = grown
                break
            position += 1
        else:
            groups.append(alone)
        place[statement.name] = position
    return merge_groups(scop, groups, shapes, alignment, policy)


def merge_groups(
    scop: Scop,
    groups: list[Group],
    shapes: Mapping[str, Shape],
    alignment: Alignment,
    policy: Policy,
) -> list[Group]:
    """Merge whole groups that share data: a statement may join through one that came after it.

    A later group moves up to an earlier one iff it depends on no group between the two.
    """
    merged: list[Group] = []
    for group in groups:
        before = {p for name in group.members for p in alignment.predecessors(name)}
        earliest = max(
            (position for position, g in enumerate(merged) if before & set(g.members)), default=0
        )
        for position in range(earliest, len(merged)):
            both = join_all(scop, merged[position], group, shapes, alignment, policy)
            if both is not None:
                merged[position] = both
                break
        else:
            merged.append(group)
    return merged


def join_all(
    scop: Scop,
    group: Group,
    other: Group,
    shapes: Mapping[str, Shape],
    alignment: Alignment,
    policy: Policy,
) -> Group | None:
    """Return *group* with all members of *other*, in whatever order ties them, or None."""
    pending = list(other.members)
    while pending:
        for name in pending:
            grown = _grow(group, scop.by_name[name], shapes, alignment)
            if grown is not None and policy(group, grown) is None:
                group = grown
                pending.remove(name)
                break
        else:
            return None
    return Group(textual(scop, group.members), group.axes)


def paired(
    scop: Scop, one: Group, other: Group, shapes: Mapping[str, Shape], alignment: Alignment
) -> Group | None:
    """Return two groups as one that shares axes of equal extents, too; None if nothing ties them.

    What they share data along comes first, then what no dependence forbids: of

        q(m,n) +=! x(m,k) * w(k,n)          v(m,n) +=! x(m,k) * u(k,n)

    x ties m and k, and n may be one loop as well.
    """
    found: list[Mapping[str, int]] = []
    left, right = list(one.axes), list(other.axes)
    for is_tied in (True, False):
        for axis in list(left):
            fits = (a for a in right if _may_pair(axis, a, shapes, alignment, is_tied=is_tied))
            if (more := next(fits, None)) is not None:
                left.remove(axis)
                right.remove(more)
                found.append({**axis, **more})
        if not found:
            return None
    return Group(textual(scop, (*one.members, *other.members)), tuple(found))


def _may_pair(
    axis: Mapping[str, int],
    other: Mapping[str, int],
    shapes: Mapping[str, Shape],
    alignment: Alignment,
    *,
    is_tied: bool,
) -> bool:
    """Return whether two axes of the same extents may be one, because data tie them or anyway."""
    pairs = [(a, i, b, j) for a, i in axis.items() for b, j in other.items()]
    if any(shapes[a].extents[i] != shapes[b].extents[j] for a, i, b, j in pairs):
        return False
    ties = [alignment.ties(*pair) for pair in pairs]
    are_alike = (alignment.are_alike(*pair) for pair in pairs)
    return False not in ties and (not is_tied or True in ties or any(are_alike))


def shareable(statement: Statement, shape: Shape) -> Group:
    """Return the group of *statement* alone, with those of its dimensions that others may share."""
    return Group((statement.name,), _own_axes(statement, shape))


def _own_axes(statement: Statement, shape: Shape) -> tuple[Mapping[str, int], ...]:
    return tuple({statement.name: dim} for dim in shape.order if _may_be_shared(shape, dim))


def _may_be_shared(shape: Shape, dim: int) -> bool:
    """Return whether an axis may have *dim*: what data say of one statement is no other's."""
    return shape.roles[dim] is not Role.ORDERED and not shape.is_ragged(dim)


def _grow(
    group: Group, statement: Statement, shapes: Mapping[str, Shape], alignment: Alignment
) -> Group | None:
    """Return *group* with *statement*, on the axes that survive; None if none does."""
    axes: list[Mapping[str, int]] = []
    taken: set[int] = set()
    is_tied = False
    for axis in group.axes:
        for dim in shapes[statement.name].order:
            if dim in taken or not _may_be_shared(shapes[statement.name], dim):
                continue
            fits, tied = _fits(axis, statement.name, dim, shapes, alignment)
            if fits:
                axes.append({**axis, statement.name: dim})
                taken.add(dim)
                is_tied |= tied
                break
    if not axes or not is_tied:
        return None
    return Group((*group.members, statement.name), tuple(axes))


def _fits(
    axis: Mapping[str, int],
    name: str,
    dim: int,
    shapes: Mapping[str, Shape],
    alignment: Alignment,
) -> tuple[bool, bool]:
    """Return whether *dim* of *name* may join *axis*, and whether they share data along it."""
    tied = False
    for member, other in axis.items():
        are_tied = alignment.ties(member, other, name, dim)
        if are_tied is False:
            return False, False
        if are_tied:
            tied = True
        elif not tied and shapes[member].extents[other] == shapes[name].extents[dim]:
            tied = alignment.are_alike(member, other, name, dim)
    return tied, tied


def textual(scop: Scop, names: Sequence[str]) -> tuple[str, ...]:
    """Return *names* in textual order."""
    return tuple(sorted(names, key=scop.position))
