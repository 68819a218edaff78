"""Kernels with open sizes on the GPU that is none: one module, a grid for each size of a call."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.cuda.counts import Count, Room, SharedCount
from tcdsl.codegen.cuda.source import CudaSource, Launch, Overlap, Parameter, ParameterKind
from tcdsl.executable import cuda as cuda_executable
from tcdsl.runtime.cuda import libraries
from tcdsl.runtime.warm_path import MISSING

Make = Callable[..., Any]
DOUBLE = "def f(float(B,N) x) -> (y) { y(b,n) = 2 * x(b,n) }"
OPTIONS = tcdsl.Options(dynamic_sizes=("B",))
SIDE = 4242  # a stream that is not the default one


def source(overlap: Overlap) -> CudaSource:
    """Return a kernel of (B - 1) / 4 + 1 blocks, which takes B."""
    x, y = (Parameter(f"float *{name}", ParameterKind.ARRAY, name) for name in "xy")
    size = Parameter("const int64_t B", ParameterKind.INTEGER, "B", 0)
    counts = (Count(4, 3, ((1, 0),)),), (), ()
    shared = SharedCount(16, 64, counts[0])
    launch = Launch(
        "tc_k0", (64, 1, 1), (32, 1, 1), 1000 + 16 * 64, (x, y, size), "S0", overlap=overlap,
        counts=counts, shared_counts=(shared,),
    )  # fmt: skip
    return CudaSource("", frozenset(), (launch,), 0, (), (("B", -1),))


@pytest.fixture(params=[Overlap.ORDERED, Overlap.WAITS_FIRST])
def f(request: Any, compiles: Make, at: Make) -> Any:
    def kernel(values: list[int]) -> None:
        x, y, size = values
        at(y, "f4", 3 * size)[:] = 2 * at(x, "f4", 3 * size)

    compiles(source(request.param), kernel)
    return tcdsl.define(DOUBLE).f


def array(size: int) -> Any:
    return np.arange(3 * size, dtype="f4").reshape(size, 3)


def test_each_size_has_its_grid(
    f: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [0]
    current = lambda library, ordinal: lambda: streams[-1]  # noqa: E731
    monkeypatch.setattr(libraries._Pycuda, "stream_source", current)
    monkeypatch.setattr(libraries._Pycuda, "stream", lambda *args: streams[-1])
    for stream in (0, SIDE):
        streams.append(stream)
        fake.grids.clear()
        fake.shared.clear()
        for size in (17, 256, 20, 17):
            x = gpuarray(array(size))
            np.testing.assert_array_equal(f(x, options=OPTIONS).get(), 2 * array(size))
            bound = f.compile(x, options=OPTIONS).bind(x)
            np.testing.assert_array_equal(bound().get(), 2 * array(size))
        assert fake.grids == [(n, 1, 1) for n in (5, 5, 64, 64, 5, 5, 5, 5)]
        assert fake.shared == [1000 + 16 * n for n in (5, 5, 64, 64, 5, 5, 5, 5)]


def test_bound_calls_of_two_sizes_in_turn(
    f: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both, of one class, launch by the same memory on a stream that is not the default one."""
    monkeypatch.setattr(libraries._Pycuda, "stream_source", lambda *args: lambda: SIDE)
    monkeypatch.setattr(libraries._Pycuda, "stream", lambda *args: SIDE)
    sizes = (37, 61)
    arrays = [gpuarray(array(size)) for size in sizes]
    bound = [f.compile(x, options=OPTIONS).bind(x) for x in arrays]
    for number in (0, 1, 0, 1):
        np.testing.assert_array_equal(bound[number]().get(), 2 * array(sizes[number]))
    assert fake.grids == [(n, 1, 1) for n in (10, 16, 10, 16)]
    assert fake.shared == [1000 + 16 * n for n in (10, 16, 10, 16)]


def test_arrays_of_the_host(f: Any, fake: Any) -> None:
    for size in (17, 100):
        found = f(array(size), target="cuda", options=OPTIONS)
        np.testing.assert_array_equal(found, 2 * array(size))
    assert fake.grids == [(5, 1, 1), (25, 1, 1)]
    exe = f.compile(array(100), target="cuda", options=OPTIONS)
    assert exe.opened == ("B",) and exe.kernels[0]["grid"] == (25, 1, 1)


