"""The text of a derivative that the page on derivatives shows: of a def in its blocks of Python."""

import re

import tcdsl

_PROGRAM = re.compile(r'define\("""\n(.*?)^"""\)', re.DOTALL | re.MULTILINE)


def text(name: str, page: str) -> str:
    """Return the vjp of the def *name* as a block of tc."""
    source = next(program for program in _PROGRAM.findall(page) if f"def {name}(" in program)
    return f"```tc\n{tcdsl.vjp(tcdsl.define(source)[name]).source}```\n"
