"""``tcdsl run FILE[:NAME] --size M=64,N=32``: run a definition and summarise what comes out."""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import tcdsl
import tcdsl.testing
from tcdsl.cli.arguments import (
    add_precision_argument,
    add_program_arguments,
    chosen_function,
    chosen_inputs,
    natural,
    values_of,
)
from tcdsl.cli.bench.forced import add_choices_argument, read_choices
from tcdsl.cli.console import progress_steps, standard_output
from tcdsl.runtime.files import make_folder
from tcdsl.runtime.timing import format_us, measure

_SLOW = ("emulate", "reference")  # one more call tells enough

Arrays = Mapping[str, np.ndarray[Any, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    add_program_arguments(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="A=a.npy",
        help="take a parameter from a .npy file; the others are random",
    )  # fmt: skip
    parser.add_argument("--seed", type=natural, default=0, help="of the random arrays (default 0)")
    parser.add_argument("--target", help="cpu, cuda, emulate or reference (default: the best)")
    add_choices_argument(parser)
    add_precision_argument(parser)
    parser.add_argument("--check", action="store_true", help="compare with the NumPy reference")
    parser.add_argument("--save", metavar="DIR", help="write the outputs there, as .npy")


def summary(array: np.ndarray[Any, Any]) -> tuple[str, ...]:
    """Return (type, shape, least, mean, greatest) of *array* as text."""
    kind, shape = str(array.dtype), str(array.shape)
    if array.size == 0:
        return kind, shape, "-", "-", "-"
    wide = array.astype(np.float64)
    return kind, shape, *(f"{value:.6g}" for value in (wide.min(), wide.mean(), wide.max()))


def summary_table(inputs: Arrays, outputs: Arrays) -> Table:
    """Return the table of all arrays: inputs above, outputs below a line."""
    table = Table("array", "type", "shape", "least", "mean", "greatest")
    for name, array in inputs.items():
        table.add_row(name, *summary(array))
    table.add_section()
    for name, array in outputs.items():
        table.add_row(f"[bold]{name}", *summary(array))
    return table


def initial_outputs(function: "tcdsl.Function", values: list[Any]) -> Any:
    """Return zeros for a definition that reads its outputs before it writes them, else None."""
    tensors = function.comprehension.tensors
    names = function.comprehension.outputs
    if not any(tensors[name].needs_out for name in names):
        return None
    shapes = function.output_shapes(*values)
    zeros = tuple(np.zeros(shapes[name], tensors[name].dtype.numpy) for name in names)
    return zeros[0] if len(zeros) == 1 else zeros


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    console = standard_output()
    if arguments.save is not None:
        make_folder(arguments.save, "--save")  # before anything is run
    with progress_steps(4) as steps:
        steps.begin("reading")
        function = chosen_function(arguments)
        sizes, inputs = chosen_inputs(function, arguments)
        values = values_of(function, sizes, inputs)
        steps.begin("compiling and running")
        how = {"target": arguments.target, "options": chosen_options(arguments)}
        start = time.perf_counter()
        result = function(*values, out=initial_outputs(function, values), **how)
        first_us = (time.perf_counter() - start) * 1e6
        steps.begin("timing")
        warm = _warm_time(function, values, result, arguments)
        steps.begin("checking")
        complaint = _complaint(function, values, arguments) if arguments.check else None
    results = result if isinstance(result, tuple) else (result,)
    outputs = {
        name: np.asarray(value)
        for name, value in zip(function.comprehension.outputs, results, strict=True)
    }
    console.print(summary_table(inputs, outputs))
    first = f"first call {format_us(first_us)}, compilation included"
    console.print(f"{function.comprehension.name}: {first}; warm {warm}")
    if arguments.save is not None:
        _save(outputs, arguments.save)
    if arguments.check:
        said = complaint or "agrees with the NumPy reference"
        console.print(said, style="red" if complaint else "green")
    return 1 if complaint else 0


def chosen_options(arguments: argparse.Namespace) -> tcdsl.Options:
    """Return the options that ``--choices`` and ``--precision`` ask for."""
    choices = read_choices(arguments.choices)
    return tcdsl.Options(choices=choices, precision=arguments.precision)


def _warm_time(
    function: "tcdsl.Function", values: list[Any], result: Any, arguments: argparse.Namespace
) -> str:
    """Return how long a call takes once everything is compiled, into memory that is there."""
    results = result if isinstance(result, tuple) else (result,)
    out = tuple(np.array(value) for value in results)  # a call may add to what is there

    options = chosen_options(arguments)

    def call() -> None:
        function(*values, out=out, target=arguments.target, options=options)

    repeats = 1 if arguments.target in _SLOW else 0
    return str(measure(call, repeats=repeats, min_time_s=0.05))


def _complaint(
    function: "tcdsl.Function", values: list[Any], arguments: argparse.Namespace
) -> str | None:
    """Return what the NumPy reference finds wrong with *function* on *values*, or None."""
    try:
        tcdsl.testing.check(
            function, *values, targets=(arguments.target or "cpu",),
            options=chosen_options(arguments),
        )  # fmt: skip
    except AssertionError as error:
        return f"differs from the NumPy reference: {error}"
    return None


def _save(outputs: Arrays, folder: str) -> None:
    for name, array in outputs.items():
        np.save(Path(folder) / f"{name}.npy", array)
