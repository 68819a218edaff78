"""What a program's first compilation takes in a fresh process, nothing cached.

    python benchmarks/first_calls.py               a table: CPU and GPU, step by step
    python benchmarks/first_calls.py matmul
    python benchmarks/first_calls.py --library     every library program, the longest first
    python benchmarks/first_calls.py --library 'conv*' moe_gate --target gpu --times 1

For the GPU the kernels are compiled by NVRTC for sm_90 but not loaded, so that none is needed.
Seconds of the processor, not by the clock: other processes disturb them less.  The last column,
"clock", is what a user waits for, from the import on: the target's compiler runs beside the steps
that follow the printing, on a second core if there is one.  Library programs have the first of
their types and sizes.  Calls that run kernels are timed by ``tcdsl bench --first-call``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

TARGETS = ("cpu", "gpu")
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ATTENTION = """def f(float(B,M,D) Q, float(B,N,D) K, float(B,N,E) V) -> (O) {
    s(b,m,n) +=! Q(b,m,d) * K(b,n,d)
    t(b,m) max=! s(b,m,n)
    e(b,m,n) = exp(s(b,m,n) * 0.125 - t(b,m) * 0.125)
    z(b,m) +=! e(b,m,n)
    O(b,m,v) +=! e(b,m,n) * V(b,n,v) / z(b,m)
}"""
LSTM = """def f(float(B,I) x, float(B,H) h, float(B,H) c, float(4,H,I) W, float(4,H,H) U,
      float(4,H) b)
        -> (h1, c1) {
    g(s,n,k) +=! W(s,k,i) * x(n,i)
    r(s,n,k) +=! U(s,k,j) * h(n,j)
    a(s,n,k) = g(s,n,k) + r(s,n,k) + b(s,k)
    c1(n,k) = c(n,k) / (1.0 + exp(-a(1,n,k))) + tanh(a(2,n,k)) / (1.0 + exp(-a(0,n,k)))
    h1(n,k) = tanh(c1(n,k)) / (1.0 + exp(-a(3,n,k)))
}"""
CHAIN = "\n".join(
    f"    m{n}(i) max=! x{n}(i,j)\n    x{n + 1}(i,j) = exp(x{n}(i,j) - m{n}(i))" for n in range(10)
)
TWENTY = f"def f(float(M,N) x0) -> (x10) {{\n{CHAIN}\n}}"
CASES = {
    "matmul": (MATMUL, [(1000, 1000), (1000, 1000)]),
    "attention": (ATTENTION, [(4, 64, 64)] * 3),
    "lstm cell": (
        LSTM, [(32, 64), (32, 128), (32, 128), (4, 128, 64), (4, 128, 128), (4, 128)],
    ),
    "20 statements": (TWENTY, [(1000, 500)]),
}  # fmt: skip
STEPS = ("import", "define", "modules", "plan", "compiler")


@dataclass(frozen=True, slots=True)
class Job:
    """A def at given types and shapes, and the target that it is compiled for."""

    label: str
    target: str  # "cpu" or "gpu"
    text: str
    name: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]  # shapes and types


def own_jobs() -> list[Job]:
    """Return the programs of this file, for both targets."""
    return [
        Job(label, target, text, "f", tuple((shape, "float32") for shape in shapes))
        for label, (text, shapes) in CASES.items() for target in TARGETS
    ]  # fmt: skip


def library_jobs() -> list[Job]:
    """Return the library's programs, each at the first of its types and sizes, for both targets."""
    from tcdsl import library

    found = []
    for case in library.cases():
        dtype = case.dtypes[0]
        for target, sizes in (("cpu", case.cpu_sizes), ("gpu", case.sizes)):
            shapes = case.input_shapes(sizes[0])
            inputs = tuple((shapes[p.name], p.dtype_for(dtype)) for p in case.params)
            source = library.source_for(case, dtype)
            found.append(Job(case.name, target, source, case.def_name, inputs))
    return found


# --- one compilation ---------------------------------------------------------------------------


