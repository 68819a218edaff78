"""Times between events in XLA's stream: a stream whose clock the tests move, and JAX here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tcdsl.cli.bench import jax_calls, xla_ffi, xla_queue
from tcdsl.cli.bench.xla_queue import MOST_CALLS, EventClock, Queue, most_leads
from tcdsl.runtime.cuda import libcuda

LEAD_US = 250.0


class Stream:
    """JAX and two events: all that is launched is done in turn, the host's clock apart."""

    def __init__(self) -> None:
        self.host_us = self.free_us = 0.0
        self.leads = self.waiting = self.most_waiting = 0
        self.was_late = False
        self.marks = [0.0, 0.0]
        self.numpy = SimpleNamespace(zeros=lambda count, dtype: "buffer")

    def launch(self, host_us: float, gpu_us: float) -> tuple[str]:
        self.host_us += host_us
        self.free_us = max(self.free_us, self.host_us) + gpu_us
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        return ("result",)

    def jit(self, function: Any, donate_argnums: int) -> Callable[[Any], Any]:
        def lead(buffer: Any) -> Any:
            self.leads += 1
            self.launch(20.0, LEAD_US)
            return buffer

        return lead

    def block_until_ready(self, _: Any) -> None:
        self.host_us = max(self.host_us, self.free_us)
        self.waiting = 0

    def start(self, *after: Any) -> str:
        self.launch(40.0, 0.0)
        self.marks[0] = self.free_us
        return "tick"

    def stop(self, *after: Any) -> str:
        self.launch(40.0, 0.0)
        self.marks[1] = self.free_us
        self.was_late = self.marks[0] <= self.host_us
        return "tick"

    def elapsed_us(self) -> float:
        return self.marks[1] - self.marks[0]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    clock = SimpleNamespace(perf_counter_ns=lambda: made.host_us * 1e3)
    monkeypatch.setattr(xla_queue, "time", clock)
    return made


def test_the_time_of_a_call_is_without_the_leads_and_the_host(stream: Stream) -> None:
    queue = Queue(stream, stream)
    assert queue.lead_us == LEAD_US

    def call(_: Any) -> tuple[str]:
        return stream.launch(600.0, 8.0)

    leads = queue.leads_for(call)
    assert leads == 1 + int(1.5 * 680 / LEAD_US)
    before = stream.leads
    assert queue.time_us(call, leads) == pytest.approx(8.0)
    assert stream.leads - before == leads and not stream.was_late
    assert queue.time_us(call, 1) == pytest.approx(8.0)  # too few: once more, with more
    assert stream.leads - before == leads + 1 + 2 + 4


def test_one_of_many_in_a_row_comes_after_one_that_is_not_timed(stream: Stream) -> None:
    queue = Queue(stream, stream)
    gpu_us = iter([90.0] + [3.0] * 5)
    assert queue.time_us(lambda _: stream.launch(9.0, next(gpu_us)), 4, 5) == pytest.approx(3.0)


@pytest.mark.parametrize("warm_calls", [0, 1, MOST_CALLS])
def test_it_does_not_fill_jaxs_queue(stream: Stream, warm_calls: int) -> None:
    queue = Queue(stream, stream)

    def slow(_: Any) -> tuple[str]:
        return stream.launch(1e6, 1.0)

    leads = queue.leads_for(slow, warm_calls)
    assert leads == most_leads(warm_calls)
    assert queue.time_us(slow, 1, warm_calls) > 0 and stream.was_late  # no more is to be had
    assert stream.most_waiting < 32


def test_a_users_time_has_the_launching_in_it(stream: Stream) -> None:
    queue = Queue(stream, stream)
    wall_us = queue.wall_us(lambda _: stream.launch(30.0, 5.0), 10)
    assert wall_us == pytest.approx(30.0, abs=1.0)


# --- the events ------------------------------------------------------------------------------


class Driver:
    """What has been asked of the driver, always with the context current."""

    def __init__(self) -> None:
        self.is_current = self.has_begun = False
        self.asked: list[tuple[Any, ...]] = []
        self.answers: dict[str, Callable[[], Any]] = {
            "new_event": lambda: len(self.asked) - 1,
            "record": lambda: None,
            "has_happened": lambda: self.has_begun,
            "wait": lambda: None,
            "elapsed_us": lambda: 7.0,
        }

    @contextmanager
    def current(self) -> Iterator[None]:
        self.is_current = True
        yield
        self.is_current = False

    def ask(self, name: str, *arguments: Any) -> Any:
        assert self.is_current
        self.asked.append((name, *arguments))
        return self.answers[name]()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    for name in made.answers:
        monkeypatch.setattr(libcuda, name, partial(made.ask, name))
    context = SimpleNamespace(current=made.current)
    monkeypatch.setattr(xla_queue, "primary_context", lambda: context)
    return made


def test_the_events_are_recorded_in_xlas_stream(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_queue, "in_stream", lambda jax, act, platform: act)
    clock = EventClock(None)
    assert driver.asked == [("new_event",)] * 2
    del driver.asked[:]
    clock.start(70)
    clock.stop(70)
    assert not clock.was_late and clock.elapsed_us() == 7.0
    records = [("record", 0, 70), ("record", 1, 70), ("has_happened", 0)]
    assert driver.asked == [*records, ("wait", 1), ("elapsed_us", 0, 1)]
    driver.has_begun = True
    clock.stop(70)
    assert clock.was_late


def test_xla_comes_to_them_around_the_call(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    jax = jax_calls.import_jax()
    if jax.default_backend() != "cpu":
        pytest.skip("JAX does not compute on this processor")
    monkeypatch.setattr(xla_ffi, "stream_of", lambda frame: (70, 0))
    queue = Queue(jax, EventClock(jax, "cpu"), lead_bytes=1 << 12)

    def host(x: Any) -> Any:
        driver.asked.append(("call",))
        return x

    work = jax.jit(lambda x, *after: (jax.pure_callback(host, x, x),), keep_unused=True)
    x = jax.numpy.ones(8)
    del driver.asked[:]
    assert queue.time_us(lambda tick: work(x, tick), leads=2) == 7.0
    records = [("record", 0, 70), ("call",), ("record", 1, 70), ("has_happened", 0)]
    assert driver.asked == [*records, ("wait", 1), ("elapsed_us", 0, 1)]


def test_a_lead_takes_time_here_too(host_queue: Queue) -> None:
    assert host_queue.lead_us > 1.0
    before = host_queue._buffer
    host_queue.time_us(lambda tick: (tick,), leads=3)
    assert before.is_deleted()  # given to the lead, which writes on it
    assert not host_queue._buffer.is_deleted()
