"""Groups of a scop as groups of what a rewrite has made of it: a search need not begin anew.

    {a t b} {c d}         t is computed where it is read      --->   {a b} {c d}
    {a b} {c d}           r is computed apart, c reads it     --->   {a b} {r c d}

A statement stays in its group.  A new one joins that of the statement that reads what it writes or,
if it only stores, of the one that writes what it reads.  Legal iff the members of each group still
share an axis (``schedule/fusion``), and dependences allow an order of the groups: else there are no
such groups, and whoever asks begins anew.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.plan.moves import in_order
from tcdsl.plan.state import Evaluator
from tcdsl.poly.scop import Scop, Statement
from tcdsl.schedule.fusion import Group, leaders_of, shareable
from tcdsl.strategies.gpu_grouping import Grouped, ungrouped


def carried(before: Grouped, scop: Scop, options: Options, gpu: Chip) -> Grouped | None:
    """Return *scop*, which a rewrite has made of that of *before*, in its groups; None if none."""
    new = ungrouped(scop, options)
    known = Evaluator(new, options, gpu)
    found: list[Group] = []
    for names, group in zip(_members(before, new.scop), before.groups, strict=True):
        if not names:
            continue
        whole = group if _is_same(before, new, group, names) else _whole(names, known)
        if whole is None:
            return None
        found.append(whole)
    ordered = in_order(found, known)
    if ordered is None:
        return None
    left = {name for group in ordered for name in group.members}
    refused = tuple(no for no in before.refused if {no[0].members[0], no[1]} <= left)
    return replace(new, groups=ordered, refused=refused)


def _members(before: Grouped, scop: Scop) -> list[tuple[str, ...]]:
    """Return the statements of *scop* that each group of *before* has, in textual order."""
    place = {name: n for n, group in enumerate(before.groups) for name in group.members}
    leaders = leaders_of(scop)
    names = [s.name for s in scop.statements if s.name not in leaders]
    pending = [name for name in names if name not in place]
    while pending:  # one that others made for it comes after these
        for name in pending:
            near = (other for other in _neighbours(scop, scop.by_name[name]) if other in place)
            if (neighbour := next(near, None)) is not None:
                place[name] = place[neighbour]
                pending.remove(name)
                break
        else:
            raise AssertionError(f"{pending[0]} has nothing to do with any other statement")
    found: list[list[str]] = [[] for _ in before.groups]
    for name in names:
        found[place[name]].append(name)
    return [tuple(names) for names in found]


def _neighbours(scop: Scop, statement: Statement) -> Sequence[str]:
    """Return the statements that read what *statement* writes, then those that write its sources.

    An initialisation is where its updates are.
    """
    leaders = leaders_of(scop)
    readers = [s for s in scop.statements if any(r.array == statement.write.array for r in s.reads)]
    sources = {read.array for read in statement.reads}
    writers = [s for s in scop.statements if any(w.array in sources for w in s.writes)]
    return [leaders.get(s.name, s.name) for s in (*readers, *writers)]


def _is_same(before: Grouped, new: Grouped, group: Group, names: Sequence[str]) -> bool:
    """Return whether the rewrite has left *group* as it was."""
    own, other = before.scop.by_name, new.scop.by_name
    return tuple(names) == group.members and all(own[name] is other[name] for name in names)


def _whole(names: Sequence[str], known: Evaluator) -> Group | None:
    """Return the statements *names* as one group, None if they share no axis."""
    of = known.grouped
    parts = [shareable(of.scop.by_name[name], of.shapes[name]) for name in names]
    return parts[0] if len(parts) == 1 else known.joined(parts)
