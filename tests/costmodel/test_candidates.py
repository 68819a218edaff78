"""The summary of benchmarks/candidates.py, from lines as it writes them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.scripts import script

candidates = script("candidates")


def line(predicted: tuple[float, ...], measured: tuple[float, ...], default: float) -> object:
    configs = tuple({"template": "row", "threads": n} for n in range(len(measured)))
    return candidates.Line("p", "S0", default, predicted, measured, configs)


def test_the_estimate_is_judged_by_the_time_of_its_choice() -> None:
    found = line((10.0, 11.0, 12.0, 13.0), (22.0, 20.0, 25.0, 30.0), 25.0)
    assert found.of_estimate == pytest.approx(1.1)  # type: ignore[attr-defined]
    assert found.correlation == pytest.approx(0.8)  # type: ignore[attr-defined]
    text = candidates.summary([found])
    assert "| p | S0 | 4 | 0.80 | 1.10 | 1.25 |" in text
    assert "estimate: within 3 % of the fastest in 0 %, within 10 % in 100 %, 1.10 at most" in text


def test_equal_predictions_share_a_rank() -> None:
    assert candidates.rank_correlation((1, 1, 2), (5, 6, 7)) == pytest.approx(0.866, abs=1e-3)
    assert line((1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0), 1.0).correlation is None  # type: ignore[attr-defined]


def test_of_a_cpu_nothing_is_predicted() -> None:
    found = line((), (2.0, 1.0), 2.0)
    assert "| 2 |  |  | 2.00 |" in candidates.summary([found])


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    found = line((1.0, 2.0), (3.0, 4.0), 3.0)
    path.write_text(json.dumps(asdict(found)) + "\n")  # type: ignore[call-overload]
    assert candidates.read(path) == [found]
    assert candidates.read(tmp_path / "none") == []
