"""Lines of the first-level cache that a warp looks up, and sectors that blocks share."""

from dataclasses import replace

import pytest

from tcdsl.strategies.access_costs import SCATTERED, Access, accesses_of, looked_up
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.template import Choice
from tcdsl.strategies.templates import column, elementwise, row
from tests.strategies.test_templates import problems_of


def access_to(problem: Problem, choice: Choice, array: str) -> Access:
    schedule = choice.schedule(problem)
    found = [a for a in accesses_of(problem, schedule, problem.lead) if a.array == array]
    return found[0]


@pytest.mark.parametrize(
    ("threads", "lines"),
    # A row is 256 bytes.  Of 16 threads each a warp has two whole rows: four lines, none too many;
    # alone with a row, each thread looks up a line of its own, where four would do.
    [(16, 4.0), (8, 4.0), (4, 8.0), (1, 32.0)],
)
def test_lines_of_rows(threads: int, lines: float) -> None:
    source = "def f(float(M,N) x) -> (y) { y(m) +=! x(m,n) }"
    (problem,) = problems_of(source, [(4096, 64)])
    config = row.RowConfig(threads, 4, rows=256 // threads)
    found = access_to(problem, Choice(row.TEMPLATE, config), "x")
    assert found.requests == 4096 * 64 / 4 / 32
    assert found.lines == 4.0 + SCATTERED * (lines - 4.0)
    assert found.run_bytes == found.row_bytes == 256


def test_columns_that_are_less_than_a_sector() -> None:
    source = "def f(float(M,N) x) -> (y) { y(n) +=! x(m,n) }"
    (problem,) = problems_of(source, [(5000, 3)])
    config = next(column.space(problem))
    one, all_of_them = (replace(config, threads_x=x, vector=1) for x in (1, 3))
    found = access_to(problem, Choice(column.TEMPLATE, one), "x")
    assert (found.run_bytes, found.row_bytes) == (4, 12)
    found = access_to(problem, Choice(column.TEMPLATE, all_of_them), "x")
    assert (found.run_bytes, found.row_bytes) == (12, 12)


@pytest.mark.parametrize(
    ("columns", "begin", "beside"),
    # Runs of 32 columns, 128 bytes: of rows that begin at any element 28 bytes more, at any two 24.
    [(50_003, 4, 28 / 128), (50_002, 8, 24 / 128), (50_000, 64, 0.0)],
)
def test_rows_that_begin_anywhere_share_sectors(columns: int, begin: int, beside: float) -> None:
    source = "def f(float(M,N) x) -> (y) { y(n) +=! x(m,n) }"
    (problem,) = problems_of(source, [(64, columns)])
    choice = Choice(column.TEMPLATE, column.ColumnConfig(32, 8))
    assert access_to(problem, choice, "x").begin_bytes == begin
    fetched = looked_up(problem, choice.schedule(problem)).fetched
    assert fetched == pytest.approx(beside * 64 * columns * 4, rel=1e-3)


def test_whole_rows_lie_beside_one_another() -> None:
    (problem,) = problems_of("def f(float(M,N) x) -> (y) { y(n) +=! x(m,n) }", [(5000, 5)])
    choice = Choice(column.TEMPLATE, column.ColumnConfig(5, 32))
    assert access_to(problem, choice, "x").begin_bytes == 4
    assert looked_up(problem, choice.schedule(problem)).fetched < 5 * 4


def test_a_remainder_that_wraps_moves_through_memory_like_its_operand() -> None:
    """Shallow water's periodic neighbours: predicted 3770 us of lookups, 300 us measured (H200)."""
    periodic = """def f(float(H,W) p) -> (o) {
        o(i,j) = p((i+H-1)%H, (j+1)%W) + p(i,j) where i in 0:H, j in 0:W
    }"""
    (problem,) = problems_of(periodic, [(256, 1024)])
    choice = Choice(elementwise.TEMPLATE, next(elementwise.TEMPLATE.space(problem)))
    found = list(accesses_of(problem, choice.schedule(problem), problem.lead))
    assert len(found) == 3 and len({access.lines for access in found}) == 1


@pytest.mark.parametrize(("rows", "halo"), [(1, 64 * 3 / 66), (4, 16 * 6 / 66), (8, 8 * 10 / 66)])
def test_what_blocks_of_a_window_have_in_common(rows: int, halo: float) -> None:
    source = "def f(float(66,N) x, float(3,N) k) -> (y) { y(i,j) +=! x(i+r,j) * k(r,j) }"
    (problem,) = problems_of(source, [(66, 1024), (3, 1024)])
    config = elementwise.ElementwiseConfig(256, 1, 1, 4, points=rows)
    found = access_to(problem, Choice(elementwise.TEMPLATE, config), "x")
    assert found.halo == pytest.approx(halo)
    assert found.requests == 64 * 1024 * 3 / 4 / 32 * (rows + 2) / (3 * rows)


def test_rows_in_chunks_have_nothing_in_common() -> None:
    source = "def f(float(640,N) x) -> (y) { y(c,j) +=! x(64 * c + l, j) where l in 0:64 }"
    (problem,) = problems_of(source, [(640, 1024)])
    choice = Choice(elementwise.TEMPLATE, elementwise.ElementwiseConfig(32))
    found = list(accesses_of(problem, choice.schedule(problem), problem.lead))
    assert {access.halo for access in found} == {1.0}
