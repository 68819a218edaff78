"""``tcdsl bench``: the library's programs beside NumPy and PyTorch, in turns, in one process.

``--target cuda`` times them on the GPU, beside PyTorch (``device_peers.py``); ``--copy-rate`` only
programs that move memory, beside a copy.  ``--latency`` measures instead what surrounds a call:
import, compilation, cache, the call itself.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from tcdsl.cli import copy_rate, device_latency, latency
from tcdsl.cli.arguments import BAD_ARGUMENT
from tcdsl.cli.bench_report import (
    Launches,
    Row,
    machine,
    means_table,
    sizes_text,
    times_table,
    write_json,
)  # fmt: skip
from tcdsl.cli.console import progress_steps, standard_output
from tcdsl.cli.device_peers import copy_rate_gbs, open_device
from tcdsl.cli.peers import Call, Host, use_threads
from tcdsl.cli.precompile import precompile
from tcdsl.library import Case, cases
from tcdsl.runtime.timing import Comparison
from tcdsl.settings import settings

Work = tuple[Case, Mapping[str, int], str]


class Place(Protocol):
    """Where calls run: on what, beside which peers, and how they are compared."""

    @property
    def peers(self) -> tuple[str, ...]: ...
    @property
    def default_peers(self) -> str: ...
    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def why_missing(self, peer: str) -> str | None: ...
    def sizes(self, case: Case, dtype: str) -> tuple[Mapping[str, int], ...]: ...
    def inputs(self, case: Case, sizes: Mapping[str, int], dtype: str) -> Mapping[str, Any]: ...
    def tcdsl_call(
        self, case: Case, inputs: Mapping[str, Any], dtype: str
    ) -> tuple[Call, Launches | None]: ...
    def peer_call(self, peer: str, case: Case, inputs: Mapping[str, Any]) -> Call: ...
    def disagreement(self, result: Any, expected: Any, dtype: str) -> str | None: ...
    def compare(self, calls: Mapping[str, Call], min_time_s: float) -> Comparison: ...
    def settle(self) -> str | None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="library cases (default: all)")
    parser.add_argument("--family", choices=("reduction", "graph", "contraction"))
    parser.add_argument(
        "--peers", metavar="A,B",
        help=f"of {','.join(Host.peers)} (default: {Host.default_peers}; for cuda torch)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", help="the element type (default: float32 where a case admits it)"
    )
    parser.add_argument("--sizes", choices=("all", "largest"), default="all",
                        help="of those that fit this machine (default: all)")  # fmt: skip
    parser.add_argument("--target", default="cpu", help="default: cpu")
    parser.add_argument(
        "--bound", action="store_true", help="time bound calls, outputs made before; as cuda does"
    )
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="measuring time for each call (default: 0.3; cuda 0.1)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the times there")
    parser.add_argument("--latency", action="store_true",
                        help="measure import, compilation and call overhead instead")  # fmt: skip
    parser.add_argument("--copy-rate", action="store_true",
                        help="time programs that move memory beside a copy (cuda)")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the names of the cases")


# --- what is timed -------------------------------------------------------------------------


def chosen_peers(place: Place, text: str | None) -> tuple[str, ...]:
    """Return the peers that *text* lists, separated by commas; by default the place's."""
    peers = tuple(word for word in (text or place.default_peers).split(",") if word)
    for peer in peers:
        if peer not in place.peers:
            raise BAD_ARGUMENT(
                argument="--peers", what=f"there is no {peer!r}",
                advice=f"use {', '.join(place.peers)}",
            )  # fmt: skip
    return peers


def chosen_cases(arguments: argparse.Namespace) -> tuple[Case, ...]:
    """Return the cases asked for, in the library's order."""
    known = {case.name: case for case in cases(arguments.family)}
    for name in arguments.cases:
        if name not in known:
            raise BAD_ARGUMENT(
                argument="CASE", what=f"the library has no {name!r}",
                advice="tcdsl bench --list prints what it has",
            )  # fmt: skip
    return tuple(known[name] for name in (arguments.cases or known))


def elements(case: Case, sizes: Mapping[str, int]) -> int:
    """Return how many elements the case's inputs have at *sizes*."""
    return sum(math.prod(shape) for shape in case.input_shapes(sizes).values())


def chosen_work(place: Place, arguments: argparse.Namespace) -> Iterator[Work]:
    """Yield every (case, sizes, element type) to time."""
    for case in chosen_cases(arguments):
        dtype = arguments.dtype or ("float32" if "float32" in case.dtypes else case.dtypes[0])
        if dtype not in case.dtypes:
            continue
        chosen = place.sizes(case, dtype)
        if chosen and arguments.sizes == "largest":
            chosen = (max(chosen, key=lambda sizes: elements(case, sizes)),)
        yield from ((case, sizes, dtype) for sizes in chosen)


# --- timing --------------------------------------------------------------------------------


