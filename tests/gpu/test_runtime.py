"""The runtime on a real GPU: libraries, streams, graphs, threads, faults, memory, cost.

Run by ``pytest -m gpu``; each library that is not installed skips its own tests.
"""

import gc
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import LaunchError, ShapeError, TargetError
from tcdsl.runtime.cuda import libcuda

pytestmark = pytest.mark.gpu

SOURCE = """
def saxpy(float(N) x, float(N) y, float a) -> (z) { z(i) = a * x(i) + y(i) }
def rows(float(M, N) x) -> (s) { s(m) +=! x(m, n) }
def both(float(M, N) x) -> (s, t) { s(m) +=! x(m, n)  t(n) max=! x(m, n) }
def pick(float(N) x, int32(M) at) -> (y) { y(i) = x(at(i)) }
def add(float(N) y, float(N) x) -> (y) { y(i) += x(i) }
def halves(bfloat16(N) x) -> (y) { y(i) = x(i) * x(i) }
"""
N = 10_007


@pytest.fixture(scope="module")
def prog() -> Any:
    assert tcdsl.cuda.is_available(), tcdsl.cuda.why_not_available()
    return tcdsl.define(SOURCE)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def vectors(rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.standard_normal(N, "f4"), rng.standard_normal(N, "f4")


# --- libraries -----------------------------------------------------------------------------


def test_numpy(prog: Any, rng: np.random.Generator) -> None:
    x, y = vectors(rng)
    z = prog.saxpy(x, y, 2.0)
    assert type(z) is np.ndarray
    np.testing.assert_array_equal(z, np.float32(2) * x + y)
    out = np.zeros(2 * N, "f4")[::2]
    assert prog.saxpy(x[::-1], y, 2.0, out=out) is out
    np.testing.assert_array_equal(out, np.float32(2) * x[::-1] + y)


def test_large_numpy_arrays_travel_in_pieces(prog: Any, rng: np.random.Generator) -> None:
    n = 5_000_001
    x, y = rng.standard_normal(n, "f4"), rng.standard_normal(n, "f4")
    for factor in (1.0, 2.0):
        z = prog.saxpy(x, y, factor, target="cuda")
        np.testing.assert_array_equal(z, np.float32(factor) * x + y)


def test_torch(prog: Any, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(v).cuda() for v in vectors(rng))
    z = prog.saxpy(x, y, 3.0)
    assert z.device == x.device and z.dtype == torch.float32
    assert torch.equal(z, 3 * x + y)
    out = torch.full((N,), float("nan"), device="cuda")
    assert prog.saxpy(x, y, 4.0, out=out) is out
    assert torch.equal(out, 4 * x + y)
    s, t = prog.both(x[: 64 * 100].view(64, 100))
    torch.testing.assert_close(s, x[:6400].view(64, 100).sum(1))
    assert torch.equal(t, x[:6400].view(64, 100).amax(0))
    half = x.bfloat16()
    assert torch.equal(prog.halves(half), half * half)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4])
def test_torch_views(prog: Any, rng: np.random.Generator, offset: int) -> None:
    torch = pytest.importorskip("torch")
    base = torch.from_numpy(rng.standard_normal((130, 70), "f4")).cuda()
    for view in (base[offset:, offset:], base.T[offset:], base[::2], base[:1].expand(50, 70)):
        torch.testing.assert_close(prog.rows(view), view.sum(1))
    flat = base.flatten()
    x, y = flat[offset : offset + 1000], flat[3000:5000:2]
    out = torch.zeros(2000, device="cuda")[offset % 2 :: 2][:900]
    x, y = x[:900], y[:900]
    assert torch.equal(prog.saxpy(x, y, 2.0), 2 * x + y)
    assert prog.saxpy(x, y, 2.0, out=out) is out
    assert torch.equal(out, 2 * x + y)
    shared = flat[offset : offset + 900]
    expected = 2 * shared + y
    prog.saxpy(shared, y, 2.0, out=flat[offset + 1 : offset + 901])
    assert torch.equal(flat[offset + 1 : offset + 901], expected)


