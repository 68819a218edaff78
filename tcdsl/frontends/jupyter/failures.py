"""Errors of magics: the cell fails, and shows what is wrong instead of a traceback.

IPython asks an exception for the lines that it shows.  A cell that fails stops "Run all", and its
output keeps these lines, in nbviewer and on GitHub too.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tcdsl.errors import TCError

# Bold and no colour: notebooks put errors on a red ground, light or dark.
_BOLD, _END = "\x1b[1m", "\x1b[0m"


@contextmanager
def without_traceback() -> Iterator[None]:
    """Let a TCError of the block show its message, carets and hint only."""
    try:
        yield
    except TCError as error:
        text = emphasised(str(error))
        error.__cause__ = error.__context__ = None
        # IPython looks for this attribute; it is of this error, not of all: elsewhere the traceback
        # tells where the call was.
        vars(error)["_render_traceback_"] = lambda: [text]
        raise


def emphasised(text: str) -> str:
    """Return the *text* of an error with what matters in bold."""
    return "\n".join(map(_emphasised_line, text.split("\n")))


def _emphasised_line(line: str) -> str:
    if re.fullmatch(r"\s*\^+", line):
        return f"{_BOLD}{line}{_END}"
    if line.startswith("hint: "):
        return f"{_BOLD}hint:{_END}{line.removeprefix('hint:')}"
    return re.sub(r"^(.*?)(error\[TC\d+\]:)", rf"\1{_BOLD}\2{_END}", line)
