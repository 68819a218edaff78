"""FAULTS.md on a real GPU: the rows that a machine without one can only pretend.

Each test names its row.  ``tests/runtime/cuda`` has the same rows on a driver made of host memory,
which runs everywhere.  What loses a context happens in a process of its own.
"""

import gc
import multiprocessing
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import LaunchError, TargetError
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.cuda.state import state_of

pytestmark = pytest.mark.gpu

SOURCE = """
def twice(float(N) x) -> (y) { y(i) = x(i) + x(i) }
def saxpy(float(N) x, float(N) y, float a) -> (z) { z(i) = a * x(i) + y(i) }
def rows(float(M, N) x) -> (s) { s(m) +=! x(m, n) }
def outer(float(N) x, float(M) y) -> (z) { z(i, j) = x(i) * y(j) }
"""


@pytest.fixture(scope="module")
def prog() -> Any:
    return tcdsl.define(SOURCE)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- row 21: arrays in the wrong places ------------------------------------------------------


def test_row_21_a_tensor_of_the_cpu(prog: Any, torch: Any) -> None:
    here = torch.ones(100, device="cuda")
    with pytest.raises(TargetError, match="'x' on cuda:0, 'y' on cpu"):
        prog.saxpy(here, here.cpu(), 1.0)
    with pytest.raises(TargetError, match="cpu"):
        prog.twice(here.cpu(), target="cuda")
    with pytest.raises(TargetError, match="cuda:0"):
        prog.twice(here, target="cpu")
    for out in (here.cpu(), np.ones(100, "f4")):
        with pytest.raises(TargetError, match="out 'y'"):
            prog.twice(here, out=out)
    assert torch.cuda.current_device() == 0


def test_row_21_the_current_context_is_as_it_was(prog: Any, torch: Any) -> None:
    x = torch.ones(100, device="cuda")
    before = libcuda.current_context()
    prog.twice(x)
    prog.twice(np.ones(100, "f4"), target="cuda")
    with pytest.raises(TargetError):
        prog.saxpy(x, x.cpu(), 1.0)
    assert libcuda.current_context() == before


def test_row_21_no_context_is_current(prog: Any, torch: Any) -> None:
    """A new thread has none; after the call it has none again."""
    x = torch.ones(100, device="cuda")
    bound = prog.twice.compile(x).bind(x)
    torch.cuda.synchronize()
    found: list[Any] = []

    def work() -> None:
        before = libcuda.current_context()
        y = bound()
        found.extend((before, libcuda.current_context(), y))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert found[0] == found[1] == 0
    assert bool((found[2] == 2).all())


def test_row_21_two_gpus(prog: Any, torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    a, b = torch.ones(100, device="cuda:0"), torch.ones(100, device="cuda:1")
    with pytest.raises(TargetError, match="'x' on cuda:0, 'y' on cuda:1"):
        prog.saxpy(a, b, 1.0)
    with pytest.raises(TargetError, match=r"out 'y'.*cuda:1"):
        prog.twice(a, out=torch.empty_like(b))
    for x in (b, a, b):
        assert torch.equal(prog.twice(x), 2 * x)
    assert torch.cuda.current_device() == 0


# --- row 22: streams and graphs --------------------------------------------------------------


def test_row_22_on_the_callers_stream_and_without_waiting(prog: Any, torch: Any) -> None:
    x, out = torch.zeros(1 << 22, device="cuda"), torch.zeros(1 << 22, device="cuda")
    bound = prog.twice.compile(x).bind(x)
    calls = [lambda: prog.twice(x), lambda: prog.twice(x, out=out), bound]
    stream = torch.cuda.Stream()
    for call in calls:
        with torch.cuda.stream(stream):  # once before: loading code waits
            call()
    torch.cuda.synchronize()
    for number, call in enumerate(calls, 3):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)  # what follows must wait for this
            x.fill_(number)
            y = call()
            is_done = stream.query()
        stream.synchronize()
        assert not is_done, "the call waited"
        assert bool((y == 2 * number).all())


