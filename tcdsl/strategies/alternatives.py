"""How long alternatives take: other templates' kernels, and schedules of which one is to be chosen.

A template may be worth while only where it is faster than others.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from tcdsl.costmodel.estimate import estimate
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.sketch import Sketch
from tcdsl.strategies.template import Template
from tcdsl.strategies.work import least_work_of, seconds_of, with_accesses


def least_seconds(problem: Problem, templates: Iterable[Template[Any]]) -> float:
    """Return the least time of the likeliest configurations of *templates*; inf if none applies."""
    found = (_seconds(problem, t) for t in templates if t.why_not(problem) is None)
    return min(found, default=inf)


def _seconds(problem: Problem, template: Template[Any]) -> float:
    config = next(template.space(problem), None)
    if config is None:
        return inf
    return seconds_of(problem, template.schedule(problem, config))


def least_of(
    problem: Problem, sketches: Sequence[Sketch], alike: float = 1.0, most: float = inf
) -> tuple[int, float] | None:
    """Return the number of the first of *sketches* that takes about the least time, and that time.

    The one with the least lower bound comes first: it rules out most of the others.

    :arg alike: what times may differ by, and are the same.
    :arg most: seconds; None is returned if bounds rule out all that take less.
    """
    works = [least_work_of(problem, sketch) for sketch in sketches]
    bounds = [estimate(work, problem.gpu).seconds for work in works]
    least, found = most, dict[int, float]()
    for number in sorted(range(len(sketches)), key=lambda n: bounds[n]):
        if bounds[number] > alike * least:
            break
        whole = with_accesses(problem, sketches[number], works[number])
        found[number] = estimate(whole, problem.gpu).seconds
        least = min(least, found[number])
    near = [number for number, seconds in found.items() if seconds <= alike * least]
    return (min(near), found[min(near)]) if near else None
