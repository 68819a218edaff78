"""A GPU's groups into kernels to be nested: each is scheduled and rewritten, one after another.

    group --->  a choice  --->  a schedule, rewritten     (choices, catalogue, schedule)

What a rewrite leaves to be done after the kernel, the sums of its blocks' chunks, is run by its
last blocks, small groups that follow with it (finish.py); else it is a group like any other, the
next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import LoopKind, statements_of
from tcdsl.poly.scop import Kind, Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group, alone
from tcdsl.schedule.mapping import Dim3
from tcdsl.schedule.trace import record
from tcdsl.strategies.asked import asked_for
from tcdsl.strategies.atomics import added_at_once, freed
from tcdsl.strategies.catalogue import GPU_TEMPLATES
from tcdsl.strategies.choices import choice_for
from tcdsl.strategies.copied_factors import with_copied_factors
from tcdsl.strategies.estimated import seconds_of
from tcdsl.strategies.finish import fold_groups, last_groups
from tcdsl.strategies.gpu_generic import trees_by_isl
from tcdsl.strategies.gpu_grouping import Grouped
from tcdsl.strategies.gpu_shapes import gpu_shapes_of
from tcdsl.strategies.implicit_kernel import implicit_kernel
from tcdsl.strategies.library_kernels import library_of, library_schedule
from tcdsl.strategies.operand_tiles import with_operand_tiles
from tcdsl.strategies.private_results import with_copies, with_summed_copies
from tcdsl.strategies.problem import Finish, Problem, Scheme
from tcdsl.strategies.queued import Queued
from tcdsl.strategies.residence import keep_rows
from tcdsl.strategies.schedule import Bands, Layout, Schedule
from tcdsl.strategies.schedule_rewrites import apply
from tcdsl.strategies.template import Choice
from tcdsl.strategies.templates import last_block
from tcdsl.strategies.tensor_kernel import tensor_kernel
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.transposition import transposing_kernel
from tcdsl.strategies.work import along_axes

SLOW = gpu_thresholds.LAST_BLOCK_SLOWER
BESIDE = gpu_thresholds.ALIKE_BLOCKS_LAUNCHES
NOTHING_IN_COMMON: Mapping[str, Choice] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Left:
    """What a kernel leaves to be done."""

    after: tuple[str, ...] = ()  # folds over chunks, and their initialisations
    layout: Layout | None = None  # of the kernel, if its last blocks may do it
    sources: tuple[str, ...] = ()  # what the kernel runs
    apart: tuple[str, ...] = ()  # sums of copies in memory, no last block's


def rewrite_groups(
    before: Grouped,
    options: Options,
    gpu: Chip,
    scheme: Scheme,
    common: Mapping[str, Choice] = NOTHING_IN_COMMON,
) -> tuple[Scop, list[Queued]]:
    """Schedule every group and apply its rewrites, one group after another.

    :arg common: choices of kernels that are to have blocks of one shape, if nothing else is asked.
    """
    rewriter = _Rewriter(before, options, gpu, scheme, common)
    while rewriter.pending:
        rewriter.take_next()
    return rewriter.scop, rewriter.queue


class _Rewriter:
    """The scop as rewritten so far, the kernels queued, and the groups still *pending*."""

    def __init__(
        self,
        before: Grouped,
        options: Options,
        gpu: Chip,
        scheme: Scheme,
        common: Mapping[str, Choice],
    ) -> None:
        self.options = options
        self.common = common
        self.gpu = gpu
        self.scheme = scheme
        self.scop = before.scop
        self.queue: list[Queued] = []
        self.asked = asked_for(options)
        # With whether blocks may share what is reduced: the sums of chunks are in none again.
        self.pending = [(group, True) for group in before.groups]
        self._before = before
        self._shapes = before.shapes

    def take_next(self) -> None:
        """Queue the kernel of the first pending group, and what follows from it."""
        group, may_chunk = self.pending.pop(0)
        left = self._queue_group(group, may_chunk)
        if left.after or left.layout is not None or left.apart:
            self._see_shapes()
        if left.apart:
            own = fold_groups(left.apart, self._shapes)
            self.pending = [*((fold, False) for fold in own), *self.pending]
        folds = [name for name in left.after if self.scop.by_name[name].kind is not Kind.INIT]
        if not self._queue_finish(left, folds):
            waiting = {name for g, _ in self.pending for name in g.members}
            apart = fold_groups([name for name in folds if name not in waiting], self._shapes)
            self.pending = [*((fold, False) for fold in apart), *self.pending]

    def _see_shapes(self) -> None:
        shapes = gpu_shapes_of(self.scop, dependences_of(self.scop))
        self._shapes = {n: freed(shape, self.scop.by_name[n]) for n, shape in shapes.items()}

    def _queue_group(self, group: Group, may_chunk: bool) -> _Left:
        """Queue *group*, by the template that is chosen, or as a library's."""
        if library_of(self.scop, group.members):
            return self._queue_library(group)
        problem, schedule = self._schedule(group, may_chunk, self.scheme)
        if schedule.bands is not None:
            return self._queue_isl(problem, schedule, schedule.bands)
        return self._queue_schedule(group, problem, schedule)

    def _queue_library(self, group: Group) -> _Left:
        kernel = library_schedule(self.scop, group.members, self._shapes, f"g{len(self.queue)}")
        problem = Problem(
            self.scop, group, self._shapes, self.gpu, self.options, scheme=self.scheme
        )  # fmt: skip
        self.queue.append(Queued(kernel, "+".join(group.members), problem=problem))
        return _Left()

    def _queue_isl(self, problem: Problem, schedule: Schedule, bands: Bands) -> _Left:
        """Queue the kernels of isl's schedule; the first stands for what was chosen."""
        found = trees_by_isl(problem, bands)
        assert not isinstance(found, str), "why_not"
        self.scop = found.scop
        record("isl's scheduler", self.scop, notes=["+".join(problem.group.members)])
        self._queue_alone(found.before)
        for number, opened in enumerate(found.opened):
            members = tuple(statements_of(opened.tree))
            own = replace(schedule, members=members, why=opened.why, tree=opened.tree, bands=None)
            name = "+".join(members)
            self.queue.append(Queued(own, name, problem=None if number else problem))
        return _Left()

    def _queue_schedule(self, group: Group, problem: Problem, schedule: Schedule) -> _Left:
        """Apply the rewrites of *schedule*, and queue it."""
        if schedule.tensor is not None:
            kernel = tensor_kernel(problem, schedule.tensor)
            return self._queue_tensor(problem, schedule, kernel)
        if schedule.implicit is not None:
            kernel = implicit_kernel(problem, schedule.implicit)
            return self._queue_tensor(problem, schedule, kernel)
        if schedule.transposition is not None:
            kernel = transposing_kernel(problem, schedule.transposition)
            return self._queue_tensor(problem, schedule, kernel)
        notes = ["+".join(group.members)]
        queued = {n for q in self.queue for n in q.kernel.members}
        done = apply(self.scop, added_at_once(self.scop, schedule, self.options), queued)
        if done.scop is not self.scop:
            record("rfactor", done.scop, notes=notes)
        self._queue_alone(done.before)
        self.scop, schedule = keep_rows(done.scop, done.schedule)
        if self.scop is not done.scop:
            record("rows on the chip", self.scop, notes=notes)
        self.scop, schedule = with_copied_factors(self.scop, schedule)
        self.scop, started, summed = with_summed_copies(self.scop, schedule)
        if started:
            self._see_shapes()
        self._queue_beside(started)
        self.scop, schedule = with_copies(self.scop, schedule)
        if schedule.private:
            record("privatised outputs", self.scop, notes=list(schedule.private))
        self.scop, schedule = with_operand_tiles(self.scop, schedule)
        if schedule.steps is not None:
            record("tiles in shared memory", self.scop, notes=notes)
        self.queue.append(Queued(schedule, "+".join(group.members), problem=problem))
        chunks = self._before.chunks_of(group)
        after = done.after if chunks is None else chunks.wholes
        layout = schedule.layout
        if layout is not None and layout.tiles and not after:
            layout = None  # the sums are whole after all blocks, not after those of a tile
        return _Left(after, layout, schedule.members, summed)

    def _queue_tensor(self, problem: Problem, schedule: Schedule, kernel: TensorKernel) -> _Left:
        name = "+".join(problem.group.members)
        self.scop = kernel.scop
        record(
            "tiles in shared memory" if not kernel.step else "tiles for tensor cores",
            self.scop,
            notes=[name],
        )
        own = replace(schedule, tiled=kernel, storage=kernel.storage())
        self.queue.append(Queued(own, name, problem=problem))
        return _Left(kernel.left)

    def _queue_alone(self, names: Sequence[str]) -> None:
        """Queue each of *names* as a kernel of its own."""
        for name in names:
            problem, schedule = self._schedule(alone(name, self._shapes), False, None)
            self.queue.append(Queued(schedule, name, problem=problem))

    def _queue_beside(self, names: Sequence[str]) -> None:
        """Queue each of *names*, which stores numbers alone, as a kernel of its own.

        With blocks like those of another such kernel, if that takes about the same time: both are
        then one launch (plan/launches).
        """
        for name in names:
            problem, schedule = self._schedule(alone(name, self._shapes), False, None)
            shapes = [
                along_axes(q.kernel, LoopKind.THREAD)
                for q in self.queue
                if not q.kernel.is_opened and _stores_numbers(self.scop, q.kernel)
            ]
            if shapes and name not in self.asked:
                schedule = self._shaped(problem, schedule, shapes)
            self.queue.append(Queued(schedule, name, problem=problem))

    def _shaped(self, problem: Problem, schedule: Schedule, shapes: Sequence[Dim3]) -> Schedule:
        """Return the fastest of the schedules like *schedule* with blocks of one of *shapes*."""
        (template,) = (t for t in GPU_TEMPLATES if t.name == schedule.template)
        found = [schedule]
        for config in template.space(problem):
            own = Choice(template, config).schedule(problem)
            if along_axes(own, LoopKind.THREAD) in shapes:
                found.append(own)
        least = seconds_of(problem, schedule)
        best = min(found[1:], key=lambda own: seconds_of(problem, own), default=schedule)
        return best if seconds_of(problem, best) - least < BESIDE * self.gpu.launch_s else schedule

    def _schedule(
        self, group: Group, may_chunk: bool, scheme: Scheme | None
    ) -> tuple[Problem, Schedule]:
        chunks = self._before.chunks_of(group)
        problem = Problem(
            self.scop, group, self._shapes, self.gpu, self.options, chunks, may_chunk,
            scheme=scheme,
        )  # fmt: skip
        name = "+".join(group.members)
        is_common = name in self.common and name not in self.asked
        choice = self.common[name] if is_common else choice_for(problem, self.asked)
        return problem, choice.schedule(problem)

    def _queue_finish(self, left: _Left, folds: Sequence[str]) -> bool:
        """Queue what the last blocks of the kernel do, and return whether they do *folds*."""
        may_join = self.options.fuse != "none" and not left.apart
        if left.layout is None or not (folds or may_join):
            return False
        later = [g for g, _ in self.pending if may_join and not set(g.members) & set(folds)]
        later = [g for g in later if not library_of(self.scop, g.members)]
        finish = Finish(left.layout, tuple(folds), left.sources)
        groups = last_groups(self.scop, self._shapes, finish, later)
        problems = [
            Problem(
                self.scop, group, self._shapes, self.gpu, self.options, finish=finish,
                scheme=self.scheme,
            )
            for group in groups
        ]  # fmt: skip
        for problem in problems:
            others = [g for g in later if set(g.members) <= set(problem.group.members)]
            folded = problems[-1] if folds else None
            if self._is_quick(problem, folded, others) and self._queue_last(problem):
                return True
        return False

    def _is_quick(self, problem: Problem, folded: Problem | None, others: Sequence[Group]) -> bool:
        """Return whether *others*, too, take last blocks about the time of kernels of their own.

        :arg folded: what last blocks run in any case, None if nothing.
        """
        if not others or "+".join(problem.group.members) in self.asked:
            return True
        if last_block.why_not(problem) or (folded is not None and last_block.why_not(folded)):
            return True  # that is said elsewhere
        more = self._seconds(problem) - (0.0 if folded is None else self._seconds(folded))
        own = 0.0
        for group in others:
            own += self._seconds(
                Problem(self.scop, group, self._shapes, self.gpu, self.options, scheme=self.scheme)
            )
            if more <= SLOW * own:
                return True
        return False

    def _seconds(self, problem: Problem) -> float:
        return seconds_of(problem, choice_for(problem, self.asked).schedule(problem))

    def _queue_last(self, problem: Problem) -> bool:
        """Queue *problem* for last blocks, and return whether they may run it."""
        members = problem.group.members
        wanted = self.asked.get("+".join(members), {"template": last_block.TEMPLATE.name})
        if wanted["template"] != last_block.TEMPLATE.name or last_block.why_not(problem):
            return False
        done = apply(self.scop, choice_for(problem, self.asked).schedule(problem))
        # An initialisation of other elements than are updated has a kernel of its own, before.
        if done.before or done.after:
            return False
        self.scop = done.scop
        record("cross-block reductions", self.scop, notes=["+".join(members)])
        self.queue.append(Queued(done.schedule, "+".join(members), True, problem))
        self.pending = [p for p in self.pending if not set(p[0].members) & set(members)]
        return True


def _stores_numbers(scop: Scop, kernel: Schedule) -> bool:
    """Return whether *kernel* reads nothing."""
    return not any(scop.by_name[name].all_reads for name in kernel.members)
