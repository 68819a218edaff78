"""A state of the search: the statements of a scop, partitioned into kernels that run in order.

    one partition    {a} {b} {c d}         seconds: each kernel's predicted time, launch included
    its moves        {a b} {c d} ...       what may be one kernel (moves.py)

What does not change from state to state is the :class:`Evaluator`'s: the statements' boxes, what
ties them, and the predicted time of every group that was ever asked for.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf

from tcdsl.costmodel.chip import Chip
from tcdsl.lang.comprehension import Index
from tcdsl.options import Options
from tcdsl.plan.common_blocks import common_blocks
from tcdsl.plan.predicted import predicted_seconds
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, loads_of
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group, join_all, paired, shareable, unrelated_parts
from tcdsl.strategies.gpu_grouping import Grouped
from tcdsl.strategies.library_kernels import library_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.templates import product_chain, tile_mma, tile_simt
from tcdsl.strategies.traffic import traffic_of

SLOW = 3.0  # times what is moved


@dataclass(frozen=True, slots=True)
class State:
    """Groups in an order that their dependences allow, and how long they take, one by one."""

    groups: tuple[Group, ...]
    seconds: float

    @property
    def key(self) -> frozenset[tuple[str, ...]]:
        return frozenset(group.members for group in self.groups)


class Evaluator:
    """Predicted times of groups of one scop, and whether two may be one kernel."""

    def __init__(self, grouped: Grouped, options: Options, gpu: Chip) -> None:
        self.grouped = grouped
        self.options = options
        self.gpu = gpu
        self._seconds: dict[frozenset[str], float] = {}
        self._joined: dict[frozenset[str], Group | None] = {}
        self._fixed: dict[tuple[str, ...], bool] = {}
        self._needs: dict[tuple[str, ...], frozenset[str]] = {}
        self._in_one_launch: dict[tuple[tuple[str, ...], ...], float] = {}

    def state(self, groups: Sequence[Group]) -> State:
        """Return the state of *groups*, which are in a legal order."""
        return State(tuple(groups), sum(map(self.seconds, groups)))

    def seconds(self, group: Group) -> float:
        """Return how long *group* takes as a kernel, made as it would be."""
        key = frozenset(group.members)
        if key not in self._seconds:
            self._seconds[key] = predicted_seconds(self.problem(group))
        return self._seconds[key]

    @property
    def predictions(self) -> int:
        """How many groups were predicted."""
        return len(self._seconds)

    def problem(self, group: Group) -> Problem:
        """Return the problem of a kernel for *group*."""
        known = self.grouped
        return Problem(known.scop, group, known.shapes, self.gpu, self.options)

    def parts(self, group: Group) -> list[Group]:
        """Return the members of *group*, each alone."""
        known = self.grouped
        return [shareable(known.scop.by_name[n], known.shapes[n]) for n in group.members]

    def is_slow(self, group: Group) -> bool:
        """Return whether *group* takes far longer than what it moves takes."""
        problem = self.problem(group)
        moved = sum(t.footprint_bytes for t in traffic_of(problem)) / self.gpu.dram_copy_bytes_per_s
        return self.seconds(group) > SLOW * (moved + self.gpu.launch_s)

    def has_sums_of_sums(self, group: Group) -> bool:
        """Return whether a member adds up what another one has sums of, along an index of these."""
        by_name = self.grouped.scop.by_name
        updates = [by_name[n] for n in group.members if by_name[n].kind is Kind.UPDATE]
        sums = {statement.write.array for statement in updates}
        return any(
            Index(index) in node.subscripts
            for outer in updates
            if outer.value is not None
            for node in loads_of(outer.value)
            if node.tensor in sums
            for index in outer.reduced
        )

    def is_independent(self, one: Group, other: Group) -> bool:
        """Return whether neither of two groups waits for the other, directly or through others."""
        return not (
            self._waited_for(one) & set(other.members) or self._waited_for(other) & set(one.members)
        )

    def _waited_for(self, group: Group) -> set[str]:
        """Return the statements that must run before some member of *group*."""
        found, pending = set[str](), list(group.members)
        while pending:
            for name in self.grouped.alignment.predecessors(pending.pop()):
                if name not in found:
                    found.add(name)
                    pending.append(name)
        return found

    def seconds_in_one_launch(self, parts: Sequence[Group]) -> float:
        """Return how long *parts* take whose blocks share a launch; infinity if they cannot."""
        key = tuple(part.members for part in parts)
        if key not in self._in_one_launch:
            self._in_one_launch[key] = self._seconds_in_one_launch(parts)
        return self._in_one_launch[key]

    def _seconds_in_one_launch(self, parts: Sequence[Group]) -> float:
        if not all(self.is_independent(*pair) for pair in combinations(parts, 2)):
            return inf
        common = common_blocks([self.problem(part) for part in parts])
        return inf if common is None else common.seconds

    def unrelated(self, group: Group) -> list[Group]:
        """Return *group* in parts of which none touches what another writes."""
        parts = unrelated_parts(group.members, self.grouped.shapes)
        found = []
        for part in parts:
            known = self.grouped
            own = [shareable(known.scop.by_name[name], known.shapes[name]) for name in part]
            whole = own[0] if len(own) == 1 else self.joined(own)
            if whole is None:
                return [group]
            found.append(whole)
        return found

    def joined(self, parts: Sequence[Group]) -> Group | None:
        """Return *parts* as one group, on the axes that all members share; None if none."""
        key = frozenset(name for part in parts for name in part.members)
        if key not in self._joined:
            self._joined[key] = self._found(parts)
        return self._joined[key]

    def _found(self, parts: Sequence[Group]) -> Group | None:
        """Return *parts* as one group: what ties two may have been tied by a third before."""
        least, found = min(len(part.axes) for part in parts), list[Group]()
        for first in parts:
            if (grown := self._grown(first, parts)) is not None:
                if len(grown.axes) == least:
                    return grown
                found.append(grown)
        if len(parts) == 2 and all(map(self.is_fixed, parts)):  # products, whose columns matter
            known, (one, other) = self.grouped, parts
            both = paired(known.scop, one, other, known.shapes, known.alignment)
            found += [] if both is None else [both]
        return max(found, key=lambda group: len(group.axes), default=None)

    def _grown(self, group: Group, parts: Sequence[Group]) -> Group | None:
        """Return *group* with all others of *parts*, in whatever order ties them, or None."""
        known = self.grouped
        pending = [part for part in parts if part is not group]
        while pending:
            for part in pending:
                both = join_all(
                    known.scop, group, part, known.shapes, known.alignment, lambda *_: None
                )
                if both is not None:
                    group = both
                    pending.remove(part)
                    break
            else:
                return None
        return group

    def reads(self, group: Group) -> set[str]:
        """Return the arrays that *group* reads."""
        by_name = self.grouped.scop.by_name
        return {read.array for name in group.members for read in by_name[name].reads}

    def is_read(self, one: Group, other: Group) -> bool:
        """Return whether *other* reads an array that *one* writes."""
        by_name = self.grouped.scop.by_name
        return bool(self.reads(other) & {w.array for n in one.members for w in by_name[n].writes})

    def is_fixed(self, group: Group) -> bool:
        """Return whether *group* is none that the search may change.

        What is made otherwise than by a template, or of extents that data say, has no predicted
        time; blocks share the rows of chunks as they were planned.
        """
        if group.members not in self._fixed:
            self._fixed[group.members] = self._is_fixed(group)
        return self._fixed[group.members]

    def _is_fixed(self, group: Group) -> bool:
        known = self.grouped
        shapes = [known.shapes[name] for name in group.members]
        return (
            bool(library_of(known.scop, group.members))
            or any({*c.members, *c.wholes} & set(group.members) for c in known.chunks)
            or any(Role.ORDERED in shape.roles for shape in shapes)
            or any(s.is_ragged(d) for s in shapes for d in range(len(s.extents)))
            or tile_simt.is_tiled(Problem(known.scop, group, known.shapes, self.gpu))
            or self.seconds(group) == inf
        )

    def is_product(self, parts: Sequence[Group]) -> bool:
        """Return whether one kernel may be *parts*: products, or one and its folds."""
        known = self.grouped
        if any(library_of(known.scop, part.members) for part in parts):
            return False
        whole = self.joined(parts)
        if whole is None:
            return False
        problem = self.problem(whole)
        return product_chain.why_not(problem) is None or tile_mma.is_extended(problem)

    def begun(self, product: Group, other: Group) -> Iterator[tuple[Group, tuple[Group, ...]]]:
        """Yield *product* with the first members of *other*, a reduction among them, and the rest.

        As many of them as one kernel may have first.
        """
        by_name, members = self.grouped.scop.by_name, other.members
        if not self.is_read(product, other):
            return
        for count in range(len(members) - 1, 0, -1):
            if not any(by_name[name].kind is Kind.UPDATE for name in members[:count]):
                return
            own = self.parts(other)
            whole = self.joined((product, *own[:count]))
            if whole is not None and self.is_product((product, *own[:count])):
                rest = self.joined(own[count:])
                yield whole, (rest,) if rest is not None else tuple(own[count:])

    def needs(self, group: Group) -> frozenset[str]:
        """Return the statements that must run before some member of *group*."""
        if group.members not in self._needs:
            found = (self.grouped.alignment.predecessors(name) for name in group.members)
            self._needs[group.members] = frozenset().union(*found) - set(group.members)
        return self._needs[group.members]
