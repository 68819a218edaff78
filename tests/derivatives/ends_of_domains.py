"""Which values of a program's inputs reach a builtin at the end of its domain, or beyond.

There ``sqrt``, ``log`` and the like have an infinite derivative, or none.  An input reaches such a
place if what stands there moves with it, or becomes NaN with it: ``sqrt(fabs(x - x))`` is 0 for all
x, and its derivative is NaN.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import tcdsl
from tcdsl.errors import TCError
from tcdsl.interp.arithmetic import FUNCTIONS, Array

Calls = list[tuple[Array, tuple[Array, ...]]]  # where it is at an end, and the arguments
AWAY = (np.nan, 5.0, -5.0)  # an input becomes NaN, or that much more


def _are_zero(*args: Array) -> Any:
    return np.logical_and.reduce([x == 0 for x in args])


def _is_no_power(x: Array, y: Array) -> Any:
    return (x < 0) | ((x == 0) & (y < 1) & (y != 0))


# Where the arguments of a builtin are no interior point of what it is differentiable on.
_OUTSIDE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "y0", "y1"), lambda x: x <= 0),
    **dict.fromkeys(("cbrt", "rcbrt"), lambda x: x == 0),
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv"), lambda x: np.abs(x) >= 1),
    **dict.fromkeys(
        ("hypot", "rhypot", "norm3d", "rnorm3d", "norm4d", "rnorm4d"), _are_zero
    ),
    "log1p": lambda x: x <= -1,
    "acosh": lambda x: x <= 1,
    "erfcinv": lambda x: (x <= 0) | (x >= 2),
    "normcdfinv": lambda x: (x <= 0) | (x >= 1),
    "pow": _is_no_power,
}  # fmt: skip


@contextmanager
def _noted_calls() -> Iterator[Calls]:
    """Note the calls of these builtins in the order in which the reference makes them."""
    calls: Calls = []
    plain = {name: FUNCTIONS[name] for name in _OUTSIDE}

    def noting(name: str) -> Callable[..., Any]:
        def call(*args: Array) -> Any:
            calls.append((np.asarray(_OUTSIDE[name](*args)), args))
            return plain[name](*args)

        return call

    FUNCTIONS.update({name: noting(name) for name in _OUTSIDE})
    try:
        yield calls
    finally:
        FUNCTIONS.update(plain)


def reaches_an_end(
    f: tcdsl.Function, inputs: Sequence[Any], position: int, element: tuple[int, ...]
) -> bool:
    """Return whether *element* of input number *position* of *f* reaches an end of a domain."""

    def calls_with(more: float) -> Calls:
        moved = [*inputs]
        moved[position] = np.array(inputs[position], np.float64)
        moved[position][element] += more
        with _noted_calls() as calls:
            f.reference(*moved)
        return calls

    before = calls_with(0.0)
    for more in AWAY:
        try:
            after = calls_with(more)
        except TCError:  # it decides which element is read
            continue
        for (is_outside, args), (_, others) in zip(before, after, strict=True):
            for one, other in zip(args, others, strict=True):
                if np.any(is_outside & (np.broadcast_to(one, is_outside.shape) != other)):
                    return True
    return False
