"""What a user waits for at the first call of every library program, by the clock, nothing cached.

    python benchmarks/first_calls_clock.py                       each program, for a GPU and a CPU
    python benchmarks/first_calls_clock.py 'conv*' --target cuda --start fresh

    fresh   [arrays] import tcdsl, define, call, wait     a process that has done nothing yet
    after   [arrays, import tcdsl, another program] define, call, wait

What stands in brackets is not timed: arrays lie where the call needs them, on the GPU (of PyCUDA)
or in memory, so that a process has its CUDA context.  Each time is of one process of its own with
an empty folder for compiled code.  The arrays are zero, of the first of the program's types and
sizes.  "run" is the second call: how much of the first is the work itself.  Processor seconds
without a GPU are measured by ``benchmarks/first_calls.py``.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from statistics import median
from typing import Any

TARGETS, STARTS = ("cuda", "cpu"), ("fresh", "after")
STEPS = ("import", "define", "call", "all", "run")
TOO_LONG_S = 0.6
_ANOTHER = """def another(float(M,N) x) -> (y) {
    t(m) max=! x(m,n)
    e(m,n) = exp(x(m,n) - t(m))
    z(m) +=! e(m,n)
    y(m,n) = e(m,n) / z(m)
}"""


@dataclass(frozen=True, slots=True)
class Job:
    """A library program, the target that it is called for, and what its process has done before."""

    name: str
    target: str
    start: str  # "fresh" or "after"
    text: str
    def_name: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]  # shapes and types


def library_jobs() -> list[Job]:
    """Return a job for each program, target and start."""
    from tcdsl import library

    found = []
    for start in STARTS:
        for target in TARGETS:
            for case in library.cases():
                sizes = case.sizes if target == "cuda" else case.cpu_sizes
                shapes, dtype = case.input_shapes(sizes[0]), case.dtypes[0]
                inputs = tuple((shapes[p.name], p.dtype_for(dtype)) for p in case.params)
                text = library.source_for(case, dtype)
                found.append(Job(case.name, target, start, text, case.def_name, inputs))
    return found


# --- one first call ----------------------------------------------------------------------------


def arrays(job: Job) -> list[Any]:
    """Return zeros on the target of *job*; scalars are numbers of NumPy."""
    import numpy as np

    if job.target == "cpu":
        return [np.full(shape, 0, dtype)[()] for shape, dtype in job.inputs]
    import pycuda.driver as driver
    from pycuda.gpuarray import GPUArray

    driver.init()
    driver.Device(0).retain_primary_context().push()

    def on_device(shape: tuple[int, ...], dtype: str) -> Any:
        if not shape:
            return np.dtype(dtype).type(0)
        n_bytes = max(math.prod(shape) * np.dtype(dtype).itemsize, 1)
        memory = driver.mem_alloc(n_bytes)
        driver.memset_d8(memory, 0, n_bytes)
        return GPUArray(shape, np.dtype(dtype), gpudata=memory)

    return [on_device(shape, dtype) for shape, dtype in job.inputs]


def measure(job: Job) -> dict[str, float]:
    """Call *job*'s program in this process, which has done nothing yet; return seconds by step."""
    given = arrays(job)
    if job.start == "after":
        import tcdsl

        other = Job("another", job.target, job.start, _ANOTHER, "another", (((8, 16), "float32"),))
        tcdsl.define(_ANOTHER)["another"](*arrays(other), target=job.target)
        tcdsl.cuda.synchronize()
    times = [time.perf_counter()]
    import tcdsl

    times.append(time.perf_counter())
    f = tcdsl.define(job.text)[job.def_name]
    times.append(time.perf_counter())
    for _ in range(2):
        results = f(*given, target=job.target)
        if job.target == "cuda":
            tcdsl.cuda.synchronize()
        times.append(time.perf_counter())
    assert results is not None
    taken = [later - earlier for earlier, later in pairwise(times)]
    steps = [*taken[:3], times[3] - times[0], taken[3]]
    return dict(zip(STEPS, steps, strict=True))


