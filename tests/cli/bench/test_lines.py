"""Rows as JSON lines: written one by one, read back, not timed again."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tcdsl.cli.bench.lines import (
    STANDARD_OUTPUT,
    Lines,
    keys_in,
    keys_to_leave_out,
    read_lines,
)
from tcdsl.cli.bench.measured import Run
from tcdsl.cli.bench.report import Launches, Row

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


def test_lines_on_the_standard_output_are_read_among_other_text(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print("compiled 3 programs\n17\n{}")
    lines = Lines(STANDARD_OUTPUT, RUN)
    for row in (ROW, OTHER):
        lines.begin(row.key)
        lines.end(row)
        print("| a table |")
    path.write_text(capsys.readouterr().out + '{"begin": ["row_s')
    assert [(one.run, one.row) for one in read_lines([path])] == [(RUN, ROW), (RUN, OTHER)]


def test_every_line_is_there_when_the_process_is_killed(path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from tcdsl.cli.bench.lines import STANDARD_OUTPUT, Lines
from tcdsl.cli.bench.measured import Run
from tcdsl.cli.bench.report import Row
for path in (Path({str(path)!r}), STANDARD_OUTPUT):
    lines = Lines(path, Run({{}}, ()))
    lines.begin(("dot", "N=4", "int32"))
    lines.end(Row("dot", "reduction", "int32", {{"N": 4}}))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -9
    assert path.read_text() == done.stdout and done.stdout.count("\n") == 3
    assert [one.row.key for one in read_lines([path])] == [OTHER.key]


def test_what_is_skipped_is_timed_alike(path: Path) -> None:
    Lines(path, RUN).end(ROW)
    assert keys_in([path], replace(RUN, peers=("cub",))) == {ROW.key}
    assert keys_in([path], replace(RUN, flush=False)) == set()
    assert keys_in([path], replace(RUN, first_calls=True)) == set()
    assert keys_in([], RUN) == set()


def test_first_calls_are_rows_of_their_own(path: Path) -> None:
    first, run = replace(ROW, times_us={}, first_s={"tcdsl": 0.7}), replace(RUN, first_calls=True)
    Lines(path, RUN).end(ROW)
    assert keys_to_leave_out(path, run) == set()
    Lines(path, run).end(first)
    assert [one.row for one in read_lines([path])] == [ROW, first]
    assert keys_to_leave_out(path, run) == {ROW.key}
