"""The latency table of the GPU, its processes replaced."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tcdsl.cli.bench import device_latency, latency

TIMES = {
    device_latency.BARE: 6.0,
    "bound call, torch": 7.5,
    "checked call, torch, out=": 12.0,
    "torch.add, out=": 9.0,
}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, tuple[str, ...]]]:
    """What was run, instead of running it: every first result takes a millisecond a case."""
    ran: list[tuple[str, Path, tuple[str, ...]]] = []

    def run_script(script: str, cache: Path, *words: str) -> list[float]:
        ran.append((script, cache, words))
        return [1000.0 for word in words if word != "warm"] or [20_000.0]

    def run_process(script: str, cache: Path) -> str:
        compile(script, "calls", "exec")
        return json.dumps(TIMES)

    monkeypatch.setattr(device_latency, "run_script", run_script)
    monkeypatch.setattr(device_latency, "run_process", run_process)
    monkeypatch.setattr(device_latency, "open_device", lambda: None)
    return ran


def test_the_table_has_every_measurement(scripts: list[Any]) -> None:
    console = Console(width=200, record=True)
    assert device_latency.report(console) == 0
    lines = [line for line in console.export_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = {row[0]: row[1:] for row in cells[2:]}
    assert rows["import tcdsl"] == ["20 ms", "", "150 ms"]
    assert rows["bound call, torch, 64 elements"] == ["7.5 us", "1.25", "1.2"]
    assert rows["checked call, torch, out=, 64 elements"] == ["12 us", "2.00", "2.5"]
    assert rows["torch.add, out=, 64 elements"][1:] == ["1.50", ""]
    fresh = f"string to first result, softmax, {device_latency.FRESH_CACHED}"
    assert rows[fresh] == ["1 ms", "", "60 ms"]
    states = (latency.FRESH, latency.COMPILED, latency.CACHED, device_latency.FRESH_CACHED)
    for state in states:
        assert f"string to first result, softmax, {state}" in rows


def test_what_is_not_cached_has_a_cache_of_its_own(scripts: list[Any]) -> None:
    device_latency.first_results(["tmm", "softmax"])
    by_folder: dict[Path, list[tuple[str, ...]]] = {}
    for _, folder, words in scripts:
        by_folder.setdefault(folder, []).append(words)
    runs = sorted(tuple(found) for found in by_folder.values())
    one_round = [
        (("softmax",), ("softmax",)),
        (("tmm",), ("tmm",)),
        (("warm", "tmm", "softmax"), ("warm", "tmm", "softmax")),
    ]
    assert runs == sorted(one_round * device_latency.REPEATS)


def test_the_scripts_are_python() -> None:
    compile(device_latency.FIRST_RESULTS, "first", "exec")


@pytest.mark.gpu
def test_calls_on_a_gpu() -> None:
    pytest.importorskip("torch")
    times = device_latency.call_times()
    assert times[device_latency.BARE] > 0
    assert {"bound call, torch", "checked call, GPUArray"} < set(times)
    assert any("a number" in name for name in times)


@pytest.mark.gpu
def test_first_results_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = latency.run_script(device_latency.FIRST_RESULTS, tmp_path, "warm", "tmm", "softmax")
    assert len(found) == 2 and min(found) > 0
