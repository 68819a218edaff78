"""Functions that calls wait for, compiled from texts of Python.

    "((v[0] - v[1]) + 1,)"     --->     lambda v: ((v[0] - v[1]) + 1,)

The texts are the compiler's own, of numbers and of the argument alone: no name of a user's is in
them.  What is compiled once takes a call a tenth of a microsecond an operation.
"""

from collections.abc import Callable
from typing import Any, cast

Evaluator = Callable[[Any], Any]  # a number, a tuple of such, or whether a condition holds


def evaluator(text: str, argument: str = "v", **known: Any) -> Evaluator:
    """Return the function of *argument* that *text* is, made of numbers and *known* alone.

    By default the argument is the sizes' values.
    """
    names = {"__builtins__": {}, "min": min, "max": max, "len": len, **known}
    return cast(Evaluator, eval(f"lambda {argument}: {text}", names))
