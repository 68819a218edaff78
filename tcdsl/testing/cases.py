"""Failing cases as files: a program, its inputs, options and targets, that run by themselves.

    save_case("tests/cases", softmax, x)     -->     tests/cases/test_softmax_3f9a21.py
    replay("tests/cases/test_softmax_3f9a21.py")     or pytest, or python, on that file

The file is a short Python script that somebody can read and change.  Inputs of up to
:data:`MAX_WRITTEN` elements stand in it as numbers, larger ones packed.  Like any script it does
what it says: replay only what you trust.
"""

import base64
import hashlib
import runpy
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tcdsl.api import Function, require_target, shortened
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.syntax.printer import print_comprehension
from tcdsl.lang.types.dtypes import BY_NAME, DType
from tcdsl.options import BAD_ARGUMENT, Options
from tcdsl.runtime.arrays import as_numpy, spec
from tcdsl.runtime.files import make_folder, path_of, write_file
from tcdsl.runtime.repro import has_def, text_literal
from tcdsl.testing.comparison import Checkable, starting_arrays
from tcdsl.testing.required import require_checkable, require_inputs, targets_of, whole_number
from tcdsl.version import __version__

MAX_WRITTEN = 256  # elements
_REPLAY = "give the path of a script that save_case or fuzz(save=...) wrote"

_SCRIPT = '''\
"""{message}

Written by tcdsl {version}.  It runs by itself, under pytest, and by tcdsl.testing.replay.
"""

from numpy import inf, nan

import tcdsl
from tcdsl.testing import array, check

SOURCE = {source}
TARGETS = {targets!r}
OPTIONS = {options}
SEED = {seed!r}  # of the search that found it
INPUTS = {{
{inputs}}}
OUT = {out}


def test_{name}():
    f = tcdsl.define(SOURCE)[{name!r}]
    check(f, *INPUTS.values(), targets=TARGETS, options=OPTIONS, out=OUT)


if __name__ == "__main__":
    test_{name}()
    print("it passes: the fault is gone")
'''


