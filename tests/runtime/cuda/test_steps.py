"""Memsets among the launches, and kernels that begin early: in every kind of call, on every stream,
on the GPU that is none.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.cuda.source import (
    CudaSource,
    Launch,
    Memset,
    Overlap,
    Parameter,
    ParameterKind,
)
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.errors import LaunchError
from tcdsl.executable import cuda as cuda_executable
from tcdsl.runtime.cuda import libraries
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.module import Manifest

Make = Callable[..., Any]
SUM = "def add(float(N) x) -> (y, z) { y(i) +=! x(i)\n z(i) *=! x(i) }"
N = 10
X = np.arange(N, dtype="f4")
SIDE = 4242  # a stream that is not the default one


def parameter(name: str, offset: int = -1) -> Parameter:
    kind = ParameterKind.ARRAY if offset < 0 else ParameterKind.SCRATCH
    return Parameter(f"float *{name}", kind, name, max(offset, 0))


def source() -> CudaSource:
    """Return memsets of an output and of the workspace, and a kernel that finds both done."""
    x, y, z, t = parameter("x"), parameter("y"), parameter("z"), parameter("t", 256)
    launch = Launch("tc_k0", (1, 1, 1), (32, 1, 1), 0, (x, y, z, t), "S0+S1", ("because",))
    one = int(np.float32(1).view("u4"))
    launches = (Memset(y, 4, 0, N, "S0_init"), Memset(t, 4, one, N, "S1_init"), launch)
    return CudaSource("", frozenset(), launches, 512, ())


@pytest.fixture
def add(compiles: Make, at: Make) -> Any:
    def kernel(p: list[int]) -> None:
        x, y, z, t = (at(pointer, "f4", N) for pointer in p)
        y += x
        t *= x
        z[:] = t

    compiles(source(), kernel)
    return tcdsl.define(SUM).add


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What arrays are computed on: its last element."""
    streams = [0]
    current = lambda library, ordinal: lambda: streams[-1]  # noqa: E731
    monkeypatch.setattr(libraries._Pycuda, "stream_source", current)
    monkeypatch.setattr(libraries._Pycuda, "stream", lambda *args: streams[-1])
    return streams


def require(outputs: Any, factor: int = 1) -> None:
    for output in outputs:
        np.testing.assert_array_equal(output.get(), factor * X)


def test_calls_of_numpy_arrays(add: Any, fake: Any) -> None:
    for _ in range(2):
        y, z = add(X, target="cuda")
        np.testing.assert_array_equal(y, X)
        np.testing.assert_array_equal(z, X)
    assert fake.filled == [(4 * N, 0)] * 4