def test_an_exact_program_on_any_view(prog: Any, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(rng.standard_normal(2002, "f4")).cuda()
    a, b = x[:1000], x[1001:2001]  # b is not aligned
    exe = prog.saxpy.compile(a, a, 2.0)
    assert torch.equal(exe(a, b, 2.0), 2 * a + b)
    assert torch.equal(exe(x[::2][:1000], b, 2.0), 2 * x[::2][:1000] + b)
    assert torch.equal(exe(-a, torch._neg_view(b), 2.0), -2 * a - b)
    np.testing.assert_array_equal(exe(a.cpu().numpy(), b.cpu().numpy(), 2.0), (2 * a + b).cpu())


def test_cupy(prog: Any, rng: np.random.Generator) -> None:
    cupy = pytest.importorskip("cupy")
    x, y = (cupy.asarray(v) for v in vectors(rng))
    z = prog.saxpy(x, y, 3.0)
    assert isinstance(z, cupy.ndarray)
    cupy.testing.assert_array_equal(z, cupy.float32(3) * x + y)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        z = prog.saxpy(x * 2, y, 3.0)
        expected = cupy.float32(3) * (x * 2) + y
        stream.synchronize()
    cupy.testing.assert_array_equal(z, expected)


def test_pycuda(prog: Any, rng: np.random.Generator) -> None:
    driver = pytest.importorskip("pycuda.driver")
    from pycuda import gpuarray

    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    try:
        x, y = (gpuarray.to_gpu(v) for v in vectors(rng))
        z = prog.saxpy(x, y, 3.0)
        assert isinstance(z, gpuarray.GPUArray)
        np.testing.assert_array_equal(z.get(), np.float32(3) * x.get() + y.get())
        out = gpuarray.zeros(N, "f4")
        assert prog.saxpy(x, y, 4.0, out=out) is out
        np.testing.assert_array_equal(out.get(), np.float32(4) * x.get() + y.get())
    finally:
        context.pop()


def test_pycuda_in_a_context_of_its_own() -> None:
    code = """
import numpy as np, pycuda.autoinit, tcdsl
from pycuda import gpuarray
x = gpuarray.to_gpu(np.arange(1000, dtype="f4"))
f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) + x(i) }").f
y = f(x)
assert (y.get() == 2 * x.get()).all()
z = f(np.ones(10, "f4"), target="cuda")
assert (z == 2).all() and (f(x).get() == 2 * x.get()).all()
assert (gpuarray.to_gpu(np.ones(3, "f4")) + 1).get().sum() == 6
print("fine")
"""
    assert run(code) == "fine"


@pytest.mark.alone
def test_new_gpuarrays_are_pycudas_own() -> None:
    """They come from our pool, and do all that those of PyCUDA's allocator do."""
    code = """
import threading
import numpy as np, tcdsl
import pycuda.driver as driver
from pycuda import gpuarray
from pycuda.tools import DeviceMemoryPool
driver.init()
context = driver.Device(0).retain_primary_context()
context.push()
f = tcdsl.define("def f(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }").f
values = np.arange(1000, dtype="f4")
x = gpuarray.to_gpu(values)
y = f(x, x)
addresses = set()
for k in range(3, 60):
    y = f(x, y)  # what is dropped here is used again, in the stream's order
    addresses.add(int(y.gpudata))
    assert (y.get() == k * values).all(), k
assert len(addresses) == 2, addresses
assert ((y + 1).get() == 59 * values + 1).all() and (y[10:20].get() == 59 * values[10:20]).all()
assert (y.reshape(10, 100).get().ravel() == y.get()).all() and y.flags.c_contiguous
copy = gpuarray.empty_like(y)
driver.memcpy_dtod(copy.gpudata, y.gpudata, y.nbytes)
assert (copy.get() == y.get()).all()
free = driver.mem_get_info()[0]
for _ in range(1000):
    f(x, y)
assert driver.mem_get_info()[0] == free
pool = DeviceMemoryPool()
own = gpuarray.to_gpu(values, allocator=pool.allocate)
z = f(own, own)
assert pool.active_blocks == 2 and (z.get() == 2 * values).all()
del z, own
dropped = [f(x, y), f(x, y)]
thread = threading.Thread(target=dropped.clear)  # which has no context
thread.start()
thread.join()
assert (f(x, y).get() == 60 * values).all()
late = f(x, x)
context.pop()
del late, y, x, copy  # without a context of PyCUDA's
print("fine")
"""
    assert run(code) == "fine"


def test_numba(prog: Any, rng: np.random.Generator) -> None:
    cuda = pytest.importorskip("numba.cuda")
    x, y = (cuda.to_device(v) for v in vectors(rng))
    z = prog.saxpy(x, y, 3.0)
    np.testing.assert_array_equal(
        z.copy_to_host(), np.float32(3) * x.copy_to_host() + y.copy_to_host()
    )


def test_jax(prog: Any, rng: np.random.Generator) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU")
    x, y = (jax.numpy.asarray(v) for v in vectors(rng))
    for _ in range(3):
        z = prog.saxpy(x, y, 3.0)
        assert isinstance(z, jax.Array) and z.device == x.device
        np.testing.assert_array_equal(np.asarray(z), np.float32(3) * np.asarray(x) + np.asarray(y))
        del z
    half = x.astype("bfloat16")
    assert (prog.halves(half) == half * half).all()
    with pytest.raises(ShapeError, match="read-only"):
        prog.saxpy(x, y, 3.0, out=y)


def test_two_libraries_in_one_call(prog: Any, rng: np.random.Generator) -> None:
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    x, y = vectors(rng)
    z = prog.saxpy(torch.from_numpy(x).cuda(), cupy.asarray(y), 2.0)
    assert isinstance(z, torch.Tensor)
    np.testing.assert_array_equal(z.cpu(), np.float32(2) * x + y)


# --- places --------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [(), (2.0,)])
def test_no_argument_is_an_array(inputs: tuple[float, ...]) -> None:
    """Then the outputs decide where they are."""
    torch = pytest.importorskip("torch")
    parameter, value = ("float a", "2.0 * a") if inputs else ("", "4.0")
    body = f"y(i) = {value} * i where i in 0:9 z(i) = y(i) where i in 0:9"
    f = tcdsl.define(f"def f({parameter}) -> (y, z) {{ {body} }}").f
    expected = 4 * torch.arange(9.0)
    y, z = (torch.full((9,), float("nan"), device="cuda") for _ in "yz")
    for _ in range(2):
        assert f(*inputs, out=(y, z), target="cuda")[0] is y
        assert torch.equal(y.cpu(), expected) and torch.equal(z.cpu(), expected)
    y.fill_(-1)
    f.compile(*inputs, target="cuda").bind(*inputs, out=(y, z))()
    assert torch.equal(y.cpu(), expected)
    host, _ = f(*inputs, target="cuda")
    np.testing.assert_array_equal(host, expected)


def test_arrays_in_the_wrong_places(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    here = torch.ones(N, device="cuda")
    with pytest.raises(TargetError, match="'x' on cuda:0, 'y' on cpu"):
        prog.saxpy(here, here.cpu(), 1.0)
    with pytest.raises(TargetError, match="cpu"):
        prog.saxpy(here.cpu(), here.cpu(), 1.0, target="cuda")
    with pytest.raises(TargetError, match="cuda:0"):
        prog.saxpy(here, here, 1.0, target="cpu")
    with pytest.raises(TargetError):
        prog.saxpy(here, here, 1.0, out=here.cpu())
    assert torch.cuda.current_device() == 0


def test_two_devices(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    a, b = torch.ones(N, device="cuda:0"), torch.ones(N, device="cuda:1")
    with pytest.raises(TargetError, match="'x' on cuda:0, 'y' on cuda:1"):
        prog.saxpy(a, b, 1.0)
    assert torch.equal(prog.saxpy(b, b, 2.0), 3 * b)
    assert torch.equal(prog.saxpy(a, a, 2.0), 3 * a)
    assert torch.cuda.current_device() == 0


def test_the_callers_context_stays(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(N, device="cuda")
    before = libcuda.current_context()
    prog.saxpy(x, x, 1.0)
    prog.saxpy(np.ones(N, "f4"), np.ones(N, "f4"), 1.0, target="cuda")
    assert libcuda.current_context() == before


# --- streams, graphs, threads --------------------------------------------------------------


def test_the_callers_stream(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(1 << 24, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # what follows must wait for this
        x.fill_(5)
        y = prog.saxpy(x, x, 2.0)
        is_done = stream.query()
    stream.synchronize()
    assert not is_done, "the call waited"
    assert bool((y == 15).all())


@pytest.mark.parametrize("name", ["saxpy", "rows", "both"])
def test_a_captured_graph(prog: Any, name: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.rand(4096, device="cuda")
    args = (x, x, 2.0) if name == "saxpy" else (x.view(64, 64),)
    function = prog[name]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function(*args)  # compiled before the capture
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function(*args)
    for _ in range(3):
        x.copy_(torch.rand(4096, device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        expected = function(*args)
        if name == "both":
            assert all(map(torch.equal, results, expected))
        else:
            assert torch.equal(results, expected)


def test_threads(prog: Any, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(rng.standard_normal((256, 4096), "f4")).cuda()
    expected, most = prog.both(x)  # each call adds up in the same order
    bound = 1e-5 * x.abs().double().sum(1)
    assert ((expected.double() - x.double().sum(1)).abs() <= bound).all()
    assert torch.equal(most, x.amax(0))
    failures: list[object] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(50):
                s, t = prog.both(x)
                z = prog.saxpy(x[number], x[number], float(number))
                stream.synchronize()
                if not torch.equal(s, expected) or not torch.equal(t, most):
                    failures.append(number)
                if not torch.equal(z, number * x[number] + x[number]):
                    failures.append(-number)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- faults --------------------------------------------------------------------------------


def test_a_bad_index_is_raised_later(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(100.0, device="cuda")
    good = torch.tensor([1, 5, 99], dtype=torch.int32, device="cuda")
    assert torch.equal(prog.pick(x, good), x[good.long()])
    prog.pick(x, torch.tensor([1, 100, 3], dtype=torch.int32, device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(LaunchError, match="index 100 of 'x' is out of range: the extent is 100"):
        prog.pick(x, good)
    assert torch.equal(prog.pick(x, good), x[good.long()])
    prog.pick(x, torch.tensor([-1], dtype=torch.int32, device="cuda"))
    with pytest.raises(LaunchError, match="index -1"):
        tcdsl.cuda.synchronize()


def test_a_bad_index_in_numpy_is_raised_at_once(prog: Any) -> None:
    with pytest.raises(LaunchError, match="index 7"):
        prog.pick(np.ones(7, "f4"), np.array([7], "i4"), target="cuda")


@pytest.mark.alone
def test_out_of_memory(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    free, _ = torch.cuda.mem_get_info()
    f = tcdsl.define("def big(float(N) x, float(M) y) -> (z) { z(i, j) = x(i) * y(j) }").big
    n = 1 << 16
    m = free // (4 * n) + n
    x, y = torch.ones(n, device="cuda"), torch.ones(m, device="cuda")
    with pytest.raises(LaunchError, match=f"needs {4 * n * m} bytes on cuda:0") as caught:
        f(x, y)
    assert caught.value.code == "TC084"
    assert bool((x == 1).all())
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > free - (1 << 28)


# --- memory and time -----------------------------------------------------------------------


@pytest.mark.alone
def test_calls_do_not_leak(prog: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.rand(1 << 20, device="cuda")
    host = np.ones(1 << 18, "f4")

    def some() -> None:
        for _ in range(20):
            prog.both(x.view(1024, 1024))
            prog.saxpy(host, host, 2.0, target="cuda")

    some()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(10):
        some()
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= before


Calls = Mapping[str, Callable[[], object]]
Scope = Callable[[], AbstractContextManager[Any]]


def costs_of(calls: Calls, scopes: Mapping[str, Scope] | None = None) -> dict[str, float]:
    """Return the time of each call, back to back, in us: the least of seven rounds.

    They take turns, so that whatever else the machine does slows all of them.

    :arg scopes: what to do some of them in.
    """
    found = dict.fromkeys(calls, math.inf)
    for _ in range(7):
        for name, call in calls.items():
            with (scopes or {}).get(name, nullcontext)():
                found[name] = min(found[name], per_call_us(call))
    return found


def per_call_us(call: Callable[[], object], n: int = 2000) -> float:
    """Return the time of a call of *n*, back to back."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        call()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent / n * 1e6


ADD = "def f(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }"
BOUND_COSTS, CALL_COSTS = 1.2, 2.5  # at most, as multiples of a prepared PyCUDA call
_UNBOUNDED = ("bare prepared PyCUDA call", "torch eager")  # not ours: what is compared with


def bare_launch(f: Any, x: Any, out: Any) -> Callable[[], object]:
    """Return the launch of *f* as whoever uses PyCUDA alone would write it."""
    step = f.compile(x, x)._call_for((x, x)).loaded.steps[0]
    function = step.launch_kernel.__self__
    function.prepare("PPP")
    pointers = x.data_ptr(), x.data_ptr(), out.data_ptr()
    return lambda: function.prepared_async_call(step.grid, step.block, None, *pointers)


def require_costs(costs: dict[str, float], record_property: Any) -> None:
    """Print what each call costs, and hold it to the bound: the first one is the bare launch."""
    bare = costs["bare prepared PyCUDA call"]
    text = ", ".join(f"{name} {cost:.1f} us ({cost / bare:.2f})" for name, cost in costs.items())
    print(text)
    record_property("launch", text)
    for name, cost in costs.items():
        limit = BOUND_COSTS if "bound" in name else CALL_COSTS
        assert cost <= limit * bare or name in _UNBOUNDED, text


@pytest.mark.alone
def test_what_a_launch_costs(record_property: Any) -> None:
    torch, driver = pytest.importorskip("torch"), pytest.importorskip("pycuda.driver")
    from pycuda import gpuarray

    f = tcdsl.define(ADD).f
    x, out = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    bound = f.compile(x, x).bind(x, x, out=out)
    calls: dict[str, Callable[[], object]] = {
        "bare prepared PyCUDA call": bare_launch(f, x, out),
        "bound": bound,
        "torch, out=": lambda: f(x, x, out=out),
        "torch": lambda: f(x, x),
        "torch eager": lambda: torch.add(x, x, out=out),
        "bound, side stream": bound,
        "torch, out=, side stream": lambda: f(x, x, out=out),
    }
    context = driver.Device(0).retain_primary_context()
    stream = torch.cuda.Stream()

    @contextmanager
    def pushed() -> Iterator[None]:
        context.push()
        try:
            yield
        finally:
            context.pop()

    with pushed():
        a, b = gpuarray.zeros(64, "f4"), gpuarray.zeros(64, "f4")
        calls["GPUArray, out="] = lambda: f(a, a, out=b)
        calls["GPUArray"] = lambda: f(a, a)
        calls["GPUArray, bound"] = f.compile(a, a).bind(a, a, out=b)
    scopes: dict[str, Scope] = {name: pushed for name in calls if name.startswith("GPUArray")}
    aside: Scope = lambda: torch.cuda.stream(stream)  # noqa: E731
    scopes |= {name: aside for name in calls if name.endswith("side stream")}
    require_costs(costs_of(calls, scopes), record_property)


@pytest.mark.alone
def test_what_a_launch_costs_with_cupy(record_property: Any) -> None:
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    f = tcdsl.define(ADD).f
    x, out = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    a, b = cupy.ones(64, "f4"), cupy.ones(64, "f4")
    calls: Calls = {
        "bare prepared PyCUDA call": bare_launch(f, x, out),
        "CuPy, out=": lambda: f(a, a, out=b),
        "CuPy": lambda: f(a, a),
        "CuPy, bound": f.compile(a, a).bind(a, a, out=b),
    }
    require_costs(costs_of(calls), record_property)


@pytest.mark.alone
def test_what_else_a_warm_call_costs(prog: Any, record_property: Any) -> None:
    """Numbers, a gather's fault record, other arrays each time: what most real calls have."""
    torch = pytest.importorskip("torch")
    x, out = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    at = torch.zeros(64, dtype=torch.int32, device="cuda")
    f = tcdsl.define(ADD).f
    arrays = cycle([(x, out), (out, x), (out, torch.ones(64, device="cuda"))])

    def other_arrays() -> None:
        a, b = next(arrays)
        f(a, a, out=b)

    calls: Calls = {
        "bare prepared PyCUDA call": bare_launch(tcdsl.define(ADD).f, x, out),
        "a Python number": lambda: prog.saxpy(x, x, 2.0, out=out),
        "a gather": lambda: prog.pick(x, at, out=out),
        "in place": lambda: prog.add(out, x, out=out),
        "other arrays than before": other_arrays,
    }
    require_costs(costs_of(calls), record_property)


def test_the_first_result_from_the_disk_cache(tmp_path: Any) -> None:
    code = """
import os, sys, time
import numpy as np, torch, tcdsl
x = torch.ones(1 << 16, device="cuda"); torch.cuda.synchronize()
tcdsl.compute("b(i) = a(i)", a=x)  # whatever a process does once
f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) * x(i) + 1.0 }").f
start = time.perf_counter()
y = f(x)
torch.cuda.synchronize()
print(f"{(time.perf_counter() - start) * 1e3:.1f}", "tcdsl.driver" in sys.modules)
"""
    environment = {**os.environ, "TCDSL_CACHE": "on", "TCDSL_CACHE_DIR": str(tmp_path)}
    assert run(code, environment).endswith("True")
    time_ms, has_compiled = run(code, environment).split()
    print(f"first result from the disk cache: {time_ms} ms")
    assert has_compiled == "False"


def test_the_first_result_of_a_fresh_process_from_the_disk_cache(tmp_path: Any) -> None:
    code = """
import sys, time
import numpy as np, torch, tcdsl
torch.ones(8, device="cuda").sum().item()
x, y = (torch.ones(64, 64, device="cuda") for _ in "xy")
torch.cuda.synchronize()
start = time.perf_counter()
f = tcdsl.define("def mm(float(M,K) x, float(K,N) y) -> (z) { z(m,n) +=! x(m,k) * y(k,n) }").mm
z = f(x, y)
torch.cuda.synchronize()
time_ms = (time.perf_counter() - start) * 1e3
assert bool((z == 64).all())
print(f"{time_ms:.1f}", *sorted({"islpy", "lark", "tcdsl.driver"} & set(sys.modules)))
"""
    environment = {**os.environ, "TCDSL_CACHE": "on", "TCDSL_CACHE_DIR": str(tmp_path)}
    assert run(code, environment).endswith("islpy lark tcdsl.driver")
    time_ms, *imported = run(code, environment).split()
    print(f"first result of a fresh process from the disk cache: {time_ms} ms")
    assert imported == []


def run(code: str, environment: Any = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=environment, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
