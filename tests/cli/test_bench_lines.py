"""Rows as JSON lines: written one by one, read back, not timed again."""

from dataclasses import replace
from pathlib import Path

import pytest

from tcdsl.cli.bench_lines import Lines, keys_to_leave_out, read_lines
from tcdsl.cli.bench_measured import Run
from tcdsl.cli.bench_report import Launches, Row

RUN = Run({"gpu": "fast"}, ("torch", "jax"), True, 4000.0, 4400.0)
ROW = Row(
    "softmax", "graph", "float32", {"M": 3, "N": 4}, {"tcdsl": 1.5, "torch": 3.0},
    {"tcdsl": 0.1, "torch": 0.2}, ("jax: no",), Launches(96, 1, (3, 1, 1), (32, 1, 1)),
    {"tcdsl": 0.25},
)  # fmt: skip
OTHER = Row("dot", "reduction", "int32", {"N": 4}, problems=("its inputs: no",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.jsonl"


def test_what_is_written_is_read(path: Path) -> None:
    lines = Lines(path, RUN)
    for row in (ROW, OTHER):
        lines.begin(row.key)
        lines.end(row)
    assert [(one.run, one.row) for one in read_lines([path])] == [(RUN, ROW), (RUN, OTHER)]
    assert keys_to_leave_out(path, RUN) == {ROW.key, OTHER.key}


def test_a_later_row_replaces_an_earlier_one_of_the_same_cache(path: Path) -> None:
    Lines(path, RUN).end(ROW)
    later = replace(ROW, times_us={"tcdsl": 1.0})
    Lines(path, RUN).end(later)
    Lines(path, replace(RUN, flush=False)).end(ROW)
    assert [one.row for one in read_lines([path])] == [later, ROW]


def test_rows_of_fewer_peers_or_another_cache_are_timed_again(path: Path) -> None:
    lines = Lines(path, RUN)
    lines.begin(ROW.key)
    lines.end(ROW)
    assert keys_to_leave_out(path, replace(RUN, peers=("jax",))) == {ROW.key}
    assert keys_to_leave_out(path, replace(RUN, peers=("jax", "torch-compile"))) == set()
    assert keys_to_leave_out(path, replace(RUN, flush=False)) == set()


def test_a_row_in_which_the_process_ended_twice_is_left_out(path: Path) -> None:
    Lines(path, RUN).begin(ROW.key)
    assert keys_to_leave_out(path, RUN) == set()
    Lines(path, RUN).begin(ROW.key)
    assert keys_to_leave_out(path, RUN) == {ROW.key}


def test_a_line_that_was_cut_off_is_nothing(path: Path) -> None:
    Lines(path, RUN).end(ROW)
    with path.open("a") as file:
        file.write('{"row": {"case": "so')
    assert [one.row for one in read_lines([path])] == [ROW]
    Lines(path, RUN).end(OTHER)
    assert [one.row for one in read_lines([path])] == [ROW, OTHER]


def test_where_there_is_no_file_nothing_is_left_out(path: Path) -> None:
    assert keys_to_leave_out(path, RUN) == set()
    assert read_lines([path]) == []
