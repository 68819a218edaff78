"""Filling torch.compile's caches for a table, several processes at once.

A process compiles and calls a case once, as the table will; what it finds lies on the disk, and the
table's own process loads it in a fraction of the time.  To find the best configuration of a kernel
torch.compile times each on the GPU: that is done by one process at a time, so that the others do
not disturb it.  Large inputs, too, are in the GPU's memory only one case's at a time.
"""

import fcntl
import gc
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from tcdsl.cli.bench.device_inputs import device_inputs
from tcdsl.cli.bench.device_peers import COMPILE_MODE, float32_proper, input_bytes
from tcdsl.cli.bench.precompile import Job
from tcdsl.library import case
from tcdsl.library.peer_calls import call_on_tensors

PEER = "torch-compile"
_LARGE_BYTES = 1 << 30
_MOST_POOLS = 3  # a process that crashes takes its pool along
_folder: Path  # of the locks, in a child
_had: set[str] = set()  # turns that this process has


def prepare(jobs: Sequence[Job], peers: Sequence[str], count: int, limit_s: float | None) -> str:
    """Let *count* processes compile *jobs* for at most *limit_s*; return what was done."""
    if PEER not in peers:
        return f"nothing is prepared: {PEER} is no peer"
    start = time.perf_counter()
    results: dict[int, str] = {}
    left = dict(enumerate(jobs))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(_MOST_POOLS):
            rest_s = None if limit_s is None else limit_s - (time.perf_counter() - start)
            if not left or (rest_s is not None and rest_s <= 0):
                break
            results |= in_pool(left, count, Path(folder), rest_s)
            left = {number: job for number, job in left.items() if number not in results}
    failures = [problem for problem in results.values() if problem]
    text = (
        f"prepared {len(results) - len(failures)} of {len(jobs)} programs of {PEER} "
        f"in {time.perf_counter() - start:.0f} s, {count} processes"
    )
    return "\n".join([text, *(f"not prepared: {problem}" for problem in failures)])


def in_pool(
    jobs: dict[int, Job], count: int, folder: Path, limit_s: float | None
) -> dict[int, str]:  # fmt: skip
    """Return what went wrong by the number of the job, "" for nothing, of those that ended."""
    before = set(active_children())
    # Not forked: a child of a process that uses CUDA could not.
    pool = ProcessPoolExecutor(
        min(count, len(jobs)), get_context("spawn"), initializer=begin, initargs=(folder,)
    )
    futures = {pool.submit(prepare_one, job): number for number, job in jobs.items()}
    done, pending = wait(futures, limit_s)
    pool.shutdown(wait=not pending, cancel_futures=True)
    for child in set(active_children()) - before if pending else ():
        child.terminate()
    results = {}
    for future in done:
        try:
            results[futures[future]] = future.result()
        except BrokenProcessPool:
            continue
    return results


# --- in a child ------------------------------------------------------------------------------


def begin(folder: Path) -> None:
    """Make this process one of several: it compiles alone, and has the GPU in turns."""
    global _folder
    _folder = folder
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    float32_proper()
    benchmarking = import_module("torch._inductor.runtime.benchmarking")
    kind = type(benchmarking.benchmarker)
    alone = kind.benchmark_gpu

    @wraps(alone)
    def in_turn(*args: Any, **options: Any) -> Any:
        with turn("gpu"):
            return alone(*args, **options)

    kind.benchmark_gpu = in_turn


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Wait until no other process has the turn called *name*, and have it."""
    if name in _had:
        yield
        return
    with (_folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, also by a crash
        _had.add(name)
        try:
            yield
        finally:
            _had.discard(name)


def prepare_one(job: Job) -> str:
    """Compile and call one case; return what went wrong, "" if nothing did."""
    name, sizes, dtype = job
    chosen = case(name)
    is_large = input_bytes(chosen, sizes, dtype) > _LARGE_BYTES
    with turn("memory") if is_large else nullcontext():
        try:
            compile_and_call(job)
        except Exception as error:  # torch.compile's failures have no common type
            return f"{name} {dict(sizes)} {dtype}: {type(error).__name__}: {error}".splitlines()[0]
        finally:
            gc.collect()
            torch = import_module("torch")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return ""


def compile_and_call(job: Job) -> None:
    """Call one case through torch.compile as the table will."""
    name, sizes, dtype = job
    inputs = device_inputs(case(name), sizes, dtype)
    call = call_on_tensors(case(name), inputs, compiled=True, mode=COMPILE_MODE)
    call()
    torch = import_module("torch")
    if torch.cuda.is_available():
        torch.cuda.synchronize()
