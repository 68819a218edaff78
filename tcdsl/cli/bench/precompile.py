"""Compiling a table's programs for the GPU, several processes at once, into the disk cache.

A child compiles for placeholders that stand for the tensors of the table; the parent then finds the
code in the cache.  Nothing depends on it: what a child did not manage, the parent compiles itself,
and reports what is wrong with it.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context

import tcdsl
from tcdsl.errors import TCError
from tcdsl.library import Case, case, source_for
from tcdsl.runtime.arrays import ArraySpec, spec
from tcdsl.settings import settings

MOST_PROCESSES = 14  # each has a context on the GPU
_WORTH_IT = 4  # programs: starting the processes takes some two seconds

Job = tuple[str, Mapping[str, int], str]  # a case's name, sizes, element type


def placeholders(
    chosen: Case, sizes: Mapping[str, int], dtype: str, device: str = "cuda:0"
) -> tuple[ArraySpec | float, ...]:
    """Return what stands for the case's inputs: newly made tensors of PyTorch, and numbers."""
    shapes = chosen.input_shapes(sizes)
    return tuple(
        replace(spec(shapes[p.name], p.dtype_for(dtype)), device=device, library="torch")
        if p.dims else 0.0
        for p in chosen.params
    )  # fmt: skip


def compile_one(job: Job) -> str:
    """Compile one program into the disk cache; return what went wrong, "" if nothing did."""
    name, sizes, dtype = job
    chosen = case(name)
    try:
        function = tcdsl.define(source_for(chosen, dtype))[chosen.def_name]
        function.compile(*placeholders(chosen, sizes, dtype), target="cuda")
    except TCError as error:
        return str(error)
    return ""


def why_not_precompile(n_jobs: int) -> str | None:
    """Return why compiling beside this process makes no sense, or None if it does."""
    if not settings().cache:
        return "the disk cache, through which the code would come, is off"
    if n_jobs < _WORTH_IT:
        return "there are few programs"
    return "there is one processor" if n_processes(n_jobs) < 2 else None


def n_processes(n_jobs: int) -> int:
    """Return how many processes compile."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)), n_jobs)


def precompile(jobs: Sequence[Job]) -> str:
    """Compile *jobs*, as far as possible; return a line that says what was done."""
    if why := why_not_precompile(len(jobs)):
        return f"compiled by this process: {why}"
    start = time.perf_counter()
    count = n_processes(len(jobs))
    done = 0
    # Not forked: a child of a process that uses CUDA could not.
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        with pool:
            for problem in pool.map(compile_one, jobs, chunksize=2):
                done += not problem
    except BrokenProcessPool:  # one of them has crashed: the parent's turn
        pass
    elapsed_s = time.perf_counter() - start
    return f"compiled {done} of {len(jobs)} programs in {elapsed_s:.1f} s, {count} processes"
