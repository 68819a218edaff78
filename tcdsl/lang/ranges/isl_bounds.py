"""Bounded work in isl, for one thread at a time.

All objects live in islpy's default context.  Python's interpreter lock serialises single calls, but
quotas and options belong to the whole context, so that whoever sets them holds ``ISL_LOCK``.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

ISL_LOCK = threading.RLock()
# A fork waits for a thread that compiles: its child would find the lock taken, by nobody.
os.register_at_fork(
    before=ISL_LOCK.acquire,
    after_in_parent=ISL_LOCK.release,
    after_in_child=ISL_LOCK.release,
)


class QuotaExceededError(Exception):
    """isl was stopped: it has taken all the operations, or all the time, that it was allowed."""


@contextmanager
def bounded(operations: int, seconds: float = 0) -> Iterator[None]:
    """Stop isl after *operations* basic steps (some ten million a second); 0: no bound.

    :arg seconds: of this thread's work: stop it then too, at its next call from Python; 0: none.
    :raises QuotaExceededError: whatever the block did with the error: isl reports an exhausted
        quota as null pointers, which some wrappers turn into None, or into False.
    """
    context = isl.DEFAULT_CONTEXT
    with ISL_LOCK:
        outer = context.get_max_operations()
        context.reset_operations()
        context.set_max_operations(operations)
        timer = _Timer(seconds) if seconds else None
        try:
            yield
        except Exception as error:
            if _is_exhausted():
                raise QuotaExceededError(_why(operations, seconds, timer)) from error
            raise
        else:
            if _is_exhausted():
                raise QuotaExceededError(_why(operations, seconds, timer))
        finally:
            if timer is not None:
                timer.cancel()
            context.set_max_operations(outer)
            context.reset_operations()


def _is_exhausted() -> bool:
    """Return whether isl refuses to work: every allocation counts as an operation."""
    try:
        isl.Val.int_from_si(isl.DEFAULT_CONTEXT, 1)
    except isl.Error:
        return True
    return False


def _why(operations: int, seconds: float, timer: "_Timer | None") -> str:
    if timer is not None and timer.has_rung:
        return f"more than {seconds:g} s of processor time"
    return f"more than {operations} operations"


_LEAST_WAIT_S = 0.005


def _clock_of_this_thread() -> int:
    """Return the clock of this thread's work, as any thread may read it; else that of the wall."""
    if sys.platform == "linux":
        return time.pthread_getcpuclockid(threading.get_ident())
    return time.CLOCK_MONOTONIC


class _Timer:
    """Takes isl's quota away after some seconds of this thread's work: its next operation fails.

    Of work, not by the clock: where many processes share the processors, plans are what they are
    elsewhere.  The clock says when to look, for work takes at least as long.
    """

    def __init__(self, seconds: float) -> None:
        self.has_rung = False
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._clock = _clock_of_this_thread()
        self._end = time.clock_gettime(self._clock) + seconds
        threading.Thread(target=self._watch, daemon=True).start()

    def _left(self) -> float:
        """Return the seconds of work that are left; 0 where the thread has ended."""
        try:
            return self._end - time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def _watch(self) -> None:
        while (left := self._left()) > 0:
            if self._cancelled.wait(max(left, _LEAST_WAIT_S)):
                return
        # Not after the block: it would take the quota of whoever works then.
        with self._lock:
            if not self._cancelled.is_set():
                self.has_rung = True
                isl.DEFAULT_CONTEXT.set_max_operations(1)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled.set()