def test_a_second_process_finds_it(f: Any, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f(array(17), target="cuda", options=OPTIONS)
    from tcdsl import driver
    from tcdsl.executable import cuda as cuda_executable

    cuda_executable.forget_programs()
    monkeypatch.setattr(driver, "compile_to_cuda", None)
    again = tcdsl.define(DOUBLE).f
    np.testing.assert_array_equal(again(array(33), target="cuda", options=OPTIONS), 2 * array(33))
    assert fake.grids[-1] == (9, 1, 1)


@pytest.fixture
def full_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sizes at which calls were made in full."""
    made: list[Any] = []
    plain = cuda_executable.CudaExecutable._new_call

    def counted(self: Any, *args: Any) -> Any:
        made.append(tuple(self._extents.sizes.values()))
        return plain(self, *args)

    monkeypatch.setattr(cuda_executable.CudaExecutable, "_new_call", counted)
    return made


def test_calls_at_new_sizes_are_not_made_in_full(
    f: Any, gpuarray: Make, fake: Any, full_calls: list[Any]
) -> None:
    for size in (17, 64, 20, 40, 20):
        found = f(gpuarray(array(size)), options=OPTIONS).get()
        np.testing.assert_array_equal(found, 2 * array(size))
    assert fake.grids == [(n, 1, 1) for n in (5, 16, 5, 10, 5)]
    assert fake.shared == [1000 + 16 * n for n in (5, 16, 5, 10, 5)]
    assert full_calls == [(17, 3)] and len(f._runs) == 1, "nothing is kept of a size"
    # Another class of sizes, and options, are code of their own.
    f(gpuarray(array(300)), options=OPTIONS)
    f(gpuarray(array(17)), options=tcdsl.Options(dynamic_sizes=("B",), fast_math=True))
    f(gpuarray(array(301)), options=OPTIONS)
    f(gpuarray(array(18)), options=OPTIONS)
    assert full_calls == [(17, 3), (300, 3), (17, 3)]


def test_compiled_code_makes_no_full_call_at_new_sizes_either(
    f: Any, gpuarray: Make, fake: Any, full_calls: list[Any]
) -> None:
    exe = f.compile(gpuarray(array(17)), options=OPTIONS)
    for size in (17, 20, 64):
        np.testing.assert_array_equal(exe(gpuarray(array(size))).get(), 2 * array(size))
    assert full_calls == [(17, 3)] and fake.grids == [(n, 1, 1) for n in (5, 5, 16)]
    with pytest.raises(tcdsl.ShapeError, match="3 in this code"):
        exe(gpuarray(np.zeros((20, 4), "f4")))


def test_another_stream_has_the_grid_of_each_size(
    f: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries._Pycuda, "stream_source", lambda library, ordinal: lambda: SIDE)
    monkeypatch.setattr(libraries._Pycuda, "stream", lambda *args: SIDE)
    f(gpuarray(array(17)), options=OPTIONS)
    y = gpuarray(np.zeros((17, 3), "f4"))
    for size in (20, 17, 60):
        found = f(gpuarray(array(size)), options=OPTIONS).get()
        np.testing.assert_array_equal(found, 2 * array(size))
        f(gpuarray(array(17)), out=y, options=OPTIONS)  # by the first call, with its grid
    assert fake.grids == [(n, 1, 1) for n in (5, 5, 5, 5, 5, 15, 5)]
    assert {stream for _, stream, _ in fake.launched} == {SIDE}


def test_results_are_given_at_new_sizes(
    f: Any, gpuarray: Make, fake: Any, full_calls: list[Any]
) -> None:
    f(gpuarray(array(17)), options=OPTIONS)
    for size in (20, 60, 33, 20):
        x, y = gpuarray(array(size)), gpuarray(np.zeros((size, 3), "f4"))
        for _ in range(3):  # the first of a class is made in full, for it looks at what is given
            assert f(x, out=y, options=OPTIONS) is y
        np.testing.assert_array_equal(y.get(), 2 * array(size))
    assert full_calls == [(17, 3), (20, 3)]
    for size in (20, 60, 100):
        x = gpuarray(array(size))
        np.testing.assert_array_equal(f(x, out=x, options=OPTIONS).get(), 2 * array(size))
        with pytest.raises(tcdsl.ShapeError):
            f(x, out=gpuarray(np.zeros((size + 1, 3), "f4")), options=OPTIONS)
    assert full_calls == [(17, 3), (20, 3), (60, 3), (100, 3)]


def test_given_results_that_share_memory_go_the_long_way(
    f: Any, gpuarray: Make, full_calls: list[Any]
) -> None:
    """They are refused, or computed elsewhere and copied."""
    f(gpuarray(array(20)), out=gpuarray(np.zeros((20, 3), "f4")), options=OPTIONS)
    whole = gpuarray(array(60))
    kind, inner = type(whole), whole.gpudata
    x, y = (kind((n, 3), whole.dtype, gpudata=inner) for n in (40, 40))
    np.testing.assert_array_equal(f(x, out=y, options=OPTIONS).get(), 2 * array(40))
    assert full_calls == [(20, 3), (40, 3)]


def test_arrays_with_gaps_have_new_sizes_too(
    compiles: Make, at: Make, gpuarray: Make, full_calls: list[Any]
) -> None:
    x, y = (Parameter(f"float *{name}", ParameterKind.ARRAY, name) for name in "xy")
    integers = [Parameter(f"int64_t {n}", ParameterKind.INTEGER, n, k) for k, n in enumerate("Bs")]
    launch = Launch("tc_k0", (64, 1, 1), (32, 1, 1), 0, (x, y, *integers), "S0")

    def kernel(values: list[int]) -> None:
        own, to, rows, stride = values
        lines = at(own, "f4", stride * rows).reshape(rows, stride)
        at(to, "f4", 3 * rows).reshape(rows, 3)[:] = 2 * lines[:, :3]

    compiles(CudaSource("", frozenset(), (launch,), 0, (), (("B", -1), ("x", 0))), kernel)
    f = tcdsl.define(DOUBLE).f

    def part_of(data: np.ndarray[Any, Any]) -> Any:
        whole, stride = gpuarray(data), data.strides[0]
        shape = (len(data), 3)
        return type(whole)(shape, whole.dtype, gpudata=whole.gpudata, strides=(stride, 4))

    exe = f.compile(part_of(np.zeros((17, 5), "f4")), options=OPTIONS)
    for call in (lambda x: f(x, options=OPTIONS), exe):
        full_calls.clear()
        for rows, stride in ((17, 5), (20, 5), (64, 5), (30, 7), (31, 7), (1, 7), (1, 7)):
            data = np.arange(rows * stride, dtype="f4").reshape(rows, stride)
            np.testing.assert_array_equal(call(part_of(data)).get(), 2 * data[:, :3])
        # A row has no stride, and is of another class.
        assert full_calls[:2] == [(17, 3), (30, 3)] and {*full_calls[2:]} <= {(1, 3)}


def test_sizes_among_the_arguments_may_be_new(
    compiles: Make, at: Make, gpuarray: Make, full_calls: list[Any]
) -> None:
    x, y = (Parameter(f"float *{name}", ParameterKind.ARRAY, name) for name in "xy")
    sizes = [Parameter(f"int64_t {n}", ParameterKind.INTEGER, n, k) for k, n in enumerate("BC")]
    launch = Launch("tc_k0", (64, 1, 1), (32, 1, 1), 0, (x, y, *sizes), "S0")

    def kernel(values: list[int]) -> None:
        own, to, rows, columns = values
        result = at(to, "f4", rows * columns).reshape(rows, columns)
        result[:] = at(own, "f4", rows)[:, None] + np.arange(columns)

    compiles(CudaSource("", frozenset(), (launch,), 0, (), (("B", -1), ("C", -4))), kernel)
    text = "def f(float(B) x, size C) -> (y) { y(b,c) = x(b) + c where c in 0:C }"
    options = tcdsl.Options(dynamic_sizes=("B", "C"))
    f = tcdsl.define(text).f
    exe = f.compile(gpuarray(np.zeros(17, "f4")), 8, options=options)
    for call in (lambda *args: f(*args, options=options), exe):
        full_calls.clear()
        for rows, columns in ((17, 8), (20, 8), (20, 12), (64, 16)):
            own = np.arange(rows, dtype="f4")
            found = call(gpuarray(own), columns).get()
            assert found.shape == (rows, columns)
            wanted = own[:, None] + np.arange(columns // 4)  # C is given in steps of 4
            np.testing.assert_array_equal(found.ravel()[: wanted.size], wanted.ravel())
        assert full_calls == [(17, 8)]


def test_parts_of_an_array_have_their_own_grids(f: Any, gpuarray: Make, fake: Any) -> None:
    """They begin where it does: an address alone does not tell the size."""
    x, y = gpuarray(array(100)), gpuarray(np.zeros((100, 3), "f4"))
    for size in (100, 20, 100, 20, 100, 20):
        own, to = (type(a)((size, 3), a.dtype, gpudata=a.gpudata) for a in (x, y))
        f(own, out=to, options=OPTIONS)
        assert fake.grids[-1] == (-(-size // 4), 1, 1)
        np.testing.assert_array_equal(to.get(), 2 * array(size))


@pytest.mark.parametrize("shape", [(30, 4), (0, 3), (20,), (20, 3, 1)])
def test_other_shapes_go_the_long_way(f: Any, gpuarray: Make, shape: tuple[int, ...]) -> None:
    f(gpuarray(array(17)), options=OPTIONS)
    known = [calls for own in f._calls._sized.values() for calls in own]
    assert known and all(calls.run([shape], (), None) is MISSING for calls in known)
    if len(shape) != 2:
        with pytest.raises(tcdsl.ShapeError):
            f(gpuarray(np.zeros(shape, "f4")), options=OPTIONS)


def test_what_does_not_hold_at_a_new_size_is_said(compiles: Make, gpuarray: Make) -> None:
    compiles(source(Overlap.ORDERED), lambda values: None)
    f = tcdsl.define(
        "def f(float(B,N) x, float(M) z) -> (y) { y(b,n) = x(b,n) + z(b) where b in 0:B }"
    ).f
    z = gpuarray(np.zeros(50, "f4"))
    f(gpuarray(array(17)), z, options=OPTIONS)
    f(gpuarray(array(50)), z, options=OPTIONS)
    with pytest.raises(tcdsl.RangeError):
        f(gpuarray(array(51)), z, options=OPTIONS)


def test_calls_with_numbers_have_new_sizes_too(
    compiles: Make, at: Make, gpuarray: Make, full_calls: list[Any]
) -> None:
    """A number has no entry of extents: the second size of such a definition raised ValueError."""
    x, y = (Parameter(f"float *{name}", ParameterKind.ARRAY, name) for name in "xy")
    scale = Parameter("const float a", ParameterKind.ARRAY, "a")
    size = Parameter("const int64_t B", ParameterKind.INTEGER, "B", 0)
    launch = Launch("tc_k0", (64, 1, 1), (32, 1, 1), 0, (scale, x, y, size), "S0")

    def kernel(values: list[int]) -> None:
        _, own, to, n = values
        at(to, "f4", 3 * n)[:] = 2 * at(own, "f4", 3 * n)

    compiles(CudaSource("", frozenset(), (launch,), 0, (), (("B", -1),)), kernel)
    text = "def f(float a, float(B,N) x) -> (y) { y(b,n) = a * x(b,n) }"
    f = tcdsl.define(text).f
    for rows in (17, 20, 64):
        found = f(2.0, gpuarray(array(rows)), options=OPTIONS).get()
        np.testing.assert_array_equal(found, 2 * array(rows))
    assert full_calls == [(17, 3)]


@pytest.mark.parametrize("stream", [0, SIDE])
def test_the_workspace_is_as_large_as_each_size_needs(
    stream: int, compiles: Make, gpuarray: Make, fake: Any, full_calls: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of two scratch arrays the second begins where the first ends at the sizes of the call."""
    monkeypatch.setattr(libraries._Pycuda, "stream_source", lambda *args: lambda: stream)
    monkeypatch.setattr(libraries._Pycuda, "stream", lambda *args: stream)
    kind = ParameterKind.SCRATCH
    x, y = (Parameter(f"float *{name}", ParameterKind.ARRAY, name) for name in "xy")
    t, u = (Parameter(f"float *t{offset}", kind, "t", offset) for offset in (0, 16384))
    size = Parameter("const int64_t B", ParameterKind.INTEGER, "B", 0)
    rows = (Count(1, 0, ((1, 0),)),)
    room = [Room(offset, 16384, 4, (rows, (Count(1, 64, ()),))) for offset in (0, 16384)]
    launch = Launch("tc_k0", (64, 1, 1), (32, 1, 1), 0, (x, t, u, y, size), "S0")
    seen = []
    source = CudaSource("", frozenset(), (launch,), 32768, (), (("B", -1),), rooms=tuple(room))
    compiles(source, lambda values: seen.append((values[2] - values[1], values[4])))
    f = tcdsl.define(DOUBLE).f
    for rows_ in (17, 20, 64, 20):
        f(gpuarray(array(rows_)), options=OPTIONS)
    assert seen == [(256 * n, n) for n in (17, 20, 64, 20)] and full_calls == [(17, 3)]
    if stream:
        fake.capturing.add(stream)
        with pytest.raises(tcdsl.LaunchError, match="being captured"):
            f(gpuarray(array(30)), options=OPTIONS)
