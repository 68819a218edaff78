"""Bounded work in isl, for one thread at a time.

All objects live in islpy's default context.  Python's interpreter lock serialises single calls, but
quotas and options belong to the whole context, so that whoever sets them holds ``ISL_LOCK``.
"""

import os
import threading
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

    :arg seconds: stop it then too, at its next call from Python; 0: no bound.
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
        return f"more than {seconds:g} s"
    return f"more than {operations} operations"


class _Timer:
    """Takes isl's quota away after some seconds: its next operation fails."""

    def __init__(self, seconds: float) -> None:
        self.has_rung = False
        self._is_cancelled = False
        self._lock = threading.Lock()
        self._thread = threading.Timer(seconds, self._ring)
        self._thread.daemon = True
        self._thread.start()

    def _ring(self) -> None:
        # Not after the block: it would take the quota of whoever works then.
        with self._lock:
            if not self._is_cancelled:
                self.has_rung = True
                isl.DEFAULT_CONTEXT.set_max_operations(1)

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
        self._thread.cancel()