def time_one(work: Work, peers: Sequence[str], place: Place, seconds: float) -> Row:
    """Return the times of one case at one choice of sizes; what fails becomes a problem."""
    case, sizes, dtype = work
    problems: list[str] = []
    calls: dict[str, Call] = {}
    launches: Launches | None = None
    row = (case.name, case.family, dtype, sizes)
    try:
        inputs = place.inputs(case, sizes, dtype)
    except place.errors as error:
        return Row(*row, problems=(f"its inputs: {error}",))
    try:
        call, launches = place.tcdsl_call(case, inputs, dtype)
        result = call()
        calls["tcdsl"] = call
    except place.errors as error:
        problems.append(f"tcdsl: {error}")
    for peer in peers:
        try:
            call = place.peer_call(peer, case, inputs)
            expected = call()
            if "tcdsl" in calls and (what := place.disagreement(result, expected, dtype)):
                problems.append(f"tcdsl and {peer} disagree: {what}")
            calls[peer] = call
            del expected
        # torch.compile's failures have no common type; one peer's must not end the whole run.
        except Exception as error:
            problems.append(f"{peer}: {type(error).__name__}: {error}".splitlines()[0])
    if not calls:
        return Row(*row, problems=tuple(problems))
    try:
        timings = place.compare(calls, seconds).timings
    except place.errors as error:
        return Row(*row, problems=(*problems, f"while it was timed: {error}"))
    return Row(
        *row,
        {name: timing.median_us for name, timing in timings.items()},
        {name: timing.spread for name, timing in timings.items()},
        tuple(problems),
        launches,
    )


def time_all(
    work: Sequence[Work], peers: Sequence[str], place: Place, seconds: float,
    json: Path | None, about: Mapping[str, str],
) -> list[Row]:  # fmt: skip
    """Return the rows of *work*; the file *json* has what is done whenever the run is stopped."""
    rows: list[Row] = []
    with progress_steps(len(work)) as steps:
        for number, item in enumerate(work, 1):
            steps.begin(f"{item[0].name} {sizes_text(item[1])}")
            row = time_one(item, peers, place, seconds)
            rows.append(row)
            if json:
                write_json(rows, json, about)
            if why := place.settle():
                left = len(work) - number
                lost = f"the device is lost ({why}); {left} more are not timed"
                rows[-1] = replace(row, problems=(*row.problems, lost))
                break
    if json:
        write_json(rows, json, about)
    return rows


# --- the command ---------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if any case failed or gave another result than a peer."""
    console = standard_output()
    is_cuda = arguments.target == "cuda"
    if arguments.list:
        for case in cases(arguments.family):
            console.print(f"{case.family:12} {case.name}", markup=False)
        return 0
    if arguments.latency:
        return device_latency.report(console) if is_cuda else latency.report(console)
    seconds = arguments.seconds or (0.1 if is_cuda else 0.3)
    if arguments.copy_rate:
        if not is_cuda:
            raise BAD_ARGUMENT(argument="--copy-rate", what=f"it is not for {arguments.target!r}",
                               advice="add --target cuda")  # fmt: skip
        return copy_rate.report(console, open_device(), seconds)
    return run_on_device(console, arguments, seconds) if is_cuda else run_on_host(
        console, arguments, seconds
    )  # fmt: skip


def run_on_host(console: Console, arguments: argparse.Namespace, seconds: float) -> int:
    """Time the cases on this processor."""
    place = Host(arguments.target, arguments.bound)
    peers = present_peers(console, place, arguments)
    if any(peer.startswith("torch") for peer in peers):
        use_threads(settings().threads)
    work = list(chosen_work(place, arguments))
    rows = time_all(work, peers, place, seconds, arguments.json, machine())
    return report(console, rows, peers, machine(), None)


def run_on_device(console: Console, arguments: argparse.Namespace, seconds: float) -> int:
    """Time the cases on the GPU."""
    place = open_device()
    peers = present_peers(console, place, arguments)
    work = list(chosen_work(place, arguments))
    jobs = [(case.name, dict(sizes), dtype) for case, sizes, dtype in work]
    console.print(precompile(jobs), markup=False)
    rate = copy_rate_gbs()
    about = place.about(rate)
    rows = time_all(work, peers, place, seconds, arguments.json, about)
    return report(console, rows, peers, about, rate)


def present_peers(console: Console, place: Place, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the peers asked for that are installed, and say why others are not."""
    missing = {peer: place.why_missing(peer) for peer in chosen_peers(place, arguments.peers)}
    for peer, why in missing.items():
        if why:
            console.print(f"without {peer}: {why}", markup=False)
    return tuple(peer for peer, why in missing.items() if not why)


def report(
    console: Console, rows: Sequence[Row], peers: Sequence[str], about: Mapping[str, str],
    rate_gbs: float | None,
) -> int:  # fmt: skip
    """Print tables and problems; return the exit code."""
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), markup=False)
    for table in (times_table(rows, peers, rate_gbs), means_table(rows, peers)):
        console.print(f"\n{table}", markup=False)
    problems = [
        f"{row.case} {sizes_text(row.sizes)}: {what}" for row in rows for what in row.problems
    ]
    for problem in problems:
        console.print(problem, markup=False, style="red")
    return 1 if problems else 0
