"""NVRTC, the compiler for CUDA: finding it, and what it makes of a kernel's text.

    TCDSL_NVRTC                     a path, and nothing else is tried
    .../nvidia/cu13/lib, ...        Python's packages nvidia-cuda-nvrtc, nvidia-cuda-nvrtc-cu12
    CUDA_HOME, CUDA_PATH            a toolkit
    libnvrtc.so.13, .12             whatever the system's loader finds
    nvcc                            where there is no NVRTC: the same code, in fifty times the time

The library is only loaded to compile: what the cache needs to know of it is its file's size and
time.  Code is made for the exact architecture; for one that NVRTC does not know yet, PTX of the
newest that it knows, which the driver translates.

NVRTC cannot be interrupted, so it runs in a thread that is left behind on an interrupt; the process
waits for it when it ends, since NVRTC crashes where its library is torn down under it.  It runs in
this process: one of its own would take 0.3 s a kernel, not 10 ms.  Where it reports that it has
failed itself, nvcc is tried, a process.  A crash of NVRTC ends the program, as one of torch would.
"""

import atexit
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tcdsl.errors import (
    COMPILATION_TIMED_OUT,
    COMPILER_CRASHED,
    CUDA_REJECTED,
    NO_CUDA_COMPILER,
    UNKNOWN_ARCH,
    CompileError,
    TCError,
    warn,
)
from tcdsl.records import dataclass
from tcdsl.settings import settings

# --fmad=false: no fused multiply-add that the program does not ask for.  -default-device: what
# has no other mark is a device function.
FLAGS = ("--std=c++17", "--fmad=false", "-default-device")
FAST_MATH_FLAGS = ("--std=c++17", "--use_fast_math", "-default-device", "-DTC_FAST_MATH")
TIMEOUT_S = 300.0
ADVICE = f"{sys.executable} -m pip install nvidia-cuda-nvrtc"

_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
_PACKAGES = ("nvidia/cu13/lib", "nvidia/cu12/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu11/lib")
_SYSTEM_TOOLKIT = "/usr/local/cuda"
_TOOLKIT_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")


# nvrtcResult where the text is not to blame: out of memory, no program, a failure of its library of
# builtins, an internal error.
_OWN_FAILURES = frozenset({1, 2, 7, 11})


class _NvrtcFailedError(Exception):
    """NVRTC has failed by itself."""


@dataclass(frozen=True, slots=True)
class CudaCompiler:
    """A libnvrtc, or an nvcc where *is_nvcc*; *identity* changes with its code."""

    path: str
    identity: str
    is_nvcc: bool = False


# --- finding -------------------------------------------------------------------------------


def find_cuda_compiler(newest: int = 0) -> CudaCompiler:
    """Return the compiler for CUDA, without loading it.

    :arg newest: the CUDA version (13) that the driver serves: code of a later one does not load, so
        an earlier NVRTC is preferred where there are several.  0: it does not matter.
    :raises CompileError: (TC074) there is none.
    """
    given = settings().nvrtc
    compiler = _find(given, _places(), tuple(sys.path), newest)
    if compiler is not None:
        return compiler
    if given is not None:
        raise NO_CUDA_COMPILER(
            why=f"TCDSL_NVRTC={given} is no file", advice="set it to a libnvrtc.so, or unset it"
        )
    raise NO_CUDA_COMPILER(why="there is neither NVRTC nor nvcc", advice=ADVICE)


def _places() -> tuple[str, ...]:
    return tuple(os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "PATH"))


def why_no_cuda_compiler() -> str | None:
    """Return why nothing can be compiled for CUDA, or None if it can."""
    try:
        find_cuda_compiler()
    except CompileError as error:
        return error.message
    return None


@lru_cache(maxsize=8)
def _find(
    given: Path | None, places: tuple[str, ...], search_path: tuple[str, ...], newest: int
) -> CudaCompiler | None:
    if given is not None:
        return CudaCompiler(str(given), _file_identity(given)) if os.path.isfile(given) else None
    found = list(_candidates(places, search_path))
    fitting = [path for path in found if not newest or _major(path) <= newest]
    for path in (*fitting, *found):
        return CudaCompiler(str(path), _file_identity(path))
    for soname in _SONAMES:
        with suppress(OSError):
            ctypes.CDLL(soname)  # only the loader knows where; its version tells it from others
            return CudaCompiler(soname, f"{soname} {version_text(soname)}")
    return _find_nvcc(places)


