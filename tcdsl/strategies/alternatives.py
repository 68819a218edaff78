"""How long alternatives take: other templates' kernels, and schedules of which one is to be chosen.

A template may be worth while only where it is faster than others.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from typing import Any

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.gpu_thresholds import BUSY_SECONDS, BUSY_THREADS
from tcdsl.costmodel.occupancy import threads_at_once
from tcdsl.costmodel.work import Work
from tcdsl.strategies.estimated import fold_seconds, seconds_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Template
from tcdsl.strategies.work import least_work_of, with_accesses


def least_seconds(problem: Problem, templates: Iterable[Template[Any]], each: int = 1) -> float:
    """Return the least time of the likeliest configurations of *templates*; inf if none applies.

    :arg each: how many configurations of a template.
    """
    applying = (template for template in templates if template.why_not(problem) is None)
    found = (
        seconds_of(problem, template.schedule(problem, config))
        for template in applying
        for config in islice(template.space(problem), each)
    )
    return min(found, default=inf)


def least_of(
    problem: Problem, schedules: Sequence[Schedule], alike: float = 1.0, most: float = inf
) -> tuple[int, float] | None:
    """Return the number of the first of *schedules* that takes about the least time, and that time.

    The one with the least lower bound comes first: it rules out most of the others.  Of those that
    take about as long, and not briefly, one that keeps a multiprocessor busy is preferred to the
    first: of fewer threads the estimate believes too readily that they hide latencies.  What a
    kernel after it takes, which adds up what its blocks have summed, is a part of each.

    :arg alike: what times may differ by, and are the same.
    :arg most: seconds; None is returned if bounds rule out all that take less.
    """
    works = [least_work_of(problem, schedule) for schedule in schedules]
    after = [fold_seconds(problem, schedule) for schedule in schedules]
    bounds = [estimate(w, problem.gpu).seconds + s for w, s in zip(works, after, strict=True)]
    least, found = most, dict[int, float]()
    for number in sorted(range(len(schedules)), key=lambda n: bounds[n]):
        if bounds[number] > alike * least:
            break
        whole = with_accesses(problem, schedules[number], works[number])
        found[number] = estimate(whole, problem.gpu).seconds + after[number]
        least = min(least, found[number])
    near = [number for number, seconds in found.items() if seconds <= alike * least]
    if not near:
        return None
    first, chip = min(near), problem.gpu
    if least >= BUSY_SECONDS:
        first = min(near, key=lambda n: (not _is_busy(works[n], chip), n))
    return first, found[first]


def _is_busy(work: Work, chip: Chip) -> bool:
    """Return whether *work* hides the latencies of its loads: by many threads, or prefetches."""
    return work.is_prefetched or threads_at_once(work, chip) >= BUSY_THREADS
