"""The warm path of calls on device arrays: what takes it, what must not, and both agree."""

import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.errors import LaunchError, ShapeError, TargetError, TCError
from tcdsl.lang.types.dtypes import ALL, BOOL, FLOAT64, INT64
from tcdsl.runtime.arguments import host_scalar
from tcdsl.runtime.cuda import libraries, quick_call
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.quick_call import packer
from tcdsl.runtime.cuda.steps import selector

Make = Callable[..., Any]
N = 10
X = np.arange(N, dtype="f4")
SIDE = 4242  # a stream that is not the default one


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of every call that went the long way."""
    calls: list[Any] = []
    run = DeviceCall._run

    def counted(self: DeviceCall, args: Any, out: Any) -> Any:
        calls.append((args, out))
        return run(self, args, out)

    monkeypatch.setattr(DeviceCall, "_run", counted)
    return calls


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What arrays are computed on: its last element."""
    streams = [0]
    source = lambda library, ordinal: lambda: streams[-1]  # noqa: E731
    monkeypatch.setattr(libraries._Pycuda, "stream_source", source)
    monkeypatch.setattr(libraries._Pycuda, "stream", lambda *args: streams[-1])
    return streams


@pytest.fixture
def add(program: Make, at: Make) -> Any:
    def kernel(p: list[int]) -> None:
        at(p[2], "f4", N)[:] = at(p[0], "f4", N) + at(p[1], "f4", N)

    text = "def add(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }"
    return program(text, kernel, "x", "y", "z")


@pytest.fixture
def scaled(program: Make, at: Make) -> Any:
    def kernel(p: list[int]) -> None:
        at(p[2], "f4", N)[:] = at(p[0], "f4", N) * at(p[1], "f4", 1)[0]

    text = "def scale(float(N) x, float s) -> (y) { y(i) = x(i) * s }"
    return program(text, kernel, "x", "s", "y")


def test_a_warm_call_takes_it(add: Any, gpuarray: Make, slow: list[Any]) -> None:
    x, y, z = gpuarray(X), gpuarray(2 * X), gpuarray(0 * X)
    assert add(x, y, out=z) is z  # out's signature is new
    assert len(slow) == 1
    np.testing.assert_array_equal(add(x, y).get(), 3 * X)
    assert add(y, y, out=z) is z and add(y, y, out=(z,)) is z
    np.testing.assert_array_equal(z.get(), 4 * X)
    assert len(slow) == 1


def test_an_out_that_shares_memory_does_not(
    add: Any, gpuarray: Make, slow: list[Any], fake: Any
) -> None:
    array = type(gpuarray(X))
    base = gpuarray(np.arange(2 * N, dtype="f4"))
    views = {k: array((N,), "f4", gpudata=int(base.gpudata) + 4 * k) for k in (0, 4, 8)}
    y, z = gpuarray(2 * X), gpuarray(0 * X)
    add(y, y, out=z)
    add(y, y, out=views[8])
    slow.clear()
    add(y, y, out=views[4])  # nothing shared
    assert slow == []
    base.set(np.arange(2 * N))
    add(views[0], y, out=views[4])
    assert len(slow) == 1
    np.testing.assert_array_equal(views[4].get(), X + 2 * X)
    base.set(np.arange(2 * N))
    add(y, views[8], out=views[4])
    np.testing.assert_array_equal(views[4].get(), X + 8 + 2 * X)
    assert len(slow) == 2


def test_what_was_apart_is_looked_at_again_elsewhere(
    add: Any, gpuarray: Make, slow: list[Any]
) -> None:
    """The addresses of the latest call are remembered; each of them may be another one next."""
    arrays = [gpuarray(k * X) for k in range(1, 6)]
    add(arrays[0], arrays[0], out=arrays[3])
    slow.clear()
    for a, b, c in [(0, 1, 3), (0, 1, 3), (1, 1, 3), (1, 2, 3), (1, 2, 4), (1, 2, 4), (2, 1, 4)]:
        arrays[c].set(0 * X)
        assert add(arrays[a], arrays[b], out=arrays[c]) is arrays[c]
        np.testing.assert_array_equal(arrays[c].get(), (a + b + 2) * X)
    assert slow == []
    for _ in range(2):
        arrays[4].set(5 * X)
        np.testing.assert_array_equal(add(arrays[4], arrays[0], out=arrays[4]).get(), 6 * X)
    assert len(slow) == 2