# --- all of them -------------------------------------------------------------------------------


def in_fresh_process(job: Job, n_threads: int) -> dict[str, float] | str:
    """Return the seconds of *job* by step, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "TCDSL_CACHE_DIR": folder, "OMP_NUM_THREADS": str(n_threads),
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code as in an installed package
        done = subprocess.run(
            [sys.executable, __file__, "--answer"], input=json.dumps(asdict(job)),
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["ended without a word"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def answer() -> None:
    """Call what standard input asks for, for :func:`in_fresh_process`."""
    given = json.load(sys.stdin)
    inputs = tuple((tuple(shape), dtype) for shape, dtype in given["inputs"])
    print(json.dumps(measure(Job(**{**given, "inputs": inputs}))), flush=True)
    os._exit(0)  # PyCUDA ends a process that leaves with a pushed context by an abort


def summary(
    jobs: Sequence[Job], found: Mapping[Job, dict[str, float] | str], target: str, start: str
) -> str:
    """Return the line of medians, and a row for each program that takes too long."""
    own = [job for job in jobs if (job.target, job.start) == (target, start) and job in found]
    failed = [f"{job.name}: {found[job]}" for job in own if isinstance(found[job], str)]
    timed = [(job, taken) for job in own if isinstance(taken := found[job], dict)]
    if not timed:
        return "\n".join([f"{target}, {start}: none timed", *failed])
    timed.sort(key=lambda one: one[1]["all"], reverse=True)
    slow = [one for one in timed if one[1]["all"] > TOO_LONG_S]
    middle = ", ".join(f"{step} {median(taken[step] for _, taken in timed):.3f}" for step in STEPS)
    rows = [
        f"| {job.name} | {' | '.join(f'{taken[step]:.2f}' for step in STEPS)} |"
        for job, taken in (slow or timed[:5])
    ]
    head = (
        f"\n{target}, {start}: {len(slow)} of {len(timed)} over {TOO_LONG_S} s; medians: {middle}"
    )
    return "\n".join([head, f"| program | {' | '.join(STEPS)} |", *rows, *failed])


def main() -> None:
    """Time all that was asked for, and print what takes too long."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="*", default=["*"], help="programs, with * and ?")
    parser.add_argument("--target", choices=TARGETS, help="default: both")
    parser.add_argument("--start", choices=STARTS, help="default: both")
    parser.add_argument("--workers", type=int, default=4, help="processes at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after these")
    parser.add_argument("--lines", help="write each time to this file, a JSON object a line")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer()
        return
    begun_s, jobs = time.perf_counter(), [
        job for job in library_jobs()
        if any(fnmatchcase(job.name, pattern) for pattern in arguments.only)
        and arguments.target in (None, job.target) and arguments.start in (None, job.start)
    ]  # fmt: skip
    n_threads = max(1, (os.cpu_count() or 1) // arguments.workers)
    in_fresh_process(jobs[0], n_threads)  # writes byte code
    found = {}

    def run(job: Job) -> None:
        if time.perf_counter() - begun_s < arguments.seconds:
            found[job] = in_fresh_process(job, n_threads)

    with ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(run, jobs))
    for start in STARTS:
        for target in TARGETS:
            if any((job.target, job.start) == (target, start) for job in jobs):
                print(summary(jobs, found, target, start), flush=True)
    if arguments.lines:
        with open(arguments.lines, "w") as file:
            for job, taken in found.items():
                line = {"name": job.name, "target": job.target, "start": job.start, "s": taken}
                print(json.dumps(line), file=file)
    print(
        f"\n{len(found)} of {len(jobs)} first calls, {arguments.workers} processes at once,"
        f" {os.cpu_count()} processors, {time.perf_counter() - begun_s:.0f} s"
    )


if __name__ == "__main__":
    main()
