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
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT, CHOICES
from tcdsl.testing.parameters import shapes_of

Value = TypeVar("Value")
Arrays = dict[str, np.ndarray[Any, Any]]


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE, NAME, ``--def`` and ``--size``."""
    parser.add_argument(
        "file", metavar="FILE[:NAME]",
        help="a .tc file, and which of its definitions; - reads standard input",
    )  # fmt: skip
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="the definition (default: the last)"
    )
    parser.add_argument("--def", dest="definition", metavar="NAME", help="the same as NAME")
    parser.add_argument(
        "--size", "-s", action="append", default=[], metavar="M=64,N=32",
        help="the values of size symbols; may be given several times",
    )  # fmt: skip


def add_precision_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision``."""
    parser.add_argument(
        "--precision", choices=CHOICES["precision"], default=tcdsl.Options().precision,
        help="of products of float32, as Options.precision says (default: float32)",
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


EXAMPLES = {"--size": "--size M=64,N=32", "--input": "--input A=a.npy"}


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


def chosen_sizes(arguments: argparse.Namespace) -> dict[str, int]:
    """Return what ``--size`` gives."""
    texts = [text for given in arguments.size for text in given.split(",")]
    return pairs("--size", texts, size)


def file_and_name(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """Return the path that FILE is, and the definition that it, NAME or ``--def`` names, if any.

    :raises OptionError: (TC064) they name different ones.
    """
    file, name_there = _taken_apart(arguments.file)
    given = dict.fromkeys(filter(None, (name_there, arguments.name, arguments.definition)))
    if len(given) > 1:
        raise BAD_ARGUMENT(
            argument="NAME", what=f"two definitions are named: {' and '.join(given)}",
            advice="name one: FILE:NAME, FILE NAME or --def NAME",
        )  # fmt: skip
    return file, next(iter(given), None)


def _taken_apart(file: str) -> tuple[str, str | None]:
    """Return ``(path, name)`` of ``path:name``; a colon may also be part of a path that exists."""
    path, colon, name = file.rpartition(":")
    if colon and path and name.isidentifier() and not Path(file).exists():
        return path, name
    return file, None


def chosen_name(arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the one of *names* that is asked for: by default the last."""
    file, given = file_and_name(arguments)
    name = given or names[-1]
    if name not in names:
        raise BAD_ARGUMENT(
            argument="NAME", what=f"{file} defines no {name!r}",
            advice=did_you_mean(name, names) or f"it defines {', '.join(names)}",
        )  # fmt: skip
    return name


def chosen_function(arguments: argparse.Namespace) -> "tcdsl.Function":
    """Return the definition that FILE and NAME mean."""
    file, _ = file_and_name(arguments)
    program = tcdsl.define(read_text(file), name=file)
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
            if dim in comprehension.sizes and sizes.setdefault(str(dim), extent) != extent:
                raise BAD_ARGUMENT(
                    argument="--size", what=f"{dim} is {sizes[dim]}, but {extent} in {name}'s file",
                    advice=f"leave --size {dim} out, or give another file",
                )  # fmt: skip
    if missing := [name for name in comprehension.sizes if name not in sizes]:
        raise BAD_ARGUMENT(
            argument="--size", what=f"no value for {', '.join(missing)}",
            advice="add --size " + ",".join(f"{name}=64" for name in missing),
        )  # fmt: skip
    return sizes


def chosen_inputs(
    function: "tcdsl.Function", arguments: argparse.Namespace
) -> tuple[dict[str, int], Arrays]:
    """Return the sizes, and an array for each parameter: from its file, else random."""
    arrays = pairs("--input", arguments.input, read_array)
    sizes = sizes_of(function, chosen_sizes(arguments), arrays)
    try:
        generated = random_inputs(function.comprehension, sizes, arguments.seed)
    except MemoryError:
        shapes = shapes_of(function.comprehension, sizes)
        largest = max(shapes, key=lambda name: math.prod(shapes[name]))
        needed = 8 * math.prod(shapes[largest])  # random numbers have 8 bytes
        raise OUT_OF_MEMORY(
            what=f"the input {largest}", size_bytes=needed, hint="give smaller sizes"
        ) from None
    return sizes, {name: arrays.get(name, value) for name, value in generated.items()}


def chosen_specs(function: "tcdsl.Function", arguments: argparse.Namespace) -> list[Any]:
    """Return a placeholder for each parameter: compiling needs no numbers."""
    comprehension = function.comprehension
    sizes = sizes_of(function, chosen_sizes(arguments), {})
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
