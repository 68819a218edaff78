"""Rows that threads keep: of which a copy is made, and what is said where none can be."""

from dataclasses import replace

import pytest

from tcdsl.strategies.lowering import Lane
from tcdsl.strategies.residence import keep_rows
from tcdsl.strategies.template import assembled
from tcdsl.strategies.templates.row import row_of_problem
from tests.strategies.test_templates import PROGRAMS, problems_of


@pytest.mark.parametrize("rows_of_thread", [1, 2])
def test_a_thread_keeps_one_row_or_says_that_it_keeps_none(rows_of_thread: int) -> None:
    (problem,) = problems_of(*PROGRAMS["half rows"])
    row, tiles = row_of_problem(problem), problem.unit_tiles
    assert row.resident == ("x",)
    tiles[0] = replace(tiles[0], thread_axis=1, threads=8, repeat=rows_of_thread)
    lanes = {name: Lane(dim, 0, 8, row.vector, 1) for name, dim in row.lanes.items()}
    schedule = replace(assembled(problem, tiles, lanes), resident=row.resident)
    scop, kept = keep_rows(problem.scop, schedule)
    is_kept = rows_of_thread == 1
    assert (scop is not problem.scop) == (len(kept.members) > len(schedule.members)) == is_kept
    note = "not copied, but read by each statement that uses them: x"
    assert (note in kept.why) != is_kept