def save_case(  # noqa: PLR0913  # public
    folder: str | Path,
    f: Checkable,
    *inputs: Any,
    targets: str | Sequence[str] = ("cpu",),
    options: Options | None = None,
    out: Any = None,
    seed: int | None = None,
    message: str = "A saved case.",
) -> Path:
    """Write a script that checks *f* on *inputs* to *folder*; return its path.

    The arguments are those of :func:`check`.  The same case has the same file name.

    :arg folder: created if it does not exist.
    :arg seed: of the search that found the case; the script says it.
    :arg message: the first lines of the script, for its reader.
    :raises ShapeError: the number, types or shapes of *inputs* or *out* do not fit *f*.
    :raises OptionError: another argument is invalid, or the script cannot be written.
    """
    require_checkable(f, "save_case", options)
    require_inputs(f.comprehension, inputs)
    if isinstance(f, Function):  # others may have targets of their own
        for target in targets_of(targets):
            require_target(target)
    if seed is not None:
        whole_number("seed", seed)
    if not isinstance(message, str):
        what = f"{shortened(message)} is no text"
        raise BAD_ARGUMENT(argument="message", what=what, advice="give a string")
    text = case_text(
        f, *inputs, targets=targets, options=options, out=out, seed=seed, message=message
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    where = make_folder(folder, "save_case")
    return write_file(where / f"test_{f.comprehension.name}_{digest}.py", text, "save_case")


def replay(path: str | Path) -> None:
    """Run a saved case again.

    :arg path: of the script that :func:`save_case` wrote.
    :raises AssertionError: the outputs are still wrong.
    :raises TCError: it still ends in this error; or (TC064) *path* is not a saved case.
    """
    script = path_of(path, "replay")
    if not script.is_file():
        what = f"{script} is {'a folder' if script.is_dir() else 'not there'}"
        raise BAD_ARGUMENT(argument="replay", what=what, advice=_REPLAY)
    names = runpy.run_path(str(script))
    tests = [value for name, value in names.items() if name.startswith("test_")]
    if len(tests) != 1:
        what = f"{script} is no saved case: it has {len(tests)} tests"
        raise BAD_ARGUMENT(argument="replay", what=what, advice=_REPLAY)
    tests[0]()


def case_text(
    f: Checkable,
    *inputs: Any,
    targets: str | Sequence[str],
    options: Options | None,
    out: Any,
    seed: int | None,
    message: str,
) -> str:
    """Return the script of :func:`save_case`."""
    c = f.comprehension
    given = zip(c.parameters, inputs, strict=True)
    starts = starting_arrays(c, out)
    lines = {name: f"    {name!r}: {_argument_text(name, value)},\n" for name, value in given}
    return _SCRIPT.format(
        message=message.replace("\\", "\\\\").replace('"""', "'''").strip(),
        version=__version__,
        source=_source_text(_program_text(c)),
        targets=targets_of(targets),
        options=_options_text(options),
        seed=seed,
        inputs="".join(lines.values()),
        out=_mapping_text(starts) if starts else "None",
        name=c.name,
    )


def _program_text(c: Comprehension) -> str:
    """Return a text that defines *c*: its own, or for statements without a def their meaning."""
    return c.source.text if has_def(c) else print_comprehension(c)


def _source_text(text: str) -> str:
    """Return *text* as a literal, as readable as it was if it has no quotes or backslashes."""
    plain = text.strip("\n") + "\n"
    is_readable = '"""' not in text and "\\" not in text
    return f'"""\n{plain}"""' if is_readable else text_literal(text)


def _options_text(options: Options | None) -> str:
    """Return *options* with what differs from the defaults."""
    return f"tcdsl.{options or Options()!r}"


def _argument_text(name: str, value: Any) -> str:
    """Return what makes *value* again; a Python number stays one: it takes the parameter's type."""
    if isinstance(value, int | float):
        return repr(value)
    return array_text(as_numpy(value, f"argument {name!r}"))


def _mapping_text(arrays: Mapping[str, Array]) -> str:
    return "{" + ", ".join(f"{name!r}: {array_text(a)}" for name, a in arrays.items()) + "}"


# --- arrays ------------------------------------------------------------------------------------


def array(
    dtype: str,
    shape: tuple[int, ...],
    values: Any,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """Return an array of a saved case.

    :arg dtype: the name of an element type of the language.
    :arg shape: the extents, one a dimension.
    :arg values: nested lists, or the packed text of a large array.
    :arg strides: in elements; None: row-major without gaps.
    :raises ShapeError: (TC055) *dtype* is no type of the language.
    :raises OptionError: (TC064) *values* are not those of an array of that type and shape.
    """
    kind = spec(shape, dtype).dtype
    try:
        dense = _unpacked(kind, values) if isinstance(values, str) else _listed(kind, values)
        dense = dense.reshape(shape)
    except (ValueError, TypeError, zlib.error) as error:
        what = f"the values are not those of an array of {dtype}, of shape {shape}: {error}"
        advice = "give nested lists of numbers, or what save_case wrote"
        raise BAD_ARGUMENT(argument="array", what=what, advice=advice) from None
    if strides is None:
        return dense
    # Elements lie from the lowest to the highest offset; what is between them stays zero.
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)] if dense.size else []
    first = -sum(step for step in reach if step < 0)
    room = np.zeros(1 + first + sum(step for step in reach if step > 0), kind.numpy)
    view = np.lib.stride_tricks.as_strided(
        room[first:], shape, tuple(s * room.itemsize for s in strides)
    )
    view[...] = dense
    return view


def _listed(kind: DType, values: Any) -> Array:
    # Through float64 for half types, which do not all read lists themselves.
    plain = np.array(values, np.float64 if kind.is_float else kind.numpy)
    return plain.astype(kind.numpy)


def _unpacked(kind: DType, text: str) -> Array:
    raw = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(raw, kind.numpy).copy()


def array_text(value: Array) -> str:
    """Return the call of :func:`array` that makes *value* again, strides included."""
    if value.size > MAX_WRITTEN:
        packed = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes(), 9)).decode()
        numbers = '(\n        "' + '"\n        "'.join(textwrap.wrap(packed, 80)) + '"\n    )'
    else:
        numbers = _numbers_text(value)
    strides = tuple(stride // value.itemsize for stride in value.strides)
    tail = "" if value.flags.c_contiguous else f", {strides!r}"
    dtype = next(name for name, kind in BY_NAME.items() if kind.numpy == value.dtype)
    return f"array({dtype!r}, {value.shape!r}, {numbers}{tail})"


def _numbers_text(value: Array) -> str:
    if value.ndim:
        return "[" + ", ".join(map(_numbers_text, value)) + "]"
    if value.dtype.kind in "biu":
        return str(value.item())
    # The shortest text that gives the number again: NumPy's of its own types, else in float64.
    is_native = value.dtype.kind == "f"
    return str(value[()]) if is_native else repr(float(value))