def used() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    own, others = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def measure(job: Job) -> dict[str, float]:
    """Compile *job* in this process, which has done nothing yet; return seconds by step.

    The step "compiler" is what other threads (NVRTC) and other processes (gcc) have used.
    """
    import numpy  # noqa: F401  # whoever calls with arrays has imported it

    taken: dict[str, float] = {}
    begun_s, all_before = time.perf_counter(), used()

    @contextmanager
    def step(name: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        taken[name] = time.thread_time() - start

    with step("import"):
        import tcdsl

        specs = [tcdsl.spec(shape, dtype) for shape, dtype in job.inputs]
    with step("define"):
        f = tcdsl.define(job.text)[job.name]
        f.comprehension  # noqa: B018  # analysed
    from tcdsl.runtime.imports import late_import

    if job.target == "cpu":
        with step("modules"), late_import():
            import tcdsl.driver
            import tcdsl.executable.cpu
        with step("plan"):
            f.compile(*specs, target="cpu")
    else:
        with step("modules"), late_import():
            import tcdsl.codegen.cuda.printer
            import tcdsl.executable.cuda
            import tcdsl.plan.gpu_planner
        with step("plan"):
            compile_for_gpu(f.comprehension, specs)
    taken["compiler"] = used() - all_before - sum(taken.values())
    return {**taken, "clock": time.perf_counter() - begun_s}


def compile_for_gpu(comprehension: Any, specs: list[Any]) -> None:
    """Do what :mod:`tcdsl.executable.cuda` does for a program that is not cached, for an H200."""
    from tcdsl.codegen.cuda.source import CudaSource
    from tcdsl.codegen.device.cuda import header_text, parts_for
    from tcdsl.costmodel.chip import load_chip
    from tcdsl.driver import compile_to_cuda, with_decisions
    from tcdsl.lang.ranges.binding import bind_sizes
    from tcdsl.lang.ranges.specialiser import specialise
    from tcdsl.lang.request import Request
    from tcdsl.runtime.nvrtc import begin_cuda, find_cuda_compiler, start_nvrtc

    shapes = {n: s.shape for n, s in zip(comprehension.inputs, specs, strict=True)}
    special = specialise(comprehension, bind_sizes(comprehension, shapes))
    chip, compiler = load_chip("h200"), find_cuda_compiler()
    start_nvrtc(compiler, chip.arch)
    begun = []

    def begin(printed: CudaSource) -> None:
        text = header_text(parts_for(printed.functions)) + printed.text
        begun.append(begin_cuda(text, printed.arch(chip.arch), compiler=compiler))

    compiled = compile_to_cuda(Request(comprehension, special), chip, begin)
    with_decisions(compiled, "cuda", chip)
    begun[-1]()


# --- the tables --------------------------------------------------------------------------------


def in_fresh_process(job: Job, times: int) -> dict[str, float]:
    """Return the least seconds of each step among several processes."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TCDSL_CACHE_DIR": folder}
            # Modules as they are once installed: compiled to byte code.
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            done = subprocess.run(
                [sys.executable, __file__, "--answer"], input=json.dumps(asdict(job)),
                env=environment, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
        found.append(json.loads(done.stdout))
    return {step: min(one[step] for one in found) for step in (*STEPS, "clock")}


def answer() -> None:
    """Compile what standard input asks for, for :func:`in_fresh_process`."""
    given = json.load(sys.stdin)
    inputs = tuple((tuple(shape), dtype) for shape, dtype in given["inputs"])
    json.dump(measure(Job(**{**given, "inputs": inputs})), sys.stdout)


def processor_s(taken: Mapping[str, float]) -> float:
    return sum(taken[step] for step in STEPS)


def row(job: Job, taken: Mapping[str, float]) -> str:
    seconds = [*(taken[step] for step in STEPS), processor_s(taken), taken["clock"]]
    return f"| {job.label} | {job.target} | {' | '.join(f'{s:.2f}' for s in seconds)} |"


def main() -> None:
    """Print the table, a row a program and target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="*", default=["*"], help="programs, with * and ?")
    parser.add_argument("--library", action="store_true", help="the library's, the longest first")
    parser.add_argument("--target", choices=TARGETS, help="default: both")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer()
        return
    jobs = [
        job for job in (library_jobs() if arguments.library else own_jobs())
        if any(fnmatchcase(job.label, pattern) for pattern in arguments.only)
        and arguments.target in (None, job.target)
    ]  # fmt: skip
    print(f"| program | target | {' | '.join(STEPS)} | all | clock |")
    print(f"|---|---|{'---|' * (len(STEPS) + 2)}", flush=True)
    rows = []
    for job in jobs:
        rows.append((job, in_fresh_process(job, arguments.times)))
        if not arguments.library:
            print(row(*rows[-1]), flush=True)
    if arguments.library:
        rows.sort(key=lambda found: processor_s(found[1]), reverse=True)
        print(*(row(*found) for found in rows), sep="\n")
    print(f"\n{time.strftime('%Y-%m-%d')}, least of {arguments.times} processes")


if __name__ == "__main__":
    main()
