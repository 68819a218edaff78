"""Arguments that ``run`` and ``show`` share: which definition, at which sizes, on which arrays."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import tcdsl
from tcdsl.cli.random_inputs import random_inputs
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
    for text in texts:
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
    return result


EXAMPLES = {"--size": "--size M=64", "--input": "--input A=a.npy"}


def size(text: str) -> int:
    """Return *text* as a size: an integer, not negative."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def read_text(file: str) -> str:
    """Return the text of *file*, or of standard input for ``-``."""
    try:
        return Path("/dev/stdin" if file == "-" else file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BAD_ARGUMENT(
            argument="FILE", what=f"{file} cannot be read: {reason}", advice="name a .tc file"
        ) from None


def chosen_name(arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the one of *names* that NAME means: by default the last."""
    name: str = arguments.name or names[-1]
    if name not in names:
        raise BAD_ARGUMENT(
            argument="NAME", what=f"{arguments.file} defines no {name!r}",
            advice=f"it defines {', '.join(names)}",
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
            argument="--input", what=f"{path} cannot be read: {reason}",
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
                advice=f"it has {', '.join(known) or 'none'}",
            )
    for name, array in arrays.items():
        for dim, extent in zip(comprehension.tensors[name].dims, array.shape, strict=False):
            if isinstance(dim, str):
                sizes.setdefault(dim, extent)
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
    generated = random_inputs(function.comprehension, sizes, arguments.seed)
    return sizes, {name: arrays.get(name, value) for name, value in generated.items()}


def chosen_specs(function: "tcdsl.Function", arguments: argparse.Namespace) -> list[Any]:
    """Return a placeholder for each parameter: compiling needs no numbers."""
    comprehension = function.comprehension
    sizes = sizes_of(function, pairs("--size", arguments.size, size), {})
    shapes = shapes_of(comprehension, sizes)
    return [
        tcdsl.spec(shapes[name], comprehension.tensors[name].dtype.name)
        for name in comprehension.inputs
    ]