def test_first_and_warm_calls(
    add: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = gpuarray(X), (gpuarray(X), gpuarray(X))
    require(add(x))
    require(add(x, out=out))
    monkeypatch.setattr(DeviceCall, "_run", None)  # warm calls go another way
    for factor in (1, 2, 3):
        x.set(factor * X)
        require(add(x), factor)
        require(add(x, out=out), factor)
    assert len(fake.launched) == 8 and fake.filled == [(4 * N, 0)] * 16
    assert fake.waited == 0


def test_bound_calls(add: Any, gpuarray: Make, fake: Any) -> None:
    x, out = gpuarray(X), (gpuarray(X), gpuarray(X))
    bound = add.compile(x).bind(x, out=out)
    used = fake.used()
    for _ in range(100):
        require(bound())
    assert fake.used() == used and len(fake.launched) == 100 and len(fake.filled) == 200


def test_on_another_stream(add: Any, gpuarray: Make, fake: Any, stream: list[int]) -> None:
    x, out = gpuarray(X), (gpuarray(X), gpuarray(X))
    add(x, out=out)
    bound = add.compile(x).bind(x, out=out)
    stream.append(SIDE)
    for call in (lambda: add(x, out=out), lambda: add.compile(x).run([x], out), bound):
        fake.filled.clear()
        require(call())
        assert fake.filled == [(4 * N, SIDE)] * 2
    assert {name for name, at, _ in fake.launched if at == SIDE} == {"tc_k0"}


def test_while_a_graph_is_captured(add: Any, gpuarray: Make, fake: Any, stream: list[int]) -> None:
    x, out = gpuarray(X), (gpuarray(X), gpuarray(X))
    bound = add.compile(x).bind(x, out=out)
    stream.append(SIDE)
    add(x, out=out)
    fake.capturing.add(SIDE)
    fake.filled.clear()
    require(bound())
    require(add(x, out=out))
    assert fake.filled == [(4 * N, SIDE)] * 4


def test_a_memset_that_fails(add: Any, gpuarray: Make, fake: Any) -> None:
    x, out = gpuarray(X), (gpuarray(X), gpuarray(X))
    add(x, out=out)
    bound = add.compile(x).bind(x, out=out)
    fake.lost = 1
    for call in (lambda: add(x, out=out), bound):
        with pytest.raises(LaunchError, match="cuMemsetD32Async"):
            call()


def test_what_it_shows(add: Any, gpuarray: Make) -> None:
    exe = add.compile(gpuarray(X))
    first, second, kernel = exe.kernels
    assert first["name"] == "memset of y" and first["memset_bytes"] == 4 * N
    assert "grid" not in first and kernel["grid"] == (1, 1, 1)
    explained = exe.explain()
    assert explained.startswith("target cuda, 1 kernel(s), 2 memset(s)\nmemset of y\n")
    assert f"{N} x 4 bytes of 0x3f800000" in explained and "kernel tc_k0" in explained
    assert second["why"] == (
        "S1_init", f"a memset in place of a kernel: {N} x 4 bytes of 0x3f800000",
    )  # fmt: skip


def test_a_second_process_finds_it(
    add: Any, gpuarray: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = gpuarray(X)
    first = add.compile(x)
    cuda_executable.forget_programs()
    monkeypatch.setattr(cuda_executable, "begin_cuda", None)
    again = tcdsl.define(SUM).add
    assert again.compile(x).kernels == first.kernels
    require(again(x))


def test_the_manifest_survives_json() -> None:
    given = source()
    manifest = Manifest("sm_90", given.launches, 512, (), (), {}, {})
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.arrays == ("y", "x", "z") and manifest.offsets == (256,)


# --- kernels that begin before the one before them has ended ---------------------------------


@pytest.fixture
def chain(compiles: Make, at: Make, fake: Any) -> Any:
    """Two kernels, of which the second begins early."""
    x, y, z = parameter("x"), parameter("y"), parameter("z")
    shape = (1, 1, 1), (32, 1, 1), 0
    first = Launch("tc_k0", *shape, (x, y), "S0")
    second = Launch("tc_k1", *shape, (y, z), "S1", overlap=Overlap.WAITS_FIRST)

    def kernel(p: list[int]) -> None:
        at(p[1], "f4", N)[:] = at(p[0], "f4", N)

    compiles(CudaSource("", frozenset(), (first, second), 0, ()), kernel)
    return tcdsl.define(SUM).add


def test_a_kernel_begins_early_on_every_stream(
    chain: Any, gpuarray: Make, fake: Any, stream: list[int]
) -> None:
    x = gpuarray(X)
    for number, current in enumerate((0, 0, SIDE, 0)):
        stream.append(current)
        require(chain(x))
        assert [name for name, on, _ in fake.launched[2 * number :]] == ["tc_k0", "tc_k1"]
        assert {on or 0 for _, on, _ in fake.launched[2 * number :]} == {current}
    bound = chain.compile(x, target="cuda").bind(x)
    for current in (0, SIDE):
        stream.append(current)
        require(bound())
    assert fake.early == ["tc_k1"] * 6


def test_an_older_gpu_runs_kernels_in_order(
    chain: Any, gpuarray: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chip, "overlaps_kernels", property(lambda self: False))
    require(chain(gpuarray(X)))
    assert fake.early == [] and len(fake.launched) == 2


@pytest.mark.parametrize(
    ("arch", "overlaps"), [("sm_80", False), ("sm_89", False), ("sm_90", True), ("sm_100a", True)]
)
def test_which_gpus_overlap_kernels(arch: str, overlaps: bool) -> None:
    assert replace(load_chip("h200"), arch=arch).overlaps_kernels == overlaps
