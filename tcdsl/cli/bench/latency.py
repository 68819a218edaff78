"""What surrounds a call: ``import tcdsl``, string to first result, the cache, call overhead.

Everything but the overhead of calls is measured in fresh processes, the compiled programs' cache in
a folder of its own.  ``device_latency.py`` has the same for a GPU.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from tcdsl.cli.console import markdown_table, progress_steps
from tcdsl.library import Case, cases
from tcdsl.runtime.timing import format_us

REPEATS = 5
FRESH = "nothing cached, fresh process"
COMPILED = "nothing cached, process has run another"
CACHED = "from the disk cache, process has run another"

# Each prints microseconds, one number a line.
IMPORT = """
import time
start = time.perf_counter()
import tcdsl
print((time.perf_counter() - start) * 1e6)
"""

FIRST_RESULT = """
import sys, time
import numpy as np
import tcdsl
from tcdsl.library import case, source_for
chosen = case(sys.argv[1])
text = source_for(chosen, "float32")
# The smallest sizes that are not degenerate: the time is the compiler's, not the program's.
sizes = chosen.small_sizes[-1]
inputs = list(chosen.make_inputs(sizes, np.random.default_rng(0), "float32").values())
if "warm" in sys.argv:  # whatever a process does once: imports, finding the compiler, threads
    tcdsl.compute("b(i) = a(i)", a=np.ones(8, np.float32), target="cpu")
start = time.perf_counter()
tcdsl.define(text)[chosen.def_name](*inputs, target="cpu")
print((time.perf_counter() - start) * 1e6)
"""

CALLS = """
import numpy as np
import tcdsl
from tcdsl.runtime.timing import measure
a, b, c = (np.ones((4, 4), np.float32) for _ in "abc")
f = tcdsl.define(
    "def add(float(M, N) a, float(M, N) b) -> (c) { c(m, n) = a(m, n) + b(m, n) }"
).add
bound = f.compile(a, b, target="cpu").bind(a, b, out=c)
print(measure(lambda: f(a, b)).median_us)
print(measure(bound).median_us)
"""


def run_script(script: str, cache: Path, *arguments: str) -> list[float]:
    """Return the numbers that *script* prints in a fresh process, its cache in *cache*."""
    return [float(line) for line in run_process(script, cache, *arguments).split()]


def run_process(script: str, cache: Path, *arguments: str) -> str:
    """Return what *script* prints in a fresh process, its cache in *cache*.

    :raises CalledProcessError: it fails; what it says of that goes to stderr.
    """
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"TCDSL_CACHE_DIR": str(cache)},
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout


def largest_case() -> Case:
    """Return the library case with the longest text."""
    return max(cases(), key=lambda case: len(case.source))


def first_results(name: str) -> Mapping[str, float]:
    """Return the median time to the first result of case *name*, by what was there before."""
    times: dict[str, list[float]] = {FRESH: [], COMPILED: [], CACHED: []}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            times[FRESH] += run_script(FIRST_RESULT, Path(folder) / "one", name)
            times[COMPILED] += run_script(FIRST_RESULT, Path(folder) / "two", name, "warm")
            times[CACHED] += run_script(FIRST_RESULT, Path(folder) / "two", name, "warm")
    return {state: statistics.median(values) for state, values in times.items()}


def measurements() -> list[tuple[str, float, str]]:
    """Return (what, microseconds, the aim) of everything measured."""
    largest = largest_case().name
    aims = {"tmm": "500 ms", "softmax": "500 ms", largest: "2 s"}
    rows = []
    with tempfile.TemporaryDirectory() as folder, progress_steps(2 + len(aims)) as steps:
        cache = Path(folder) / "cache"
        steps.begin("import")
        imports = [run_script(IMPORT, cache)[0] for _ in range(REPEATS)]
        rows.append(("import tcdsl", statistics.median(imports), "150 ms"))
        for name, aim in aims.items():
            steps.begin(name)
            for state, time_us in first_results(name).items():
                limit = "50 ms" if state == CACHED else aim
                rows.append((f"string to first result, {name}, {state}", time_us, limit))
        steps.begin("calls")
        warm_us, bound_us = run_script(CALLS, cache)
        rows.append(("warm call, 4x4 arrays", warm_us, "10 us"))
        rows.append(("bound call, 4x4 arrays", bound_us, "5 us"))
    return rows


def report(console: Console) -> int:
    """Measure and print everything; return 0."""
    body = [(what, format_us(time_us), aim) for what, time_us, aim in measurements()]
    console.print(markdown_table(("what", "median", "aim"), body), markup=False)
    return 0
