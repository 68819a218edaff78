"""First calls: from the text on, nothing cached, whatever the process had before."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.cli.bench import peers
from tcdsl.cli.bench.first_call import (
    TOO_LONG_S,
    first_calls_text,
    nothing_cached,
    run_another,
    time_first_call,
)
from tcdsl.cli.bench.peers import Host
from tcdsl.cli.bench.report import Row
from tcdsl.errors import TCError
from tcdsl.library import case
from tcdsl.runtime.cache import default_cache

Tcdsl = Callable[..., tuple[int, str, str]]
PLACE = Host("cpu", bound=False)
WORK = (case("all_max"), {"N": 7}, "float32")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.Host, "sizes", lambda place, case, dtype: case.small_sizes[-1:])


def row(name: str, first_s: float) -> Row:
    return Row(name, "graph", "float32", {"N": 3}, first_s={"tcdsl": first_s})


def test_it_is_compiled_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    run_another(PLACE)
    for _ in range(2):
        found = time_first_call(WORK, PLACE)
        assert found.problems == () and found.times_us == {}
        assert found.first_s["tcdsl"] > 1e-3
    assert os.environ["TCDSL_CACHE_DIR"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_empty_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCDSL_CACHE_DIR", raising=False)
    with nothing_cached():
        folder = default_cache().root
        assert folder is not None and list(folder.iterdir()) == []
    assert not folder.exists() and "TCDSL_CACHE_DIR" not in os.environ


def test_inputs_are_there_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    inputs = Host.inputs

    def made(place: Host, *words: object) -> object:
        steps.append("inputs")
        return inputs(place, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Host, "inputs", made)
    monkeypatch.setattr(Host, "wait", lambda place: steps.append("wait"))
    time_first_call(WORK, PLACE)
    assert steps == ["inputs", "wait", "wait"]


def test_what_fails_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TCError("no room", code="TC071")

    monkeypatch.setattr(Host, "inputs", fail)
    assert time_first_call(WORK, PLACE).problems == ("tcdsl: error[TC071]: no room",)


def test_the_longest_come_first_and_too_long_ones_are_counted() -> None:
    text = first_calls_text([row("a", 0.1), row("b", TOO_LONG_S + 0.1), row("c", 0.3)])
    assert text.startswith("1 of 3 first calls take more than 0.6 s, the median is 300 ms.")
    assert [line[2] for line in text.splitlines()[4:]] == ["b", "c", "a"]
    assert first_calls_text([Row("a", "graph", "float32", {})]) == "no first call was timed"


# --- the command -----------------------------------------------------------------------------


def test_a_table_of_first_calls(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    words = ("bench", "all_max", "all_min", "--first-call", "--lines", path)
    code, printed, _ = tcdsl(*words)
    assert code == 0
    assert "of 2 first calls take more than" in printed and "| all_max" in printed
    rows = [json.loads(line).get("row") for line in path.read_text().splitlines()]
    assert [one["case"] for one in rows if one] == ["all_max", "all_min"]
    assert f"2 of 2 are in {path}" in tcdsl(*words)[1]
    page = tcdsl("bench", "--from", path)[1]
    assert "## First calls, nothing cached" in page and "Cold cache" not in page


def test_it_ends_at_the_limit_and_goes_on_elsewhere(tcdsl: Tcdsl) -> None:
    code, printed, _ = tcdsl("bench", "all_max", "--first-call", "--limit", "0")
    assert code == 0
    assert "timed 0 of 1; without a turn:" in printed and "all_max float32" in printed
