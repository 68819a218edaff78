"""Arguments that ``run`` and ``show`` share: which definition, at which sizes, on which arrays."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import tcdsl
from tcdsl.cli.random_inputs import random_inputs
from tcdsl.errors import OUT_OF_MEMORY
from tcdsl.lang.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT
from tcdsl.testing.parameters import shapes_of

Value = TypeVar("Value")
Arrays = dict[str, np.ndarray[Any, Any]]


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE, NAME and ``--size``."""
    parser.add_argument("file", metavar="FILE", help="a .tc file; - reads standard input")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="the definition (default: the last)"
    )
    parser.add_argument(
        "--size", "-s", action="append", default=[], metavar="M=64",
        help="the value of a size symbol; once for each",
    )  # fmt: skip


def pairs(argument: str, texts: Sequence[str], convert: Callable[[str], Value]) -> dict[str, Value]:
    """Return the ``NAME=VALUE`` *texts* of one *argument* as a dict."""
    result = {}
    for number, text in enumerate(texts):
        name, equals, value = text.partition("=")
        try:
            if not (name and equals):
                raise ValueError
            result[name.strip()] = convert(value)
        except ValueError:
            raise BAD_ARGUMENT(
                argument=argument, what=f"{text!r} has no meaning",
                advice=f"write {argument} NAME=VALUE, for example {EXAMPLES[argument]}",
            ) from None  # fmt: skip
        if len(result) <= number:
            raise BAD_ARGUMENT(
                argument=argument, what=f"{name.strip()!r} is given twice", advice="give it once"
            )
    return result


EXAMPLES = {"--size": "--size M=64", "--input": "--input A=a.npy"}


def size(text: str) -> int:
    """Return *text* as a size: an integer, neither negative nor beyond any memory."""
    value = int(text)
    if not 0 <= value < 1 << 48:
        raise ValueError
    return value


def natural(text: str) -> int:
    """Return *text* as an integer of at least 0, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no integer of at least 0")
    return int(text)


def duration(text: str) -> float:
    """Return *text* as a number of seconds, which may be 0, for argparse."""
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")


def read_text(file: str) -> str:
    """Return the text of *file*, or of standard input for ``-``."""
    try:
        return Path("/dev/stdin" if file == "-" else file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BAD_ARGUMENT(
            argument="FILE", what=f"{file!r} cannot be read: {reason}", advice="name a .tc file"
        ) from None


def chosen_name(arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the one of *names* that NAME means: by default the last."""
    name: str = arguments.name or names[-1]
    if name not in names:
        raise BAD_ARGUMENT(
            argument="NAME", what=f"{arguments.file} defines no {name!r}",
            advice=did_you_mean(name, names) or f"it defines {', '.join(names)}",
        )  # fmt: skip
    return name


def chosen_function(arguments: argparse.Namespace) -> "tcdsl.Function":
    """Return the definition that FILE and NAME mean."""
    program = tcdsl.define(read_text(arguments.file), name=arguments.file)
    return program[chosen_name(arguments, program.names)]


def read_array(path: str) -> np.ndarray[Any, Any]:
    """Return the array of the ``.npy`` file *path*."""
    try:
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no .npy file of plain numbers"
        raise BAD_ARGUMENT(
            argument="--input", what=f"{path!r} cannot be read: {reason}",
            advice="write it with numpy.save",
        ) from None  # fmt: skip


def sizes_of(
    function: "tcdsl.Function", given: Mapping[str, int], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, int]:
    """Return every size symbol's value: as *given*, else as the *arrays* have it."""
    comprehension = function.comprehension
    sizes = dict(given)
    for name in (*sizes, *arrays):
        known = comprehension.sizes if name in sizes else comprehension.inputs
        if name not in known:
            what = "size symbol" if name in sizes else "parameter"
            raise BAD_ARGUMENT(
                argument="--size" if name in sizes else "--input",
                what=f"{comprehension.name} has no {what} {name!r}",
                advice=did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}",
            )
    for name, array in arrays.items():
        for dim, extent in zip(comprehension.tensors[name].dims, array.shape, strict=False):
            if isinstance(dim, str) and sizes.setdefault(dim, extent) != extent:
                raise BAD_ARGUMENT(
                    argument="--size", what=f"{dim} is {sizes[dim]}, but {extent} in {name}'s file",
                    advice=f"leave --size {dim} out, or give another file",
                )  # fmt: skip
    if missing := [name for name in comprehension.sizes if name not in sizes]:
        raise BAD_ARGUMENT(
            argument="--size", what=f"no value for {', '.join(missing)}",
            advice="add " + " ".join(f"--size {name}=64" for name in missing),
        )  # fmt: skip
    return sizes


def chosen_inputs(
    function: "tcdsl.Function", arguments: argparse.Namespace
) -> tuple[dict[str, int], Arrays]:
    """Return the sizes, and an array for each parameter: from its file, else random."""
    arrays = pairs("--input", arguments.input, read_array)
    sizes = sizes_of(function, pairs("--size", arguments.size, size), arrays)
    try:
        generated = random_inputs(function.comprehension, sizes, arguments.seed)
    except MemoryError:
        shapes = shapes_of(function.comprehension, sizes).values()
        needed = sum(8 * math.prod(shape) for shape in shapes)  # random numbers have 8 bytes
        raise OUT_OF_MEMORY(
            what="the input", size_bytes=needed, hint="give smaller sizes"
        ) from None  # fmt: skip
    return sizes, {name: arrays.get(name, value) for name, value in generated.items()}


def chosen_specs(function: "tcdsl.Function", arguments: argparse.Namespace) -> list[Any]:
    """Return a placeholder for each parameter: compiling needs no numbers."""
    comprehension = function.comprehension
    sizes = sizes_of(function, pairs("--size", arguments.size, size), {})
    shapes = shapes_of(comprehension, sizes)
    specs = {
        name: tcdsl.spec(shapes[name], comprehension.tensors[name].dtype.name)
        for name in comprehension.inputs
    }
    return values_of(function, sizes, specs)


def values_of(
    function: "tcdsl.Function", sizes: Mapping[str, int], inputs: Mapping[str, Any]
) -> list[Any]:
    """Return the arguments of a call with *inputs* at *sizes*, in the order of the parameters."""
    parameters = function.comprehension.parameters
    return [inputs[name] if name in inputs else sizes[name] for name in parameters]
