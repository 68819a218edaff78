"""Python's garbage collector, paused while objects are made that will live as long as the process.

Every so many new objects it looks at all that there are.  In a process that has imported torch this
takes some 50 to 100 ms, more than importing tcdsl and reading a program, and finds nothing there.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect nothing in this block, if collecting is on.

    Another thread that comes along meanwhile has it on again early, which costs time and no more.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
