"""Measuring: batches, medians, turns."""

import time

import pytest

from tcdsl.runtime import timing
from tcdsl.runtime.timing import compare, format_us, measure


def test_a_sleep_takes_as_long_as_it_sleeps() -> None:
    slept = measure(lambda: time.sleep(2e-3), min_time_s=0.02)
    assert 2000 <= slept.median_us < 20_000
    assert slept.n >= 5 and slept.calls >= slept.n and slept.spread >= 0


class Clock:
    """A clock that goes on when it is told to, whatever else the machine does."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter(self) -> float:
        return self.now_ns * 1e-9

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def work(self, time_ns: int) -> None:
        self.now_ns += time_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing, "time", made)
    return made


def test_short_calls_are_batched(clock: Clock) -> None:
    short = measure(lambda: clock.work(1000), min_time_s=0.01)
    assert short.median_us == pytest.approx(1)
    assert short.calls > 100 * short.n


def test_repeats_fix_the_number_of_batches() -> None:
    assert measure(lambda: None, repeats=3).n == 3
    assert measure(lambda: None, repeats=1).spread == 0.0


def test_the_first_call_is_not_measured() -> None:
    calls = []

    def slow_at_first() -> None:
        calls.append(1)
        time.sleep(0.05 if len(calls) == 1 else 1e-3)

    assert measure(slow_at_first, repeats=5).median_us < 40_000


def test_comparison_takes_turns_and_gives_ratios(clock: Clock) -> None:
    order: list[str] = []

    def work(name: str, time_ns: int) -> None:
        order.append(name)
        clock.work(time_ns)

    result = compare(
        {"one": lambda: work("one", 2_000_000), "three": lambda: work("three", 6_000_000)},
        repeats=4,
    )
    assert order[-8:] == ["one", "three"] * 4
    assert result.ratios == {"one": 1.0, "three": pytest.approx(3.0)}
    assert result.timings["one"].median_us == pytest.approx(2000)
    assert result.timings["three"].median_us == pytest.approx(6000)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0.0421, "42.1 ns"), (1.0, "1 us"), (999.0, "999 us"), (1234.0, "1.23 ms"), (2.5e6, "2.5 s")],
)
def test_units(time_us: float, text: str) -> None:
    assert format_us(time_us) == text
