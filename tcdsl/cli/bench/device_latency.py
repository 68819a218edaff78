"""What surrounds a call on the GPU: import, string to first result, the cache, call overhead.

Everything is measured in fresh processes.  The first results are waited for; calls are not: back to
back they cost the host's time, which is told also as a multiple of what a launch through PyCUDA
alone costs in the same process.
"""

import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from tcdsl.cli.bench.device_peers import open_device
from tcdsl.cli.bench.latency import (
    CACHED,
    COMPILED,
    FRESH,
    IMPORT,
    largest_case,
    run_process,
    run_script,
)
from tcdsl.cli.console import markdown_table, progress_steps
from tcdsl.runtime.timing import format_us

REPEATS = 3  # each has processes that import PyTorch, which takes seconds
IMPORTS = 5
FRESH_CACHED = "from the disk cache, fresh process"
BARE = "bare prepared PyCUDA launch"
BOUND_AIM, CALL_AIM = "1.2", "2.5"  # of the bare launch
CACHED_AIMS = {CACHED: "50 ms", FRESH_CACHED: "60 ms"}

# Prints microseconds, a line for each case named.  PyTorch's context is there before.
FIRST_RESULTS = """
import sys, time
import numpy as np
import torch
torch.ones(8, device="cuda").sum().item()
import tcdsl
from tcdsl.library import case, source_for
from tcdsl.library.torch_peers import tensors
if "warm" in sys.argv:  # whatever a process does once: imports, loading NVRTC
    tcdsl.compute("b(i) = a(i)", a=torch.ones(8, device="cuda"))
for name in sys.argv[1:]:
    if name == "warm":
        continue
    chosen = case(name)
    text = source_for(chosen, "float32")
    # The smallest sizes that are not degenerate: the time is the compiler's, not the program's.
    arrays = chosen.make_inputs(chosen.small_sizes[-1], np.random.default_rng(0), "float32")
    inputs = list(tensors(arrays, "cuda").values())
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = tcdsl.define(text)[chosen.def_name](*inputs, target="cuda")
    torch.cuda.synchronize()
    print((time.perf_counter() - start) * 1e6)
"""

# Prints {what: microseconds}.  The calls take turns, so that a slow moment hits all of them.
CALLS = """
import json, statistics, time
from importlib.util import find_spec
from itertools import cycle
import torch
x, y, z, w = (torch.ones(64, device="cuda") for _ in "xyzw")
import pycuda.driver
from pycuda.gpuarray import zeros
import tcdsl
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler
f = tcdsl.define("def add(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }").add
scaled = tcdsl.define("def mul(float(N) x, float a) -> (z) { z(i) = a * x(i) }").mul
pycuda.driver.init()
pycuda.driver.Device(0).retain_primary_context().push()
code = compile_cuda(
    'extern "C" __global__ void add(const float *x, const float *y, float *z)'
    "{ if (threadIdx.x < 64) z[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x]; }",
    primary_context().gpu.arch, compiler=find_cuda_compiler(libcuda.driver_version()[0]))
kernel = pycuda.driver.module_from_buffer(code).get_function("add")
kernel.prepare("PPP")
pointers = x.data_ptr(), y.data_ptr(), z.data_ptr()
a, b, c = zeros(64, "f4"), zeros(64, "f4"), zeros(64, "f4")
others = cycle([(x, y, z), (y, z, w), (z, w, x)])
def other_arrays():
    one, two, out = next(others)
    f(one, two, out=out)
calls = {
    BARE: lambda: kernel.prepared_async_call((1, 1, 1), (64, 1, 1), None, *pointers),
    "bound call, torch": f.compile(x, y).bind(x, y, out=z),
    "checked call, torch": lambda: f(x, y),
    "checked call, torch, out=": lambda: f(x, y, out=z),
    "checked call, torch, out=, a number": lambda: scaled(x, 2.0, out=z),
    "checked call, torch, out=, other arrays each time": other_arrays,
    "torch.add, out=": lambda: torch.add(x, y, out=z),
    "bound call, GPUArray": f.compile(a, b).bind(a, b, out=c),
    "checked call, GPUArray": lambda: f(a, b),
    "checked call, GPUArray, out=": lambda: f(a, b, out=c),
}
if find_spec("cupy") is not None:
    import cupy
    p, q, r = (cupy.ones(64, "f4") for _ in "pqr")
    calls |= {
        "bound call, CuPy": f.compile(p, q).bind(p, q, out=r),
        "checked call, CuPy": lambda: f(p, q),
        "checked call, CuPy, out=": lambda: f(p, q, out=r),
    }
def round_us(call, n):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - start) / n * 1e6
for call in calls.values():
    round_us(call, 200)
times = {name: [] for name in calls}
for _ in range(9):
    for name, call in calls.items():
        times[name].append(round_us(call, 1000))
torch.cuda.synchronize()
print(json.dumps({name: statistics.median(found) for name, found in times.items()}), flush=True)
# PyCUDA aborts the process if its objects outlive their context, or its stack is not empty.
del calls, call, a, b, c, kernel
pycuda.driver.Context.pop()
"""


