"""Kernels that wait to be nested, and what each was chosen from; the same for both targets."""

from dataclasses import asdict
from functools import partial
from typing import Any

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.work import Work
from tcdsl.records import dataclass
from tcdsl.schedule.plan import Weighed
from tcdsl.strategies.choices import candidates_of
from tcdsl.strategies.gpu_bands import IslKernel
from tcdsl.strategies.library_candidates import library_candidates
from tcdsl.strategies.library_kernels import LibraryKernel
from tcdsl.strategies.panels import COPIES, PanelKernel
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.work import work_of

AnyKernel = Schedule | TensorKernel | IslKernel | LibraryKernel | PanelKernel


@dataclass(frozen=True, slots=True)
class Queued:
    """A kernel to be nested."""

    kernel: AnyKernel
    name: str
    is_finish: bool = False  # by the last blocks of the kernel before it
    problem: Problem | None = None  # which it solves; None if another kernel of the queue does
    of_tiles: Work | None = None  # what a kernel of tiles costs that may share a launch

    def work(self) -> Work | None:
        """Return what it costs on a GPU, None if no template says so.

        Nor of asynchronous copies of all threads: those of another kernel in the launch would hold
        them up.
        """
        if self.problem is None or not isinstance(self.kernel, Schedule):
            return self.of_tiles
        is_copied = self.kernel.staged or self.kernel.large or self.kernel.steps is not None
        return None if is_copied else work_of(self.problem, self.kernel)

    def weighed(self) -> Weighed | None:
        """Return what it was made with, and what else there was; None if another kernel says so.

        On a CPU what belongs to another kernel has a template, and nothing to choose.
        """
        kernel, problem = self.kernel, self.problem
        if problem is None or kernel.template == COPIES:
            return Weighed(self.name, {"template": kernel.template}) if self._is_on_cpu() else None
        if isinstance(kernel, LibraryKernel):
            own = partial(library_candidates, problem, kernel)
            return Weighed(self.name, {"template": kernel.template}, own)
        others = partial(candidates_of, problem, kernel.config)
        return Weighed("+".join(problem.group.members), {**kernel.config, **self._code()}, others)

    def _is_on_cpu(self) -> bool:
        return self.problem is None or not isinstance(self.problem.machine, Chip)

    def _code(self) -> dict[str, Any]:
        """Return what is chosen of a GPU's code; what last blocks do is a part of that before."""
        is_own = self.problem is not None and isinstance(self.problem.machine, Chip)
        assert not isinstance(self.kernel, LibraryKernel | PanelKernel) or not is_own
        if not is_own or self.is_finish or isinstance(self.kernel, LibraryKernel | PanelKernel):
            return {}
        return {"code": asdict(self.kernel.code)}
