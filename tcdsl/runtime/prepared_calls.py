"""Calls of compiled code that are prepared, as objects of C: no frame of Python is entered.

    call = prepared_call(otherwise)     call(x, w) is otherwise(x, w)
    call.prepare(...)                   from now on pointers, new results and the code, at once

``prepared.c`` is compiled with the interpreter's own headers, once for a machine.  Where they are
missing (``python3-dev``), there are no such calls, and *otherwise* stays what is called.
"""

import os
import sysconfig
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import ExtensionFileLoader
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from tcdsl.errors import TCError
from tcdsl.runtime.c_compiler import compile_shared, find_compiler
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.version import build_identity

_NAME = "tcdsl_prepared"
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-w")


def prepared_call(otherwise: Callable[..., Any]) -> Any:
    """Return a call that is not prepared yet, and until then *otherwise*; None: there are none."""
    kind = _call_type()
    return None if kind is None else kind(otherwise)


@lru_cache(maxsize=1)
def _call_type() -> Any:
    """Return the class of prepared calls; None: it cannot be compiled or loaded here."""
    headers = sysconfig.get_paths()["include"]
    if not Path(headers, "Python.h").is_file():
        return None
    try:
        return _loaded(_code(headers)).Call
    except (TCError, OSError, ImportError):
        return None


def _code(headers: str) -> bytes:
    source = files(__package__).joinpath("prepared.c").read_text(encoding="utf-8")
    compiler = find_compiler()
    abi = sysconfig.get_config_var("SOABI")
    key = key_of(
        kind=_NAME, build=build_identity(), source=source, abi=abi, headers=headers,
        compiler=compiler.identity,
    )  # fmt: skip
    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        return entry.code
    code = compile_shared(source, (*_FLAGS, f"-I{headers}"), compiler=compiler)
    cache.put(key, code, {})
    return code


def _loaded(code: bytes) -> Any:
    """Return the module of *code*, by way of a file that is removed at once."""
    handle, path = tempfile.mkstemp(prefix="tcdsl-", suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        loader = ExtensionFileLoader(_NAME, path)
        spec = spec_from_loader(_NAME, loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        return module
    finally:
        os.unlink(path)
