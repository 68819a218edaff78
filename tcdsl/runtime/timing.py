"""Measuring how long calls take: medians over batches, and fair comparisons.

A batch is as many calls as take about a millisecond, so that the clock's cost vanishes.  The
median of the batches resists what else the machine does; the spread (the middle half of them,
relative to the median) says how much to believe it.  Callables that are compared take turns,
batch by batch, so that a slow second of the machine hits all of them alike.  On a GPU a batch is
one run between two events with a cold cache, or many with a warm one.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tcdsl.records import dataclass

if TYPE_CHECKING:
    from tcdsl.runtime.cuda.stopwatch import Stopwatch

_BATCH_S = 1e-3
_MIN_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one call: the median of *n* batches, and (q3 - q1) / median of them."""

    median_us: float
    spread: float
    n: int
    calls: int  # in all batches together

    def __str__(self) -> str:
        return f"{format_us(self.median_us)} ± {100 * self.spread:.0f} %"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Timings of several callables that took turns, with the first one as the baseline."""

    timings: Mapping[str, Timing]
    ratios: Mapping[str, float]  # median over the rounds of time / the baseline's time


def format_us(time_us: float) -> str:
    """Return *time_us* with three digits and a fitting unit."""
    for unit, scale in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if time_us >= scale:
            return f"{time_us / scale:.3g} {unit}"
    return f"{time_us * 1e3:.3g} ns"


def measure(fn: Callable[[], object], min_time_s: float = 0.2, repeats: int = 0) -> Timing:
    """Return the time of ``fn()``, measured for *min_time_s*, or in exactly *repeats* batches.

    *fn* runs once before, unmeasured, so that compilation and first touches do not count.
    """
    calls = _calls_per_batch(fn)
    batches: list[float] = []
    stop = time.perf_counter() + min_time_s
    while not _is_enough(len(batches), repeats, stop):
        batches.append(_batch_us(fn, calls))
    return _timing(batches, calls)


def compare(
    fns: Mapping[str, Callable[[], object]], min_time_s: float = 0.2, repeats: int = 0
) -> Comparison:
    """Return the times of *fns*, measured in turns for *min_time_s* each on average."""
    calls = {name: _calls_per_batch(fn) for name, fn in fns.items()}
    batches: dict[str, list[float]] = {name: [] for name in fns}
    baseline = next(iter(fns))
    stop = time.perf_counter() + min_time_s * len(fns)
    while not _is_enough(len(batches[baseline]), repeats, stop):
        for name, fn in fns.items():
            batches[name].append(_batch_us(fn, calls[name]))
    timings = {name: _timing(times, calls[name]) for name, times in batches.items()}
    ratios = {name: _median_ratio(times, batches[baseline]) for name, times in batches.items()}
    return Comparison(timings, ratios)


# --- kernels -------------------------------------------------------------------------------

_FLUSH_SHARE = 2  # times the second-level cache: what is written to push everything out of it
_WARM_UP = 3
_WARM_CALLS, _WARM_US = 20, 400.0  # at most, between two events, where the cache is to be warm
_OTHERS_TURN = 4  # rounds: those that measure themselves take milliseconds
_MIN_ROUNDS = 20  # where there are such


def measure_cuda(
    fn: Callable[[], object], min_time_s: float = 0.2, repeats: int = 0, stream: int = 0
) -> Timing:
    """Return the time that a GPU takes for ``fn()``, between events on *stream*.

    Before each run the second-level cache is filled with something else, so that the inputs come
    from memory.  *fn* must launch on *stream*, the default one or its handle.
    """
    timings = compare_cuda({"": fn}, min_time_s, repeats, stream).timings
    return timings[""]


def compare_cuda(
    fns: Mapping[str, Callable[[], object]],
    min_time_s: float = 0.2,
    repeats: int = 0,
    stream: int = 0,
    *,
    flush: bool = True,
    others: Mapping[str, Callable[[], float]] | None = None,
) -> Comparison:
    """Return the times of *fns* on the current GPU, run in turns; see :func:`measure_cuda`.

    :arg flush: False leaves the cache warm: a time is then that of one of many runs in a row.
    :arg others: what measures itself, and returns microseconds: it takes every fourth turn.
    """
    from tcdsl.runtime.cuda.stopwatch import Stopwatch

    others = others or {}
    times: dict[str, list[float]] = {name: [] for name in (*fns, *others)}
    baseline = next(iter(times))
    least = _MIN_ROUNDS if others else _MIN_BATCHES
    with Stopwatch(stream, _FLUSH_SHARE) as stopwatch:
        samplers = {name: _sampler(stopwatch, fn, flush) for name, fn in fns.items()}
        stopwatch.wait()
        stop = time.perf_counter() + min_time_s * len(times)
        n_rounds = 0
        while not _is_enough(n_rounds, repeats, stop, least):
            for name, measured in samplers.items():
                times[name].append(measured())
            if n_rounds % _OTHERS_TURN == 0:
                for name, measured in others.items():
                    times[name].append(measured())
            n_rounds += 1
    timings = {name: _timing(found, 1) for name, found in times.items()}
    ratios = {name: _median_ratio(found, times[baseline]) for name, found in times.items()}
    return Comparison(timings, ratios)


def _sampler(
    stopwatch: "Stopwatch", fn: Callable[[], object], flush: bool
) -> Callable[[], float]:  # fmt: skip
    """Return what measures one run of *fn*, which has warmed up."""
    for _ in range(_WARM_UP):
        fn()
    lead = stopwatch.lead_for(fn)
    if flush:
        return lambda: stopwatch.time_us(fn, lead)
    wanted = int(_WARM_US / max(stopwatch.time_us(fn, lead), 1.0))
    calls = max(1, min(_WARM_CALLS, wanted, stopwatch.most_calls(lead)))
    return lambda: stopwatch.time_warm_us(fn, calls, lead)


def _is_enough(n_batches: int, repeats: int, stop: float, least: int = _MIN_BATCHES) -> bool:
    if repeats:
        return n_batches >= repeats
    return n_batches >= least and time.perf_counter() >= stop


def _calls_per_batch(fn: Callable[[], object]) -> int:
    """Return how many calls fill a batch, after warming up: doubled until they do."""
    fn()
    calls = 1
    while True:
        elapsed_s = _batch_us(fn, calls) * calls * 1e-6
        if elapsed_s >= _BATCH_S or calls >= 1 << 20:
            return calls
        calls *= 2


def _batch_us(fn: Callable[[], object], calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        fn()
    return (time.perf_counter_ns() - start) * 1e-3 / calls


def _timing(batches: list[float], calls: int) -> Timing:
    median = statistics.median(batches)
    if len(batches) < 2:
        return Timing(median, 0.0, len(batches), calls * len(batches))
    lower, _, upper = statistics.quantiles(batches, n=4, method="inclusive")
    spread = (upper - lower) / median if median else 0.0
    return Timing(median, spread, len(batches), calls * len(batches))


def _median_ratio(times: list[float], baseline: list[float]) -> float:
    """Return the median of the rounds' ratios: each compares neighbours in time.

    Who did not take part in each round is compared by the medians.
    """
    if len(times) != len(baseline):
        return statistics.median(times) / max(statistics.median(baseline), 1e-9)
    return statistics.median(
        mine / max(theirs, 1e-9) for mine, theirs in zip(times, baseline, strict=True)
    )
