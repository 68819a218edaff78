"""``tcdsl bench --copy-rate``: programs that only move memory, beside a copy on the same GPU.

A copy that reads and writes as many bytes takes turns with the program; beside it stands the rate
of a copy of 1 GiB in the same run, which no size flatters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from rich.console import Console

import tcdsl
from tcdsl.cli.bench.device_inputs import fresh_output
from tcdsl.cli.bench.device_peers import Device, copy_call, copy_rate_gbs
from tcdsl.cli.bench.report import ratio_text
from tcdsl.cli.console import markdown_table, progress_steps
from tcdsl.errors import CONTEXT_LOST
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library.peer_calls import Call
from tcdsl.records import dataclass
from tcdsl.runtime.timing import compare_cuda, format_us

GOAL = 0.95  # of the rate of a copy
DTYPES = ("float32", "bfloat16")
MEGABYTES = (64, 256, 1024)  # an array


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A program of *inputs* vectors and one output, and the same in PyTorch."""

    name: str
    body: str
    inputs: tuple[str, ...]
    formula: Callable[..., Any]

    def source(self, dtype: str) -> str:
        """Return the program's text for elements of type *dtype*."""
        params = ", ".join(f"{dtype}(N) {name}" for name in self.inputs)
        return f"def {self.name}({params}) -> ({dtype}(N) z) {{ {self.body} }}"


def _gelu(x: Any) -> Any:
    return import_module("torch").nn.functional.gelu(x)


def _chain(x: Any, y: Any) -> Any:
    return ((x * y + x).clamp(min=0.0) - y) * 0.5


PROGRAMS = (
    Pointwise("scale", "z(i) = 2.0 * x(i) + 1.0", ("x",), lambda x: 2 * x + 1),
    Pointwise("add", "z(i) = x(i) + y(i)", ("x", "y"), lambda x, y: x + y),
    Pointwise(
        "chain",
        "a(i) = x(i) * y(i) + x(i)  b(i) = max(a(i), 0.0)  c(i) = b(i) - y(i)  z(i) = 0.5 * c(i)",
        ("x", "y"), _chain,
    ),
    Pointwise("gelu", "z(i) = 0.5 * x(i) * (1.0 + erf(x(i) * 0.70710678))", ("x",), _gelu),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moved:
    """One program at one size: its time, and that of a copy of as many bytes."""

    program: str
    dtype: str
    megabytes: int
    moved_bytes: int
    time_us: float = 0.0
    copy_us: float = 0.0
    problem: str | None = None

    @property
    def rate_gbs(self) -> float:
        """What the program reads and writes in a second, in GB/s."""
        return self.moved_bytes / self.time_us * 1e-3


def measured(
    program: Pointwise, dtype: str, megabytes: int, device: Device, seconds: float
) -> Moved:
    """Return the times of *program* on arrays of *megabytes*, its result compared first."""
    torch = import_module("torch")
    kind = BY_NAME[dtype]
    n = megabytes * 10**6 // kind.size_bytes
    moved_bytes = (len(program.inputs) + 1) * n * kind.size_bytes
    row = Moved(program.name, dtype, megabytes, moved_bytes)
    values = [torch.randn(n, device="cuda").to(getattr(torch, dtype)) for _ in program.inputs]
    out = fresh_output((n,), kind, is_read=False)
    try:
        call = bound(program, dtype, values, out)
        call()
        expected = program.formula(*(value.float() for value in values)).to(out.dtype)
        problem = device.disagreement(out, expected, dtype)
        del expected
        calls: Mapping[str, Call] = {"tcdsl": call, "copy": copy_call(moved_bytes // 2)}
        times = compare_cuda(calls, seconds).timings
    except device.errors as error:
        return replace(row, problem=str(error))
    return replace(
        row, time_us=times["tcdsl"].median_us, copy_us=times["copy"].median_us, problem=problem
    )


def bound(program: Pointwise, dtype: str, values: Sequence[Any], out: Any) -> Call:
    """Return *program*'s call with its arrays fixed."""
    function = tcdsl.define(program.source(dtype))[program.name]
    return function.compile(*values, target="cuda").bind(*values, out=out)


def report(console: Console, device: Device, seconds: float) -> int:
    """Measure and print everything; return 1 if a result is wrong."""
    rate = copy_rate_gbs()
    choices = [(p, dtype, mb) for p in PROGRAMS for dtype in DTYPES for mb in MEGABYTES]
    rows = []
    with progress_steps(len(choices)) as steps:
        for program, dtype, megabytes in choices:
            steps.begin(f"{program.name} {dtype} {megabytes} MB")
            rows.append(measured(program, dtype, megabytes, device, seconds))
            if why := device.settle():
                raise CONTEXT_LOST(why=why)
    about = device.about(rate)
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), markup=False)
    console.print(f"\n{table(rows, rate)}", markup=False)
    console.print(f"\nleast: {least_text(rows, rate)}; asked for: {GOAL}", markup=False)
    for row in rows:
        if row.problem:
            console.print(f"{row.program} {row.dtype}: {row.problem}", markup=False, style="red")
    return int(any(row.problem for row in rows))


def table(rows: Sequence[Moved], rate_gbs: float) -> str:
    """Return the table of *rows*; *rate_gbs* is that of a copy of 1 GiB."""
    header = ("program", "type", "MB an array", "tcdsl", "GB/s",
              "copy of as many bytes / tcdsl", "of 1 GiB's copy rate")  # fmt: skip
    body = []
    for row in rows:
        cells = ["-"] * 4
        if row.time_us:
            cells = [format_us(row.time_us), f"{row.rate_gbs:.0f}",
                     ratio_text(row.copy_us / row.time_us),
                     ratio_text(row.rate_gbs / rate_gbs)]  # fmt: skip
        body.append((row.program, row.dtype, str(row.megabytes), *cells))
    return markdown_table(header, body, n_left=2)


def least_text(rows: Sequence[Moved], rate_gbs: float) -> str:
    """Return the lowest share of the copy rate, and where it is."""
    timed = [row for row in rows if row.time_us]
    if not timed:
        return "nothing was timed"
    row = min(timed, key=lambda row: row.rate_gbs)
    share = ratio_text(row.rate_gbs / rate_gbs)
    return f"{share} ({row.program}, {row.dtype}, {row.megabytes} MB)"
