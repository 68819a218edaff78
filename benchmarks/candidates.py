"""Every candidate of a kernel, timed: does the estimate put them in the order of their times?

    python benchmarks/candidates.py --lines build/candidates.jsonl --workers 15 --limit 180
    python benchmarks/candidates.py --only 'softmax float32*' --target cpu
    python benchmarks/candidates.py --from build/candidates.jsonl         times nothing: the summary
    python benchmarks/candidates.py --from build/candidates.jsonl --again of the present estimate
    python benchmarks/candidates.py --code --workers 15           other code of what is chosen
    python benchmarks/candidates.py --from benchmarks/measured/candidates_h200.jsonl --again

An H200's lie in ``benchmarks/measured``: candidates_h200.jsonl of reductions and graphs,
candidates_tiles_h200 of products and stencils, candidates_networks_h200 of pieces of networks,
candidates_types_h200 of narrow and wide types and of what was slower than in version 0.1,
candidates_code_h200 of other code.
candidates_xeon is of one thread of a CPU, of which eight programs ran at once, a core each.

For each program, and each of its kernels with something to choose, candidates are forced one after
another: the best half by prediction, and a sample of the others.  They take turns with the default
in one process, on the same arrays, and each result is compared with the default's.  The summary
says, kernel by kernel and at the median:

    rank correlation   of predicted and measured times (Spearman), of kernels of which some take 3 %
                       longer than others
    order              the same by pairs (Kendall), of those that differ by 3 %: less is noise, for
                       one candidate's times differ by 1 to 2 % from one call to the next
    estimate           time of the candidate with the least predicted time / that of the fastest
    default            time of what the compiler takes today / that of the fastest

``--code`` times what is chosen with other code in the configurations' place, one value at a time,
where the program's text differs; the summary says what each value takes, and is predicted to take.

``--workers`` processes compile all candidates before the first is timed.  ``--lines`` adds a line a
kernel (candidates_lines.py), and leaves out programs that are there: a run that was cut off goes
on.

On a CPU with OMP_NUM_THREADS=1 a time is the least processor time of a call, in turns: other work
on the machine counts less.  For one thread:

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/candidates.py --target cpu --most 8
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from candidates_again import again
from candidates_ahead import Job, Weighed, ahead, compiled, distinct, jobs, weighed
from candidates_lines import Line, read, summary

from tcdsl import library
from tcdsl.cli.bench.device_peers import open_device
from tcdsl.cli.bench.peers import Host
from tcdsl.cli.bench.timing import Place
from tcdsl.library.peer_calls import Call

DEFAULT = "default"
ROUNDS = 8  # of turns on a CPU


def kernels_of(work: Sequence[Job], args: argparse.Namespace) -> Iterator[Weighed]:
    """Yield the kernels of *work* that have candidates, compiled ahead if several processes may."""
    if args.workers > 1:
        start = time.monotonic()
        found = list(ahead(work, args.most, args.workers, args.compile_limit, args.code))
        count = sum(len(one.candidates) for one in found)
        print(f"{count} candidates compiled in {time.monotonic() - start:.1f} s", flush=True)
        yield from found
    else:
        for one in (found for job in work for found in weighed(job, args.most, args.code)):
            texts = [compiled(one.job, one.options(c))[1] for c in one.candidates if args.code]
            yield distinct(one, texts) if args.code else one


def lines_of(place: Place, kernels: Sequence[Weighed], seconds: float) -> Iterator[Line]:
    """Yield what is measured of the *kernels* of one program."""
    job = kernels[0].job
    inputs = place.inputs(library.case(job.case), dict(job.sizes), job.dtype)
    for one in kernels:
        yield timed(place, one, inputs, seconds)


def timed(place: Place, one: Weighed, inputs: Mapping[str, Any], seconds: float) -> Line:
    """Return the times of a program with each candidate of a kernel, *seconds* for each."""
    job = one.job
    case = library.case(job.case)
    calls: dict[str, Call] = {DEFAULT: place.tcdsl_call(case, inputs, job.dtype)[0]}
    expected = calls[DEFAULT]()
    failed = []
    for number, candidate in enumerate(one.candidates[1:], 1):
        try:
            call = place.tcdsl_call(case, inputs, job.dtype, one.options(candidate))[0]
            wrong = place.disagreement(call(), expected, job.dtype)
        except place.errors as error:
            failed.append(f"{_said(candidate)}: {error}")
            continue
        if wrong:
            failed.append(f"{_said(candidate)}: {wrong}")
        calls[str(number)] = call
    is_alone = job.target == "cpu" and os.environ.get("OMP_NUM_THREADS") == "1"
    us = processor_us(calls, seconds) if is_alone else place_us(place, calls, seconds)
    candidates = tuple(
        {**candidate, "measured_us": us[name]}
        for number, candidate in enumerate(one.candidates)
        if (name := str(number) if number else DEFAULT) in us
    )
    return Line(
        job.case, job.dtype, dict(job.sizes), one.kernel, one.chip, us[DEFAULT], candidates,
        tuple(failed),
    )  # fmt: skip


def _said(candidate: Mapping[str, Any]) -> str:
    return json.dumps(candidate.get("code_change", candidate["config"]))


def place_us(place: Place, calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Return the median times of *calls* in microseconds."""
    timings = place.compare(calls, seconds).timings
    return {name: timing.median_us for name, timing in timings.items()}