def _candidates(places: tuple[str, ...], search_path: tuple[str, ...]) -> Iterator[Path]:
    """Yield the NVRTC libraries in Python's packages, then those of the toolkits."""
    folders = [Path(root, package) for root in search_path for package in _PACKAGES]
    folders += [Path(home, name) for home in places[:2] if home for name in _TOOLKIT_FOLDERS]
    folders.append(Path(_SYSTEM_TOOLKIT, "lib64"))
    for folder in folders:
        # Most are none, and a process asks once: one question, not four.
        if not os.path.isdir(folder):
            continue
        for soname in _SONAMES:
            if os.path.isfile(folder / soname):
                yield folder / soname


def _major(path: Path) -> int:
    """Return the CUDA version in a library's name, 0 where it has none."""
    match = re.search(r"\.so\.(\d+)", path.name)
    return int(match[1]) if match else 0


def _find_nvcc(places: tuple[str, ...]) -> CudaCompiler | None:
    homes = [str(Path(home, "bin")) for home in (*places[:2], _SYSTEM_TOOLKIT) if home]
    path = shutil.which("nvcc", path=os.pathsep.join([places[2], *homes]))
    return None if path is None else CudaCompiler(path, _file_identity(Path(path)), is_nvcc=True)


def _file_identity(path: Path) -> str:
    status = path.resolve().stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


# --- the library ---------------------------------------------------------------------------


class _Nvrtc:
    """The functions of one libnvrtc."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value

    @property
    def archs(self) -> tuple[int, ...]:
        """The compute capabilities that it makes code for, ascending: 90 is sm_90."""
        count = ctypes.c_int()
        try:
            self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
            found = (ctypes.c_int * count.value)()
            self.library.nvrtcGetSupportedArchs(found)
        except AttributeError:  # before CUDA 11.2
            return ()
        return tuple(found)

    def compile(self, text: str, flags: Sequence[str], is_ptx: bool) -> tuple[bytes | None, str]:
        """Return the code, or None where it was rejected, and the log.

        :raises _NvrtcFailedError: not because of the text.
        """
        codes, log = self.compile_to(text, flags, ("PTX" if is_ptx else "CUBIN",))
        return (codes[0] if codes else None), log

    def compile_to(
        self, text: str, flags: Sequence[str], kinds: Sequence[str]
    ) -> tuple[list[bytes], str]:
        """Return the code in each of *kinds* ("CUBIN", "PTX"), none if rejected, and the log."""
        program = ctypes.c_void_p()
        lib = self.library
        status = lib.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None
        )
        self._require_own_success(status, "")
        if status != 0:
            return [], self._error(status)
        try:
            options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = lib.nvrtcCompileProgram(program, len(flags), options)
            log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            self._require_own_success(status, log)
            if status != 0:
                return [], log.strip() or self._error(status)
            return [self._read(program, kind) for kind in kinds], log
        finally:
            lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.library[f"nvrtcGet{what}Size"](program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.library[f"nvrtcGet{what}"](program, buffer)
        return buffer.raw

    def _error(self, status: int) -> str:
        text: bytes = self.library.nvrtcGetErrorString(status)
        return text.decode(errors="replace")

    def _require_own_success(self, status: int, log: str) -> None:
        if status in _OWN_FAILURES:
            raise _NvrtcFailedError(" ".join([self._error(status), *log.split()]))


@lru_cache(maxsize=4)
def _load(path: str) -> _Nvrtc:
    return _Nvrtc(path)


def version_text(path: str) -> str:
    """Return the version of the NVRTC at *path*, such as "13.0"; loads it."""
    return "{}.{}".format(*_load(path).version)


def version_of(compiler: CudaCompiler) -> tuple[int, int]:
    """Return the CUDA version of *compiler*; an NVRTC is loaded, an nvcc is run."""
    if not compiler.is_nvcc:
        return _load(compiler.path).version
    done = subprocess.run([compiler.path, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


_started: set[str] = set()  # paths
_NOTHING = 'extern "C" __global__ void tc_nothing() {}'


def start_nvrtc(compiler: CudaCompiler, arch: str) -> threading.Thread | None:
    """Let *compiler* do in a thread what its first use in a process takes, up to 0.2 s.

    What is wrong with it is found, and reported, by the first program that it compiles.
    """
    if compiler.is_nvcc or compiler.path in _started:
        return None
    _started.add(compiler.path)

    def work() -> None:
        with suppress(OSError, AttributeError, TCError, _NvrtcFailedError):
            nvrtc = _load(compiler.path)
            chosen, is_ptx = choose_arch(arch, nvrtc.archs, _name(compiler))
            if not is_ptx:
                nvrtc.compile(_NOTHING, (f"--gpu-architecture={chosen}", *FLAGS), is_ptx)

    # No daemon: the library must not be unloaded under it, where the process ends at once.
    thread = threading.Thread(target=work, name="tcdsl-nvrtc-start")
    thread.start()
    return thread


# --- compiling -----------------------------------------------------------------------------


def cuda_flags(*, fast_math: bool = False) -> tuple[str, ...]:
    """Return the flags besides the architecture; they belong into the code's key."""
    return FAST_MATH_FLAGS if fast_math else FLAGS


