"""A script that compiles one program again: what an InternalError names.

It holds the program's text, the types, sizes and strides of the call, the options, and as comments
how far the compilation came and the traceback.  It holds no data: compiling needs none.
"""

import contextlib
import os
import tempfile
import traceback

from tcdsl.errors import InternalError, TCError
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.records import dataclass
from tcdsl.version import __version__

_SCRIPT = '''\
"""An internal error of tcdsl {version}, in {stage}; running this file shows it again.

Please report it together with this file.
"""
{traceback}
import dataclasses
import os

os.environ["TCDSL_CACHE"] = "off"
os.environ["TCDSL_DEBUG"] = "on"  # the first failure, not a cheaper schedule
{settings}
import tcdsl

SOURCE = {source}
OPTIONS = tcdsl.Options.from_json({options})


def spec(shape, dtype, strides=None):  # strides count elements
    dense = tcdsl.spec(shape, dtype)
    return dense if strides is None else dataclasses.replace(dense, strides=strides)


INPUTS = {{
{inputs}
}}
{function}
f.compile(*INPUTS.values(), target={target!r}, options=OPTIONS)
print("it compiles: the error is gone")
'''

_OF_DEF = """
f = tcdsl.define(SOURCE)[{name!r}]
"""

_OF_STATEMENTS = """
from tcdsl.api import Function
from tcdsl.lang.syntax.parser import parse_statements
from tcdsl.lang.types.sema import analyse_statements
from tcdsl.source import Source

source = Source(SOURCE)
types = {{name: (a.dtype, a.rank) for name, a in INPUTS.items()}}
f = Function(analyse_statements(parse_statements(source), source, types))
"""

_SETTINGS = ("TCDSL_ISL_OPERATIONS", "TCDSL_CC", "TCDSL_CFLAGS")


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """The *error* in which a compilation for *target* ended, and in which *stage*."""

    stage: str
    error: BaseException
    target: str = "cpu"

    @property
    def summary(self) -> str:
        """What failed, in one line."""
        if isinstance(self.error, InternalError):  # "internal error in <where>: <what>"
            return self.error.message.partition(": ")[2] or self.error.message
        lines = str(self.error).splitlines()
        name = type(self.error).__name__
        return f"{name}: {lines[0]}" if lines else name


def repro_script(request: Request, failure: Failure) -> str:
    """Return the script for the compilation of *request* that ended in *failure*."""
    comprehension = request.comprehension
    inputs = [
        f"    {name!r}: {request.special.sizes[name]},"
        if name in comprehension.size_parameters
        else f"    {name!r}: {_spec_text(request, name)},"
        for name in comprehension.parameters
    ]
    settings = [
        f"os.environ[{name!r}] = {os.environ[name]!r}" for name in _SETTINGS if name in os.environ
    ]
    function = _OF_DEF if has_def(comprehension) else _OF_STATEMENTS
    return _SCRIPT.format(
        version=__version__,
        stage=failure.stage,
        target=failure.target,
        traceback="\n".join(f"# {line}" for line in _traceback(failure.error)),
        settings="\n".join(settings),
        source=text_literal(comprehension.source.text),
        options=repr(request.options.to_json()),
        inputs="\n".join(inputs),
        function=function.format(name=comprehension.name),
    )


def _traceback(error: BaseException) -> list[str]:
    return [line for part in traceback.format_exception(error) for line in part.splitlines()]


def has_def(comprehension: Comprehension) -> bool:
    """Return whether its text has a def of its name: statements without a header have none."""
    with contextlib.suppress(TCError):
        names = {definition.name for definition in parse_program(comprehension.source).defs}
        return comprehension.name in names
    return False


def _spec_text(request: Request, name: str) -> str:
    shape = tuple(request.special.shapes[name])
    dtype = request.comprehension.tensors[name].dtype.name
    given = request.strides.get(name)
    tail = "" if given is None else f", {given!r}"
    return f"spec({shape!r}, {dtype!r}{tail})"


def text_literal(text: str) -> str:
    """Return *text* as a literal, a line of it a line."""
    lines = [f"    {line!r}" for line in text.splitlines(keepends=True)]
    return "(\n" + "\n".join(lines or ["    ''"]) + "\n)"


def write_repro(request: Request, failure: Failure) -> str:
    """Write the script to the folder for temporary files; return its path, or why there is none."""
    script = repro_script(request, failure)
    try:
        number, path = tempfile.mkstemp(".py", f"tcdsl-{request.comprehension.name[:40]}-")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(script)
    except OSError as failure:
        return f"the program (no script: {failure.strerror})"
    return path
