"""How long other templates take: for a template that is worth while only where it is faster."""

from collections.abc import Iterable
from math import inf
from typing import Any

from tcdsl.strategies.problem import Problem
from tcdsl.strategies.template import Template
from tcdsl.strategies.work import seconds_of


def least_seconds(problem: Problem, templates: Iterable[Template[Any]]) -> float:
    """Return the least time of the likeliest configurations of *templates*; inf if none applies."""
    found = (_seconds(problem, t) for t in templates if t.why_not(problem) is None)
    return min(found, default=inf)


def _seconds(problem: Problem, template: Template[Any]) -> float:
    config = next(template.space(problem), None)
    if config is None:
        return inf
    return seconds_of(problem, template.schedule(problem, config))
