"""Calls for the target "cuda", from arguments to launches, on the GPU that is none."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import driver
from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind
from tcdsl.errors import LaunchError, RangeError, ShapeError, TargetError
from tcdsl.executable import cuda as cuda_executable
from tcdsl.lang.faults import Site
from tcdsl.lang.ranges import specialiser
from tcdsl.lang.syntax import parser
from tcdsl.runtime.cuda import libcuda, module

Make = Callable[..., Any]
SCALE = "def scale(float(N) x, float s) -> (y) { y(i) = x(i) * s }"
GATHER = "def pick(float(N) x, int32(M) at) -> (y) { y(i) = x(at(i)) }"
UPDATE = "def add(float(N) y, float(N) x) -> (y) { y(i) += x(i) }"
N = 10


def array(name: str) -> Parameter:
    return Parameter(f"float *{name}", ParameterKind.ARRAY, name)


def source_of(*parameters: Parameter, **changes: Any) -> CudaSource:
    launch = Launch("tc_k0", (1, 1, 1), (32, 1, 1), 0, parameters, "S0", ("because",))
    known: dict[str, Any] = {
        "text": "", "functions": frozenset(), "launches": (launch,), "workspace_bytes": 0,
        "sites": (),
    }  # fmt: skip
    return CudaSource(**(known | changes))


@pytest.fixture
def scale(compiles: Make, at: Make) -> Any:
    def kernel(p: list[int]) -> None:
        at(p[2], "f4", N)[:] = at(p[0], "f4", N) * at(p[1], "f4", 1)[0]

    compiles(source_of(array("x"), array("s"), array("y")), kernel)
    return tcdsl.define(SCALE).scale


X = np.arange(N, dtype="f4")


def test_numpy_arrays_go_over_and_back(scale: Any, fake: Any) -> None:
    y = scale(X, 3.0, target="cuda")
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, 3 * X)
    assert fake.contexts == []
    assert fake.launched == [("tc_k0", 0, 1000)]


def test_numpy_is_the_default_where_there_is_a_gpu(scale: Any, fake: Any) -> None:
    np.testing.assert_array_equal(scale(X, 3.0), 3 * X)
    assert len(fake.launched) == 1
    np.testing.assert_array_equal(scale(X[::-1], 3.0, out=np.zeros(N, "f4")), 3 * X[::-1])


def test_without_a_gpu_numpy_is_computed_on_the_cpu(fake: Any) -> None:
    fake.n_devices = 0
    assert not tcdsl.cuda.is_available()
    np.testing.assert_array_equal(tcdsl.define(SCALE).scale(X, 3.0), 3 * X)
    with pytest.raises(TargetError, match="no GPU"):
        tcdsl.define(SCALE).scale(X, 3.0, target="cuda")


def test_gpuarrays_stay_on_the_device(scale: Any, gpuarray: Make, fake: Any) -> None:
    x = gpuarray(X)
    y = scale(x, 2.0)
    assert type(y).__name__ == "GPUArray"
    np.testing.assert_array_equal(y.get(), 2 * X)
    before = list(fake.contexts)
    for factor in (3.0, 4.0, 3.0):
        np.testing.assert_array_equal(scale(x, factor).get(), factor * X)
    assert fake.contexts == before and fake.waited == 0


def test_out_receives_the_result(scale: Any, gpuarray: Make) -> None:
    x, y = gpuarray(X), gpuarray(np.zeros(N, "f4"))
    assert scale(x, 2.0, out=y) is y
    np.testing.assert_array_equal(y.get(), 2 * X)
    assert scale(x, 2.0, out=x) is x  # shares memory with the input: through a copy
    np.testing.assert_array_equal(x.get(), 2 * X)


@pytest.mark.parametrize(
    "wrong", [np.zeros(N, "f8"), np.zeros(N + 1, "f4"), np.zeros((N, 1), "f4")]
)
def test_a_wrong_out_is_refused(scale: Any, gpuarray: Make, wrong: Any) -> None:
    with pytest.raises(ShapeError, match="out 'y'"):
        scale(gpuarray(X), 2.0, out=gpuarray(wrong))


def test_row_21_arrays_on_two_devices(scale: Any, gpuarray: Make) -> None:
    two = tcdsl.define("def add(float(N) a, float(N) b) -> (c) { c(i) = a(i) + b(i) }").add
    with pytest.raises(TargetError, match="'a' on cuda:0, 'b' on cpu"):
        two(gpuarray(X), X)


def test_a_bound_call_only_launches(scale: Any, gpuarray: Make, fake: Any) -> None:
    factor = gpuarray(np.asarray(2.0, "f4"))
    x, y = gpuarray(X), gpuarray(np.zeros(N, "f4"))
    bound = scale.compile(x, factor).bind(x, factor, out=y)
    used = fake.used()
    x.set(5 * X)
    assert bound() is y and bound() is y
    np.testing.assert_array_equal(y.get(), 10 * X)
    assert fake.used() == used and len(fake.launched) == 2


def test_a_bound_call_with_a_host_scalar(scale: Any, gpuarray: Make, fake: Any) -> None:
    x = gpuarray(X)
    bound = scale.compile(x, 1.0).bind(x, 7.0)
    used = fake.used()
    np.testing.assert_array_equal(bound().get(), 7 * X)
    x.set(2 * X)
    np.testing.assert_array_equal(bound().get(), 14 * X)
    assert fake.used() == used and len(fake.launched) == 2  # the number was written before


def test_a_bound_number_is_there_for_calls_on_any_stream(
    scale: Any, gpuarray: Make, fake: Any
) -> None:
    exe = scale.compile(gpuarray(X), 1.0)
    exe.bind(gpuarray(X), 7.0)
    assert fake.waited == 1
    exe.bind(gpuarray(X), gpuarray(np.asarray(7.0, "f4")))
    assert fake.waited == 1, "there is no number"


def test_bound_calls_have_numbers_of_their_own(scale: Any, gpuarray: Make) -> None:
    x = gpuarray(X)
    three, seven = (scale.compile(x, 1.0).bind(x, n) for n in (3.0, 7.0))
    np.testing.assert_array_equal(three().get(), 3 * X)
    np.testing.assert_array_equal(seven().get(), 7 * X)
    np.testing.assert_array_equal(three().get(), 3 * X)


def test_a_bound_number_fits_its_type(scale: Any, gpuarray: Make) -> None:
    x = gpuarray(X)
    with pytest.raises(ShapeError):
        scale.compile(x, 1.0).bind(x, "7")


def test_a_compiled_program_takes_both_kinds_of_arrays(scale: Any, gpuarray: Make) -> None:
    exe = scale.compile(tcdsl.spec((N,), "float32"), tcdsl.spec((), "float32"), target="cuda")
    np.testing.assert_array_equal(exe(X, 2.0), 2 * X)
    np.testing.assert_array_equal(exe(gpuarray(X), 2.0).get(), 2 * X)
    with pytest.raises(ShapeError, match="10 in this code"):
        exe(gpuarray(X[:3]), 2.0)
    assert exe.kernels[0]["grid"] == (1, 1, 1) and exe.source == "text"
    assert "because" in exe.explain()


def test_the_second_process_finds_it_in_the_cache(
    scale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale(X, 2.0, target="cuda")
    cuda_executable.forget_programs()
    monkeypatch.delattr(driver, "compile_to_cuda")
    again = tcdsl.define(SCALE).scale
    np.testing.assert_array_equal(again(X, 2.0, target="cuda"), 2 * X)


def test_the_second_process_neither_parses_nor_analyses(
    scale: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scale(gpuarray(X), 2.0)
    cuda_executable.forget_programs()
    monkeypatch.delattr(parser, "parse_program")
    monkeypatch.delattr(specialiser, "Specialiser")
    again = tcdsl.define(SCALE).scale
    for y in (again(gpuarray(X), 2.0), again(gpuarray(X), 2.0, out=first)):
        np.testing.assert_array_equal(y.get(), 2 * X)
    np.testing.assert_array_equal(again(X, 2.0, target="cuda"), 2 * X)
    assert again.compile(gpuarray(X), 2.0).kernels[0]["grid"] == (1, 1, 1)
    with pytest.raises(ShapeError, match="the array has 0"):
        again(gpuarray(np.asarray(2.0, "f4")), 2.0)
    with pytest.raises(ImportError, match="parse_program"):
        again(gpuarray(X[:5]), 2.0)  # there is no code for this size


def test_a_precondition_is_checked_where_there_is_no_code(
    compiles: Make, gpuarray: Make, fake: Any
) -> None:
    compiles(source_of(array("x"), array("w"), array("o")), lambda p: None)
    text = "def window(float(H) x, float(K) w) -> (o) { o(h) +=! x(h + k) * w(k) }"
    tcdsl.define(text).window(gpuarray(X), gpuarray(X[:3]))
    with pytest.raises(RangeError) as found:
        tcdsl.define(text + "\n").window(gpuarray(X[:3]), gpuarray(X))
    kept = tcdsl.define(text).window
    assert not kept._definition.program.is_analysed
    with pytest.raises(RangeError, match="H") as again:
        kept(gpuarray(X[:3]), gpuarray(X))
    assert str(again.value) == str(found.value) and len(fake.launched) == 1
    assert kept(gpuarray(X), gpuarray(X[:3])).shape == (8,)


def test_an_update_starts_from_the_input(compiles: Make, at: Make, gpuarray: Make) -> None:
    def kernel(p: list[int]) -> None:
        at(p[0], "f4", N)[:] += at(p[1], "f4", N)

    compiles(source_of(array("y"), array("x")), kernel)
    add = tcdsl.define(UPDATE).add
    y, x = gpuarray(X), gpuarray(10 * X)
    np.testing.assert_array_equal(add(y, x).get(), 11 * X)
    np.testing.assert_array_equal(y.get(), X)
    assert add(y, x, out=y) is y
    np.testing.assert_array_equal(y.get(), 11 * X)
    np.testing.assert_array_equal(add(X, 10 * X, target="cuda"), 11 * X)


def test_a_workspace_is_kept_for_the_next_call(
    compiles: Make, at: Make, gpuarray: Make, fake: Any
) -> None:
    seen = []

    def kernel(p: list[int]) -> None:
        seen.append(p[1:3])
        at(p[2], "f4", N)[:] = at(p[0], "f4", N)

    scratch = [Parameter("float *t", ParameterKind.SCRATCH, "t", n) for n in (0, 4096)]
    compiles(source_of(array("x"), *scratch, workspace_bytes=8192), kernel)
    copy = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f
    copy(gpuarray(X))
    used = fake.used()
    copy(gpuarray(X))
    assert seen[0] == seen[1] and seen[0][1] == seen[0][0] + 4096
    assert fake.used() - used < 8192


def test_row_35_out_of_memory_names_both_sizes(compiles: Make, gpuarray: Make, fake: Any) -> None:
    compiles(source_of(array("x"), array("y"), workspace_bytes=1 << 22), lambda p: None)
    x = gpuarray(X)
    fake.capacity = fake.used() + (1 << 20)
    with pytest.raises(LaunchError, match="the workspace needs 4194304 bytes on cuda:0") as caught:
        tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f(x)
    assert caught.value.code == "TC084"
    np.testing.assert_array_equal(x.get(), X)
    fake.capacity = 1 << 30
    tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f(x)


def gather(compiles: Make, at: Make) -> Any:
    def kernel(p: list[int]) -> None:
        x, where, y, fault = (
            at(p[0], "f4", N),
            at(p[1], "i4", 3),
            at(p[2], "f4", 3),
            at(p[3], "i8", 5),
        )
        for i, k in enumerate(where):
            if not 0 <= k < N and fault[0] == 0:
                fault[:] = 1, 0, k, N, i
            y[i] = x[k] if 0 <= k < N else 0

    fault = Parameter("int64_t *fault", ParameterKind.FAULT)
    sites = (Site("x", 0, 0, 0, "at"),)
    compiles(source_of(array("x"), array("at"), array("y"), fault, sites=sites), kernel)
    return tcdsl.define(GATHER).pick


def test_a_fault_is_raised_by_the_next_call(
    compiles: Make, at: Make, gpuarray: Make, fake: Any
) -> None:
    pick = gather(compiles, at)
    x = gpuarray(X)
    good, bad = gpuarray(np.array([1, 2, 3], "i4")), gpuarray(np.array([1, 99, 3], "i4"))
    np.testing.assert_array_equal(pick(x, good).get(), X[[1, 2, 3]])
    pick(x, bad)
    message = r"index 99 of 'x' is out of range: the extent is 10 \(the index is from at\(1\)\)"
    with pytest.raises(LaunchError, match=message):
        pick(x, good)
    np.testing.assert_array_equal(pick(x, good).get(), X[[1, 2, 3]])
    pick(x, bad)
    with pytest.raises(LaunchError, match="index 99"):
        tcdsl.cuda.synchronize()
    tcdsl.cuda.synchronize()


def test_a_fault_is_raised_at_once_for_numpy_and_under_debug(
    compiles: Make, at: Make, gpuarray: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = gather(compiles, at)
    bad = np.array([1, -4, 3], "i4")
    with pytest.raises(LaunchError, match="index -4"):
        pick(X, bad, target="cuda")
    monkeypatch.setenv("TCDSL_DEBUG", "1")
    with pytest.raises(LaunchError, match="index -4"):
        pick(gpuarray(X), gpuarray(bad))


def test_row_34_a_lost_context_is_said_to_be_lost(scale: Any, gpuarray: Make, fake: Any) -> None:
    x = gpuarray(X)
    scale(x, 1.0)
    fake.lost = 700
    with pytest.raises(LaunchError, match="illegal memory access") as caught:
        scale(x, 1.0)
    assert caught.value.code == "TC085"


def test_row_33_a_forked_child_is_told_to_spawn(
    scale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tcdsl.runtime.cuda import device

    scale(X, 1.0, target="cuda")
    monkeypatch.setattr(device, "in_forked_child", True)
    with pytest.raises(TargetError, match="spawn"):
        scale(X, 1.0, target="cuda")


def test_zero_sizes_launch_nothing(scale: Any, gpuarray: Make, fake: Any) -> None:
    assert scale(gpuarray(np.zeros(0, "f4")), 2.0).shape == (0,)
    assert scale(np.zeros(0, "f4"), 2.0, target="cuda").shape == (0,)
    assert fake.launched == []


def test_row_24_too_large_a_launch_is_refused_before(compiles: Make, gpuarray: Make) -> None:
    launch = Launch("tc_k0", (1, 70000, 1), (32, 1, 1), 0, (array("x"), array("y")))
    compiles(source_of(launches=(launch,)), lambda p: None)
    with pytest.raises(LaunchError, match="70000 blocks in y, of 65535"):
        tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f(gpuarray(X))


def test_row_24_registers_that_are_too_few(compiles: Make, gpuarray: Make) -> None:
    launch = Launch("tc_k0", (1, 1, 1), (1024, 1, 1), 0, (array("x"), array("y")))
    compiles(source_of(launches=(launch,)), lambda p: None)
    with pytest.raises(LaunchError, match="enough for 512 threads a block, it has 1024"):
        tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f(gpuarray(X))


@pytest.mark.parametrize(
    ("shared_bytes", "cluster", "attributes"),
    [
        (47 << 10, 8, []),  # with the kernel's own 1 KB what any launch may have
        (48 << 10, 1, [("tc_k0", 8, 48 << 10)]),
        (226 << 10, 16, [("tc_k0", 8, 226 << 10), ("tc_k0", 14, 1)]),
    ],
)
def test_much_shared_memory_and_large_clusters_are_asked_for(
    compiles: Make, gpuarray: Make, fake: Any, shared_bytes: int, cluster: int, attributes: Any
) -> None:
    arrays = (array("x"), array("y"))
    shape = (1, 1, cluster), (32, 1, 1)
    launch = Launch("tc_k0", *shape, shared_bytes, arrays, cluster_dims=(1, 1, cluster))
    compiles(source_of(launches=(launch,)), lambda p: None)
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f
    x = gpuarray(X)
    f(x)
    assert fake.attributes == attributes
    f(Interface(x, 4242))  # through the driver, from code that is loaded once more
    assert fake.attributes == 2 * attributes


def test_more_shared_memory_than_there_is(compiles: Make, gpuarray: Make) -> None:
    arrays = (array("x"), array("y"))
    launch = Launch("tc_k0", (1, 1, 1), (32, 1, 1), 227 << 10, arrays)
    compiles(source_of(launches=(launch,)), lambda p: None)
    with pytest.raises(LaunchError, match="needs 233472 bytes of shared memory, of 232448"):
        tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f(gpuarray(X))


class Interface:
    """An array of a library that nobody knows, on a stream of its own."""

    def __init__(self, array: Any, stream: int) -> None:
        self.array, self.streams = array, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__ | {"stream": self.streams}


def test_other_arrays_run_on_their_stream(scale: Any, gpuarray: Make, fake: Any, at: Make) -> None:
    x = Interface(gpuarray(X), 4242)
    y = scale(x, 3.0)
    assert fake.launched == [("tc_k0", 4242, 1000)] and fake.waited == 1
    assert y.__cuda_array_interface__["shape"] == (N,)
    np.testing.assert_array_equal(at(y.address, "f4", N), 3 * X)


def test_arrays_of_two_libraries_are_ready_on_both_streams(
    scale: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch waits for what the other library did, and that goes on after the launch."""
    done: list[Any] = []
    wait = lambda stream, other: done.append((stream, other))  # noqa: E731
    monkeypatch.setattr(libcuda, "wait_for", wait)
    launch = fake.kernels["tc_k0"]
    fake.kernels["tc_k0"] = lambda p: (done.append("launch"), launch(p))
    factor = gpuarray(np.asarray(3.0, "f4"))
    y = scale(gpuarray(X), Interface(factor, 4242))
    np.testing.assert_array_equal(y.get(), 3 * X)
    ((_, stream, _),) = fake.launched
    other = 4242 if not stream else 0
    assert done == [(stream or 0, other), "launch", (other, stream or 0)]


