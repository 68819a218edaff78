"""NVRTC: finding it, what it makes, and FAULTS 31: missing, too old, an unknown GPU."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.errors import CompileError, InternalError, TCWarning
from tcdsl.runtime import nvrtc
from tcdsl.runtime.c_compiler import compile_shared
from tcdsl.runtime.nvrtc import CudaCompiler, choose_arch, compile_cuda, find_cuda_compiler

KERNEL = """
__device__ float twice(float x) { return -x; }
extern "C" __global__ void k(const float *x, const float *y, float *z)
{
  z[threadIdx.x] = twice(x[threadIdx.x]) * y[threadIdx.x] + z[threadIdx.x];
}
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TCDSL_NVRTC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


def code_of(error: pytest.ExceptionInfo[CompileError]) -> str:
    return error.value.code


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_cubin(arch: str) -> None:
    assert compile_cuda(KERNEL, arch).startswith(b"\x7fELF")


def test_ptx_says_what_was_asked_for() -> None:
    ptx = compile_cuda(KERNEL, "sm_90", ptx=True).decode()
    assert ".target sm_90" in ptx
    # Nothing is contracted unless fast math is asked for.
    assert "fma.rn" not in ptx and "mul.rn.f32" in ptx
    # Without .rn, the next step may contract.
    assert "mul.ftz.f32" in compile_cuda(KERNEL, "sm_90", ptx=True, fast_math=True).decode()


def test_unmarked_functions_are_device_functions() -> None:
    compile_cuda(KERNEL.replace("__device__", ""), "sm_90")


def test_a_rejected_text_is_kept() -> None:
    with pytest.raises(CompileError, match=r"kernel.cu\(4\): error: .*twice") as error:
        compile_cuda(KERNEL.replace("float twice", "float thrice", 1).lstrip(), "sm_90")
    assert code_of(error) == "TC075"
    path = Path(str(error.value.hint).rsplit(" ", 1)[1])
    assert "thrice" in path.read_text()
    path.unlink()


def test_a_gpu_newer_than_the_compiler_gets_ptx() -> None:
    ptx = compile_cuda(KERNEL, "sm_999")
    newest = max(nvrtc._load(find_cuda_compiler().path).archs)
    assert f".target sm_{newest}".encode() in ptx


@pytest.mark.parametrize(
    ("arch", "known", "chosen"),
    [
        ("sm_90", (80, 90, 100), ("sm_90", False)),
        ("sm_90a", (80, 90, 100), ("sm_90a", False)),
        ("sm_89", (80, 90), ("sm_80", True)),
        ("sm_120", (80, 90), ("sm_90", True)),
        ("sm_30", (), ("sm_30", False)),
    ],
)
def test_the_architecture(arch: str, known: tuple[int, ...], chosen: tuple[str, bool]) -> None:
    assert choose_arch(arch, known, "NVRTC") == chosen


def test_a_gpu_older_than_the_compiler_is_refused() -> None:
    with pytest.raises(CompileError, match="no code for sm_35: it knows sm_75 to sm_90") as error:
        choose_arch("sm_35", (75, 80, 90), "NVRTC 13.0")
    assert code_of(error) == "TC076"


def test_the_setting_is_the_only_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCDSL_NVRTC", str(tmp_path / "none.so"))
    with pytest.raises(CompileError, match=r"TCDSL_NVRTC=.* is no file") as error:
        find_cuda_compiler()
    assert code_of(error) == "TC074"
    fake = tmp_path / "libnvrtc.so.13"
    fake.write_bytes(b"no library")
    monkeypatch.setenv("TCDSL_NVRTC", str(fake))
    assert find_cuda_compiler().path == str(fake)
    with pytest.raises(CompileError, match=r"libnvrtc\.so\.13") as error:
        compile_cuda(KERNEL, "sm_90")
    assert code_of(error) == "TC074"