def processor_us(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Return the least processor times of *calls* in microseconds, *seconds* for each."""
    found = dict.fromkeys(calls, math.inf)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            count, start = 0, time.process_time()
            while not count or (spent := time.process_time() - start) < seconds / ROUNDS:
                call()
                count += 1
            found[name] = min(found[name], 1e6 * spent / count)
    return found


def time_all(kernels: Iterator[Weighed], place: Place, args: argparse.Namespace) -> list[Line]:
    """Return the lines of *kernels*, program by program, until the time is over."""
    lines: list[Line] = []
    stop = 0.0
    for job, own in groupby(kernels, lambda one: one.job):
        stop = stop or time.monotonic() + args.limit
        if time.monotonic() > stop:
            break
        try:
            found = list(lines_of(place, list(own), args.seconds))
        except place.errors as error:
            print(f"{job.label}: {error}", flush=True)
            found = []
        lines += found
        if args.lines:
            args.lines.parent.mkdir(parents=True, exist_ok=True)
            with args.lines.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(line)) + "\n" for line in found)
        if why := place.settle():
            print(f"the device is lost after {job.label}: {why}")
            break
    return lines


def parsed() -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", default=[], help="programs, with * and ? (default: a sample)"
    )
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--lines", type=Path, help="add a line a kernel there")
    parser.add_argument("--most", type=int, default=16, help="candidates of a kernel")
    parser.add_argument("--code", action="store_true", help="other code of what is chosen")
    parser.add_argument("--workers", type=int, default=1, help="processes that compile ahead")
    parser.add_argument("--compile-limit", type=float, default=1e9, help="seconds for that")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds of timing")
    parser.add_argument("--seconds", type=float, default=0.02, help="of timing, a candidate")
    parser.add_argument("--from", dest="source", type=Path, help="print the summary of such a file")
    parser.add_argument("--again", action="store_true", help="predict anew; needs no GPU")
    return parser.parse_args()


def main() -> None:
    args = parsed()
    if args.source:
        lines = read(args.source)
        print(summary(list(again(lines)) if args.again else lines))
        return
    place: Place = open_device() if args.target == "cuda" else Host(args.target, bound=True)
    lines = read(args.lines) if args.lines else []
    known = {line.program for line in lines}
    work = [job for job in jobs(args.target, args.only) if job.label not in known]
    print(summary([*lines, *time_all(kernels_of(work, args), place, args)]))


if __name__ == "__main__":
    main()