def first_results(names: list[str]) -> Mapping[tuple[str, str], float]:
    """Return the median time to the first result by (case, what was there before)."""
    times: dict[tuple[str, str], list[float]] = {}

    def add(state: str, cases: list[str], folder: Path, *words: str) -> None:
        found = run_script(FIRST_RESULTS, folder, *words, *cases)
        for name, time_us in zip(cases, found, strict=True):
            times.setdefault((name, state), []).append(time_us)

    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in names:
                add(FRESH, [name], root / name)
                add(FRESH_CACHED, [name], root / name)
            add(COMPILED, names, root / "warm", "warm")
            add(CACHED, names, root / "warm", "warm")
    return {key: statistics.median(found) for key, found in times.items()}


def call_times() -> dict[str, float]:
    """Return the time of each kind of call in us, the bare launch among them."""
    with tempfile.TemporaryDirectory() as folder:
        printed = run_process(f"BARE = {BARE!r}\n{CALLS}", Path(folder) / "cache")
    return {str(name): float(time_us) for name, time_us in json.loads(printed).items()}


def aim_of(call: str) -> str:
    """Return what a kind of *call* may cost, as a multiple of the bare launch; "" for others'."""
    if call.startswith("bound call"):
        return BOUND_AIM
    return CALL_AIM if call.startswith("checked call") else ""


def measurements() -> list[tuple[str, str, str, str]]:
    """Return (what, median, multiple of the bare launch, aim) of everything measured."""
    names = list(dict.fromkeys(["tmm", "softmax", largest_case().name]))
    rows = []
    with tempfile.TemporaryDirectory() as folder, progress_steps(3) as steps:
        steps.begin("import")
        imports = [run_script(IMPORT, Path(folder) / "cache")[0] for _ in range(IMPORTS)]
        rows.append(("import tcdsl", format_us(statistics.median(imports)), "", "150 ms"))
        steps.begin("first results")
        for (name, state), time_us in first_results(names).items():
            aim = CACHED_AIMS.get(state, "")
            what = f"string to first result, {name}, {state}"
            rows.append((what, format_us(time_us), "", aim))
        steps.begin("calls")
        times = call_times()
        for name, time_us in times.items():
            ratio = f"{time_us / times[BARE]:.2f}"
            rows.append((f"{name}, 64 elements", format_us(time_us), ratio, aim_of(name)))
    return rows


def report(console: Console) -> int:
    """Measure and print everything; return 0.

    :raises TCError: there is no GPU, or no PyTorch for it.
    """
    open_device()
    header = ("what", "median", "of the bare launch", "aim")
    console.print(markdown_table(header, measurements()), markup=False)
    return 0
