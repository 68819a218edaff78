"""The C compiler of this machine: finding it, what it can do, and running it.

A compiler is known by the first line of ``--version`` and by the flags that it accepts.  Both are
found out once, in about 0.2 s, and kept in the disk cache for as long as the compiler's file and
the processor stay the same.

The compiler runs in a session of its own, under a small shell that waits for the end of this
process: on an interrupt, a time limit, or our own death (even by SIGKILL) the compiler and its
children are killed and their files removed.
"""

import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from tcdsl.errors import (
    COMPILATION_FAILED,
    COMPILATION_TIMED_OUT,
    COMPILER_CRASHED,
    NO_COMPILER,
    warn,
)
from tcdsl.records import dataclass
from tcdsl.runtime.cache import Cache, default_cache, key_of
from tcdsl.settings import settings

DEFAULT_COMMANDS = ("cc", "gcc", "clang")
TIMEOUT_S = 300.0
_PROBE_TIMEOUT_S = 20.0
_PROBE_VERSION = 3  # raise it when the flags or programs below change

# -w: warnings about generated code would only hide the compiler's errors.
BASE_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-w")
# Flags that hold to IEEE arithmetic (-ffp-contract=off: no fused multiply-add that the program
# does not ask for) and give up only errno and traps, which nothing here looks at.
#
# -fno-tree-vrp: without it gcc 12.2 takes the guard of a vector loop for true in all 16 lanes of a
# 64-byte vector where it is true in the first 8: for (c = 0; c <= 15; c++) { p[c] = 0; if (c <= 7)
# p[c] += 4; } stores 4 everywhere.  Six programs took 0.97 to 1.01 of the time with the flag.
#
# TILE_FLAG: gcc 12 makes calls of memset and memcpy of the loops that clear and store a tile of
# registers, and keeps the tile in memory: 128 x 64 by 64 x 64 took 2.2 times as long (6 x 16 tiles,
# AVX2).  Where there are no tiles (without_tiles), large copies gain from memcpy; with vectors of
# 64 bytes tiles take 1.0 to 1.4 times as long with the flag (gcc 13).
TILE_FLAG = "-fno-tree-loop-distribute-patterns"
OPTIONAL_FLAGS = (
    "-march=native",
    "-fno-tree-vrp",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-mprefer-vector-width=512",
    TILE_FLAG,
    "-fopenmp",
)
OPENMP_FLAG = "-fopenmp"
# Not -ffast-math: it takes NaN and infinity for impossible, and through its start-up code turns
# denormals off in the whole process that loads the library.
FAST_MATH_FLAGS = (
    "-ffp-contract=fast", "-fassociative-math", "-freciprocal-math", "-fno-signed-zeros",
)  # fmt: skip
LIBRARIES = ("-lm",)

