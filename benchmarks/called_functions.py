"""A plugin of pytest: which functions of tcdsl the tests of one process call, to $TCDSL_CALLS.

    12.5                                     processor time with that of compilers, seconds
    rewrites/scop/alignment_shift.py _Closure._join

Only calls are traced, and a function's code is looked at once.  After LIMIT_S no further test
begins: most files have by then called nearly all functions that they ever will.
"""

import inspect
import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

LIMIT_S = 5.0  # of processor time; mutants_map.CUT_OFF_S

_PACKAGE = f"{os.sep}tcdsl{os.sep}"
_called: set[CodeType] = set()


def _seconds() -> float:
    return sum(os.times()[:4])


def _trace(frame: FrameType, event: str, argument: Any) -> None:
    _called.add(frame.f_code)  # and trace nothing in it


def pytest_configure() -> None:
    threading.settrace(_trace)
    sys.settrace(_trace)


def pytest_runtest_teardown(item: Any, nextitem: Any) -> None:
    if _seconds() > LIMIT_S:
        item.session.shouldstop = "enough is known"


def pytest_unconfigure() -> None:
    sys.settrace(None)
    lines = set()
    for code in list(_called):
        _, package, file = code.co_filename.rpartition(_PACKAGE)
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # and no body of a class
        if package and is_function and not code.co_qualname.endswith(">"):
            lines.add(f"{file} {code.co_qualname}")
    with open(os.environ["TCDSL_CALLS"], "w", encoding="utf-8") as stream:
        stream.write("\n".join([f"{_seconds():.1f}", *sorted(lines)]))