def test_more_arrays_than_are_remembered(
    add: Any, gpuarray: Make, slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_call, "_KNOWN", 2)
    arrays = [gpuarray(k * X) for k in range(1, 5)]
    z = gpuarray(X)
    add(z, arrays[0], out=z)
    slow.clear()
    for k in (0, 1, 2, 3, 3, 2, 1, 0):
        np.testing.assert_array_equal(add(arrays[k], arrays[k], out=z).get(), 2 * (k + 1) * X)
    assert slow == []
    call = add.compile(z, z)._call_for((z, z))
    assert len(call.run.__self__._known) <= 2


def test_outs_that_share_memory_with_each_other(program: Make, gpuarray: Make) -> None:
    text = "def two(float(N) x) -> (y, z) { y(i) = x(i)  z(i) = -x(i) }"
    two = program(text, lambda p: None, "x", "y", "z")
    x, y, z = gpuarray(X), gpuarray(X), gpuarray(X)
    for _ in range(2):
        two(x, out=(y, z))
        with pytest.raises(ShapeError, match=r"out 'z' .* shares memory with out 'y'"):
            two(x, out=(y, y))
        with pytest.raises(ShapeError, match="1 array for 2 outputs"):
            two(x, out=(y,))
        assert two(x, out={"z": z})[1] is z


def test_a_wrong_out_is_refused_by_a_warm_call(add: Any, gpuarray: Make) -> None:
    x, z = gpuarray(X), gpuarray(X)
    for _ in range(2):
        add(x, x, out=z)
    for wrong in (gpuarray(X.astype("f8")), gpuarray(X[:4]), None):
        with pytest.raises(ShapeError, match="2 arrays for 1 output"):
            add(x, x, out=(wrong, wrong))
    with pytest.raises(ShapeError, match="float64"):
        add(x, x, out=gpuarray(X.astype("f8")))
    with pytest.raises(TargetError, match="cpu"):
        add(x, x, out=X)


def test_in_place_only_where_it_is_the_input(
    program: Make, at: Make, gpuarray: Make, slow: list[Any]
) -> None:
    def kernel(p: list[int]) -> None:
        at(p[0], "f4", N)[:] += at(p[1], "f4", N)

    text = "def add(float(N) y, float(N) x) -> (y) { y(i) += x(i) }"
    function = program(text, kernel, "y", "x")
    y, x, other = gpuarray(X), gpuarray(10 * X), gpuarray(0 * X)
    function(y, x, out=y)
    slow.clear()
    assert function(y, x, out=y) is y and slow == []
    np.testing.assert_array_equal(y.get(), 21 * X)
    np.testing.assert_array_equal(function(y, x, out=other).get(), 31 * X)
    np.testing.assert_array_equal(function(y, x).get(), 31 * X)
    np.testing.assert_array_equal(y.get(), 21 * X)
    assert len(slow) == 2
    np.testing.assert_array_equal(function(y, y, out=y).get(), 42 * X)


# --- new arrays of PyCUDA's ----------------------------------------------------------------


def test_new_gpuarrays_are_what_their_constructor_makes(add: Any, gpuarray: Make) -> None:
    x, y = gpuarray(X), gpuarray(2 * X)
    usual = vars(type(x)((N,), "f4")).keys()
    for _ in range(3):
        z = add(x, y)
        assert type(z) is type(x) and vars(z).keys() == usual
        assert {k: v for k, v in vars(z).items() if k != "gpudata"} == {
            k: v for k, v in vars(x).items() if k != "gpudata"
        }
        np.testing.assert_array_equal(z.get(), 3 * X)


def test_the_memory_of_dropped_gpuarrays_is_used_again(
    add: Any, gpuarray: Make, fake: Any, slow: list[Any]
) -> None:
    x, y = gpuarray(X), gpuarray(2 * X)
    z = add(x, y)
    others = add(x, z), add(x, z)
    assert len({int(v.gpudata) for v in (x, y, z, *others)}) == 5
    del others
    used = fake.used()
    fake.capturing.add(SIDE)  # by someone else: then the driver must not be asked for any
    for _ in range(5):
        kept, z = z, add(x, z)
        assert int(kept.gpudata) != int(z.gpudata)
    assert fake.used() == used and slow == []
    np.testing.assert_array_equal(z.get(), 8 * X)


