"""Errors of the user's are raised by the public call: frames inside tcdsl tell them nothing.

Bugs of tcdsl's keep their whole traceback, and everything does under ``TCDSL_DEBUG``.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tcdsl.errors import InternalError, TCError
from tcdsl.settings import settings

P = ParamSpec("P")
Result = TypeVar("Result")


def at_the_call(error: TCError) -> TCError:
    """Return *error* without the frames that it came through, to be raised by a public function."""
    if isinstance(error, InternalError) or _is_debugging():
        return error
    return error.with_traceback(None)


def errors_at_the_call(function: Callable[P, Result]) -> Callable[P, Result]:
    """Let *function*, which is public, raise what is wrong with the call itself."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except TCError as error:
            raise at_the_call(error)  # noqa: B904  (the same error, with its own cause)

    return called


def _is_debugging() -> bool:
    try:
        return settings().debug
    except TCError:  # a setting is wrong, which may be what *error* says
        return False
