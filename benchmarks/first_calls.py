"""What a program's first compilation takes in a fresh process, nothing cached: processor seconds.

    python benchmarks/first_calls.py             a table: CPU and GPU, step by step
    python benchmarks/first_calls.py matmul

For the GPU the kernels are compiled by NVRTC for sm_90 but not loaded, so that none is needed.
Seconds of the processor, not by the clock: other processes disturb them less, and what runs beside
something else (NVRTC beside verification, the C compiler's children) counts in full.  What a user
waits for is ``tcdsl bench --first-call``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from tcdsl.lang.request import Request

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


def used() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    own, others = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def measure(case: str, target: str) -> dict[str, float]:
    """Compile *case* in this process, which has done nothing yet; return seconds by step."""
    import numpy  # noqa: F401  # whoever calls with arrays has imported it

    taken: dict[str, float] = {}

    @contextmanager
    def step(name: str) -> Iterator[None]:
        start = used()
        yield
        taken[name] = used() - start

    text, shapes = CASES[case]
    with step("import"):
        import tcdsl

        name = {"cpu": "cpu", "gpu": "cuda"}[target]
        specs = [tcdsl.spec(shape, "float32") for shape in shapes]
    with step("define"):
        f = tcdsl.define(text).f
        comprehension = f.comprehension
    with step("modules"):
        from tcdsl.codegen.device.cuda import FUNCTIONS, header_text, parts_for
        from tcdsl.costmodel.chip import load_chip
        from tcdsl.costmodel.machine import Cpu
        from tcdsl.driver import compile_to_c, compile_to_cuda
        from tcdsl.lang.ranges.binding import bind_sizes
        from tcdsl.lang.ranges.specialiser import specialise
        from tcdsl.runtime import c_compiler, nvrtc

        if name == "cuda":
            import tcdsl.codegen.cuda.printer
            import tcdsl.plan.gpu_planner
    with step("plan"):
        sizes = bind_sizes(comprehension, {n: s.shape for n, s in zip(
            comprehension.inputs, specs, strict=True)})  # fmt: skip
        special = specialise(comprehension, sizes)
        if name == "cpu":
            source = compile_to_c(Request(comprehension, special), Cpu(2)).source
        else:
            kernels = compile_to_cuda(Request(comprehension, special), load_chip("h200")).source
    with step("compiler"):
        if name == "cpu":
            c_compiler.compile_shared(source.text)
        else:
            parts = parts_for(kernels.functions & FUNCTIONS.keys())
            nvrtc.compile_cuda(header_text(parts) + kernels.text, "sm_90")
    return taken


def in_fresh_process(case: str, target: str, times: int) -> dict[str, float]:
    """Return the least seconds of each step among several processes."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TCDSL_CACHE_DIR": folder}
            # Modules as they are once installed: compiled to byte code.
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            done = subprocess.run(
                [sys.executable, __file__, "--one", target, case],
                env=environment, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
        found.append(json.loads(done.stdout))
    return {step: min(one[step] for one in found) for step in STEPS}


def main() -> None:
    """Print the table, a row a case and target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--one", choices=("cpu", "gpu"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        json.dump(measure(arguments.cases[0], arguments.one), sys.stdout)
        return
    print(f"| case | target | {' | '.join(STEPS)} | all |\n|---|---|{'---|' * (len(STEPS) + 1)}")
    for case in arguments.cases or CASES:
        for target in ("cpu", "gpu"):
            taken = in_fresh_process(case, target, arguments.times)
            cells = " | ".join(f"{taken[step]:.2f}" for step in STEPS)
            print(f"| {case} | {target} | {cells} | {sum(taken.values()):.2f} |", flush=True)
    print(f"\n{time.strftime('%Y-%m-%d')}, least of {arguments.times} processes")


if __name__ == "__main__":
    main()
