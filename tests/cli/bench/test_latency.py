from pathlib import Path

import pytest

from tcdsl.cli.bench import latency
from tcdsl.library import case


@pytest.mark.slow
def test_scripts_print_positive_numbers(tmp_path: Path) -> None:
    assert latency.run_script(latency.IMPORT, tmp_path)[0] > 0
    first, *rest = latency.run_script(latency.FIRST_RESULT, tmp_path / "cache", "tmm", "warm")
    assert first > 0
    assert rest == []


@pytest.mark.slow
def test_the_second_time_comes_from_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latency, "REPEATS", 1)
    times = latency.first_results("tmm")
    assert times[latency.CACHED] < times[latency.COMPILED]
    assert times[latency.FRESH] > 0


def test_the_largest_case_is_in_the_library() -> None:
    largest = latency.largest_case()
    assert case(largest.name) == largest
