"""``tcdsl bench``: the library's programs beside NumPy, PyTorch and JAX, in turns, in one process.

``--target cuda`` times them on the GPU (``device_peers.py``); ``--copy-rate`` only programs that
move memory, beside a copy.  ``--latency`` measures instead what surrounds a call: import,
compilation, cache, the call itself; ``--first-call`` what each case's first call costs where
nothing is cached.  ``--lines`` keeps each row at once in a file, to which several runs may add;
``--from`` makes the page of such files.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from tcdsl.api import require_target
from tcdsl.cli.arguments import duration, natural
from tcdsl.cli.bench import cases as bench_work
from tcdsl.cli.bench import copy_rate, device_latency, latency
from tcdsl.cli.bench import forced as bench_forced
from tcdsl.cli.bench.cases import Work, chosen_work, key_of, label_of, listed_cases
from tcdsl.cli.bench.device_peers import Device, copy_rate_gbs, library_versions, open_device
from tcdsl.cli.bench.first_call import first_calls_text, run_another, time_first_call
from tcdsl.cli.bench.forced import FORCED, chosen_forced
from tcdsl.cli.bench.lines import STANDARD_OUTPUT, keys_in, keys_to_leave_out, read_lines
from tcdsl.cli.bench.measured import Run
from tcdsl.cli.bench.page import page
from tcdsl.cli.bench.peers import Host, use_threads
from tcdsl.cli.bench.precompile import precompile
from tcdsl.cli.bench.prepare import prepare
from tcdsl.cli.bench.read_rate import read_rate_gbs
from tcdsl.cli.bench.report import Row, machine, means_table, times_table
from tcdsl.cli.bench.timing import Keeper, Place, time_all, time_one
from tcdsl.cli.console import standard_output
from tcdsl.options import BAD_ARGUMENT
from tcdsl.settings import settings

_PREPARING_SHARE = 0.5  # of the time that there is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    bench_work.add_arguments(parser)
    bench_forced.add_arguments(parser)
    parser.add_argument(
        "--peers", metavar="A,B",
        help=f"of {','.join(Host.peers)} (default: {Host.default_peers}); "
        f"for cuda of {','.join(Device.peers)} (default: {Device.default_peers})",
    )  # fmt: skip
    parser.add_argument("--target", default="cpu", help="default: cpu")
    parser.add_argument(
        "--bound", action="store_true", help="time bound calls, outputs made before; as cuda does"
    )
    parser.add_argument("--flush", action=argparse.BooleanOptionalAction, default=True,
                        help="empty the GPU's cache before each run (default: yes)")  # fmt: skip
    parser.add_argument("--seconds", type=duration, metavar="S",
                        help="measuring time for each call (default: 0.3; cuda 0.1)")  # fmt: skip
    parser.add_argument("--limit", type=duration, metavar="S",
                        help="begin no case when the command has run for S seconds")  # fmt: skip
    parser.add_argument("--prepare", type=natural, default=0, metavar="N",
                        help="compile peers' code in N processes before (cuda)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the times there")
    parser.add_argument("--lines", type=Path, metavar="FILE",
                        help="add a line a case there; leave out what it has")  # fmt: skip
    parser.add_argument("--skip", type=Path, nargs="+", default=(), metavar="FILE",
                        help="leave out the cases that such files have")  # fmt: skip
    parser.add_argument("--from", type=Path, nargs="+", metavar="FILE", dest="files",
                        help="time nothing: print the page of such files")  # fmt: skip
    parser.add_argument("--latency", action="store_true",
                        help="measure import, compilation and call overhead instead")  # fmt: skip
    parser.add_argument("--copy-rate", action="store_true",
                        help="time programs that move memory beside a copy (cuda)")  # fmt: skip
    parser.add_argument("--first-call", action="store_true",
                        help="time only each first call, nothing cached")  # fmt: skip
    parser.add_argument(
        "--list", action="store_true", help="time nothing: print the names of these cases"
    )


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


# --- the command ---------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if any case failed or gave another result than a peer."""
    require_target(arguments.target)
    require_files(arguments)
    console = standard_output()
    is_cuda = arguments.target == "cuda"
    if arguments.files:
        console.print(page(read_lines(arguments.files)), markup=False)
        return 0
    if arguments.list:
        for case in listed_cases(arguments):
            console.print(f"{case.family:12} {case.name}", markup=False)
        return 0
    if arguments.latency:
        return device_latency.report(console) if is_cuda else latency.report(console)
    if arguments.copy_rate:
        if not is_cuda:
            raise BAD_ARGUMENT(argument="--copy-rate", what=f"it is not for {arguments.target!r}",
                               advice="add --target cuda")  # fmt: skip
        return copy_rate.report(console, open_device(), arguments.seconds or 0.1)
    if arguments.first_call:
        return run_first_calls(console, arguments)
    return run_on_device(console, arguments) if is_cuda else run_on_host(console, arguments)