def test_row_22_while_a_graph_is_captured_nothing_is_allocated(
    compiles: Make, gpuarray: Make, fake: Any
) -> None:
    compiles(source_of(array("x"), array("y"), workspace_bytes=1024), lambda p: None)
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f
    x, y = Interface(gpuarray(X), 4242), Interface(gpuarray(X), 4242)
    f.compile(x)
    fake.capturing.add(4242)
    with pytest.raises(LaunchError, match="allocate 1024 bytes for the workspace") as caught:
        f(x, out=y)
    assert caught.value.code == "TC087"
    fake.capturing.clear()
    f(x, out=y)
    fake.capturing.add(4242)
    used = fake.used()
    f(x, out=y)
    assert fake.used() == used
    # The graph keeps the workspace: the next one has to find its own.
    with pytest.raises(LaunchError, match="being captured"):
        f(x, out=y)


def test_memory_in_a_context_of_pycudas_own(scale: Any, gpuarray: Make, fake: Any) -> None:
    context = sys.modules["pycuda.driver"].Context
    own = context(fake, 2000)
    own.push()
    x = gpuarray(X)
    np.testing.assert_array_equal(scale(x, 2.0).get(), 2 * X)
    assert fake.launched == [("tc_k0", 0, 2000)]
    context.pop()


