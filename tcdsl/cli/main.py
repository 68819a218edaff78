"""The entry point of ``tcdsl``: finds the command, runs it, and turns errors into exit codes.

Exit codes: 0 success; 1 the command found something wrong (``doctor``, ``run --check``); 2 an error
of the user's (a :class:`TCError`, printed without a traceback); 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from tcdsl.errors import TCError
from tcdsl.version import __version__

# Each command's module is imported only when it is chosen: "tcdsl doctor" must work where half of
# the others cannot be imported, and "tcdsl cache" need not wait for isl.
COMMANDS = {
    "demo": "photographs, a neural network and a table of times; under a minute",
    "run": "run a definition of a file on random or given arrays",
    "show": "print what a definition becomes, stage by stage",
    "bench": "time library programs against NumPy, PyTorch and JAX",
    "doctor": "look at this machine, and say what is missing and how to get it",
    "calibrate": "measure this machine for the cost model; under a minute",
    "cache": "show, locate or empty the cache of compiled programs",
}


def make_parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; only *chosen* gets its arguments."""
    parser = argparse.ArgumentParser(
        prog="tcdsl", description="A compiler for tensor comprehensions.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"tcdsl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".",
            allow_abbrev=False,
        )  # fmt: skip
        if name == chosen:
            module = import_module(f"tcdsl.cli.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def run_command(argv: Sequence[str]) -> int:
    """Parse *argv* and run its command; return the exit code.  Errors are the caller's."""
    chosen = next((word for word in argv if word in COMMANDS), None)
    parser = make_parser(chosen)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    return int(arguments.run(arguments))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on *argv* (default: this process's own); return the exit code."""
    try:
        return run_command(sys.argv[1:] if argv is None else argv)
    except TCError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # "tcdsl show ... | head": the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
