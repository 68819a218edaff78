"""Bounds of a kernel's time, and what problems that are alike share."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.estimate import estimate
from tcdsl.options import Options
from tcdsl.strategies import catalogue
from tcdsl.strategies.problem import Problem, analyses_shared, analysis, own_analysis
from tcdsl.strategies.work import least_work_of, seconds_of, work_of
from tests.strategies.test_templates import PROGRAMS, problems_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bound_is_no_more_than_the_estimate(name: str) -> None:
    for problem in problems_of(*PROGRAMS[name]):
        works = []
        for choice in catalogue.choices(problem):
            sketch = choice.schedule(problem)
            least, whole = (count(problem, sketch) for count in (least_work_of, work_of))
            seconds = estimate(whole, problem.gpu).seconds
            assert estimate(least, problem.gpu).seconds <= seconds == seconds_of(problem, sketch)
            assert seconds_of(problem, sketch, most=seconds) == seconds
            works.append((least.lines, whole.lines))
        assert any(least < whole for least, whole in works)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bounds_rule_out_nothing_that_is_among_the_fastest(name: str) -> None:
    for problem in problems_of(*PROGRAMS[name]):
        found = catalogue.candidates(problem)
        least = min(candidate.estimate.seconds for candidate in found)
        alike = [c.choice for c in found if c.estimate.seconds <= catalogue.ALIKE * least]
        assert catalogue.fastest(problem) == alike[0]


def test_problems_alike_share_analyses_and_others_do_not() -> None:
    asked: list[Problem] = []

    @analysis
    def shared(problem: Problem, number: int) -> int:
        asked.append(problem)
        return number

    @own_analysis
    def own(problem: Problem) -> int:
        asked.append(problem)
        return 0

    with analyses_shared():
        (one,) = problems_of(*PROGRAMS["row"])
        again = replace(one)
        other = replace(one, options=Options(vectorise=False))
        assert [shared(p, 1) for p in (one, again, other)] == [1, 1, 1]
        assert shared(again, 2) == 2
        assert asked == [one, other, again]
        asked.clear()
        assert own(one) == own(again) == own(one) == 0
        assert asked == [one, again]
    asked.clear()
    before, after = replace(one), replace(one)
    assert shared(before, 1) == shared(after, 1) == shared(after, 1)
    assert asked == [before, after]