def test_the_manifest_survives_json() -> None:
    fault = Parameter("int64_t *fault", ParameterKind.FAULT)
    size = Parameter("int64_t n", ParameterKind.INTEGER, "N", 0)
    source = source_of(array("x"), fault, size)
    launches = tuple(replace(launch, cluster_dims=(1, 1, 4)) for launch in source.launches)
    manifest = module.Manifest(
        "sm_90", launches, 12, (Site("x", 0, 3, 9, "at"),), (("N", -1),), {"x": 16}, {"cuda": "t"},
        {"x": (3, 4), "s": ()},
    )  # fmt: skip
    data = manifest.to_json()
    assert module.Manifest.from_json(data) == manifest
    for launch in data["launches"]:  # as it was written before there were clusters
        del launch["cluster_dims"]
    assert module.Manifest.from_json(data) == replace(manifest, launches=source.launches)


def test_scalars_keep_their_bits(fake: Any, at: Make) -> None:
    fake.contexts.append(1000)
    for dtype, value in (("u1", 200), ("i2", -3), ("f4", -0.0), ("f8", 1e300), ("i8", -(2**40))):
        address = libcuda.allocate(8)
        bits = np.asarray(value, dtype).tobytes()
        libcuda.write_value(address, bits, 0)
        assert at(address, dtype, 1).tobytes() == bits


