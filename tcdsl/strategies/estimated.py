"""How long a schedule takes, on the machine of its problem: what it costs, and the estimate."""

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import Estimate, estimate
from tcdsl.costmodel.work import AnyWork
from tcdsl.strategies.cpu_work import cpu_work_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.work import work_of


def estimated(problem: Problem, schedule: Schedule) -> tuple[AnyWork, Estimate]:
    """Return what *schedule* costs, and how long that takes."""
    count = work_of if isinstance(problem.machine, Chip) else cpu_work_of
    work = count(problem, schedule)
    return work, estimate(work, problem.machine)


def seconds_of(problem: Problem, schedule: Schedule) -> float:
    """Return the estimated time of *schedule*."""
    return estimated(problem, schedule)[1].seconds