def test_the_callers_allocator_makes_new_gpuarrays(
    add: Any, gpuarray: Make, fake: Any, slow: list[Any]
) -> None:
    driver, arrays = sys.modules["pycuda.driver"], sys.modules["pycuda.gpuarray"]
    asked: list[int] = []

    def allocate(size_bytes: int) -> int:
        asked.append(size_bytes)
        assert driver.Context.stack, "no currently active context?"
        if len(asked) == 2:
            raise driver.MemoryError  # as if there were none until idle memory is freed
        return fake.allocate(size_bytes)  # type: ignore[no-any-return]

    y = gpuarray(2 * X)
    add(y, y)  # of our pool
    x = arrays.GPUArray((N,), "f4", allocate).set(X)
    used = fake.used()
    for _ in range(2):
        z = add(x, y)
        assert z.allocator is allocate
        np.testing.assert_array_equal(z.get(), 3 * X)
    assert asked == [40, 40, 40, 40] and slow == []
    assert fake.used() < used + 2 * 512  # what was idle is freed
    assert add(y, x).allocator is y.allocator  # the first argument's
    stack, driver.Context.stack[:] = list(driver.Context.stack), []
    np.testing.assert_array_equal(
        add.compile(x, y)._call_for((x, y)).run((x, y), None).get(), 3 * X
    )
    driver.Context.stack[:] = stack


def test_the_callers_allocator_has_none(add: Any, gpuarray: Make, fake: Any) -> None:
    driver, arrays = sys.modules["pycuda.driver"], sys.modules["pycuda.gpuarray"]

    def allocate(size_bytes: int) -> int:
        raise driver.MemoryError

    x = arrays.GPUArray((N,), "f4", allocate, gpudata=gpuarray(X).gpudata)
    with pytest.raises(LaunchError, match=r"shape \(10,\) needs 40 bytes on cuda:0") as caught:
        add(x, x)
    assert caught.value.code == "TC084"


# --- numbers -------------------------------------------------------------------------------


def test_numbers(scaled: Any, gpuarray: Make, slow: list[Any]) -> None:
    x = gpuarray(X)
    for factor in (3.0, 4, -0.5, 3.0, float("inf")):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(scaled(x, factor).get(), X * np.float32(factor))
    assert slow == []
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"1e\+39 is too large"):
            scaled(x, 1e39)
    np.testing.assert_array_equal(scaled(x, 3.0).get(), 3 * X)  # the lock is free again


def test_a_number_before_an_array(program: Make, at: Make, gpuarray: Make, slow: list[Any]) -> None:
    def kernel(p: list[int]) -> None:
        at(p[2], "f4", N)[:] = at(p[0], "f4", 1)[0] * at(p[1], "f4", N)

    text = "def scale(float s, float(N) x) -> (y) { y(i) = s * x(i) }"
    f, x = program(text, kernel, "s", "x", "y"), gpuarray(X)
    for factor in (3.0, -0.5):
        np.testing.assert_array_equal(f(factor, x).get(), X * np.float32(factor))
    assert slow == []