def test_its_stages_are_made_again(
    scale: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, real_compiler: Make
) -> None:
    exe = scale.compile(X[::2], 2.0, target="cuda")  # goes over as a dense copy
    monkeypatch.setattr(driver, "compile_to_cuda", real_compiler)
    compiled = exe.compilation.compiled
    assert compiled is not None and "__global__" in str(exe.compilation.code)
    assert compiled.scop.arrays["x"].shape == (5,)
    exe.report(tmp_path / "report.html")
    assert "target cuda" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def real_compiler() -> Make:
    """The driver's own function, before anything takes its place."""
    return driver.compile_to_cuda


SIZED = "def ramp(float s, size C) -> (y) { y(c) = c * s where c in 0:C }"
STRIDED = "def every(float(N) x, size S) -> (y) { y(i) = x(S*i) }"


def test_sizes_are_part_of_the_code_and_no_arrays(
    compiles: Make, gpuarray: Make, at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(p: list[int]) -> None:
        at(p[1], "f4", 3)[:] = np.arange(3, dtype="f4") * at(p[0], "f4", 1)[0]

    compiles(source_of(array("s"), array("y")), kernel)
    f = tcdsl.define(SIZED).ramp
    for again in (f, f):
        assert np.asarray(again(2.0, 3, target="cuda")).tolist() == [0.0, 2.0, 4.0]
    exe = f.compile(2.0, 3, target="cuda")
    assert exe(2.0, 3).shape == exe.bind(2.0, 3)().shape == (3,)
    with pytest.raises(ShapeError, match="this code is for 3, not for 4"):
        exe(2.0, 4)
    cuda_executable.forget_programs()
    monkeypatch.delattr(parser, "parse_program")
    kept = tcdsl.define(SIZED).ramp  # from the cache, sizes and all
    assert np.asarray(kept(2.0, C=3, target="cuda")).tolist() == [0.0, 2.0, 4.0]


def test_a_size_that_multiplies_an_index(compiles: Make, gpuarray: Make, at: Make) -> None:
    def kernel(p: list[int]) -> None:
        at(p[1], "f4", 5)[:] = at(p[0], "f4", N)[::2]

    compiles(source_of(array("x"), array("y")), kernel)
    for f in (tcdsl.define(STRIDED).every, tcdsl.define(STRIDED).every):
        np.testing.assert_array_equal(f(gpuarray(X), 2).get(), X[::2])
        cuda_executable.forget_programs()
