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


def call_old() -> None:
    """Let the collector take all objects for old ones, which it looks at rarely.

    After the import of hundreds of modules its next look at the young ones would take 10 to 15 ms.
    Garbage among them waits for the next look at all, so that this is for few times in a process.
    """
    if not gc.get_freeze_count():  # else the program has frozen some, which would thaw
        gc.freeze()
        gc.unfreeze()
