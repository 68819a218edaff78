"""The target "emulate" through the public functions: what it shows, its cache, calls, findings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.driver import GpuBackend
from tcdsl.emulator import cxx
from tcdsl.errors import CompileError, EmulationError, LaunchError, ShapeError
from tcdsl.executable import emulated
from tcdsl.frontends.explore import kernels_html
from tcdsl.testing import check

ROW_SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
GATHER = "def f(float(E) T, int32(B) I) -> (O) { O(b) = T(I(b)) }"
TWICE = "def f(float(N) x) -> (y) { y(i) = x(i) * 2.0 }"
REVERSED = "def f(float(N) x) -> (y) { y(i) = x(N - 1 - i) where i in 0:N }"


def function(source: str) -> tcdsl.Function:
    return tcdsl.define(source)["f"]


@pytest.fixture(autouse=True)
def cxx_compiler() -> None:
    if reason := cxx.why_no_cxx_compiler():
        pytest.skip(reason)


# --- what it shows --------------------------------------------------------------------------


def test_kernels_source_schedule_and_reasons() -> None:
    f = function(ROW_SUM)
    x = np.ones((30, 4096), np.float32)
    exe = f.compile(x, target="emulate")
    (kernel,) = exe.kernels
    assert kernel["name"] == "tcdsl_0_f" and kernel["grid"] == (30, 1, 1)
    threads = kernel["block"][0]
    assert threads > 1 and kernel["block"][1:] == (1, 1) and kernel["shared"] == 0
    assert f"__launch_bounds__({threads}) tcdsl_0_f(" in exe.source
    assert exe.stages["code"] == exe.source
    assert f"thread.x[{threads}]" in exe.schedule and "block.x[30]" in exe.schedule
    explained = exe.explain()
    assert "target emulate, 1 kernel(s)" in explained and exe.schedule in explained
    assert all(reason in explained for reason in kernel["why"])
    assert (exe(x) == 4096).all()


def test_a_memset_is_told_apart_from_kernels() -> None:
    f = function("def f(float(N) x) -> (y) { y +=! x(i) }")
    x = np.ones(300_000, np.float32)
    exe = f.compile(x, target="emulate", options=tcdsl.Options(cross_block="atomic"))
    memset, kernel = exe.kernels
    assert memset["name"] == "memset of y" and memset["memset_bytes"] == 4
    assert exe.explain().startswith("target emulate, 1 kernel(s), 1 memset(s)")
    assert "\nmemset of y\n  S0_init\n" in exe.explain()
    page = exe.compilation.plan._repr_mimebundle_()["text/html"]
    assert "a memset of 4 B in its place" in page
    table = str(kernels_html(exe.kernels))
    assert "memset of y" in table and str(kernel["block"][0]) in table
    again = f.compile(x, target="emulate", options=tcdsl.Options(cross_block="atomic"))
    assert exe(x) == again(x) == 300_000


@pytest.mark.slow
def test_stages_are_dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_DUMP", str(tmp_path))
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "cache"))
    function(TWICE).compile(np.ones(5, np.float32), target="emulate")
    assert "__global__" in (tmp_path / "f.code.txt").read_text(encoding="utf-8")


# --- the cache ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_process_finds_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    first = function(ROW_SUM).compile(x, target="emulate")
    monkeypatch.setattr(emulated, "compile_emulated", _never)
    second = function(ROW_SUM).compile(x, target="emulate")
    assert second.source == first.source and second.kernels == first.kernels
    assert second.schedule == first.schedule
    np.testing.assert_array_equal(second(x), first(x))


@pytest.mark.slow
def test_other_sizes_types_and_options_are_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    x = np.ones((30, 40), np.float32)
    function(ROW_SUM)(x, target="emulate")
    monkeypatch.setattr(emulated, "compile_emulated", _never)
    function(ROW_SUM)(x, target="emulate")
    for source, array, options in (
        (ROW_SUM, x[:, :20].copy(), tcdsl.Options()),
        (ROW_SUM, x[:, ::2], tcdsl.Options()),
        (ROW_SUM.replace("float", "double"), x.astype(np.float64), tcdsl.Options()),
        (ROW_SUM, x, tcdsl.Options(coalesce=False)),
    ):
        with pytest.raises(AssertionError, match="compiled again"):
            function(source)(array, target="emulate", options=options)


def _never(*_: Any) -> bytes:
    raise AssertionError("compiled again")


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCDSL_CXX", "no-such-compiler")
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompileError, match="emulate") as caught:
        function(TWICE)(np.ones(5, np.float32), target="emulate")
    assert caught.value.code == "TC070" and "TCDSL_CXX" in (caught.value.hint or "")


# --- calls ----------------------------------------------------------------------------------


def test_results_are_fresh_arrays_of_the_callers_library() -> None:
    torch = pytest.importorskip("torch")
    y = function(TWICE)(torch.ones(5), target="emulate")
    assert isinstance(y, torch.Tensor) and (y == 2).all()


@pytest.mark.slow
def test_inputs_of_any_layout() -> None:
    f = function(ROW_SUM)
    x = np.random.default_rng(3).normal(size=(66, 140)).astype(np.float32)
    for view in (x, x.T, x[::-1], x[:, ::-2], x[1:, 3:], np.broadcast_to(x[:1], x.shape), x[:0]):
        check(f, view, targets=("emulate",))


def test_out_may_overlap_an_input() -> None:
    """The result is as if the input had been copied first (row 19)."""
    f = function(REVERSED)
    x = np.arange(67, dtype=np.float32)
    expected = x[::-1].copy()
    assert f(x, out=x, target="emulate") is x
    np.testing.assert_array_equal(x, expected)
    room = np.arange(80, dtype=np.float32)
    expected = room[:67][::-1].copy()
    f(room[:67], out=room[5:72], target="emulate")
    np.testing.assert_array_equal(room[5:72], expected)


def test_out_of_another_layout() -> None:
    room = np.zeros(10, np.float32)
    function(TWICE)(np.ones(5, np.float32), out=room[::2], target="emulate")
    np.testing.assert_array_equal(room, np.tile(np.float32([2, 0]), 5))


def test_a_bound_call_sees_what_its_arrays_hold() -> None:
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    call = function(TWICE).compile(x, target="emulate").bind(x, out=y)
    assert call() is y and (y == 2).all()
    x[:] = 3
    call()
    assert (y == 6).all()


def test_updates_keep_what_they_do_not_touch() -> None:
    source = "def f(float(V) y, int32(E) I) -> (y) { y(I(e)) += 1.0 }"
    y = np.zeros(9, np.float32)
    where = np.array([3, 3, 8], np.int32)
    result = function(source)(y, where, target="emulate")
    assert (y == 0).all() and result[3] == 2 and result[8] == 1 and result.sum() == 3
    function(source)(y, where, out=y, target="emulate")
    np.testing.assert_array_equal(y, result)


def test_sizes_of_zero_launch_nothing() -> None:
    """Row 17."""
    exe = function(TWICE).compile(np.ones(0, np.float32), target="emulate")
    assert exe.kernels == () and exe(np.ones(0, np.float32)).shape == (0,)
    none = function(ROW_SUM)(np.ones((5, 0), np.float32), target="emulate")
    np.testing.assert_array_equal(none, np.zeros(5, np.float32))


def test_numbers_and_no_dimensions() -> None:
    f = function("def f(float s, float(N) x) -> (y, z) { y(i) = s * x(i)\n z = s }")
    y, z = f(2.0, np.ones(3, np.float32), target="emulate")
    assert (y == 2).all() and z.shape == () and z == 2


def test_wrong_arguments_are_refused() -> None:
    exe = function(TWICE).compile(np.ones(5, np.float32), target="emulate")
    with pytest.raises(ShapeError):
        exe(np.ones(6, np.float32))


# --- faults and findings --------------------------------------------------------------------


def test_an_index_out_of_range_is_an_error() -> None:
    f = function(GATHER)
    table = np.arange(7, dtype=np.float32)
    with pytest.raises(LaunchError, match="index 9 of") as caught:
        f(table, np.array([0, 9], np.int32), target="emulate")
    assert caught.value.line is not None
    np.testing.assert_array_equal(f(table, np.array([6, 0], np.int32), target="emulate"), [6, 0])


@pytest.mark.slow
def test_a_kernel_that_is_wrong_is_an_emulation_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator finds what a GPU would do in silence."""
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    usual = GpuBackend.print

    def one_too_far(self: GpuBackend, plan: Any, level: Any) -> Any:
        source = usual(self, plan, level)
        assert "x[" in source.text
        return replace(source, text=source.text.replace("x[", "x[1 + "))

    monkeypatch.setattr(GpuBackend, "print", one_too_far)
    with pytest.raises(EmulationError, match="x"):
        function(TWICE)(np.ones(5, np.float32), target="emulate")
