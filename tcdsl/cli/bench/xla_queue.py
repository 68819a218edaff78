"""The time between two events in XLA's stream, the second-level cache cold or warm.

    stream:  lead, lead, ...   | start | what the call launches | stop |
    host:       launches all of it while the GPU is still at the leads

``stopwatch.py`` does the same in streams that we can record in.  In XLA's, a custom call of a
program of its own records (``xla_ffi.py``).  Each program takes what the one before has made, so
that they come one after another however JAX sends them.  A lead reads and writes more than the
second-level cache.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from tcdsl.cli.bench.xla_ffi import in_stream
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import primary_context

MOST_CALLS = 12
_MOST_WAITING = 27  # leads and calls; with all else they are fewer than the 32 that JAX lets wait
_LEAD_BYTES = 1 << 29  # some 0.3 ms
_MARGIN = 1.5  # of the host's time, which varies
_TRIALS = 3

Launch = Callable[[Any], tuple[Any, ...]]  # arrays, made after an array of no meaning


class Clock(Protocol):
    """What can be told when the stream has come to it: functions of arrays to come after."""

    start: Callable[..., Any]
    stop: Callable[..., Any]
    was_late: bool  # the stream came to start before all up to stop was launched

    def elapsed_us(self) -> float: ...


class EventClock:
    """Two events of CUDA's in XLA's stream."""

    def __init__(self, jax: Any, platform: str = "CUDA") -> None:
        self._context = primary_context()
        with self._context.current():
            self._start, self._stop = libcuda.new_event(), libcuda.new_event()
        self.start = in_stream(jax, self._record_start, platform)
        self.stop = in_stream(jax, self._record_stop, platform)
        self.was_late = False

    def elapsed_us(self) -> float:
        """Return the time between the last start and the last stop, for which JAX has waited."""
        with self._context.current():
            libcuda.wait(self._stop)
            return libcuda.elapsed_us(self._start, self._stop)

    def _record_start(self, stream: int) -> None:
        with self._context.current():
            libcuda.record(self._start, stream)

    def _record_stop(self, stream: int) -> None:
        with self._context.current():
            libcuda.record(self._stop, stream)
            # Here, where all is launched for certain: JAX may launch in a thread of its own.
            self.was_late = libcuda.has_happened(self._start)


def most_leads(warm_calls: int) -> int:
    """Return how many leads may stand before so many calls."""
    return _MOST_WAITING - max(warm_calls, 1)


class Queue:
    """What is timed in XLA's stream by *clock*: leads, then calls."""

    def __init__(self, jax: Any, clock: Clock, lead_bytes: int = _LEAD_BYTES) -> None:
        self._jax = jax
        self._clock = clock
        self._again = jax.jit(lambda x: x + 1, donate_argnums=0)
        self._buffer = self._again(jax.numpy.zeros(lead_bytes // 4, "float32"))
        self.tick = clock.start(self._buffer)
        lead_us = min(self.time_us(self._lead, 1) for _ in range(_TRIALS))
        self.lead_us = max(lead_us, 1.0)

    def leads_for(self, call: Launch, warm_calls: int = 0) -> int:
        """Return how many leads outlast the host's launching of *call*."""
        host_us = min(self._launch(call, 0, warm_calls) for _ in range(_TRIALS))
        return min(most_leads(warm_calls), 1 + int(_MARGIN * host_us / self.lead_us))

    def time_us(self, call: Launch, leads: int, warm_calls: int = 0) -> float:
        """Return the time that the GPU takes for *call*, its inputs in memory.

        :arg leads: before it.  Where the GPU was done with them before the host had launched all,
            once more, with twice as many, as long as there may be more.
        :arg warm_calls: if any, it is the time of one of so many in a row, after another one that
            has fetched what fits the cache.
        """
        most = most_leads(warm_calls)
        while True:
            self._launch(call, leads, warm_calls)
            time_us = self._clock.elapsed_us() / max(warm_calls, 1)
            if not self._clock.was_late or leads >= most:
                return time_us
            leads = min(2 * leads, most)

    def wall_us(self, call: Launch, calls: int) -> float:
        """Return the time of one of *calls* calls by the host's clock, launching included."""
        self._jax.block_until_ready(self._buffer)
        start = time.perf_counter_ns()
        for _ in range(calls):  # what a call has made is free for the next one
            last = call(self.tick)
        self._jax.block_until_ready(last)
        return (time.perf_counter_ns() - start) * 1e-3 / calls

    def _launch(self, call: Launch, leads: int, warm_calls: int) -> float:
        """Launch all, wait for it, and return how long the host has launched what is timed."""
        self._jax.block_until_ready(self._buffer)
        for _ in range(leads):
            self._lead(None)
        begin = time.perf_counter_ns()
        tick = self._clock.start(self._buffer)
        if warm_calls:
            tick = self._clock.start(*call(tick))
        for _ in range(warm_calls or 1):
            last = call(tick)
        tick = self._clock.stop(*last)
        host_us = (time.perf_counter_ns() - begin) * 1e-3
        self._jax.block_until_ready((self._buffer, tick))
        return host_us

    def _lead(self, _: Any) -> tuple[Any, ...]:
        self._buffer = self._again(self._buffer)
        return (self._buffer,)
