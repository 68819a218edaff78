"""Running emulated programs: interrupts, threads, processes, and the C++ compiler."""

import multiprocessing
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from tcdsl.emulator import EmulatedProgram, build, build_identity, compile_emulated, cxx
from tcdsl.errors import CompileError, EmulationError

Emulate = Callable[..., EmulatedProgram]

ADD = 'extern "C" __global__ void k(float *y) { y[threadIdx.x] += 1; }'
FOREVER = 'extern "C" __global__ void k(float *y) { for (;;) atomicAdd(y, 1.0f); }'


def test_an_endless_kernel_can_be_interrupted(emulate: Emulate) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise InterruptedError

    program = emulate(FOREVER, 2, 2)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(InterruptedError):
            program.run({"y": np.zeros(1, np.float32)})
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(EmulationError):  # the program still works
        program.run({"y": np.zeros(0, np.float32)})


def test_a_finding_leaves_nothing_behind(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const int *i, float *y) {
          __shared__ TC_VARIABLE(float, tile, [64], 4);
          tile[threadIdx.x] = y[i[threadIdx.x]];
          __syncthreads();
          y[threadIdx.x] = tile[threadIdx.x] + 1;
        }""",
        1,
        64,
    )
    for _ in range(20):
        i, y = np.arange(64, dtype=np.int32), np.zeros(64, np.float32)
        i[40] = 64
        with pytest.raises(EmulationError):
            program.run({"i": i, "y": y})
        i[40] = 40
        program.run({"i": i, "y": y})
        assert (y == 1).all()


def test_threads_take_turns(emulate: Emulate) -> None:
    programs = [emulate(ADD, 1, 64), emulate(ADD + "// another", 1, 64)]
    results = [np.zeros(64, np.float32) for _ in range(4)]

    def work(number: int) -> None:
        for _ in range(20):
            programs[number % 2].run({"y": results[number]})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((result == 20).all() for result in results)


def _in_child(program: EmulatedProgram) -> None:
    y = np.zeros(64, np.float32)
    program.run({"y": y})
    assert (y == 1).all()


def test_a_forked_child(emulate: Emulate) -> None:
    program, endless = emulate(ADD, 1, 64), emulate(FOREVER, 1, 1)
    stopped = threading.Event()

    def busy() -> None:  # holds the lock when the fork happens
        with pytest.raises(EmulationError):
            endless.run({"y": np.zeros(0, np.float32)})
        while not stopped.is_set():
            program.run({"y": np.zeros(64, np.float32)})

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(3):
            child = multiprocessing.get_context("fork").Process(target=_in_child, args=(program,))
            child.start()
            child.join(30)
            assert child.exitcode == 0
    finally:
        stopped.set()
        thread.join()


def test_a_crash_elsewhere_is_not_ours(emulate: Emulate) -> None:
    emulate(ADD, 1, 1).run({"y": np.zeros(1, np.float32)})
    child = multiprocessing.get_context("fork").Process(target=_crash)
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGSEGV


def _crash() -> None:
    import ctypes
    import faulthandler

    faulthandler.disable()
    ctypes.string_at(1)


def test_a_text_that_is_no_cuda(emulate: Emulate) -> None:
    source = emulate(ADD, 1, 1).source
    object.__setattr__(source, "text", 'extern "C" __global__ void k(float *y) { y = ; }')
    with pytest.raises(CompileError, match=r"kernels.cu:1:\d+: error"):
        compile_emulated(source)


def test_the_compiler_is_part_of_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := cxx.why_no_cxx_compiler():
        pytest.skip(reason)
    before = build_identity()
    assert before == build_identity()
    command = cxx.find_cxx_compiler().command
    monkeypatch.setenv("TCDSL_CXX", " ".join((*command, "-DANOTHER")))
    assert cxx.find_cxx_compiler().command == (*command, "-DANOTHER")
    assert build_identity() != before


@pytest.mark.parametrize("is_kept", [True, False])
def test_who_waits_for_the_runtime_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_kept: bool,
) -> None:
    if reason := cxx.why_no_cxx_compiler():
        pytest.skip(reason)
    compiler = cxx.find_cxx_compiler()
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TCDSL_CACHE", str(int(is_kept)))
    monkeypatch.setattr(build, "_kept", {})
    monkeypatch.setattr(build, "_built", lambda *_: b"code")
    assert build._runtime_object(compiler, "runtime.cpp", ()) == b"code"
    said = capsys.readouterr().err
    where = "on this machine" if is_kept else "in this process (no disk cache)"
    assert (
        said.startswith(f"tcdsl: compiling the emulator, once {where};") and said.count("\n") == 1
    )
    assert build._runtime_object(compiler, "runtime.cpp", ()) == b"code"
    assert capsys.readouterr().err == ""


def test_a_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CXX", "no-such-compiler")
    assert cxx.why_no_cxx_compiler() == "'no-such-compiler' is not in PATH"
    with pytest.raises(CompileError, match="the target 'emulate' needs one for C") as caught:
        cxx.find_cxx_compiler()
    assert "TCDSL_CXX" in str(caught.value)
