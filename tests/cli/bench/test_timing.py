"""Timing a case: whatever fails is a problem of its row, and the others are timed all the same."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tcdsl.cli.bench import command as bench
from tcdsl.cli.bench import peers
from tcdsl.cli.bench.peers import Host
from tcdsl.cli.bench.timing import time_one
from tcdsl.library import case
from tcdsl.runtime.timing import Comparison

Tcdsl = Callable[..., tuple[int, str, str]]
WORK = (case("softmax"), {"M": 3, "N": 7}, "float32")
PLACE = Host("cpu", bound=False)
QUICK = ("--seconds", "0.001", "--peers", "numpy")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.Host, "sizes", lambda place, case, dtype: case.small_sizes[-1:])


def test_a_row_has_every_time_and_first_call() -> None:
    row = time_one(WORK, ("numpy",), PLACE, 0.001)
    assert set(row.times_us) == set(row.spreads) == set(row.first_s) == {"tcdsl", "numpy"}
    assert row.problems == () and row.key == ("softmax", "M=3 N=7", "float32")


def test_a_peer_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def peer_call(place: Host, peer: str, *_: object) -> Any:
        if peer == "torch":
            raise NotImplementedError("no such operator\nand a long trace")
        return lambda: case("softmax").numpy_peer(inputs)[0]

    inputs = PLACE.inputs(*WORK)
    monkeypatch.setattr(Host, "peer_call", peer_call)
    row = time_one(WORK, ("torch", "numpy"), PLACE, 0.001)
    assert row.problems == ("torch: NotImplementedError: no such operator",)
    assert set(row.times_us) == {"tcdsl", "numpy"}


def test_a_peer_that_fails_while_it_is_timed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = PLACE.inputs(*WORK)
    left = [1]  # calls until there is no memory

    def call() -> Any:
        if not left:
            raise MemoryError("out of memory")
        left.pop()
        return case("softmax").numpy_peer(inputs)[0]

    monkeypatch.setattr(Host, "peer_call", lambda *_: call)
    row = time_one(WORK, ("numpy",), PLACE, 0.001)
    assert set(row.times_us) == {"tcdsl"}
    assert row.problems == (
        "while it was timed: MemoryError: out of memory", "numpy: MemoryError: out of memory",
    )  # fmt: skip


def test_what_cannot_be_timed_at_all_is_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: Host, calls: Mapping[str, Any], seconds: float) -> Comparison:
        raise RuntimeError("lost")

    monkeypatch.setattr(Host, "compare", fail)
    row = time_one(WORK, (), PLACE, 0.001)
    assert row.times_us == {} and len(row.problems) == 2


def test_what_no_peer_has_is_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "offers", lambda *_: False)
    assert set(time_one(WORK, ("numpy",), PLACE, 0.001).times_us) == {"tcdsl"}


# --- the command -----------------------------------------------------------------------------


def test_lines_are_added_and_not_timed_again(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    assert tcdsl("bench", "softmax", *QUICK, "--lines", path)[0] == 0
    before = path.read_text()
    assert [next(iter(json.loads(line))) for line in before.splitlines()] == ["run", "begin", "row"]
    code, printed, _ = tcdsl("bench", "softmax", "dot", *QUICK, "--lines", path)
    assert code == 0
    assert f"1 of 2 are in {path}" in printed
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["row"]["case"] for row in rows if "row" in row] == ["softmax", "dot"]
    assert path.read_text().startswith(before)


def test_the_page_is_made_of_files(tcdsl: Tcdsl, tmp_path: Path) -> None:
    paths = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for name, path in zip(("softmax", "dot"), paths, strict=True):
        tcdsl("bench", name, *QUICK, "--lines", path)
    code, printed, _ = tcdsl("bench", "--from", *paths)
    assert code == 0
    assert "### Every case" in printed and "| softmax" in printed and "| dot" in printed


def test_no_case_is_begun_after_the_limit(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    words = ("softmax", "dot", *QUICK, "--limit", "0", "--json", path)
    code, printed, _ = tcdsl("bench", *words)
    assert code == 0
    assert "timed 0 of 2; without a turn:\n  softmax float32 M=17 N=131\n  dot float32" in printed
    assert json.loads(path.read_text())["rows"] == []


def test_a_second_run_takes_what_the_first_has_left(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path, rest = tmp_path / "t.jsonl", tmp_path / "rest.jsonl"
    assert tcdsl("bench", "dot", *QUICK, "--lines", path)[0] == 0
    words = ("softmax", "dot", *QUICK, "--skip", path, "--lines", rest)
    code, printed, _ = tcdsl("bench", *words)
    assert code == 0
    assert "skipped 1 of 2" in printed and "without a turn" not in printed
    rows = [json.loads(line).get("row") for line in rest.read_text().splitlines()]
    assert [row["case"] for row in rows if row] == ["softmax"]
    assert "skipped 2 of 2" in tcdsl("bench", *words[:-2], "--skip", path, rest)[1]
    code, _, errors = tcdsl("bench", "dot", *QUICK, "--skip", tmp_path / "none.jsonl")
    assert code == 2 and "none.jsonl is no file" in errors


def test_lines_can_be_printed(tcdsl: Tcdsl, tmp_path: Path) -> None:
    code, printed, _ = tcdsl("bench", "softmax", *QUICK, "--lines", "-")
    assert code == 0
    path = tmp_path / "printed.txt"
    path.write_text(printed)
    assert "| softmax" in tcdsl("bench", "--from", path)[1]


def test_several_types_have_a_column(tcdsl: Tcdsl) -> None:
    code, printed, _ = tcdsl("bench", "softmax", *QUICK, "--dtype", "float32,float64")
    assert code == 0
    assert "| type" in printed and "| float64" in printed


def test_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])
    is_over = bench.deadline(10.0)
    assert not is_over()
    now[0] = 15.0
    assert is_over() and not bench.deadline(None)()
