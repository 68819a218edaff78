"""The time between two events on a GPU, the second-level cache cold or warm.

    stream:  fill, fill, ...      | start | what fn() launches | end |
    host:       launches all of it while the GPU still fills

The fills push everything else out of the cache, and last until the host has launched the whole of
``fn()``: what is measured is the GPU's work alone, whatever Python takes to ask for it.
"""

import time
from collections.abc import Callable
from types import TracebackType

from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.cuda.state import state_of

_MOST_FILLS = 64  # some 2 ms
_MARGIN = 1.5  # of the host's time, which varies
_TRIALS = 3


class Stopwatch:
    """Times launches on *stream* of device *ordinal*."""

    def __init__(self, stream: int, flush_share: int, ordinal: int = 0) -> None:
        self._stream = stream
        self._context = primary_context(ordinal)
        self._size_bytes = flush_share * self._context.l2_bytes
        self._was_late = False  # the last run began before all of it was launched

    def __enter__(self) -> "Stopwatch":
        with self._context.current():
            pool = state_of(self._context).pool
            self._buffer = pool.take(self._size_bytes, self._stream, "the timer")
            self._events = libcuda.new_event(), libcuda.new_event()
        self._fill(_MOST_FILLS)  # until the clocks are up
        self._fill_us = min(self._between_us(lambda: self._fill(1)) for _ in range(_TRIALS))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._context.current():
            for event in self._events:
                libcuda.destroy_event(event)
            state_of(self._context).pool.give_back(self._buffer, self._stream)

    def wait(self) -> None:
        """Wait until the stream is idle."""
        with self._context.current():
            libcuda.synchronize(self._stream)

    def lead_for(self, fn: Callable[[], object]) -> int:
        """Return how many fills outlast the host's launching of ``fn()``."""
        host_us = min(self._launching_us(fn) for _ in range(_TRIALS))
        return min(_MOST_FILLS, 1 + int(_MARGIN * host_us / max(self._fill_us, 1.0)))

    def most_calls(self, lead: int) -> int:
        """Return how many calls with that *lead* can be hidden behind fills, at least one."""
        return max(1, _MOST_FILLS // lead)

    def time_us(self, fn: Callable[[], object], lead: int = 1) -> float:
        """Return the time that the GPU takes for ``fn()``, its inputs in memory.

        :arg lead: fills before it.  Where the GPU was done with them before the host had launched
            all, which happens on a busy machine, the time is the host's: once more, with twice as
            many, as long as there may be more.
        """
        while True:
            self._fill(lead)
            time_us = self._between_us(fn)
            if not self._was_late or lead >= _MOST_FILLS:
                return time_us
            lead *= 2

    def time_warm_us(self, fn: Callable[[], object], calls: int, lead: int = 1) -> float:
        """Return the time that the GPU takes for each of *calls* calls, one right after another.

        Where the host was too late it is measured once more with half as many calls, and a single
        one with twice as many fills.
        """
        while True:
            self._fill(lead * calls)
            fn()  # fetches what fits the cache
            time_us = self._between_us(_repeated(fn, calls)) / calls
            if not self._was_late or (calls == 1 and lead >= _MOST_FILLS):
                return time_us
            lead, calls = (lead, calls // 2) if calls > 1 else (lead * 2, 1)

    def _launching_us(self, fn: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter_ns()
        fn()
        return (time.perf_counter_ns() - start) * 1e-3

    def _fill(self, count: int) -> None:
        with self._context.current():
            for _ in range(min(count, _MOST_FILLS)):
                libcuda.fill(self._buffer.address, 0, self._buffer.size_bytes, self._stream)

    def _between_us(self, fn: Callable[[], object]) -> float:
        start, end = self._events
        with self._context.current():
            libcuda.record(start, self._stream)
        fn()
        with self._context.current():
            self._was_late = libcuda.has_happened(start)
            libcuda.record(end, self._stream)
            libcuda.wait(end)
            return libcuda.elapsed_us(start, end)


def _repeated(fn: Callable[[], object], calls: int) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(calls):
            fn()

    return repeat
