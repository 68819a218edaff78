"""Kernels that wait to be nested, and what each was chosen from; the same for both targets."""

from collections.abc import Iterable, Set
from dataclasses import replace
from functools import partial

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.work import Work
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Requests
from tcdsl.schedule.plan import Weighed
from tcdsl.strategies.choices import candidates_of, codes_of
from tcdsl.strategies.code_choices import code_data
from tcdsl.strategies.library_candidates import library_candidates
from tcdsl.strategies.panels import COPIES
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.work import work_of

EARLY = ("early",)


@dataclass(frozen=True, slots=True)
class Queued:
    """A kernel to be nested."""

    kernel: Schedule
    name: str
    is_finish: bool = False  # by the last blocks of the kernel before it
    problem: Problem | None = None  # which it solves; None if another kernel of the queue does

    def work(self) -> Work | None:
        """Return what it costs on a GPU, None if no template says so.

        Nor of asynchronous copies of all threads: those of another kernel in the launch would hold
        them up.
        """
        own = self.kernel
        if self.problem is None:
            return None
        if own.tiled is not None:
            may_share = own.has_producer or own.transposition is not None
            return work_of(self.problem, own) if may_share and isinstance(own.work, Work) else None
        is_copied = bool(own.storage) or own.steps is not None
        return None if own.is_opened or is_copied else work_of(self.problem, own)

    def weighed(self, turned: Set[str], first: Set[str]) -> Weighed | None:
        """Return what it was made with, and what else there was; None if another kernel says so.

        On a CPU what belongs to another kernel has a template, and nothing to choose.

        :arg turned: statements of kernels in reversed block order.
        :arg first: those of the first kernel, which begins before no other one has ended.
        """
        kernel, problem = self.kernel, self.problem
        if problem is None or kernel.template == COPIES:
            return Weighed(self.name, {"template": kernel.template}) if self._is_on_cpu() else None
        if kernel.library:
            own = partial(library_candidates, problem, kernel)
            return Weighed(self.name, {"template": kernel.template}, own)
        name = "+".join(problem.group.members)
        if self.is_finish:  # its code is a part of that before
            return Weighed(name, kernel.config, partial(candidates_of, problem, kernel.config))
        made = replace(kernel.code, is_reversed=not turned.isdisjoint(kernel.members))
        code = code_data(made, problem.machine)
        candidates = partial(candidates_of, problem, kernel.config, code)
        fixed = () if first.isdisjoint(kernel.members) else EARLY
        codes = partial(codes_of, problem, kernel.config, code, fixed)
        return Weighed(name, {**kernel.config, "code": code}, candidates, codes)

    def _is_on_cpu(self) -> bool:
        return self.problem is None or not isinstance(self.problem.machine, Chip)


def requests_of(queue: Iterable[Queued]) -> Requests:
    """Return what the kernels of *queue* say of where local arrays are to be."""
    return {name: own for queued in queue for name, own in queued.kernel.storage.items()}