_PROBE = """\
#include <stdint.h>
#include <string.h>
#include <math.h>
int32_t probe(void *const *pointers, const int64_t *integers, int64_t *fault) {
  double *restrict x = pointers[0];
  for (int64_t i = 0; i < integers[0]; ++i) x[i] = sqrt(x[i]);
  return 0;
}
"""
_PROBE_OPENMP = (
    """\
#include <omp.h>
int threads(int *x) {
#pragma omp parallel for simd
  for (int i = 0; i < 64; ++i) x[i] = i;
  return omp_get_max_threads();
}
"""
    + _PROBE
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler that makes shared objects here."""

    command: tuple[str, ...]
    identity: str  # the first line of its --version
    flags: tuple[str, ...]  # BASE_FLAGS and those of OPTIONAL_FLAGS that it accepts

    @property
    def has_openmp(self) -> bool:
        return OPENMP_FLAG in self.flags


# --- finding -------------------------------------------------------------------------------


def find_compiler() -> Compiler:
    """Return ``TCDSL_CC``, or the first of cc, gcc and clang; looked for once a process.

    :raises CompileError: (TC070) if there is none that works.
    """
    found = _search()
    if isinstance(found, str):
        raise NO_COMPILER(
            why=found,
            advice="install one, such as gcc, or name it in TCDSL_CC; "
            "the target 'reference' needs none",
        )
    return found


def why_no_compiler() -> str | None:
    """Return why :func:`find_compiler` fails, or None if it does not."""
    found = _search()
    return found if isinstance(found, str) else None


def _search() -> Compiler | str:
    return _search_with(settings().cc, os.environ.get("PATH", ""))


@lru_cache(maxsize=16)
def _search_with(chosen: tuple[str, ...], path: str) -> Compiler | str:
    if chosen:
        return _examine(chosen)
    reasons: list[str] = []
    for name in DEFAULT_COMMANDS:
        found = _examine((name,))
        if isinstance(found, Compiler):
            return found
        reasons.append(found)
    return "; ".join(reasons)


def _examine(command: tuple[str, ...]) -> Compiler | str:
    """Return the compiler *command*, or why it is none."""
    if shutil.which(command[0]) is None:
        return f"{command[0]!r} is not in PATH"
    cache = default_cache()
    key = key_of(
        what="c-compiler", version=_PROBE_VERSION, command=command,
        files=file_stamps(command), cpu=cpu_identity(),
    )  # fmt: skip
    entry = cache.get(key)
    if entry is not None:
        return Compiler(command, entry.manifest["identity"], tuple(entry.manifest["flags"]))
    found = _probe(command)
    if isinstance(found, Compiler):
        cache.put(key, b"", {"identity": found.identity, "flags": found.flags})
    return found


def file_stamps(command: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return path, time and size of each program in *command* ("ccache gcc" has two)."""
    paths = [os.path.realpath(path) for word in command if (path := shutil.which(word))]
    infos = [(path, os.stat(path)) for path in paths]
    return [(path, info.st_mtime_ns, info.st_size) for path, info in infos]


def _probe(command: tuple[str, ...]) -> Compiler | str:
    identity = identity_of(command)
    if not identity:
        return f"{' '.join(command)!r} does not answer to --version"
    if _why_rejected(command, BASE_FLAGS + OPTIONAL_FLAGS, _PROBE_OPENMP) is None:
        return Compiler(command, identity, BASE_FLAGS + OPTIONAL_FLAGS)
    if reason := _why_rejected(command, BASE_FLAGS, _PROBE):
        return f"{' '.join(command)!r} makes no shared objects: {reason}"
    return Compiler(command, identity, BASE_FLAGS + _accepted(command))


def _accepted(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of OPTIONAL_FLAGS that *command* accepts, each tried alone."""
    programs = dict.fromkeys(OPTIONAL_FLAGS, _PROBE) | {OPENMP_FLAG: _PROBE_OPENMP}
    # -Werror: clang only warns of a flag that it ignores.
    return tuple(
        flag
        for flag, program in programs.items()
        if _why_rejected(command, (*BASE_FLAGS, "-Werror", flag), program) is None
    )


def _why_rejected(command: tuple[str, ...], flags: tuple[str, ...], program: str) -> str | None:
    try:
        # Accepting a flag is no matter of optimisation, which would take a third of the time.
        outcome = _compile(command, (*flags, "-O0"), program, _PROBE_TIMEOUT_S)
    except (subprocess.TimeoutExpired, OSError) as error:
        return str(error)
    return outcome if isinstance(outcome, str) else None


def identity_of(command: tuple[str, ...]) -> str:
    """Return the first line that *command* answers to ``--version``, or ""."""
    version = _run_quietly((*command, "--version"))
    return version.stdout.strip().partition("\n")[0] if version is not None else ""


def _run_quietly(command: tuple[str, ...]) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_PROBE_TIMEOUT_S, check=False, env=_environment(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


# --- the processor -------------------------------------------------------------------------


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """Return the processor's name and a hash of what it can do, for which code is compiled."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    return _cpu_identity_of(text)


def _cpu_identity_of(cpuinfo: str) -> str:
    facts = dict(re.findall(r"^([^\t:\n]+?)\s*:\s*(.*)$", cpuinfo, re.MULTILINE))
    features = facts.get("flags") or facts.get("Features") or ""
    name = facts.get("model name") or facts.get("CPU part") or platform.processor() or "unknown"
    # The order of the flags is the kernel's, and no property of the processor.
    digest = hashlib.sha256(" ".join(sorted(features.split())).encode()).hexdigest()[:16]
    return f"{platform.machine()} {name} {digest}"


# --- compiling -----------------------------------------------------------------------------


def c_flags(compiler: Compiler, *, fast_math: bool = False) -> tuple[str, ...]:
    """Return the flags for *compiler*: tcdsl's, then the caller's from ``TCDSL_CFLAGS``.

    They determine the code together with the source, ``compiler.identity``, and
    :func:`cpu_identity`, and belong into its key.
    """
    extra = FAST_MATH_FLAGS if fast_math else ()
    return (*compiler.flags, *extra, *settings().cflags)


def without_tiles(flags: Sequence[str]) -> tuple[str, ...]:
    """Return *flags* for a program that has no tile of registers."""
    return tuple(flag for flag in flags if flag != TILE_FLAG)


def compile_shared(
    source: str,
    flags: Sequence[str] | None = None,
    *,
    compiler: Compiler | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return the shared object that the C compiler makes of *source* (C11).

    :arg flags: all flags; None for :func:`c_flags`.
    A compiler that crashes is run once more, with less optimisation, which needs less memory.

    :raises CompileError: if there is no compiler, it rejects *source*, or takes too long; the
        source is then kept, and the message says where.
    :raises InternalError: (TC077) it crashed twice.
    """
    with begun_shared(source, flags, compiler=compiler, timeout_s=timeout_s) as code_of:
        return code_of()


@contextmanager
def begun_shared(
    source: str,
    flags: Sequence[str] | None = None,
    *,
    compiler: Compiler | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[Callable[[], bytes]]:
    """Let the compiler begin with *source*, and give what waits for it: :func:`compile_shared`.

    Nothing is left of a compiler that nobody has waited for when the block ends.
    """
    chosen = compiler or find_compiler()
    all_flags = tuple(flags) if flags is not None else c_flags(chosen)
    name = " ".join(chosen.command)

    def code_of() -> bytes:
        with _told(name, source, timeout_s):
            outcome = outcome_of(timeout_s)
            if isinstance(outcome, str) and is_crash(outcome):
                crash, careful = outcome, (*all_flags, *_CAREFUL_FLAGS)
                outcome = _compile(chosen.command, careful, source, timeout_s)
                if isinstance(outcome, bytes):
                    warn(f"{name} crashed ({crash}), and made slower code of the program with -O1")
        if isinstance(outcome, str):
            entry = COMPILER_CRASHED if is_crash(outcome) else COMPILATION_FAILED
            path, hint = keep_source(source), None
            if settings().cflags:
                hint = f"unset TCDSL_CFLAGS, whose flags may be why; the code is kept in {path}"
            raise entry(compiler=name, message=outcome, path=path, hint=hint)
        return outcome

    with ExitStack() as stack:
        with _told(name, source, timeout_s):
            outcome_of = stack.enter_context(_begun(chosen.command, all_flags, source))
        yield code_of


@contextmanager
def _told(name: str, source: str, limit_s: float) -> Iterator[None]:
    """Raise what the user is told where the compiler *name* takes too long, or does not start."""
    try:
        yield
    except subprocess.TimeoutExpired:
        path = keep_source(source)
        raise COMPILATION_TIMED_OUT(compiler=name, limit_s=limit_s, path=path) from None
    except OSError as error:
        raise NO_COMPILER(
            why=f"{name!r} cannot be run: {error}", advice="see 'tcdsl doctor'"
        ) from None


def _compile(
    command: tuple[str, ...], flags: tuple[str, ...], source: str, timeout_s: float
) -> bytes | str:
    """Return the code that *command* makes of *source*, or its first error."""
    with _begun(command, flags, source) as outcome_of:
        return outcome_of(timeout_s)


@contextmanager
def _begun(
    command: tuple[str, ...], flags: tuple[str, ...], source: str
) -> Iterator[Callable[[float], bytes | str]]:
    """Let *command* begin with *source*, and give what waits for its code, or its first error."""
    # Relative names, so that neither messages nor the code depend on the folder.
    words = (*command, *flags, "kernel.c", "-o", "kernel.so", *LIBRARIES)
    with _work_folder() as folder:
        (folder / "kernel.c").write_bytes(source.encode())
        with _guarded(words, folder) as ended:
            yield lambda timeout_s: _result(folder / "kernel.so", *ended(timeout_s))


def build(
    files: Mapping[str, bytes],
    commands: Sequence[Sequence[str]],
    result: str,
    timeout_s: float = TIMEOUT_S,
) -> bytes | str:
    """Run *commands* one after the other in a folder with *files*.

    Return the file *result* that they make, or the first error of the command that failed.

    :raises subprocess.TimeoutExpired: if a command takes longer than *timeout_s*.
    """
    status, messages = 0, ""
    with _work_folder() as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        for words in commands:
            status, messages = _run_guarded(words, folder, timeout_s)
            if status != 0:
                break
        return _result(folder / result, status, messages)


def _result(path: Path, status: int, messages: str) -> bytes | str:
    """Return the file that a command was to make, or the first error among its *messages*."""
    if status == 0 and path.is_file():
        return path.read_bytes()
    return first_error(messages, status)


@contextmanager
def _work_folder() -> Iterator[Path]:
    """Give a private folder: in the cache, whose sweep removes leftovers, or a temporary one."""
    cache: Cache = default_cache()
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(cache.work_folder())
        except OSError:
            temporary = tempfile.TemporaryDirectory(prefix="tcdsl-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
        yield folder


# $0 is the work folder, $@ the command; descriptor 3 is a pipe whose other end only we hold, and
# reading it ends when we are gone.  kill 0 means the whole group: the compiler's and this shell.
_GUARD = """\
exec 3<&0 </dev/null
( read -r _ <&3; rm -rf "$0"; kill -9 0 ) >/dev/null 2>&1 &
"$@" 3<&-
exit $?
"""


def _run_guarded(words: Sequence[str], folder: Path, timeout_s: float) -> tuple[int, str]:
    """Run *words* in *folder*; return the exit status and what it wrote to stderr.

    Whatever ends the wait, no process of the command is left.

    :raises subprocess.TimeoutExpired: after *timeout_s*.
    """
    with _guarded(words, folder) as ended:
        return ended(timeout_s)


@contextmanager
def _guarded(words: Sequence[str], folder: Path) -> Iterator[Callable[[float], tuple[int, str]]]:
    """Start *words* in *folder*, and give what waits for so many seconds for status and stderr.

    However the block ends, no process of the command is left.
    """
    lifeline, our_end = os.pipe()
    try:
        process = subprocess.Popen(
            ("/bin/sh", "-c", _GUARD, str(folder), *words),
            cwd=folder, env=_environment(TMPDIR=str(folder)), stdin=lifeline,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(our_end)
        raise
    finally:
        os.close(lifeline)

    def ended(timeout_s: float) -> tuple[int, str]:
        _, messages = process.communicate(timeout=timeout_s)
        return process.returncode, messages.decode(errors="replace")

    try:
        yield ended
    finally:
        # Before the pipe is closed: the guard must not remove the folder with the result in it.
        _kill_group(process)
        os.close(our_end)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of *process*'s session; the guard always is, so the number is ours."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _environment(**changes: str) -> dict[str, str]:
    # Messages are searched for "error:", which some languages translate.
    return {**os.environ, "LC_ALL": "C", **changes}


# What gcc and clang say of themselves or of the programs that they run.
_CRASH = re.compile(
    r"killed by signal|signal terminated program|internal compiler error"
    r"|unable to execute command|command failed due to signal"
)
_CAREFUL_FLAGS = ("-O1", "-fno-tree-vectorize")


def is_crash(message: str) -> bool:
    """Return whether the first error of a compiler tells of its own failure, not of the text's."""
    return _CRASH.search(message) is not None


_ERROR = re.compile(r"(?:fatal |internal compiler )?error: .*|undefined reference to .*")


def first_error(messages: str, status: int) -> str:
    """Return the line of a compiler's *messages* that says what is wrong."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    wrong = next((line for line in lines if _ERROR.search(line)), None)
    if wrong is not None:
        return wrong
    # The shell reports a command that died of signal n as 128 + n.
    died = f"it was killed by signal {status - 128}" if status > 128 else f"status {status}"
    return f"{died}: {lines[0]}" if lines else died


def keep_source(source: str, suffix: str = ".c") -> Path:
    """Return a new file with *source*, for whoever looks into the failure."""
    handle, path = tempfile.mkstemp(prefix="tcdsl-failed-", suffix=suffix)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(source)
    return Path(path)
