"""The one reader of the ``TCDSL_*`` environment variables.

A variable is an entry of :data:`VARIABLES`; :func:`settings` returns all of them, parsed, as a
frozen :class:`Settings`.  The parsed form is kept for as long as the raw texts stay the same, so
that a compilation may ask again at no cost, and a test may change the environment.
"""

import difflib
import os
import shlex
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from tcdsl.errors import BAD_SETTING
from tcdsl.records import dataclass

PREFIX = "TCDSL_"
TARGETS = ("cuda", "cpu", "emulate", "reference")
_YES = ("1", "on", "true", "yes")
_NO = ("0", "off", "false", "no")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment asks for; tunables of one compilation are in ``Options`` instead."""

    target: str | None
    cache_dir: Path | None
    cache: bool
    cc: tuple[str, ...]
    cxx: tuple[str, ...]
    cflags: tuple[str, ...]
    dump: Path | None
    threads: int
    debug: bool
    isl_operations: int
    nvrtc: Path | None


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable; *parse* raises ValueError for a text without meaning."""

    name: str
    parse: Callable[[str], Any]
    default: str
    doc: str
    values: str

    @property
    def field(self) -> str:
        """The name of its field in :class:`Settings`."""
        return self.name.removeprefix(PREFIX).lower()


def _target(text: str) -> str | None:
    if text and text not in TARGETS:
        raise ValueError("there is no such target")
    return text or None


def _path(text: str) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


def _switch(text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise ValueError("it is neither on nor off")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("it is not a whole number of at least 0")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"it cannot be split into words ({error})") from None


_SWITCH_VALUES = "on or off (also 1, 0, yes, no, true, false)"

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "TCDSL_TARGET", _target, "",
        "The target of calls that name none; unset: the device on which the inputs are.",
        ", ".join(TARGETS),
    ),
    Variable(
        "TCDSL_CACHE_DIR", _path, "",
        "The folder of compiled code; unset: the user's cache folder.", "a path",
    ),
    Variable("TCDSL_CACHE", _switch, "on", "Keep compiled code on disk.", _SWITCH_VALUES),
    Variable(
        "TCDSL_CC", _words, "",
        "The C compiler; unset: the first of cc, gcc and clang that is there.",
        "a command, such as clang-18 or 'ccache gcc'",
    ),
    Variable(
        "TCDSL_CXX", _words, "",
        "The C++ compiler, for the target emulate; unset: the first of c++, g++ and clang++.",
        "a command, such as clang++-18 or 'ccache g++'",
    ),
    Variable(
        "TCDSL_CFLAGS", _words, "", "Further flags of the C compiler, after tcdsl's own.",
        "flags, quoted as in a shell",
    ),
    Variable(
        "TCDSL_DUMP", _path, "", "Write every stage of every compilation to this folder.",
        "a path",
    ),
    Variable(
        "TCDSL_THREADS", _count, "0",
        "CPU threads of calls whose options name none; 0: as many as there are.",
        "a whole number",
    ),
    Variable(
        "TCDSL_DEBUG", _switch, "off",
        "Wait for every launch and report its faults at once; keep temporary files and whole "
        "tracebacks.",
        _SWITCH_VALUES,
    ),
    Variable(
        "TCDSL_ISL_OPERATIONS", _count, "10000000",
        "How many operations one step may take in isl before a cheaper schedule is tried; "
        "0: no bound.",
        "a whole number",
    ),
    Variable(
        "TCDSL_NVRTC", _path, "",
        "The library NVRTC, the compiler for CUDA; unset: the first of Python's packages, "
        "CUDA_HOME, CUDA_PATH and the system that has one.",
        "the path of a libnvrtc.so",
    ),
)  # fmt: skip

_BY_NAME: Mapping[str, Variable] = {variable.name: variable for variable in VARIABLES}
assert [variable.field for variable in VARIABLES] == [field.name for field in fields(Settings)]


def settings() -> Settings:
    """Return what the environment asks for now.

    :raises OptionError: (TC062) naming the first variable whose value has no meaning.
    """
    return _parsed(tuple([read() for read in _readers()]))


@cache
def _readers() -> list[Callable[[], Any]]:
    return [reader(variable.name) for variable in VARIABLES]


def reader(name: str) -> Callable[[], Hashable]:
    """Return a function that tells what the variable *name* is set to now, or None, in 0.04 us.

    The result serves as part of a key, or to see whether a closer look is due; it may be encoded.
    ``os.environ.get`` takes 0.5 us, which is much of a warm call: what it looks into is asked
    directly where this interpreter has it (CPython does).
    """
    texts, encode = getattr(os.environ, "_data", None), getattr(os.environ, "encodekey", None)
    if isinstance(texts, dict) and encode is not None:
        return partial(texts.get, encode(name))
    return partial(os.environ.get, name)


@lru_cache(maxsize=16)
def _parsed(texts: tuple[Any, ...]) -> Settings:
    decoded = [None if text is None else os.fsdecode(text) for text in texts]
    pairs = zip(VARIABLES, decoded, strict=True)
    values: dict[str, Any] = {variable.field: _value(variable, text) for variable, text in pairs}
    return Settings(**values)


def _value(variable: Variable, text: str | None) -> object:
    # Set but blank means the same as unset: that is how shells and CI files turn a variable off.
    chosen = (text or "").strip() or variable.default
    try:
        return variable.parse(chosen)
    except ValueError as error:
        raise BAD_SETTING(
            name=variable.name, value=text, what=str(error), values=variable.values
        ) from None


def unknown_variables() -> dict[str, str | None]:
    """Return the ``TCDSL_*`` variables that mean nothing, each with the closest known name."""
    unknown = [n for n in os.environ if n.startswith(PREFIX) and n not in _BY_NAME]
    return {name: _closest(name) for name in unknown}


def _closest(name: str) -> str | None:
    # Without the prefix, which would make every name look like every other.
    known = {variable.name.removeprefix(PREFIX): variable.name for variable in VARIABLES}
    matches = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
    return known[matches[0]] if matches else None


def describe_variables() -> str:
    """Return a table of all variables, for ``tcdsl doctor`` and the documentation."""
    rows = [
        f"{variable.name}={variable.default}\n    {variable.doc}\n    Values: {variable.values}."
        for variable in VARIABLES
    ]
    return "\n".join(rows)
