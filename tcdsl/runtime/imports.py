"""Imports in the middle of a program, of modules that only some calls need.

    with late_import():
        from tcdsl.driver import compile_to_c

The collector is paused: the modules live as long as the process.  A fork waits for the import: its
child would find a module's lock taken by a thread that it does not have, and wait for ever.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tcdsl.runtime.collector import call_old, collector_paused

MANY = 20  # modules: the collector is soon done with fewer

_lock = threading.RLock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


@contextmanager
def late_import() -> Iterator[None]:
    """Import in this block; where that has been done before, it costs a microsecond."""
    with _lock, collector_paused():
        before = len(sys.modules)
        yield
        if len(sys.modules) > before + MANY:
            call_old()