def require_files(arguments: argparse.Namespace) -> None:
    """Raise OptionError now if a file is not there, or cannot be: timing takes long."""
    for path in arguments.files or ():
        if not path.is_file():
            raise BAD_ARGUMENT(argument="--from", what=f"there is no file {path}",
                               advice="name what bench --lines wrote")  # fmt: skip
    for argument, path in (("--json", arguments.json), ("--lines", arguments.lines)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise BAD_ARGUMENT(argument=argument, what=f"no file can be written to {path}",
                               advice="name a file in a folder that exists")  # fmt: skip


def run_on_host(console: Console, arguments: argparse.Namespace) -> int:
    """Time the cases on this processor."""
    is_over = deadline(arguments.limit)
    place = Host(arguments.target, arguments.bound)
    forced = chosen_forced(arguments)
    run = Run(machine(), present_peers(console, place, arguments))
    if any(peer.startswith("torch") for peer in run.peers):
        use_threads(settings().threads)
    work = work_left(console, place, arguments, run)
    measured = partial(
        time_one, peers=run.peers, place=place, seconds=arguments.seconds or 0.3, forced=forced
    )
    rows = time_all(work, place, measured, Keeper(arguments, run), is_over)
    return report(console, rows, run, work)


def run_on_device(console: Console, arguments: argparse.Namespace) -> int:
    """Time the cases on the GPU."""
    is_over = deadline(arguments.limit)
    place = replace(open_device(), flush=arguments.flush)
    peers = present_peers(console, place, arguments)
    work = work_left(console, place, arguments, Run({}, peers, arguments.flush))
    if not work:
        return 0
    jobs = [(case.name, dict(sizes), dtype) for case, sizes, dtype in work]
    console.print(precompile(jobs), markup=False)
    if arguments.prepare:
        limit_s = _PREPARING_SHARE * arguments.limit if arguments.limit else None
        others = tuple(peer for peer in peers if peer != FORCED)
        console.print(prepare(jobs, others, arguments.prepare, limit_s), markup=False)
    copy_gbs, read_gbs = copy_rate_gbs(), read_rate_gbs()
    about = place.about(copy_gbs, read_gbs) | library_versions(peers)
    run = Run(about, peers, arguments.flush, copy_gbs, read_gbs)
    measured = partial(
        time_one, peers=peers, place=place, seconds=arguments.seconds or 0.1,
        forced=chosen_forced(arguments),
    )  # fmt: skip
    rows = time_all(work, place, measured, Keeper(arguments, run), is_over)
    return report(console, rows, run, work)


def run_first_calls(console: Console, arguments: argparse.Namespace) -> int:
    """Time the first calls of the cases; there are no peers."""
    is_over = deadline(arguments.limit)
    place: Place
    if arguments.target == "cuda":
        place = open_device()
        about = place.about(0.0)
    else:
        place, about = Host(arguments.target, arguments.bound), machine()
    run = Run(about, (), first_calls=True)
    work = work_left(console, place, arguments, run)
    run_another(place)
    measured = partial(time_first_call, place=place)
    rows = time_all(work, place, measured, Keeper(arguments, run), is_over)
    console.print(f"\n{first_calls_text(rows)}", markup=False)
    return report_problems(console, rows, work)


def deadline(limit_s: float | None) -> Callable[[], bool]:
    """Return a function that tells whether *limit_s* seconds from now are over."""
    stop = time.perf_counter() + limit_s if limit_s is not None else float("inf")
    return lambda: time.perf_counter() >= stop


def work_left(
    console: Console, place: Place, arguments: argparse.Namespace, run: Run
) -> list[Work]:  # fmt: skip
    """Return what is to be timed and is in none of the files given, and say what is."""
    work = chosen_work(place, arguments)
    skipped = keys_in(existing(arguments.skip), run)
    left = [item for item in work if key_of(item) not in skipped]
    if arguments.skip:
        console.print(f"skipped {len(work) - len(left)} of {len(work)}", markup=False)
    if arguments.lines in (None, STANDARD_OUTPUT):
        return left
    out = keys_to_leave_out(arguments.lines, run)
    work, left = left, [item for item in left if key_of(item) not in out]
    console.print(
        f"{len(work) - len(left)} of {len(work)} are in {arguments.lines}", markup=False
    )  # fmt: skip
    return left


def existing(paths: Sequence[Path]) -> Sequence[Path]:
    """Return *paths*; one that is no file would skip nothing, unnoticed."""
    for path in paths:
        if not path.is_file():
            raise BAD_ARGUMENT(
                argument="--skip", what=f"{path} is no file", advice="name one that --lines wrote"
            )
    return paths


def present_peers(console: Console, place: Place, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the peers asked for that are installed, and say why others are not."""
    forced = () if chosen_forced(arguments) is None else (FORCED,)
    # Beside a forced choice peers are only what is asked for: the ratio is to the default choice.
    asked = () if forced and arguments.peers is None else chosen_peers(place, arguments.peers)
    missing = {peer: place.why_missing(peer) for peer in asked}
    for peer, why in missing.items():
        if why:
            console.print(f"without {peer}: {why}", markup=False)
    return (*(peer for peer, why in missing.items() if not why), *forced)


def report(console: Console, rows: Sequence[Row], run: Run, work: Sequence[Work]) -> int:
    """Print tables and problems; return the exit code."""
    console.print(", ".join(f"{name} {value}" for name, value in run.about.items()), markup=False)
    rate_gbs = run.copy_gbs or None
    for table in (times_table(rows, run.peers, rate_gbs), means_table(rows, run.peers)):
        console.print(f"\n{table}", markup=False)
    return report_problems(console, rows, work)


def report_problems(console: Console, rows: Sequence[Row], work: Sequence[Work]) -> int:
    """Print what is wrong, and the cases that did not get their turn; return the exit code."""
    problems = [f"{row.label}: {what}" for row in rows for what in row.problems]
    for problem in problems:
        console.print(problem, markup=False, style="red")
    if len(rows) < len(work):
        console.print(f"timed {len(rows)} of {len(work)}; without a turn:", markup=False)
        for item in work[len(rows) :]:
            console.print(f"  {label_of(item)}", markup=False)
    return 1 if problems else 0
