"""Groups of a scop as groups of what a rewrite has made of it: a search need not begin anew.

    {a t b} {c d}         t is computed where it is read      --->   {a b} {c d}
    {a b} {c d}           r is computed apart, c reads it     --->   {a b} {r c d}

A statement stays in its group.  A new one joins that which writes what it reads and reads what it
writes; else one that writes what it reads, whose values are at hand; else one of its readers.
Legal iff the members of each group still share an axis (``schedule/fusion``), and dependences allow
an order of the groups: else there are no such groups, and whoever asks begins anew.

The groups that a search had reached when its time ran out are those of a plan likewise, each that
is not legal as its members alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.plan.moves import in_order
from tcdsl.plan.reached import Reached
from tcdsl.plan.state import Evaluator
from tcdsl.poly.scop import Scop, Statement
from tcdsl.rewrites.scop.recomputation import without, writers_and_users
from tcdsl.schedule.fusion import Group, leaders_of, shareable
from tcdsl.strategies.gpu_grouping import Grouped, ungrouped


def carried(before: Grouped, scop: Scop, options: Options, gpu: Chip) -> Grouped | None:
    """Return *scop*, which a rewrite has made of that of *before*, in its groups; None if none."""
    new = ungrouped(scop, options)
    known = Evaluator(new, options, gpu)
    same = {group.members: group for group in before.groups if _is_same(before, new, group)}
    found: list[Group] = []
    for names in _members([group.members for group in before.groups], new.scop):
        whole = same.get(names) or _whole(names, known)
        if whole is None:
            return None
        found.append(whole)
    ordered = in_order(found, known)
    if ordered is None:
        return None
    left = {name for group in ordered for name in group.members}
    refused = tuple(no for no in before.refused if {no[0].members[0], no[1]} <= left)
    return replace(new, groups=ordered, refused=refused)


def in_groups_reached(reached: Reached, scop: Scop, options: Options, gpu: Chip) -> Grouped:
    """Return *scop* in the groups that a search had *reached*, without the temporaries it left out.

    Of what else it had rewritten, nothing is.
    """
    for array in sorted(scop.arrays.keys() - reached.arrays):
        scop = without(scop, array) or scop
    new = ungrouped(scop, options)
    known = Evaluator(new, options, gpu)
    found: list[Group] = []
    for names in _members(reached.groups, new.scop):
        whole = _whole(names, known)
        found += [whole] if whole is not None else [_alone(name, known) for name in names]
    ordered = in_order(found, known)
    if ordered is None:
        ordered = [_alone(name, known) for group in found for name in group.members]
        ordered.sort(key=lambda group: new.scop.position(group.members[0]))
    return replace(new, groups=ordered)


def _members(groups: Sequence[Sequence[str]], scop: Scop) -> list[tuple[str, ...]]:
    """Return the statements of *scop* that each of *groups* has by now, in textual order."""
    place = {name: n for n, members in enumerate(groups) for name in members}
    leaders = leaders_of(scop)
    names = [s.name for s in scop.statements if s.name not in leaders]
    pending = [name for name in names if name not in place]
    while pending:  # one that others made for it comes after these
        for name in pending:
            if (near := _nearest(scop, scop.by_name[name], leaders, place)) is not None:
                place[name] = near
                pending.remove(name)
                break
        else:  # it has nothing to do with any of them
            place[pending.pop(0)] = len(groups) + len(place)
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(place[name], []).append(name)
    return [tuple(found[number]) for number in sorted(found)]


def _nearest(
    scop: Scop, statement: Statement, leaders: Mapping[str, str], place: Mapping[str, int]
) -> int | None:
    """Return the group in *place* that has most to do with *statement*, None if none has.

    An initialisation is where its updates are.
    """
    _, readers = writers_and_users(scop, statement.write.array)
    writers = [w for read in statement.reads for w in writers_and_users(scop, read.array)[0]]
    before, after = (
        [place[name] for s in near if (name := leaders.get(s.name, s.name)) in place]
        for near in (writers, readers)
    )
    return next((n for n in (*(n for n in after if n in before), *before, *after)), None)


def _is_same(before: Grouped, new: Grouped, group: Group) -> bool:
    """Return whether the rewrite has left the members of *group* as they were."""
    own, other = before.scop.by_name, new.scop.by_name
    return all(own[name] is other.get(name) for name in group.members)


def _whole(names: Sequence[str], known: Evaluator) -> Group | None:
    """Return the statements *names* as one group, None if they share no axis."""
    parts = [_alone(name, known) for name in names]
    return parts[0] if len(parts) == 1 else known.joined(parts)


def _alone(name: str, known: Evaluator) -> Group:
    return shareable(known.grouped.scop.by_name[name], known.grouped.shapes[name])
