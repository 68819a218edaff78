"""``tcdsl show FILE [NAME] --stage S``: what a definition becomes on its way to the machine.

    ast -> comprehension -> scop -> schedule -> code

The first two need no sizes; the others are of one compilation, at the sizes given.  The CUDA text
needs no GPU: the target emulate has it too.  ``--html PATH`` writes all stages to one page.
"""

import argparse
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from rich.syntax import Syntax

import tcdsl
from tcdsl.cli.arguments import (
    BAD_ARGUMENT,
    add_program_arguments,
    chosen_function,
    chosen_name,
    chosen_specs,
    read_text,
)
from tcdsl.cli.console import standard_output
from tcdsl.lang.dtypes import DType
from tcdsl.lang.parser import parse_program
from tcdsl.lang.printer import print_comprehension
from tcdsl.source import Source, Span

STAGES = ("ast", "comprehension", "scop", "schedule", "code", "explain")


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


def tree_lines(value: Any, label: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the lines of an AST: a node a line, its plain fields beside it, its children below."""
    indent = "  " * depth
    prefix = f"{label}: " if label else ""
    if isinstance(value, tuple):
        yield f"{indent}{prefix}{'' if value else '()'}".rstrip()
        for item in value:
            yield from tree_lines(item, "", depth + 1)
        return
    if not _has_children(value):
        yield f"{indent}{prefix}{_plain(value)}"
        return
    members = [(field.name, getattr(value, field.name)) for field in fields(value)]
    members = [(name, member) for name, member in members if not _is_position(member)]
    plain = [f"{name}={_plain(member)}" for name, member in members if not _has_children(member)]
    yield f"{indent}{prefix}{type(value).__name__} {' '.join(plain)}".rstrip()
    for name, member in members:
        if _has_children(member):
            yield from tree_lines(member, name, depth + 1)


def _is_position(member: Any) -> bool:
    if isinstance(member, tuple):
        return bool(member) and all(_is_position(item) for item in member)
    return isinstance(member, Span | Source)


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, DType) else repr(value)


def _has_children(member: Any) -> bool:
    if isinstance(member, tuple):
        return any(_has_children(item) for item in member)
    return is_dataclass(member) and not isinstance(member, DType)


def stage_text(arguments: argparse.Namespace) -> str:
    """Return the text of the stage asked for."""
    if arguments.stage == "ast":
        definitions = parse_program(Source(read_text(arguments.file), arguments.file)).defs
        names = tuple(definition.name for definition in definitions)
        chosen = definitions[names.index(chosen_name(arguments, names))]
        return "\n".join(tree_lines(chosen))
    function = chosen_function(arguments)
    if arguments.stage == "comprehension":
        return print_comprehension(function.comprehension)
    executable = _compiled(function, arguments)
    if arguments.stage == "explain":
        return str(executable.explain())
    if arguments.stage == "code":
        return str(executable.source)
    return str(executable.stages[arguments.stage])


def _compiled(function: "tcdsl.Function", arguments: argparse.Namespace) -> "tcdsl.Executable":
    return function.compile(*chosen_specs(function, arguments), target=arguments.target)


def write_page(arguments: argparse.Namespace) -> None:
    """Write the page that ``--html`` asks for."""
    executable = _compiled(chosen_function(arguments), arguments)
    try:
        executable.report(arguments.html)
    except OSError as error:
        raise BAD_ARGUMENT(
            argument="--html", what=f"{arguments.html} cannot be written: {error.strerror}",
            advice="name a file in a folder that exists",
        ) from None  # fmt: skip


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