def test_row_22_while_a_graph_is_captured(prog: Any, torch: Any) -> None:
    x, out = torch.rand(64, 64, device="cuda"), torch.empty(64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        prog.rows(x)
        prog.rows(x, out=out)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh = prog.rows(x)
        prog.rows(x, out=out)
        scaled = prog.saxpy(fresh, fresh, 3.0)
    for _ in range(3):
        x.copy_(torch.rand(64, 64, device="cuda"))
        # Other calls in between must not disturb what the graph uses.
        prog.saxpy(out.clone(), out.clone(), 5.0)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(fresh, x.sum(1))
        assert torch.equal(out, fresh) and torch.equal(scaled, 3 * fresh + fresh)


# --- row 33: contexts, threads, forks --------------------------------------------------------

MAKERS = {
    "torch": "import torch; torch.ones(3, device='cuda')",
    "cupy": "import cupy; cupy.ones(3)",
    "numba": "import numpy, numba.cuda; numba.cuda.to_device(numpy.ones(3))",
    "pycuda": "import pycuda.driver as d; d.init(); d.Device(0).retain_primary_context().push()",
    "pycuda.autoinit": "import pycuda.autoinit",
}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", list(MAKERS))
def test_row_33_contexts_of_others_before_and_after(name: str, is_first: bool) -> None:
    pytest.importorskip(name.partition(".")[0])
    ours = "f = tcdsl.define('def f(float(N) x) -> (y) { y(i) = x(i) + x(i) }').f\n"
    ours += "assert (f(np.ones(5, 'f4'), target='cuda') == 2).all()\n"
    steps = [MAKERS[name] + "\n", ours]
    first, second = steps if is_first else steps[::-1]
    code = f"import os, numpy as np, tcdsl\n{first}{second}"
    code += "assert (f(np.ones(7, 'f4'), target='cuda') == 2).all()\nprint('fine', flush=True)\n"
    # PyCUDA's context that was pushed by hand is the test's to pop, not what is tested.
    assert run(code + "os._exit(0)") == "fine"


def test_row_33_eight_threads(prog: Any, torch: Any) -> None:
    inputs = [torch.rand(4096, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    failures: list[int] = []

    def work(number: int) -> None:
        x, out = inputs[number], torch.empty_like(inputs[number])
        with torch.cuda.stream(torch.cuda.Stream()):
            bound = prog.twice.compile(x).bind(x)
            for _ in range(50):
                results = (prog.twice(x), prog.twice(x, out=out), bound())
                scaled = prog.saxpy(x, x, float(number))
                torch.cuda.current_stream().synchronize()
                if not all(torch.equal(y, 2 * x) for y in results):
                    failures.append(number)
                if not torch.equal(scaled, number * x + x):
                    failures.append(-number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _in_child(queue: Any) -> None:
    try:
        f = tcdsl.define(SOURCE).twice
        queue.put(str(f(np.ones(3, "f4"), target="cuda")))
    except TargetError as error:
        queue.put(str(error))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_row_33_a_child_process(prog: Any, method: str) -> None:
    prog.twice(np.ones(3, "f4"), target="cuda")
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(queue,))
    process.start()
    assert ("spawn" if method == "fork" else "[2. 2. 2.]") in queue.get(timeout=100)
    process.join(30)
    assert process.exitcode == 0


# --- row 34: a lost context ------------------------------------------------------------------

# The kernel is not tcdsl's: those follow no index out of range.  The process ends at once because
# libraries' destructors may abort it when the driver answers them with the error that stays.
LOST = """
import os
import numpy as np, torch, tcdsl
import pycuda.driver as driver
from tcdsl.errors import LaunchError
from tcdsl.runtime.nvrtc import compile_cuda

f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f
x, out = torch.ones(10, device="cuda"), torch.ones(10, device="cuda")
f(x, out=out)
bound = f.compile(x).bind(x, out=out)
torch.cuda.synchronize()
arch = "sm_%d%d" % torch.cuda.get_device_capability()
code = compile_cuda('extern "C" __global__ void wild(int *p) { *p = 1; }', arch)
driver.init()
context = driver.Device(0).retain_primary_context()
context.push()
wild = driver.module_from_buffer(code).get_function("wild")
wild.prepare("P")
wild.prepared_call((1, 1), (1, 1, 1), 0x10)

def call():
    CALL
    tcdsl.cuda.synchronize()

for _ in range(2):  # and it stays so
    try:
        for _ in range(100):
            call()
        print("nothing was raised")
    except LaunchError as error:
        print(error.code, "illegal" in error.message, "new one" in error.hint)
os.sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize(
    "call", ["f(x, out=out)", "bound()", "f(np.ones(10, 'f4'), target='cuda')"]
)
def test_row_34_after_an_illegal_access(torch: Any, call: str) -> None:
    assert run(LOST.replace("CALL", call)).splitlines() == ["TC085 True True"] * 2


# --- row 35: out of memory -------------------------------------------------------------------


@pytest.mark.alone
def test_row_35_no_memory_for_an_output(prog: Any, torch: Any) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    n = 1 << 16
    m = free // (4 * n) + n
    x, y = torch.ones(n, device="cuda"), torch.ones(m, device="cuda")
    for _ in range(2):
        with pytest.raises(LaunchError, match=f"needs {4 * n * m} bytes on cuda:0.*are free") as e:
            prog.outer(x, y)
        assert e.value.code == "TC084"
    assert bool((x == 1).all()) and bool((y == 1).all())
    assert torch.equal(prog.outer(x[:10], y[:10]), torch.ones(10, 10, device="cuda"))
    del x, y
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > free - (1 << 28), "something leaked"


def free_bytes(torch: Any) -> int:
    """Return what the driver has left, when nobody keeps memory for later."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    context = primary_context()
    with context.current():
        state_of(context).pool.free_idle()
    return int(torch.cuda.mem_get_info()[0])


@pytest.mark.alone
def test_row_35_no_memory_for_arrays_of_the_host(prog: Any, torch: Any) -> None:
    # Not filled to the last byte: the driver has pieces left that it tells nobody of.  On the host
    # the result is address space only, since nothing is written to it.
    n, left_bytes = 1 << 15, 1 << 30
    x, y = np.ones(n, "f4"), np.ones(n, "f4")
    assert (prog.outer(x[:10], y[:10], target="cuda") == 1).all()
    before = free_bytes(torch)
    hog = torch.empty(before - left_bytes, dtype=torch.uint8, device="cuda")
    try:
        for _ in range(3):
            with pytest.raises(LaunchError, match=f"needs {4 * n * n} bytes on cuda:0") as error:
                prog.outer(x, y, target="cuda")
            assert error.value.code == "TC084"
            assert torch.cuda.mem_get_info()[0] > left_bytes - (1 << 28), "something leaked"
        assert (prog.outer(x[:1000], y[:1000], target="cuda") == 1).all()  # what fits still runs
    finally:
        del hog
        after = free_bytes(torch)
    assert (x == 1).all() and (y == 1).all()
    assert after > before - (1 << 28), "something leaked"
    assert (prog.outer(x[:2000], y[:2000], target="cuda") == 1).all()
