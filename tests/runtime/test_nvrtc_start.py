"""NVRTC, started before there is something to compile, and left before it is done."""

import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from tcdsl.errors import CompileError
from tcdsl.runtime import nvrtc
from tcdsl.runtime.nvrtc import CudaCompiler, compile_cuda, find_cuda_compiler, start_nvrtc

TEXT = 'extern "C" __global__ void k(int *p) { *p = 1; }'


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_started", set())


@pytest.fixture
def compiler() -> CudaCompiler:
    try:
        return find_cuda_compiler()
    except CompileError:
        pytest.skip("there is no NVRTC")


def test_it_compiles_nothing_once(compiler: CudaCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    compile_ = nvrtc._Nvrtc.compile

    def counted(self: Any, *args: Any) -> Any:
        compiled.append(compile_(self, *args))
        return compiled[-1]

    monkeypatch.setattr(nvrtc._Nvrtc, "compile", counted)
    thread = start_nvrtc(compiler, "sm_90")
    assert thread is not None and not thread.daemon
    assert start_nvrtc(compiler, "sm_90") is None
    thread.join(60)
    ((code, log),) = compiled
    assert code is not None and log == ""


def test_a_program_is_compiled_meanwhile(compiler: CudaCompiler) -> None:
    expected = compile_cuda(TEXT, "sm_90", compiler=compiler)
    thread = start_nvrtc(compiler, "sm_90")
    assert compile_cuda(TEXT, "sm_90", compiler=compiler) == expected
    assert thread is not None
    thread.join(60)


@pytest.mark.parametrize("arch", ["sm_10", "sm_9000"])
def test_what_is_wrong_is_left_to_the_first_program(
    compiler: CudaCompiler, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    for chosen in (compiler, CudaCompiler("/nowhere/libnvrtc.so.13", "?")):
        thread = start_nvrtc(chosen, arch)
        assert thread is not None
        thread.join(60)
    assert raised == []


def test_nvcc_has_nothing_to_start() -> None:
    assert start_nvrtc(CudaCompiler("/usr/bin/nvcc", "?", is_nvcc=True), "sm_90") is None


LEAVING = """
import time
from tcdsl.runtime.nvrtc import begin_cuda

kernel = 'extern "C" __global__ void k%d(float *p) {{ *p = powf(sinf(*p), %d.0f); }}'
begin_cuda("".join(kernel % (i, i) for i in range(40)), "sm_90")
time.sleep({seconds})  # at some moments alone the library's end is a crash
{how}
"""


@pytest.mark.slow_but("-0.2")
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("how", ["", "raise KeyboardInterrupt"])
def test_a_process_may_end_meanwhile(compiler: CudaCompiler, seconds: float, how: str) -> None:
    """The library was torn down under the thread that compiled: a crash at the end."""
    text = LEAVING.format(seconds=seconds, how=how)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60)
    assert done.returncode == (-signal.SIGINT if how else 0), done.stderr


def test_what_never_returns_keeps_no_process(compiler: CudaCompiler) -> None:
    text = """
import threading, time
from tcdsl.runtime import nvrtc

nvrtc._Nvrtc.compile = lambda *_: threading.Event().wait()
nvrtc.begin_cuda("", "sm_90", timeout_s=0.1)
"""
    assert subprocess.run([sys.executable, "-c", text], timeout=60).returncode == 0
