"""tcdsl: a compiler for tensor comprehensions.

>>> import numpy as np, tcdsl
>>> A, B = np.ones((2, 3), "float32"), np.ones((3, 4), "float32")
>>> tcdsl.compute("C(m,n) +=! A(m,k) * B(k,n)", A=A, B=B).shape
(2, 4)

Names are imported when they are first used, so that ``import tcdsl`` stays quick.
"""

from typing import TYPE_CHECKING, Any

from tcdsl.errors import (
    CompileError,
    InternalError,
    LaunchError,
    OptionError,
    ParseError,
    RangeError,
    SemanticError,
    ShapeError,
    TargetError,
    TCError,
    TCWarning,
)
from tcdsl.options import Options
from tcdsl.runtime.documented import names_of_module
from tcdsl.version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tcdsl import cuda, library, testing
    from tcdsl.api import Function, Program, compute, define
    from tcdsl.executable import Executable
    from tcdsl.frontends.derivatives import jvp, vjp
    from tcdsl.frontends.einsum import einsum
    from tcdsl.frontends.explore import explore
    from tcdsl.runtime.arrays import spec

_LAZY = {
    "Executable": "tcdsl.executable",
    "Function": "tcdsl.api",
    "Program": "tcdsl.api",
    "compute": "tcdsl.api",
    "define": "tcdsl.api",
    "einsum": "tcdsl.frontends.einsum",
    "explore": "tcdsl.frontends.explore",
    "spec": "tcdsl.runtime.arrays",
    "jvp": "tcdsl.frontends.derivatives",
    "vjp": "tcdsl.frontends.derivatives",
}
_SUBMODULES = ("cuda", "library", "testing")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from tcdsl.runtime.imports import late_import

    if name in _LAZY:
        with late_import():
            value = getattr(import_module(_LAZY[name]), name)
    elif name in _SUBMODULES:
        with late_import():
            value = import_module(f"tcdsl.{name}")
    else:
        raise AttributeError(f"module 'tcdsl' has no attribute {name!r}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """``%load_ext tcdsl``: the magics, and completion in their cells."""
    from tcdsl.frontends.jupyter import load

    load(shell)


def unload_ipython_extension(shell: "InteractiveShell") -> None:
    """``%unload_ext tcdsl``."""
    from tcdsl.frontends.jupyter import unload

    unload(shell)


def __dir__() -> list[str]:
    return names_of_module(globals())


__all__ = [
    "CompileError", "Executable", "Function", "InternalError", "LaunchError", "OptionError",
    "Options", "ParseError", "Program", "RangeError", "SemanticError", "ShapeError", "TCError",
    "TCWarning", "TargetError", "__version__", "compute", "cuda", "define", "einsum", "explore",
    "jvp", "library", "spec", "testing", "vjp",
]  # fmt: skip
