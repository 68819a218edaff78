"""Which axes of ranges from data threads may be along."""

from tcdsl.strategies import problem as problems
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Axis


def axis_inside_ranges(problem: Problem) -> Axis | None:
    """Return the shared axis that stands inside the ranges of all members that have any."""
    for axis in reversed(problem.parallel):
        ragged = [
            (problem.shapes[name], dim)
            for name, dim in axis.items()
            if any(map(problem.shapes[name].is_ragged, range(len(problem.shapes[name].extents))))
        ]
        is_inside = all(
            s.order[-1] == dim and s.extents[dim] >= problems.MIN_LANES for s, dim in ragged
        )
        if ragged and is_inside:
            return axis
    return None


def is_of_long_rows(problem: Problem) -> bool:
    """Return whether the kernel is over chunks of long rows, which ``long_groups`` alone makes."""
    lead = problem.shapes[problem.lead]
    is_shared = any(lead.is_ragged(axis[problem.lead]) for axis in problem.group.axes)
    return problem.is_ragged and is_shared and len(problem.group.members) > 1