def compile_cuda(
    text: str,
    arch: str,
    *,
    fast_math: bool = False,
    ptx: bool = False,
    compiler: CudaCompiler | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return the code of *text* for *arch* ("sm_90"): a cubin, or PTX if asked for or if need be.

    :raises CompileError: there is no compiler, it rejects *text* (which is then kept), takes too
        long, or knows no architecture that would do.
    :raises InternalError: (TC077) the compiler fails, and so does nvcc.
    """
    return begin_cuda(
        text, arch, fast_math=fast_math, ptx=ptx, compiler=compiler, timeout_s=timeout_s
    )()


@dataclass(frozen=True, slots=True)
class _Unit:
    """A text to be compiled for *arch*, and for how long at most."""

    text: str
    arch: str
    flags: tuple[str, ...]
    is_ptx: bool
    timeout_s: float


def begin_cuda(
    text: str,
    arch: str,
    *,
    fast_math: bool = False,
    ptx: bool = False,
    compiler: CudaCompiler | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[], bytes]:
    """Let NVRTC begin with *text*, and return what waits for the code: :func:`compile_cuda`.

    An nvcc begins when it is waited for: a process that nobody waits for would be left behind.
    """
    chosen = compiler or find_cuda_compiler()
    unit = _Unit(text, arch, cuda_flags(fast_math=fast_math), ptx, timeout_s)
    begun = None if chosen.is_nvcc else _begin_nvrtc(chosen, unit)

    def code_of() -> bytes:
        worked = chosen
        try:
            if begun is None:
                code, log = _run_nvcc(chosen, unit)
            else:
                code, log = begun()
        except _NvrtcFailedError as failure:
            worked, code, log = _run_instead(chosen, unit, failure)
        if code is None:
            raise CUDA_REJECTED(compiler=_name(worked), message=first_error(log), path=_keep(text))
        return code

    return code_of


def _name(compiler: CudaCompiler) -> str:
    return "nvcc" if compiler.is_nvcc else f"NVRTC {version_text(compiler.path)}"


def _begin_nvrtc(compiler: CudaCompiler, unit: _Unit) -> Callable[[], tuple[bytes | None, str]]:
    """Let a thread compile *unit*, and return what waits for it, as long as it may take."""
    try:
        nvrtc = _load(compiler.path)
    except (OSError, AttributeError) as error:
        raise NO_CUDA_COMPILER(why=f"{compiler.path}: {error}", advice=ADVICE) from None
    chosen, must_be_ptx = choose_arch(unit.arch, nvrtc.archs, _name(compiler))
    is_ptx = unit.is_ptx or must_be_ptx
    virtual = chosen.replace("sm_", "compute_") if is_ptx else chosen
    results: list[tuple[bytes | None, str] | Exception] = []

    def work() -> None:
        try:
            options = (f"--gpu-architecture={virtual}", *unit.flags)
            results.append(nvrtc.compile(unit.text, options, is_ptx))
        except Exception as error:  # handed to the thread that waits
            results.append(error)
        finally:
            del _running[thread]

    # A daemon: one that never returns must not keep the process for ever (_wait_for_compilations).
    thread = threading.Thread(target=work, name="tcdsl-nvrtc", daemon=True)
    _running[thread] = time.monotonic() + unit.timeout_s
    thread.start()

    def result() -> tuple[bytes | None, str]:
        thread.join(unit.timeout_s)
        if not results:
            raise _timed_out(_name(compiler), unit)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    return result


_running: dict[threading.Thread, float] = {}  # until when they may take


@atexit.register
def _wait_for_compilations() -> None:
    """Wait for what nobody waited for: on an interrupt, say, or where a plan proved to be wrong."""
    for thread, end in list(_running.items()):
        if thread.is_alive():  # not one that could not be started
            thread.join(max(0.0, end - time.monotonic()))


def _run_instead(
    failed: CudaCompiler, unit: _Unit, failure: Exception
) -> tuple[CudaCompiler, bytes | None, str]:
    """Return what nvcc makes of *unit*, which NVRTC has failed on.

    :raises InternalError: (TC077) there is none, or it fails too.
    """
    nvcc = _find_nvcc(_places())
    if nvcc is None:
        raise COMPILER_CRASHED(compiler=_name(failed), message=str(failure), path=_keep(unit.text))
    code, log = _run_nvcc(nvcc, unit)
    if code is not None:
        warn(f"{_name(failed)} failed ({failure}): nvcc compiled the program instead, slowly")
    return nvcc, code, log


def choose_arch(arch: str, known: Sequence[int], compiler: str) -> tuple[str, bool]:
    """Return the architecture to compile for, and whether only PTX of it will run on *arch*.

    :raises CompileError: (TC076) *arch* is older than all that are *known*.
    """
    number = int(re.sub(r"\D", "", arch))
    if not known or number in known:
        return arch, False
    older = [candidate for candidate in known if candidate < number]
    if not older:
        raise UNKNOWN_ARCH(
            compiler=compiler, arch=arch, known=f"sm_{min(known)} to sm_{max(known)}",
            advice="an older NVRTC still has it: pip install 'nvidia-cuda-nvrtc-cu12'",
        )  # fmt: skip
    return f"sm_{max(older)}", True


_ERROR = re.compile(r"(?:error|Error)\s*:.*")


def first_error(log: str) -> str:
    """Return the line of *log* that says what is wrong, with the line number in the text."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    wrong = next((line for line in lines if _ERROR.search(line)), None)
    return wrong or (lines[0] if lines else "it gave no reason")


def _keep(text: str) -> Path:
    """Return a new file with *text*, for whoever looks into the failure."""
    handle, path = tempfile.mkstemp(prefix="tcdsl-failed-", suffix=".cu")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(path)


def _timed_out(compiler: str, unit: _Unit) -> TCError:
    hint = (
        f"the generated CUDA is kept in {_keep(unit.text)}; fewer fused statements compile faster"
    )
    return COMPILATION_TIMED_OUT(compiler=compiler, limit_s=unit.timeout_s, hint=hint)


# --- nvcc ----------------------------------------------------------------------------------

_NVCC_FLAGS = {"--std=c++17": "-std=c++17", "--fmad=false": "-fmad=false"}


def _run_nvcc(compiler: CudaCompiler, unit: _Unit) -> tuple[bytes | None, str]:
    # nvcc has no -default-device; the device library marks its functions.
    words = [_NVCC_FLAGS.get(flag, flag) for flag in unit.flags if flag != "-default-device"]
    kind = "-ptx" if unit.is_ptx else "-cubin"
    real = unit.arch.replace("sm_", "compute_") if unit.is_ptx else unit.arch
    with tempfile.TemporaryDirectory(prefix="tcdsl-", ignore_cleanup_errors=True) as folder:
        Path(folder, "kernel.cu").write_text(unit.text, encoding="utf-8")
        command = [compiler.path, kind, f"-arch={real}", "-w", *words, "kernel.cu", "-o", "out"]
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise NO_CUDA_COMPILER(why=f"{compiler.path}: {error}", advice=ADVICE) from None
        try:
            log, _ = process.communicate(timeout=unit.timeout_s)
        except subprocess.TimeoutExpired:
            raise _timed_out("nvcc", unit) from None
        finally:
            # Also on an interrupt: nvcc's own children must not go on.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        result = Path(folder, "out")
        if process.returncode < 0:  # killed by a signal, for want of memory perhaps
            name = signal.Signals(-process.returncode).name
            raise COMPILER_CRASHED(compiler="nvcc", message=name, path=_keep(unit.text))
        if process.returncode != 0 or not result.is_file():
            return None, log.decode(errors="replace")
        code = result.read_bytes()
        return code + b"\0" if unit.is_ptx else code, ""
