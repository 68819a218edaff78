"""Why statements are in two kernels: a reason for every pair of a plan's groups.

    {a} {b c} {d}      a | b+c         what the policy said, or the search: both times
                       b+c | d         no loop of both has them use the same elements
                       a | d           around b+c, which waits for a, and d waits for it

The first of these that holds is the reason: what was said when one group was to grow by a statement
of the other; that a third group runs between; data that they share along no common loop; that they
share none, so that one kernel would save nothing.  What is left nobody tried, which the planner has
a word for: on a CPU groups are merged in one pass, on a GPU a search has an end and leaves some as
they are.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product

from tcdsl.costmodel.locality import Shape
from tcdsl.poly.dependences import Dependence
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group, join_all
from tcdsl.schedule.nesting import Alignment

BETWEEN = "another kernel waits for the first, and the second for it"
UNRELATED = "they use no array in common: one kernel would save no memory traffic"


@dataclass(frozen=True, slots=True)
class Apart:
    """A kernel, by the name of its group, and why it is one with none of *others*.

    *around*: the kernel between, if that is why.
    """

    one: str
    others: tuple[str, ...]
    reason: str
    around: str = ""


@dataclass(frozen=True, slots=True)
class Separation:
    """Groups in the order in which they run, and what ties them.

    *refused*: groups, the statement that each did not take, and why.  *untried*: what is said of
    two whose loops may be one, though nobody asked for it.
    """

    scop: Scop
    groups: Sequence[Group]
    refused: Sequence[tuple[Group, str, str]]
    alignment: Alignment
    shapes: Mapping[str, Shape]
    untried: str

    def pairs(self) -> tuple[Apart, ...]:
        """Return why no two groups are one, a group's with others for one reason together.

        Cubic in the number of groups: each pair may have any other between.
        """
        place = {name: number for number, group in enumerate(self.groups) for name in group.members}
        said: dict[tuple[int, int], str] = {}
        for group, name, reason in self.refused:
            one, other = sorted((place[group.members[0]], place[name]))
            said.setdefault((one, other), reason)
        before = self._before(place)
        names = ["+".join(group.members) for group in self.groups]
        found: dict[tuple[str, str, str], list[str]] = {}
        for one, other in combinations(range(len(names)), 2):
            reason, third = said.get((one, other), ""), None
            if not reason:
                reason, third = self._why_two(one, other, before)
            around = "" if third is None else names[third]
            found.setdefault((names[one], reason, around), []).append(names[other])
        return tuple(
            Apart(one, tuple(others), reason, around)
            for (one, reason, around), others in found.items()
        )

    def _before(self, place: Mapping[str, int]) -> list[set[int]]:
        """Return for each group those that it waits for, directly or not."""
        before: list[set[int]] = []
        for number, group in enumerate(self.groups):
            needed = {p for name in group.members for p in self.alignment.predecessors(name)}
            own = {place[name] for name in needed if name in place} - {number}
            before.append(own.union(*(before[n] for n in own)))
        return before

    def _why_two(self, one: int, other: int, before: Sequence[set[int]]) -> tuple[str, int | None]:
        """Return why two groups of which nothing was said are two, and which is between them."""
        path = (n for n in range(one + 1, other) if one in before[n] and n in before[other])
        if (third := next(path, None)) is not None:
            return BETWEEN, third
        return self._why_no_loop(self.groups[one], self.groups[other]) or self.untried, None

    def _why_no_loop(self, one: Group, other: Group) -> str | None:
        """Return why no loop of two groups has them use the same data, None if one has."""
        pairs = list(product(one.members, other.members))
        edges = [edge for a, b in pairs for edge in self.alignment.edges(a, b)]
        edges.sort(key=self._has_loop)  # what no loop at all carries is the better reason
        tie = next(((edge.source, edge.sink, edge.array) for edge in edges), None)
        if tie is None:
            tie = next(((a, b, array) for a, b in pairs for array in self._common(a, b)), None)
        if tie is None:
            return UNRELATED
        if join_all(self.scop, one, other, self.shapes, self.alignment, _anything) is not None:
            return None
        source, sink, array = tie
        what = f"no loop of both has {source} and {sink} use the same"
        return f"{what} elements of {array} in one iteration"

    def _has_loop(self, edge: Dependence) -> bool:
        """Return whether some loop of both statements is equal on *edge*."""
        source, sink = (range(len(self.shapes[n].extents)) for n in (edge.source, edge.sink))
        return any(edge.has_equal(i, j) for i, j in product(source, sink))

    def _common(self, one: str, other: str) -> list[str]:
        """Return the arrays that two statements use, but for single numbers; views count as one."""
        own, also = (
            {self.scop.arrays[access.array] for access in (*statement.reads, *statement.writes)}
            for statement in (self.scop.by_name[one], self.scop.by_name[other])
        )
        both = {array.argument for array in own if array.shape} & {a.argument for a in also}
        return sorted(both)


def _anything(_: Group, __: Group) -> None:
    """Refuse nothing, as a policy."""
