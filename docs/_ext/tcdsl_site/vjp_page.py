"""The texts of derivatives that their page shows: of defs in its blocks, and of the library."""

import re
from collections.abc import Callable

import tcdsl
from tcdsl import library

_PROGRAM = re.compile(r'define\("""\n(.*?)^"""\)', re.DOTALL | re.MULTILINE)


def text(name: str, page: str) -> str:
    """Return the vjp of the def *name* as a block of tc."""
    return _block(tcdsl.vjp, name, page)


def jvp_text(name: str, page: str) -> str:
    """Return the jvp of the def *name* as a block of tc."""
    return _block(tcdsl.jvp, name, page)


def _block(derive: Callable[[tcdsl.Function], tcdsl.Function], name: str, page: str) -> str:
    own = (program for program in _PROGRAM.findall(page) if f"def {name}(" in program)
    source = next(own, None) or library.load(name)
    return f"```tc\n{derive(tcdsl.define(source)[name]).source}```\n"
