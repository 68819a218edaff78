"""How long a schedule takes, on the machine of its problem: what it costs, and the estimate."""

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.cpu_estimate import estimate_on_cpu
from tcdsl.costmodel.cpu_work import CpuWork
from tcdsl.costmodel.estimate import Estimate, estimate
from tcdsl.costmodel.work import Work
from tcdsl.strategies.cpu_work import cpu_work_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.work import work_of


def estimated(problem: Problem, schedule: Schedule) -> tuple[Work | CpuWork, Estimate]:
    """Return what *schedule* costs, and how long that takes."""
    if isinstance(problem.machine, Chip):
        work = work_of(problem, schedule)
        return work, estimate(work, problem.machine)
    cpu_work = cpu_work_of(problem, schedule)
    return cpu_work, estimate_on_cpu(cpu_work, problem.machine)
