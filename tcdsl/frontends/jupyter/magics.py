"""The magics; what each does stands in its own docstring, which ``%%tcdsl?`` shows."""

import builtins
import warnings
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, cast

from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class
from IPython.core.magic import no_var_expand as _no_var_expand

from tcdsl.api import Program, define
from tcdsl.errors import TCWarning
from tcdsl.frontends.benchmark import benchmark
from tcdsl.frontends.jupyter.calls import Call, own_peers, parsed_call
from tcdsl.frontends.jupyter.failures import without_traceback
from tcdsl.frontends.stages import OF_THE_DEF, STAGES, view_of, view_of_def
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT

if TYPE_CHECKING:
    from tcdsl.errors import TCError

CELL_MAGICS = ("tcdsl", "tcdsl_bench")
LINE_MAGICS = ("tcdsl_bench", "tcdsl_show")

_DEFINE_USAGE = "begin the cell with %%tcdsl or %%tcdsl NAME, the program below it"
_SHOW_USAGE = "type %tcdsl_show STAGE f(A, B)"
_BENCH_USAGE = "type %tcdsl_bench f(A, B)"


@magics_class
class TcdslMagics(Magics):
    """Programs in cells."""

    @_no_var_expand
    @cell_magic
    def tcdsl(self, line: str, cell: str) -> Program | None:
        """Define the programs of the cell, and show their signatures.

            %%tcdsl
            def matmul(float(M, K) A, float(K, N) B) -> (C) {
                C(m, n) +=! A(m, k) * B(k, n)
            }

        Each def is then a function under its own name: ``matmul(A, B)``.  ``%%tcdsl NAME`` makes
        the program a variable NAME instead: ``NAME.matmul(A, B)``.  With a mistake in the cell
        nothing is defined.
        """
        with without_traceback():
            name = _variable(line)
            program = self._defined(cell)
            namespace = {name: program} if name else {f: program[f] for f in program.names}
            self._shell.push(namespace)
        hidden = [new for new in namespace if hasattr(builtins, new)]
        if hidden:
            print(f"note: {', '.join(hidden)} hides what Python calls so; del brings it back")
        return program

    @_no_var_expand
    @line_magic
    def tcdsl_show(self, line: str) -> Any:
        """Show a stage of what a def becomes.

            %tcdsl_show schedule matmul(A, B)
            %tcdsl_show code matmul(A, B, target="emulate")      CUDA; needs no GPU
            %tcdsl_show ast matmul                               of the def itself

        STAGE is program, ast or comprehension, which are of the def; coalesced, scop, transforms,
        schedule, tree, plan, choices, candidates, code or explain, which are of one compilation.
        """
        with without_traceback():
            stage, _, text = line.strip().partition(" ")
            if stage not in STAGES:
                what = f"there is no stage {stage!r}" if stage else "which stage of what?"
                hint = did_you_mean(stage, STAGES) or f"the stages are {', '.join(STAGES)}"
                raise _bad("%tcdsl_show", what, f"{_SHOW_USAGE}; {hint}")
            if not text.strip():
                raise _bad("%tcdsl_show", "which def?", _usage_of_stage(stage))
            call = self._call(text, "%tcdsl_show", _usage_of_stage(stage))
            if stage in OF_THE_DEF:
                return view_of_def(call.function, stage)
            call = _complete(call, "%tcdsl_show", _usage_of_stage(stage))
            executable = call.function.compile(
                *call.args or (), target=call.target, options=call.options
            )
            return view_of(executable, stage)

    @_no_var_expand
    @line_cell_magic
    def tcdsl_bench(self, line: str, cell: str | None = None) -> Any:
        """Time a call, beside the NumPy reference, PyTorch where it has the same, and your own.

            %tcdsl_bench matmul(A, B)

            %%tcdsl_bench matmul(A, B)
            numpy = A @ B
            torch = torch.mm(ta, tb)

        Each line of a cell is an expression to time, with a name if you like.  The table has
        medians, the bytes and operations a second, and how far from the floor the time is: what
        moving each input and output once, or the arithmetic, takes on this machine.
        """
        with without_traceback():
            if not line.strip():
                raise _bad("%tcdsl_bench", "which call?", _BENCH_USAGE)
            call = self._call(line, "%tcdsl_bench", _BENCH_USAGE)
            call = _complete(call, "%tcdsl_bench", _BENCH_USAGE)
            others = own_peers(cell or "", self._names)
            return benchmark(
                call.function, *call.args or (), out=call.out, target=call.target,
                options=call.options, peers=others, title=call.text,
            )  # fmt: skip

    @property
    def _shell(self) -> Any:
        return self.shell

    @property
    def _names(self) -> dict[str, Any]:
        return cast(dict[str, Any], self._shell.user_ns)

    def _defined(self, cell: str) -> Program:
        # A line break for the magic's own line: an error then tells the line of the cell.
        # The cell is the last of what was entered; IPython 9 counts execution_count up before it
        # runs a cell, older ones after.
        number = len(self._shell.history_manager.input_hist_parsed) - 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TCWarning)
            program = define(f"\n{cell}", f"<cell {number}>")
        for warning in caught:  # Python would show the line of IPython's that called the magic
            print(f"warning: {warning.message}")
        return program

    def _call(self, text: str, magic: str, usage: str) -> Call:
        return parsed_call(text, self._names, magic, usage)


def _variable(line: str) -> str | None:
    """Return the variable that ``%%tcdsl`` was given, if any."""
    words = line.split()
    if not words:
        return None
    name = words[0]
    if len(words) > 1:
        raise _bad("%%tcdsl", f"{line.strip()!r} is more than a name", _DEFINE_USAGE)
    if not name.isidentifier() or iskeyword(name) or name.startswith("__"):
        raise _bad("%%tcdsl", f"{name!r} is no name of a variable", _DEFINE_USAGE)
    return name


def _usage_of_stage(stage: str) -> str:
    return f"type %tcdsl_show {stage} f" if stage in OF_THE_DEF else f"type {_example(stage)}"


def _example(stage: str) -> str:
    return f'%tcdsl_show {stage} f(A, B), with arrays or tcdsl.spec((64, 32), "float32")'


def _complete(call: Call, magic: str, usage: str) -> Call:
    """Return *call*, which must have its arguments."""
    if call.args is None:
        raise _bad(magic, f"{call.text} has no arguments", usage)
    return call


def _bad(argument: str, what: str, advice: str) -> "TCError":
    return BAD_ARGUMENT(argument=argument, what=what, hint=advice)
