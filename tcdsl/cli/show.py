"""``tcdsl show FILE[:NAME] --stage S``: what a definition becomes on its way to the machine.

The first three stages need no sizes; the others are of one compilation, at the sizes given.
The CUDA text needs no GPU: the target emulate has it too.  ``--html PATH`` writes all stages to one
page.
"""

import argparse

from rich.syntax import Syntax

import tcdsl
from tcdsl.cli.arguments import (
    add_precision_argument,
    add_program_arguments,
    chosen_function,
    chosen_name,
    chosen_specs,
    file_and_name,
    read_text,
)
from tcdsl.cli.console import standard_output
from tcdsl.display.report import report_page
from tcdsl.frontends.stages import OF_THE_DEF, STAGES, text_of, text_of_def, tree_text
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.runtime.files import write_file
from tcdsl.source import Source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    add_program_arguments(parser)
    parser.add_argument("--stage", choices=STAGES, default="code", help="default: code")
    parser.add_argument(
        "--html", metavar="PATH", help="write a page with every stage, and print none"
    )
    parser.add_argument(
        "--target", default="cpu",
        help="cpu for C; emulate for CUDA, which needs no GPU (default: cpu)",
    )  # fmt: skip
    add_precision_argument(parser)


def stage_text(arguments: argparse.Namespace) -> str:
    """Return the text of the stage asked for."""
    if arguments.stage == "ast":  # also of a program with errors that only analysis finds
        file, _ = file_and_name(arguments)
        source = Source(read_text(file), file)
        names = tuple(definition.name for definition in parse_program(source).defs)
        return tree_text(source, chosen_name(arguments, names))
    function = chosen_function(arguments)
    if arguments.stage in OF_THE_DEF:
        return text_of_def(function, arguments.stage)
    return text_of(_compiled(function, arguments), arguments.stage)


def _compiled(function: "tcdsl.Function", arguments: argparse.Namespace) -> "tcdsl.Executable":
    options = tcdsl.Options(precision=arguments.precision)
    specs = chosen_specs(function, arguments)
    return function.compile(*specs, target=arguments.target, options=options)


def write_page(arguments: argparse.Namespace) -> None:
    """Write the page that ``--html`` asks for."""
    executable = _compiled(chosen_function(arguments), arguments)
    write_file(arguments.html, report_page(executable.compilation), "--html")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    console = standard_output()
    if arguments.html is not None:
        write_page(arguments)
        console.print(f"wrote {arguments.html}", markup=False)
        return 0
    text = stage_text(arguments)
    if arguments.stage == "code" and console.is_terminal:
        language = "c" if arguments.target == "cpu" else "cuda"
        console.print(Syntax(text, language, background_color="default"))
    else:
        console.print(text, markup=False)
    return 0
