"""The time between two events on a GPU, with a cold second-level cache."""

from collections.abc import Callable
from types import TracebackType

from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.cuda.state import state_of


class Stopwatch:
    """Times launches on *stream* of device *ordinal*."""

    def __init__(self, stream: int, flush_share: int, ordinal: int = 0) -> None:
        self._stream = stream
        self._context = primary_context(ordinal)
        self._size_bytes = flush_share * self._context.l2_bytes

    def __enter__(self) -> "Stopwatch":
        with self._context.current():
            pool = state_of(self._context).pool
            self._buffer = pool.take(self._size_bytes, self._stream, "the timer")
            self._events = libcuda.new_event(), libcuda.new_event()
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

    def time_us(self, fn: Callable[[], object]) -> float:
        """Return the time that the GPU takes for ``fn()``, or the host to launch it if longer."""
        start, end = self._events
        with self._context.current():
            # Long enough that the launches are all queued before the first one starts.
            libcuda.fill(self._buffer.address, 0, self._buffer.size_bytes, self._stream)
            libcuda.record(start, self._stream)
        fn()
        with self._context.current():
            libcuda.record(end, self._stream)
            libcuda.wait(end)
            return libcuda.elapsed_us(start, end)
