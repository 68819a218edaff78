"""Bounds of a kernel's time, and what problems that are alike share."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.work import Work
from tcdsl.options import Options
from tcdsl.strategies import catalogue
from tcdsl.strategies.estimated import fold_seconds, seconds_of
from tcdsl.strategies.problem import Problem, analyses_shared, analysis, own_analysis
from tcdsl.strategies.template import Choice
from tcdsl.strategies.templates import elementwise, row
from tcdsl.strategies.work import least_work_of, work_of
from tests.strategies.test_templates import PROGRAMS, problems_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bound_is_no_more_than_the_estimate(name: str) -> None:
    for problem in problems_of(*PROGRAMS[name]):
        works = []
        for choice in catalogue.choices(problem):
            schedule = choice.schedule(problem)
            least, whole = (count(problem, schedule) for count in (least_work_of, work_of))
            seconds = estimate(whole, problem.gpu).seconds
            folded = seconds + fold_seconds(problem, schedule)
            assert estimate(least, problem.gpu).seconds <= seconds
            assert seconds_of(problem, schedule) == folded
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


def test_a_place_takes_more_instructions_than_its_value() -> None:
    found = {}
    for operator in ("argmax", "max"):
        source = f"def f(float(M,N) x) -> (y) {{ y(m) {operator}=! x(m,n) }}"
        (problem,) = problems_of(source, [(320, 21128)])
        works = (candidate.work for candidate in catalogue.candidates(problem))
        found[operator] = max(work.instructions for work in works if work.threads == 256)
    assert found["argmax"] > 20 * 320 * 21128
    assert found["max"] < found["argmax"] / 5


def test_streams_of_several_arrays_take_more_registers() -> None:
    terms = " + ".join(f"{name}(m,n)" for name in "abcdef")
    params = ", ".join(f"float(M,N) {name}" for name in "abcdef")
    found = []
    sums = f"def f({params}) -> (y) {{ y(m) +=! {terms} }}"
    for source, count in ((sums, 6), (PROGRAMS["row"][0], 1)):
        (problem,) = problems_of(source, [(1000, 4096)] * count)
        works = [c.work for c in catalogue.candidates(problem) if c.choice.template.name == "row"]
        found.append({work.registers for work in works})
    assert found == [{16 + 6 * 3 + 4}, {32}]


def test_rows_in_turn_wait_for_one_another_with_copies_in_memory_too() -> None:
    source = "def f(float(M,N) x) -> (s, y) { s(m) +=! x(m,n)  y(n) +=! x(m,n) * s(m) }"
    (problem,) = problems_of(source, [(65536, 1024)])
    chosen = (c for c in catalogue.choices(problem) if c.template.name == "row_column")
    schedule = next(s for c in chosen if (s := c.schedule(problem)).persistent)
    with_copies = replace(schedule, private={"S0": ()}, is_summed=True)
    one, other = (least_work_of(problem, s).chain.cycles for s in (schedule, with_copies))
    assert one == other > 0


def in_turn(source: str) -> Work:
    """Return what the kernel of rows and columns of *source* costs, one row after another."""
    (problem,) = problems_of(source, [(65536, 1024)])
    chosen = (c for c in catalogue.choices(problem) if c.template.name == "row_column")
    schedule = next(schedule for c in chosen if (schedule := c.schedule(problem)).persistent)
    return least_work_of(problem, schedule)


def test_sums_that_a_thread_has_for_itself_are_no_folds() -> None:
    """Only s is folded: y and z are registers of each thread, and columns of all rows."""
    for results, columns in (("y", ""), ("y, z", "  z(n) +=! x(m,n) * x(m,n) * s(m)")):
        sums = f"s(m) +=! x(m,n)  y(n) +=! x(m,n) * s(m){columns}"
        work = in_turn(f"def f(float(M,N) x) -> (s, {results}) {{ {sums} }}")
        rows = 65536 / work.blocks
        assert work.chain.block_barriers == pytest.approx(2 * rows, rel=0.1)


def test_the_next_row_is_asked_for_where_it_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(float(M,N) x) -> (s, y) { s(m) +=! x(m,n)  y(n) +=! x(m,n) * s(m) }"
    assert in_turn(source).is_prefetched
    monkeypatch.setattr("tcdsl.strategies.work.LEAST_BYTES", 1 << 14)
    assert not in_turn(source).is_prefetched


def test_parts_of_an_array_are_counted_apart() -> None:
    """Gates of a step: four parts of p, each loaded by itself."""
    source = "def f(float(B,4,N) p) -> (y) { y(b,n) = p(b,0,n) * p(b,1,n) + p(b,2,n) * p(b,3,n) }"
    (problem,) = problems_of(source, [(256, 4, 512)])
    choice = Choice(elementwise.TEMPLATE, next(elementwise.TEMPLATE.space(problem)))
    work = least_work_of(problem, choice.schedule(problem))
    assert (work.read_bytes, work.written_bytes) == (4 * 256 * 4 * 512, 4 * 256 * 512)


def test_a_block_of_all_registers_keeps_52_values_a_thread() -> None:
    """Of 64 registers, which 1024 threads have; NVRTC stores some of 56, and of 52 none."""
    moved = []
    for vectors in (13, 14):
        length = 4 * 1024 * vectors
        source = "def f(float(M,N) x) -> (y) { s(m) +=! x(m,n)  y(m,n) = x(m,n) * s(m) }"
        (problem,) = problems_of(source, [(4096, length)])
        config = row.RowConfig(1024, 4, keep=vectors)
        work = least_work_of(problem, Choice(row.TEMPLATE, config).schedule(problem))
        moved.append(work.dram_bytes / (2 * 4 * 4096 * length))
    assert moved[0] == 1 and moved[1] > 1
