"""Timing on a GPU without one: a driver whose clock the tests move."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tcdsl.runtime import timing
from tcdsl.runtime.cuda import libcuda, stopwatch
from tcdsl.runtime.cuda.stopwatch import Stopwatch

FILL_US = 40.0


class Driver:
    """A stream that does what it is given one after another, the host's clock apart."""

    def __init__(self) -> None:
        self.host_us = 0.0
        self.free_us = 0.0  # when the stream has done all that it was given
        self.fills = 0
        self.marks: dict[int, float] = {}

    def launch(self, host_us: float, gpu_us: float) -> None:
        self.host_us += host_us
        self.free_us = max(self.free_us, self.host_us) + gpu_us

    def fill(self, address: int, byte: int, size_bytes: int, stream: int) -> None:
        self.fills += 1
        self.launch(2.0, FILL_US)

    def record(self, event: int, stream: int) -> None:
        self.launch(1.0, 0.0)
        self.marks[event] = self.free_us

    def wait(self, _: int) -> None:
        self.host_us = max(self.host_us, self.free_us)

    def has_happened(self, event: int) -> bool:
        return self.marks[event] <= self.host_us

    def elapsed_us(self, start: int, end: int) -> float:
        return self.marks[end] - self.marks[start]


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    events = iter(range(1000))
    for name in ("fill", "record", "wait", "has_happened", "elapsed_us"):
        monkeypatch.setattr(libcuda, name, getattr(made, name))
    monkeypatch.setattr(libcuda, "synchronize", made.wait)
    monkeypatch.setattr(libcuda, "new_event", lambda: next(events))
    monkeypatch.setattr(libcuda, "destroy_event", lambda event: None)
    pool = SimpleNamespace(
        take=lambda size, stream, what: SimpleNamespace(address=0, size_bytes=size),
        give_back=lambda block, stream: None,
    )
    monkeypatch.setattr(stopwatch, "state_of", lambda context: SimpleNamespace(pool=pool))
    context = SimpleNamespace(current=nothing, l2_bytes=50 << 20)
    monkeypatch.setattr(stopwatch, "primary_context", lambda ordinal: context)
    clock = SimpleNamespace(
        perf_counter_ns=lambda: made.host_us * 1e3, perf_counter=time.perf_counter
    )
    monkeypatch.setattr(stopwatch, "time", clock)
    return made


def slow_to_launch(driver: Driver) -> Callable[[], None]:
    """Ten launches that take the host 200 us and the GPU 30 us."""
    return lambda: [driver.launch(20.0, 3.0) for _ in range(10)] and None


def test_the_hosts_time_is_hidden_behind_the_fills(driver: Driver) -> None:
    fn = slow_to_launch(driver)
    with Stopwatch(0, 2) as watch:
        lead = watch.lead_for(fn)
        assert watch.time_us(fn, lead) == pytest.approx(30.0)
        driver.wait(0)
        before = driver.fills
        assert watch.time_us(fn, 1) == pytest.approx(30.0)  # too few: once more, with more
        assert driver.fills - before == 1 + 2 + 4 + 8
        driver.wait(0)
        assert watch.time_warm_us(fn, 2, lead) == pytest.approx(30.0)


def test_there_is_a_most_of_fills(driver: Driver) -> None:
    with Stopwatch(0, 2) as watch:
        assert watch.lead_for(lambda: driver.launch(1e6, 1.0)) == stopwatch._MOST_FILLS
        before = driver.fills
        watch.time_warm_us(lambda: None, 1000, 5)
        assert driver.fills - before == stopwatch._MOST_FILLS


@pytest.mark.parametrize("flush", [True, False])
def test_what_measures_itself_takes_some_of_the_turns(driver: Driver, flush: bool) -> None:
    turns: list[str] = []

    def call(name: str, gpu_us: float) -> Callable[[], None]:
        def run() -> None:
            turns.append(name)
            driver.launch(5.0, gpu_us)

        return run

    def other() -> float:
        turns.append("jax")
        return 8.0

    fns: dict[str, Any] = {"tcdsl": call("tcdsl", 4.0), "torch": call("torch", 6.0)}
    found = timing.compare_cuda(fns, repeats=8, flush=flush, others={"jax": other})
    medians = {name: one.median_us for name, one in found.timings.items()}
    assert medians["tcdsl"] == pytest.approx(4.0)
    assert medians["torch"] == pytest.approx(6.0)
    assert found.ratios == pytest.approx({"tcdsl": 1.0, "torch": 1.5, "jax": 2.0})
    assert (found.timings["tcdsl"].n, found.timings["jax"].n) == (8, 2)
    assert turns.index("jax") < len(turns) - 1 - turns[::-1].index("tcdsl")


def test_it_may_be_alone(driver: Driver) -> None:
    found = timing.compare_cuda({}, 1e-4, others={"jax": lambda: 3.0})
    assert found.timings["jax"].median_us == 3.0 and found.timings["jax"].n >= 5


def test_one_call_is_measured_alone(driver: Driver) -> None:
    assert timing.measure_cuda(lambda: driver.launch(1.0, 7.0), repeats=3).median_us == 7.0
