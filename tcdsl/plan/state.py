"""A state of the search: the statements of a scop, partitioned into kernels that run in order.

    one partition    {a} {b} {c d}         seconds: each kernel's predicted time, launch included
    its moves        {a b} {c d} ...       what may be one kernel (moves.py)

What does not change from state to state is the :class:`Evaluator`'s: the statements' boxes, what
ties them, and the predicted time of every group that was ever asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import Any
from weakref import WeakKeyDictionary

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.gpu_thresholds import SERIAL_VECTORS
from tcdsl.costmodel.matrix_products import estimated
from tcdsl.options import Options
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Statement
from tcdsl.schedule.fusion import Group, join_all, shareable
from tcdsl.strategies.catalogue import fastest
from tcdsl.strategies.gpu_grouping import Grouped
from tcdsl.strategies.library_kernels import library_of
from tcdsl.strategies.matrix_products import matrix_product
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.sketch import Sketch
from tcdsl.strategies.templates import product_chain, tile_simt
from tcdsl.strategies.work import seconds_of, traffic_of

# { first member of a group -> { what else matters -> seconds } }
_known: WeakKeyDictionary[Statement, dict[tuple[Any, ...], float]] = WeakKeyDictionary()

# Rows of tiles that are not neighbours: Kronecker's products took 1.9 to 4.5 times their estimates.
SCATTERED = 2.0
FEW = 4  # times the values that a member has, the kernel has others: unequal work
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
        self._users: dict[str, list[Statement]] = {}  # by array
        for statement in grouped.scop.statements:
            for array in {a.array for a in (*statement.writes, *statement.reads)}:
                self._users.setdefault(array, []).append(statement)

    def state(self, groups: Sequence[Group]) -> State:
        """Return the state of *groups*, which are in a legal order."""
        return State(tuple(groups), sum(map(self.seconds, groups)))

    def seconds(self, group: Group) -> float:
        """Return how long *group* takes as a kernel, made as it would be."""
        key = frozenset(group.members)
        if key not in self._seconds:
            first, *others = self._what_matters(group)
            known = _known.setdefault(first, {})
            inside = tuple(others)
            if inside not in known:
                known[inside] = self._predicted(group)
            self._seconds[key] = known[inside]
        return self._seconds[key]

    def _what_matters(self, group: Group) -> tuple[Any, ...]:
        """Return all that the time of *group* depends on, its first member before the rest.

        Most groups are the same in a program and in what a rewrite makes of it: their statements,
        whoever else uses their arrays, and these.
        """
        scop = self.grouped.scop
        members = [scop.by_name[name] for name in group.members]
        arrays = dict.fromkeys(a.array for s in members for a in (*s.writes, *s.reads))
        users = dict.fromkeys(s for array in arrays for s in self._users[array])
        others = (s for s in users if s not in members)
        axes = tuple(tuple(axis.items()) for axis in group.axes)
        own = (scop.arrays[name] for name in arrays)
        return (*members, *others, *own, axes, self.options, self.gpu)

    @property
    def predictions(self) -> int:
        """How many groups were predicted."""
        return len(self._seconds)

    def _predicted(self, group: Group) -> float:
        known = self.grouped
        if library_of(known.scop, group.members):
            return self._of_library(group)
        problem = Problem(known.scop, group, known.shapes, self.gpu, self.options)
        choice = fastest(problem)
        sketch = choice.schedule(problem)
        kernel = seconds_of(problem, sketch)
        if choice.template is tile_simt.TEMPLATE and tile_simt.has_scattered_rows(
            problem, choice.config
        ):
            kernel *= SCATTERED
        longest = max(self._alone_seconds(problem, sketch, name) for name in group.members)
        return max(kernel, longest) + self._after_seconds(problem, sketch)

    def _of_library(self, group: Group) -> float:
        """Return how long the library takes that computes *group*."""
        product = matrix_product(self.grouped.scop, self.grouped.scop.by_name[group.members[0]])
        assert not isinstance(product, str), product
        return estimated(product, self.gpu, self.options.precision).seconds

    def _alone_seconds(self, problem: Problem, sketch: Sketch, name: str) -> float:
        """Return how long the threads take that run *name*, where few of the kernel's do; else 0.

        An estimate is of blocks that have equal shares of the work.  A sum that few values of the
        axes have is a chain of loads in few threads::

            y(i) = x(i)    y(i) += z(k) where i in 0:3
        """
        shape = problem.shapes[name]
        own = prod(shape.extents[axis[name]] for axis in problem.parallel)
        if FEW * own > problem.results:
            return 0.0
        lanes = prod(p.width for p in sketch.remaining[name] if p.kind is LoopKind.THREAD)
        chunks = prod(p.extent for p in sketch.partials.get(name, ()) if not p.is_lane)
        steps = problem.rest_of(name) / (lanes * chunks * SERIAL_VECTORS)
        return ceil(steps) * self.gpu.dram_latency_s

    def _after_seconds(self, problem: Problem, sketch: Sketch) -> float:
        """Return how long the kernel takes that adds up what blocks have summed, 0 if they do."""
        if sketch.layout is not None:
            return 0.0
        partial_bytes = 0.0
        for name, partials in sketch.partials.items():
            chunks = prod(p.extent for p in partials if not p.is_lane)
            if chunks > 1:
                array = problem.scop.arrays[problem.shapes[name].statement.write.array]
                partial_bytes += (
                    chunks
                    * array.dtype.size_bytes
                    * prod(
                        extent
                        for extent, stride in zip(
                            problem.shapes[name].extents,
                            problem.shapes[name].strides[0],
                            strict=True,
                        )
                        if stride
                    )
                )
        if not partial_bytes:
            return 0.0
        gpu = self.gpu
        return gpu.programmatic_launch_s + gpu.dram_latency_s + partial_bytes / gpu.l2_bytes_per_s

    def parts(self, group: Group) -> list[Group]:
        """Return the members of *group*, each alone."""
        known = self.grouped
        return [shareable(known.scop.by_name[n], known.shapes[n]) for n in group.members]

    def is_slow(self, group: Group) -> bool:
        """Return whether *group* takes far longer than what it moves takes."""
        problem = Problem(self.grouped.scop, group, self.grouped.shapes, self.gpu, self.options)
        moved = sum(t.footprint_bytes for t in traffic_of(problem)) / self.gpu.dram_copy_bytes_per_s
        return self.seconds(group) > SLOW * (moved + self.gpu.launch_s)

    def joined(self, parts: Sequence[Group]) -> Group | None:
        """Return *parts* as one group, on the axes that all members share; None if none."""
        key = frozenset(name for part in parts for name in part.members)
        if key not in self._joined:
            found = (self._grown(first, parts) for first in parts)
            self._joined[key] = next((group for group in found if group is not None), None)
        return self._joined[key]

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

    def is_chain(self, parts: Sequence[Group]) -> bool:
        """Return whether *parts* are a chain of products that one kernel may be."""
        known = self.grouped
        if any(library_of(known.scop, part.members) for part in parts):
            return False
        whole = self.joined(parts)
        if whole is None:
            return False
        problem = Problem(known.scop, whole, known.shapes, self.gpu, self.options)
        return product_chain.why_not(problem) is None

    def needs(self, group: Group) -> set[str]:
        """Return the statements that must run before some member of *group*."""
        found = (self.grouped.alignment.predecessors(name) for name in group.members)
        return set().union(*found) - set(group.members)
