"""What is missing for CUDA, and contexts, on the GPU that is none."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.errors import TargetError
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.device import Limits, primary_context


def test_all_is_there(fake: Any) -> None:
    assert tcdsl.cuda.is_available()
    assert device.why_not_available() is None
    assert primary_context().gpu.arch == "sm_90"


def test_no_driver_names_it(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    def missing() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(libcuda, "library", missing)
    with pytest.raises(TargetError, match="there is no NVIDIA driver") as caught:
        primary_context()
    assert caught.value.code == "TC067" and "nvidia-smi" in str(caught.value.hint)
    assert not tcdsl.cuda.is_available()


def test_no_pycuda_names_the_command(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    monkeypatch.delitem(sys.modules, "pycuda")
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    with pytest.raises(TargetError, match="PyCUDA is not installed") as caught:
        primary_context()
    assert "pip install pycuda" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "words", "command"),
    [
        (ImportError("undefined symbol: cuInit"), "undefined symbol", "-Wl,--no-as-needed"),
        (ModuleNotFoundError("No module", name="pytools"), "misses pytools", "install pytools"),
    ],
)
def test_a_pycuda_that_does_not_import(
    monkeypatch: pytest.MonkeyPatch, fake: Any, error: ImportError, words: str, command: str
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(device, "import_pycuda", fails)
    with pytest.raises(TargetError, match=words) as caught:
        primary_context()
    assert command in str(caught.value.hint)


def test_a_device_that_is_not_there(fake: Any) -> None:
    with pytest.raises(TargetError, match="cuda:2"):
        primary_context(2)
    assert primary_context(1).handle == 1001


def test_a_forked_child_of_a_process_that_used_cuda(fake: Any) -> None:
    fake.is_dead = True
    with pytest.raises(TargetError, match="spawn") as caught:
        primary_context()
    assert caught.value.code == "TC082"


def test_the_mark_of_a_fork(fake: Any) -> None:
    device._after_fork()
    assert not device.in_forked_child  # this process has not used CUDA
    primary_context()
    device._after_fork()
    assert device.in_forked_child
    with pytest.raises(TargetError, match="spawn"):
        primary_context()


def test_the_callers_context_is_current_again(fake: Any) -> None:
    context = primary_context()
    assert fake.contexts == []
    fake.contexts.append(4711)
    with context.current():
        assert fake.contexts == [4711, 1000]
    with context.pushed():
        assert libcuda.current_context() == 1000
    assert fake.contexts == [4711]
    with context.current(), context.current():
        assert fake.contexts == [4711, 1000]


def test_the_callers_context_under_pycudas_stack(fake: Any) -> None:
    context = primary_context()
    own = sys.modules["pycuda.driver"].Context(fake, 2000)  # as pycuda.autoinit leaves it
    own.push()
    fake.contexts[-1] = 1001  # and then torch.cuda.set_device(1)
    with context.pushed():
        assert libcuda.current_context() == 1000
    assert fake.contexts == [1001]
    own.pop()


def test_limits() -> None:
    limits = Limits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 232448)
    assert limits.why_not((1, 1, 1), (1024, 1, 1), 0) == ""
    assert "65536 blocks in z" in limits.why_not((1, 1, 65536), (1, 1, 1), 0)
    assert "65 threads in z" in limits.why_not((1, 1, 1), (1, 1, 65), 0)
    assert "2048 threads, of 1024" in limits.why_not((1, 1, 1), (1024, 2, 1), 0)
    assert "shared memory" in limits.why_not((1, 1, 1), (1, 1, 1), 232449)


def test_importing_tcdsl_imports_nothing_of_cuda() -> None:
    code = (
        "import sys, tcdsl.api, tcdsl.executable.cuda\n"
        "print({'pycuda', 'torch', 'cupy', 'jax', 'numba', 'cuda'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_code_from_the_cache_does_not_import() -> None:
    code = (
        "import sys, tcdsl.api, tcdsl.executable.cuda\n"
        "heavy = {'islpy', 'lark', 'mako', 'ml_dtypes', 'platformdirs', 'tcdsl.driver'}\n"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_device_is_the_chip_of_its_name(fake: Any) -> None:
    chip = primary_context().gpu
    assert replace(chip, dram_bytes=load_chip("h200").dram_bytes) == load_chip("h200")
    assert dict(chip.sources)["launch_s"] == "fitted"
