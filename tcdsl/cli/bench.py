"""``tcdsl bench``: the library's programs beside NumPy and PyTorch, in turns, in one process.

``--latency`` measures instead what surrounds a call: import, compilation, cache, the call itself.
"""

import argparse
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tcdsl.cli import latency
from tcdsl.cli.arguments import BAD_ARGUMENT
from tcdsl.cli.bench_report import (
    Row,
    machine,
    means_table,
    sizes_text,
    times_table,
    write_json,
)  # fmt: skip
from tcdsl.cli.console import progress_steps, standard_output
from tcdsl.cli.peers import (
    PEERS,
    Call,
    disagreement,
    peer_call,
    tcdsl_call,
    use_threads,
    why_missing,
)  # fmt: skip
from tcdsl.errors import TCError
from tcdsl.library import Case, cases
from tcdsl.runtime.timing import compare
from tcdsl.settings import settings

Work = tuple[Case, Mapping[str, int], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="library cases (default: all)")
    parser.add_argument("--family", choices=("reduction", "graph", "contraction"))
    parser.add_argument(
        "--peers", default="numpy,torch", metavar="A,B",
        help=f"of {','.join(PEERS)} (default: numpy,torch)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", help="the element type (default: float32 where a case admits it)"
    )
    parser.add_argument("--sizes", choices=("all", "largest"), default="all",
                        help="of those that fit this machine (default: all)")  # fmt: skip
    parser.add_argument("--target", default="cpu", help="default: cpu")
    parser.add_argument(
        "--bound", action="store_true", help="time bound calls, outputs made before"
    )
    parser.add_argument("--seconds", type=float, default=0.3, metavar="S",
                        help="measuring time for each call (default: 0.3)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the times there")
    parser.add_argument("--latency", action="store_true",
                        help="measure import, compilation and call overhead instead")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the names of the cases")


def chosen_peers(text: str) -> tuple[str, ...]:
    """Return the peers that *text* lists, separated by commas."""
    peers = tuple(word for word in text.split(",") if word)
    for peer in peers:
        if peer not in PEERS:
            raise BAD_ARGUMENT(
                argument="--peers", what=f"there is no {peer!r}", advice=f"use {', '.join(PEERS)}"
            )
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


def fitting_sizes(case: Case) -> tuple[Mapping[str, int], ...]:
    """Return the case's sizes that fit this machine, or if none do, the last of the tests."""
    return case.cpu_sizes or case.small_sizes[-1:]


def elements(case: Case, sizes: Mapping[str, int]) -> int:
    """Return how many elements the case's inputs have at *sizes*."""
    return sum(math.prod(shape) for shape in case.input_shapes(sizes).values())


def chosen_work(arguments: argparse.Namespace) -> Iterator[Work]:
    """Yield every (case, sizes, element type) to time."""
    for case in chosen_cases(arguments):
        dtype = arguments.dtype or ("float32" if "float32" in case.dtypes else case.dtypes[0])
        chosen = fitting_sizes(case)
        if arguments.sizes == "largest":
            chosen = (max(chosen, key=lambda sizes: elements(case, sizes)),)
        if dtype in case.dtypes:
            yield from ((case, sizes, dtype) for sizes in chosen)


def time_one(work: Work, peers: tuple[str, ...], arguments: argparse.Namespace) -> Row:
    """Return the times of one case at one choice of sizes; what fails becomes a problem."""
    case, sizes, dtype = work
    inputs = case.make_inputs(sizes, np.random.default_rng(0), dtype)
    problems: list[str] = []
    calls: dict[str, Call] = {}
    try:
        calls["tcdsl"] = tcdsl_call(
            case, inputs, dtype, bound=arguments.bound, target=arguments.target
        )
        result = calls["tcdsl"]()
    except TCError as error:
        problems.append(f"tcdsl: {error}")
        calls.clear()
    for peer in peers:
        try:
            calls[peer] = peer_call(peer, case, inputs)
            expected = calls[peer]()
        # torch.compile's failures have no common type; one peer's must not end the whole run.
        except Exception as error:
            calls.pop(peer, None)
            problems.append(f"{peer}: {type(error).__name__}: {error}".splitlines()[0])
            continue
        if "tcdsl" in calls and (what := disagreement(result, expected, dtype)):
            problems.append(f"tcdsl and {peer} disagree: {what}")
    if not calls:
        return Row(case.name, case.family, dtype, sizes, problems=tuple(problems))
    timings = compare(calls, min_time_s=arguments.seconds).timings
    return Row(
        case.name, case.family, dtype, sizes,
        {name: timing.median_us for name, timing in timings.items()},
        {name: timing.spread for name, timing in timings.items()},
        tuple(problems),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if any case failed or gave another result than a peer."""
    console = standard_output()
    if arguments.list:
        for case in cases(arguments.family):
            console.print(f"{case.family:12} {case.name}", markup=False)
        return 0
    if arguments.latency:
        return latency.report(console)
    peers = chosen_peers(arguments.peers)
    for peer in peers:
        if why := why_missing(peer):
            console.print(f"without {peer}: {why}", markup=False)
    present = tuple(peer for peer in peers if not why_missing(peer))
    if any(peer.startswith("torch") for peer in present):
        use_threads(settings().threads)
    work = list(chosen_work(arguments))
    rows = []
    with progress_steps(len(work)) as steps:
        for item in work:
            steps.begin(f"{item[0].name} {sizes_text(item[1])}")
            rows.append(time_one(item, present, arguments))
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()), markup=False)
    for table in (times_table(rows, present), means_table(rows, present)):
        console.print(f"\n{table}", markup=False)
    problems = [f"{row.case}: {problem}" for row in rows for problem in row.problems]
    for problem in problems:
        console.print(problem, markup=False, style="red")
    if arguments.json:
        write_json(rows, arguments.json)
    return 1 if problems else 0
