"""A vendor's libraries, by ctypes: one that the process has already, or the first that opens."""

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any


def in_process(sonames: Iterable[str]) -> ctypes.CDLL | None:
    """Return the first of *sonames* that the process has already, None if it has none of them."""
    return _opened(sonames, os.RTLD_NOLOAD)


def opened(places: Iterable[str]) -> ctypes.CDLL | None:
    """Return the first of *places*, paths or names, that can be loaded, or None."""
    return _opened(places, ctypes.DEFAULT_MODE)


def _opened(places: Iterable[str], mode: int) -> ctypes.CDLL | None:
    for place in places:
        with suppress(OSError):
            return ctypes.CDLL(place, mode=mode)
    return None


def declared(library: Any, signatures: Mapping[str, Sequence[Any]]) -> Any:
    """Return *library* with the argument types of its functions, each of which returns a status."""
    for name, types in signatures.items():
        function = library[name]
        function.argtypes, function.restype = types, ctypes.c_int
        setattr(library, name, function)
    return library
