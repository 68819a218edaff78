"""Measuring: batches, medians, turns."""

import time

import pytest

from tcdsl.runtime.timing import compare, format_us, measure


def test_a_sleep_takes_as_long_as_it_sleeps() -> None:
    timing = measure(lambda: time.sleep(2e-3), min_time_s=0.02)
    assert 2000 <= timing.median_us < 20_000
    assert timing.n >= 5 and timing.calls >= timing.n and timing.spread >= 0


def test_short_calls_are_batched() -> None:
    timing = measure(lambda: None, min_time_s=0.01)
    assert timing.median_us < 50
    assert timing.calls > 100 * timing.n


def test_repeats_fix_the_number_of_batches() -> None:
    assert measure(lambda: None, repeats=3).n == 3
    assert measure(lambda: None, repeats=1).spread == 0.0


def test_the_first_call_is_not_measured() -> None:
    calls = []

    def slow_at_first() -> None:
        calls.append(1)
        time.sleep(0.05 if len(calls) == 1 else 1e-3)

    assert measure(slow_at_first, repeats=5).median_us < 40_000


def test_comparison_takes_turns_and_gives_ratios() -> None:
    order: list[str] = []

    def sleeper(name: str, time_s: float) -> None:
        order.append(name)
        time.sleep(time_s)

    result = compare(
        {"one": lambda: sleeper("one", 2e-3), "three": lambda: sleeper("three", 6e-3)}, repeats=4
    )
    assert order[-8:] == ["one", "three"] * 4
    assert result.ratios["one"] == 1.0
    assert 1.5 < result.ratios["three"] < 5
    assert result.timings["three"].median_us > result.timings["one"].median_us


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0.0421, "42.1 ns"), (1.0, "1 us"), (999.0, "999 us"), (1234.0, "1.23 ms"), (2.5e6, "2.5 s")],
)
def test_units(time_us: float, text: str) -> None:
    assert format_us(time_us) == text