def test_the_driver_chooses_among_several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, name in (
        ("nvidia/cu13/lib", "libnvrtc.so.13"),
        ("nvidia/cuda_nvrtc/lib", "libnvrtc.so.12"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "_SYSTEM_TOOLKIT", str(tmp_path))
    assert find_cuda_compiler().path.endswith(".13")
    assert find_cuda_compiler(13).path.endswith(".13")
    assert find_cuda_compiler(12).path.endswith(".12")
    assert find_cuda_compiler(11).path.endswith(".13")  # the doctor says what is wrong with it


def test_the_identity_changes_with_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libnvrtc.so"
    identities = []
    for contents in (b"one", b"three"):
        library.write_bytes(contents)
        monkeypatch.setenv("TCDSL_NVRTC", str(library))
        nvrtc._find.cache_clear()
        identities.append(find_cuda_compiler().identity)
    assert identities[0] != identities[1]


def test_nothing_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "_SONAMES", ("libnvrtc-none.so",))
    monkeypatch.setattr(nvrtc, "_SYSTEM_TOOLKIT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    nvrtc._find.cache_clear()
    with pytest.raises(CompileError, match="neither NVRTC nor nvcc") as error:
        find_cuda_compiler()
    assert error.value.hint is not None and "pip install nvidia-cuda-nvrtc" in error.value.hint


NVCC = """#!/bin/sh
case "$*" in *--version*) echo 'Cuda compilation tools, release 12.4, V12.4.1'; exit;; esac
printf '%s ' "$@" > "$LOG"
grep -q broken kernel.cu && { echo 'kernel.cu(2): error: it is broken'; exit 1; }
grep -q slow kernel.cu && sleep 60
printf code > out
"""


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CudaCompiler:
    path = tmp_path / "nvcc"
    path.write_text(NVCC)
    path.chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return CudaCompiler(str(path), "nvcc", is_nvcc=True)


def test_nvcc_does_where_nvrtc_is_missing(
    nvcc: CudaCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "_SONAMES", ("libnvrtc-none.so",))
    monkeypatch.setattr(nvrtc, "_SYSTEM_TOOLKIT", str(tmp_path / "none"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    nvrtc._find.cache_clear()
    assert find_cuda_compiler().is_nvcc
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert nvrtc.version_of(nvcc) == (12, 4)
    assert compile_cuda("fine", "sm_90", compiler=nvcc) == b"code"
    words = (tmp_path / "log").read_text().split()
    assert {"-cubin", "-arch=sm_90", "-std=c++17", "-fmad=false"} <= set(words)
    assert compile_cuda("fine", "sm_90", compiler=nvcc, ptx=True) == b"code\0"
    with pytest.raises(CompileError, match=r"nvcc rejected .*: it is broken"):
        compile_cuda("broken", "sm_90", compiler=nvcc)


# A library of NVRTC that rejects nothing and fails with the status in TC_STATUS.
FAILING = """
#include <stdlib.h>
#include <string.h>
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
const char *nvrtcGetErrorString(int status) { return status == 11 ? "INTERNAL_ERROR" : "OTHER"; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 1; return 0; }
int nvrtcGetSupportedArchs(int *archs) { *archs = 90; return 0; }
int nvrtcCreateProgram(void **p, const char *s, const char *n, int k, void *h, void *i)
{
  *p = 0;
  return atoi(getenv("TC_STATUS")) == 2 ? 2 : 0;
}
int nvrtcCompileProgram(void *p, int n, void *o) { return atoi(getenv("TC_STATUS")); }
int nvrtcDestroyProgram(void **p) { return 0; }
int nvrtcGetProgramLogSize(void *p, unsigned long *n) { *n = 9; return 0; }
int nvrtcGetProgramLog(void *p, char *s) { memcpy(s, "a reason", 9); return 0; }
"""


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], CudaCompiler]:
    """``failing(status)``: an NVRTC that fails so."""
    path = tmp_path / "libnvrtc.so.13"
    path.write_bytes(compile_shared(FAILING, ("-shared", "-fPIC")))

    def make(status: int) -> CudaCompiler:
        # The library reads its own environment, not Python's copy.
        monkeypatch.setenv("TC_STATUS", str(status))
        return CudaCompiler(str(path), "fake")

    return make


@pytest.mark.parametrize("status", [1, 2, 7, 11])
def test_row_30_nvcc_is_tried_where_nvrtc_fails_itself(
    failing: Callable[[int], CudaCompiler], nvcc: CudaCompiler, status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", f"{Path(nvcc.path).parent}:/usr/bin:/bin")
    with pytest.warns(TCWarning, match=r"NVRTC 13\.0 failed .*: nvcc compiled"):
        assert compile_cuda("fine", "sm_90", compiler=failing(status)) == b"code"
    with pytest.raises(CompileError, match=r"nvcc rejected .*: it is broken"):
        compile_cuda("broken", "sm_90", compiler=failing(status))


def test_row_30_without_nvcc_the_text_is_kept(
    failing: Callable[[int], CudaCompiler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(nvrtc, "_SYSTEM_TOOLKIT", str(tmp_path / "none"))
    with pytest.raises(
        InternalError, match=r"NVRTC 13\.0 crashed: INTERNAL_ERROR a reason"
    ) as error:
        compile_cuda("the text", "sm_90", compiler=failing(11))
    assert error.value.code == "TC077"
    path = Path(str(error.value.hint).partition("kept in ")[2].partition(";")[0])
    assert path.read_text() == "the text"
    path.unlink()


def test_a_text_that_nvrtc_rejects_goes_nowhere_else(
    failing: Callable[[int], CudaCompiler], nvcc: CudaCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(nvcc.path).parent}:/usr/bin:/bin")
    with pytest.raises(CompileError, match=r"NVRTC 13\.0 rejected the generated CUDA: a reason"):
        compile_cuda("fine", "sm_90", compiler=failing(6))


def test_row_30_nvcc_that_is_killed(nvcc: CudaCompiler) -> None:
    Path(nvcc.path).write_text("#!/bin/sh\nkill -KILL $$\n")
    with pytest.raises(InternalError, match="nvcc crashed: SIGKILL"):
        compile_cuda("fine", "sm_90", compiler=nvcc)
    Path(nvcc.path).unlink()
    with pytest.raises(CompileError, match="No such file") as error:
        compile_cuda("fine", "sm_90", compiler=nvcc)
    assert code_of(error) == "TC074"


def test_nvcc_is_stopped_when_it_takes_too_long(nvcc: CudaCompiler) -> None:
    with pytest.raises(CompileError, match=r"longer than 0.3 s") as error:
        compile_cuda("slow", "sm_90", compiler=nvcc, timeout_s=0.3)
    assert code_of(error) == "TC072"
    assert error.value.hint is not None and ".cu" in error.value.hint


def test_nothing_is_loaded_to_find_it() -> None:
    code = (
        "from tcdsl.runtime import nvrtc; c = nvrtc.find_cuda_compiler();"
        "print(c.path in open('/proc/self/maps').read(), 'pycuda' in __import__('sys').modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
