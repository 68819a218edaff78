"""What the calls of one function go through, once they are known.

    f(x[64, 8])     compiled for N = 64       by the signature: types, shapes, devices
    f(x[65, 8])     N is open from now on     by the signature
    f(x[66, 8])     a size that is new        by the form: the signature without extents

Of a form the last size alone is kept (``cpu_sized``, ``runtime/cuda/sized_calls``), so that all
sizes but those of the calls that were made in full go the same way.
"""

from collections.abc import Sequence
from typing import Any

from tcdsl.executable.base import Executable, Run, SizedCalls
from tcdsl.runtime.warm_path import MISSING, form_of, is_dense, remember, shapes_of

_MOST_SIZED = 8  # classes of sizes that calls of one form are looked for in


class KnownCalls:
    """Calls by their keys, whose first part is the signature of the arguments."""

    def __init__(self) -> None:
        self.runs: dict[Any, Run] = {}
        self._sized: dict[Any, list[SizedCalls]] = {}
        self._last: tuple[Any, Any, SizedCalls] | None = None  # a key, its shapes, who has run it

    def at_new_sizes(self, key: Any, args: Sequence[Any], out: Any) -> Any:
        """Return the results of a call of *key*, which is in no run; MISSING: make it in full."""
        last = self._last
        if last is not None and last[0] == key:  # the same size again
            result = last[2].run(last[1], args, out)
            if result is not MISSING:
                return result
        known = self._sized.get(form_of(key)) if self._sized else None
        if known is not None:
            shapes = shapes_of(key)
            for calls in known:
                result = calls.run(shapes, args, out)
                if result is not MISSING:
                    self._last = key, shapes, calls
                    return result
        return MISSING

    def learnt(self, key: Any, executable: Executable, args: Sequence[Any]) -> Run:
        """Return what a call of *key* goes through, by *executable*, and remember it."""
        run = executable.runner(args)
        form = form_of(key) if executable.opened else None
        if form is not None:
            calls = executable.sized_calls(args, is_dense=is_dense(form))
            if calls is not None:
                self._sized[form] = [calls, *self._sized.get(form, ())[: _MOST_SIZED - 1]]
        return remember(self.runs, key, run)
