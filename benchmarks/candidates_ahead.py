"""Candidates of library programs, and their code made ahead by several processes.

A process compiles a program for placeholders and returns the candidates that are to be timed; then
each of these is compiled into the disk cache, where the process that times finds it.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from multiprocessing import get_context
from typing import Any

from candidates_lines import label_of

import tcdsl
from tcdsl import library
from tcdsl.cli.bench.cases import TABLES, with_more_sizes
from tcdsl.cli.bench.device_peers import input_bytes
from tcdsl.cli.bench.precompile import placeholders
from tcdsl.errors import TCError
from tcdsl.library import Case
from tcdsl.options import Options

FAMILIES = ("reduction", "graph", "contraction")
DTYPES = ("float32", "bfloat16")
STEP = 3  # of the programs and sizes: every third
MOST_BYTES = 2 << 30  # of a program's inputs: larger ones take long, and say the same


@dataclass(frozen=True, slots=True)
class Job:
    """A program at given sizes."""

    case: str
    dtype: str
    sizes: tuple[tuple[str, int], ...]
    target: str

    @property
    def label(self) -> str:
        return label_of(self.case, self.dtype, dict(self.sizes))

    @property
    def input_bytes(self) -> int:
        return input_bytes(library.case(self.case), dict(self.sizes), self.dtype)

    def executable(self, options: Options | None = None) -> Any:
        """Return the executable for placeholders of the inputs."""
        chosen = library.case(self.case)
        function = tcdsl.define(library.source_for(chosen, self.dtype))[chosen.def_name]
        return function.compile(*self._placeholders(chosen), target=self.target, options=options)

    def _placeholders(self, chosen: Case) -> Iterable[Any]:
        if self.target == "cuda":
            return placeholders(chosen, dict(self.sizes), self.dtype)
        shapes = chosen.input_shapes(dict(self.sizes))
        return [
            tcdsl.spec(shapes[p.name], p.dtype_for(self.dtype)) if p.dims else 0.0
            for p in chosen.params
        ]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A kernel of a program, and those of its candidates that are to be timed."""

    job: Job
    kernel: str
    chip: str
    choices: Mapping[str, Any]  # of the program, without kernels
    candidates: tuple[Mapping[str, Any], ...]  # the default first

    def options(self, candidate: Mapping[str, Any]) -> Options:
        """Return the options that force *candidate*."""
        entry = {"kernel": self.kernel, "template": candidate["template"], **candidate["config"]}
        if "code_change" in candidate:
            entry["code"] = candidate["code"]
        return Options(choices=json.dumps({**self.choices, "kernels": [entry]}))


def jobs(target: str, only: Sequence[str] = ()) -> list[Job]:
    """Return programs, in an order of which every beginning is a sample; all that match *only*.

    What is asked for may be of any type, and of a size that a table of ``tcdsl bench`` has beside
    the library's.
    """
    found = []
    for case in library.cases():
        if only:
            case = with_more_sizes(case, TABLES)
        elif case.family not in FAMILIES:
            continue
        sizes = case.cpu_sizes if target == "cpu" else case.sizes
        for dtype in [name for name in case.dtypes if only or name in DTYPES]:
            found += [Job(case.name, dtype, tuple(s.items()), target) for s in sizes]
    if only:
        return [job for job in found if any(fnmatchcase(job.label, one) for one in only)]
    found = [job for job in found if job.input_bytes <= MOST_BYTES][::STEP]
    random.Random(0).shuffle(found)
    return found


def weighed(job: Job, most: int, of_code: bool = False) -> list[Weighed]:
    """Compile *job*, and return its kernels with something to choose: configurations.

    :arg of_code: what is chosen with other code instead, all that differ in their text.
    """
    executable = job.executable()
    fitting = [
        c
        for c in executable.candidates
        if "why_not" not in c and (c["is_chosen"] or ("code_change" in c) == of_code)
    ]
    chip = json.loads(executable.stages["candidates"].split("\n")[0]).get("chip", "")
    choices = {key: value for key, value in executable.choices.items() if key != "kernels"}
    found = []
    for kernel in dict.fromkeys(c["kernel"] for c in fitting):
        own = [c for c in fitting if c["kernel"] == kernel]
        chosen = [c for c in own if c["is_chosen"]]
        others = spread([c for c in own if not c["is_chosen"]], most - 1)
        if chosen and others:
            found.append(Weighed(job, kernel, chip, choices, (chosen[0], *others)))
    return found


def distinct(one: Weighed, texts: Sequence[str]) -> Weighed:
    """Return *one* with the first of those candidates that have the same of *texts*."""
    first: dict[str, Mapping[str, Any]] = {}
    for text, candidate in zip(texts, one.candidates, strict=True):
        first.setdefault(text, candidate)
    return replace(one, candidates=tuple(first.values()))


def spread(candidates: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Return *most* of *candidates*: half of them the best by prediction, half evenly spread."""
    ordered = sorted(candidates, key=lambda c: float(c.get("predicted_us", 0.0)))
    if len(ordered) <= most:
        return ordered
    best, rest = ordered[: most // 2], ordered[most // 2 :]
    count = most - len(best)
    return best + [rest[(n + 1) * len(rest) // count - 1] for n in range(count)]


def compiled(job: Job, options: Options) -> tuple[str, str]:
    """Compile *job* with *options*; return what went wrong, "" if nothing did, and the text."""
    try:
        return "", job.executable(options).source
    except TCError as error:
        return str(error).split("\n")[0], ""


# --- several processes -------------------------------------------------------------------------


def ahead(
    work: Sequence[Job], most: int, workers: int, limit_s: float, of_code: bool = False
) -> Iterator[Weighed]:
    """Yield the kernels of *work*, with those candidates that are compiled in *limit_s* seconds."""
    stop = time.monotonic() + limit_s
    count = min(workers, len(os.sched_getaffinity(0)))
    # Not forked: a child of a process that uses CUDA could not.
    pool = ProcessPoolExecutor(count, get_context("spawn"))
    try:
        found = _results(pool, weighed, [(job, most, of_code) for job in work], stop)
        kernels = [one for own in found for one in own or ()]
        asked = [(one.job, one.options(c)) for one in kernels for c in one.candidates]
        done = iter(_results(pool, compiled, asked, stop))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for one in kernels:
        each = [(c, next(done)) for c in one.candidates]
        own = [(c, result[1]) for c, result in each if result and not result[0]]
        if len(own) > 1 and own[0][0] is one.candidates[0]:
            kept = replace(one, candidates=tuple(c for c, _ in own))
            yield distinct(kept, [text for _, text in own]) if of_code else kept


def _results(
    pool: ProcessPoolExecutor, function: Callable[..., Any], tasks: Sequence[Any], stop: float
) -> list[Any]:
    """Return what *function* returns of each of *tasks*; None where it failed, or had no time."""
    futures = [pool.submit(function, *task) for task in tasks]
    wait(futures, max(0.0, stop - time.monotonic()))
    return [_result(future) for future in futures]


def _result(future: Future[Any]) -> Any:
    if not future.done():
        return None
    try:
        return future.result()
    except (TCError, BrokenProcessPool) as error:
        print(f"not compiled: {error}", file=sys.stderr)
        return None