SAMPLES: list[Any] = [
    0, 1, -1, 127, 128, -128, -129, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1,
    2**63, 2**64 - 1, 2**64, 10**400, True, False, 0.0, -0.0, 1.5, 0.1, 1e-8, 1e-46, 65504.0,
    65519.9, 65520.0, 1e39, 3.4028235677973366e38, -1e39, float("inf"), float("nan"),
    np.float32(0.1), np.float64(0.1), np.int16(-3), np.uint64(2**64 - 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_packed_numbers_are_those_of_the_long_way(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    drawn = [float(v) for v in rng.standard_normal(200) * 10.0 ** rng.integers(-45, 40, 200)]
    drawn += [int(v) for v in rng.integers(-(2**63), 2**63 - 1, 100)]
    for value in SAMPLES + drawn:
        found = BOOL if isinstance(value, bool) else INT64 if isinstance(value, int) else FLOAT64
        pack = packer(dtype, found)
        if pack is None:
            continue
        try:
            got: bytes | None = pack(value)
        except (struct.error, OverflowError, TypeError, ValueError):
            got = None
        try:
            want: bytes | None = host_scalar(value, dtype).tobytes()
        except TCError:
            want = None
        # Where packing gives up, the long way decides; it must never make other bytes.
        assert got == want or (got is None and isinstance(value, np.generic)), (value, got, want)


def test_a_float_is_never_packed_as_a_bool() -> None:
    assert packer(BOOL, FLOAT64) is None and packer(BOOL, INT64) is None
    assert packer(FLOAT64, BOOL) is None  # the long way knows


# --- contexts, streams, settings -------------------------------------------------------------


def test_another_context_is_current(add: Any, gpuarray: Make, fake: Any, slow: list[Any]) -> None:
    context = sys.modules["pycuda.driver"].Context
    x, z = gpuarray(X), gpuarray(X)
    bound = add.compile(x, x).bind(x, x, out=z)
    call = add.compile(x, x)._call_for((x, x))
    call.run((x, x), z)
    slow.clear()
    context(fake, 1001).push()
    call.run((x, x), z)
    assert bound() is z
    assert len(slow) == 1 and fake.contexts[-1] == 1001
    assert {entry[2] for entry in fake.launched} == {1000}
    context.pop()
    fake.contexts.clear()  # a new thread has none
    assert bound() is z and call.run((x, x), z) is z and fake.contexts == []


@pytest.mark.parametrize("is_old", [False, True])
def test_a_stream_of_another_library(
    add: Any, gpuarray: Make, fake: Any, stream: list[int], is_old: bool,
    monkeypatch: pytest.MonkeyPatch, slow: list[Any],
) -> None:  # fmt: skip
    if is_old:  # a driver before CUDA 11.8
        monkeypatch.delattr(type(fake), "cuLaunchKernelEx")
    x, y, z = gpuarray(X), gpuarray(2 * X), gpuarray(0 * X)
    add(x, y, out=z)
    bound = add.compile(x, y).bind(y, y, out=z)
    slow.clear()
    stream.append(SIDE)
    np.testing.assert_array_equal(add(x, y).get(), 3 * X)
    assert add(x, x, out=z) is z
    np.testing.assert_array_equal(z.get(), 2 * X)
    np.testing.assert_array_equal(bound().get(), 4 * X)
    stream.append(SIDE + 1)
    np.testing.assert_array_equal(bound().get(), 4 * X)
    assert [entry[1] for entry in fake.launched] == [0, SIDE, SIDE, SIDE, SIDE + 1]
    assert slow == [] and fake.waited == 0


def test_launches_at_the_same_time_have_memory_of_their_own(
    program: Make, gpuarray: Make, stream: list[int]
) -> None:
    """The kernel calls the function again, as another thread would in the middle of a launch."""
    seen: list[list[int]] = []

    def kernel(p: list[int]) -> None:
        before = list(p)
        seen.append(before)
        if len(seen) == 2:
            function(b, out=z)
        assert p == before

    function = program("def f(float(N) x) -> (y) { y(i) = x(i) }", kernel, "x", "y")
    a, b, z = gpuarray(X), gpuarray(X), gpuarray(X)
    function(a, out=z)
    stream.append(SIDE)
    for _ in range(4):
        function(a, out=z)
    assert [p[0] for p in seen] == [int(v.gpudata) for v in (a, a, b, a, a, a)]
    raw = function.compile(a)._call_for((a,)).loaded.raw_kernels()[0]
    assert len(raw._free) == 2  # as many as there were launches at once


def test_a_workspace(program: Make, gpuarray: Make, fake: Any, stream: list[int]) -> None:
    seen = []
    function = program(
        "def f(float(N) x) -> (y) { y(i) = x(i) }", lambda p: seen.append(p), "x", "t@0", "t@4096",
        "y", workspace_bytes=8192,
    )  # fmt: skip
    x, z = gpuarray(X), gpuarray(X)
    for _ in range(3):
        function(x, out=z)
    assert {p[2] - p[1] for p in seen} == {4096} and len({p[1] for p in seen}) == 1
    used = fake.used()
    stream.append(SIDE)
    function(x, out=z)
    assert seen[-1][1] != seen[0][1] and fake.used() > used  # of this stream
    fake.capturing.add(SIDE)
    function(x, out=z)
    with pytest.raises(LaunchError, match="being captured"):  # the graph keeps what there was
        function(x, out=z)


def test_row_22_numbers_while_a_graph_is_captured(
    scaled: Any, gpuarray: Make, fake: Any, stream: list[int]
) -> None:
    """The slot of a number is written anew later, when the graph may run again."""
    x, z = gpuarray(X), gpuarray(X)
    scaled(x, 2.0, out=z)
    stream.append(SIDE)
    scaled(x, 2.0, out=z)
    fake.capturing.add(SIDE)
    with pytest.raises(LaunchError, match="give a 0-D array on the device instead") as caught:
        scaled(x, 2.0, out=z)
    assert caught.value.code == "TC087"


def test_debug_waits_for_every_launch(
    add: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = gpuarray(X)
    add(x, x)
    assert fake.waited == 0
    monkeypatch.setenv("TCDSL_DEBUG", "1")
    add(x, x)
    assert fake.waited == 1
    monkeypatch.setenv("TCDSL_DEBUG", "off")
    add(x, x)
    assert fake.waited == 1


# --- two devices -----------------------------------------------------------------------------


def on_device(number: int, values: Any) -> Any:
    """Return a GPUArray in the primary context of a device."""
    driver, arrays = sys.modules["pycuda.driver"], sys.modules["pycuda.gpuarray"]
    context = driver.Device(number).retain_primary_context()
    context.push()
    try:
        return arrays.GPUArray(values.shape, values.dtype).set(values)
    finally:
        driver.Context.pop()


def test_row_21_arrays_on_two_gpus_also_in_a_warm_call(add: Any, gpuarray: Make, fake: Any) -> None:
    here, z = gpuarray(X), gpuarray(X)
    there = on_device(1, X)
    before = list(fake.contexts)
    for _ in range(2):
        add(here, here, out=z)
        with pytest.raises(TargetError, match="'x' on cuda:0, 'y' on cuda:1"):
            add(here, there)
        with pytest.raises(TargetError, match=r"out 'z'.*cuda:1"):
            add(here, here, out=there)
        np.testing.assert_array_equal(add(there, there).get(), 2 * X)
    assert fake.contexts == before
    assert {entry[2] for entry in fake.launched} == {1000, 1001}


def test_row_33_eight_threads(scaled: Any, gpuarray: Make, fake: Any) -> None:
    """Each with the context current or not; the fake driver has one stack, so one at a time."""
    x, z = gpuarray(X), gpuarray(X)
    scaled(x, 1.0, out=z)
    lock, failures = threading.Lock(), []

    def work(number: int) -> None:
        for factor in range(20):
            with lock:
                before = list(fake.contexts)
                if number % 2:
                    fake.contexts.clear()
                got = scaled(x, float(factor + number), out=z).get()
                fake.contexts[:] = before
            if not np.array_equal(got, X * (factor + number)):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_row_34_also_for_bound_calls(add: Any, gpuarray: Make, fake: Any) -> None:
    x, z = gpuarray(X), gpuarray(X)
    bound = add.compile(x, x).bind(x, x, out=z)
    bound()
    add(x, x, out=z)
    fake.lost = 700
    for call in (bound, lambda: add(x, x, out=z), lambda: add(X, X, target="cuda"), bound):
        with pytest.raises(LaunchError, match="illegal memory access") as caught:
            call()
        assert caught.value.code == "TC085" and "new one" in (caught.value.hint or "")


@pytest.mark.slow
def test_row_35_a_warm_call_without_memory(add: Any, gpuarray: Make, fake: Any) -> None:
    x = gpuarray(X)
    kept = add(x, x)
    used = fake.used()
    fake.capacity = used
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"needs 40 bytes on cuda:0.* 0 bytes are free") as e:
            add(x, x)
        assert e.value.code == "TC084"
    np.testing.assert_array_equal(x.get(), X)
    np.testing.assert_array_equal(kept.get(), 2 * X)
    assert fake.used() == used
    fake.capacity *= 2
    np.testing.assert_array_equal(add(x, x).get(), 2 * X)


def test_selections() -> None:
    assert selector([2, 0])("abc") == ("c", "a")
    assert selector([1])([5, 6]) == (6,)
    assert selector([])([5]) == ()
