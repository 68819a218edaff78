"""The C compiler: finding it, its flags, its errors, and what is left when it is stopped."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.errors import CompileError, InternalError, TCWarning
from tcdsl.runtime import c_compiler
from tcdsl.runtime.c_compiler import (
    BASE_FLAGS,
    FAST_MATH_FLAGS,
    OPENMP_FLAG,
    OPTIONAL_FLAGS,
    TILE_FLAG,
    Compiler,
    begun_shared,
    c_flags,
    compile_shared,
    cpu_identity,
    find_compiler,
    first_error,
    why_no_compiler,
    without_tiles,
)

needs_cc = pytest.mark.skipif(why_no_compiler() is not None, reason="needs a C compiler")

GOOD = "#include <stdint.h>\nint32_t f(int32_t x) { return x + 1; }\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCDSL_CACHE", "on")
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TCDSL_CC", raising=False)
    monkeypatch.delenv("TCDSL_CFLAGS", raising=False)
    c_compiler._search_with.cache_clear()
    return folder


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that makes a shell script the C compiler."""

    def make(script: str) -> Path:
        path = tmp_path / "fakecc"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("TCDSL_CC", str(path))
        c_compiler._search_with.cache_clear()
        return path

    return make


REAL = 'exec cc "$@"'


# --- finding -------------------------------------------------------------------------------


@needs_cc
def test_the_compiler_of_this_machine() -> None:
    compiler = find_compiler()
    assert compiler.identity and compiler.command[0] in c_compiler.DEFAULT_COMMANDS
    assert set(BASE_FLAGS) <= set(compiler.flags) <= {*BASE_FLAGS, *OPTIONAL_FLAGS}
    assert why_no_compiler() is None
    assert find_compiler() is compiler


@needs_cc
def test_what_was_found_out_is_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    c_compiler._search_with.cache_clear()

    def no_probe(command: tuple[str, ...]) -> Compiler:
        raise AssertionError(f"probed {command} again")

    monkeypatch.setattr(c_compiler, "_probe", no_probe)
    assert find_compiler() == compiler


@needs_cc
def test_a_changed_compiler_is_examined_again(fake_compiler: Callable[[str], Path]) -> None:
    version = 'case "$*" in *--version*) echo "fake %d"; exit;; esac\n' + REAL
    path = fake_compiler(version % 1)
    assert find_compiler().identity == "fake 1"
    path.write_text(path.read_text().replace("fake 1", "fake 22"))
    c_compiler._search_with.cache_clear()
    assert find_compiler().identity == "fake 22"


@needs_cc
def test_a_command_of_several_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CC", "env cc")
    assert find_compiler().command == ("env", "cc")
    assert compile_shared(GOOD)


@pytest.mark.slow_but("-fopenmp")
@needs_cc
@pytest.mark.parametrize("refused", ["-march=native", OPENMP_FLAG, "-mprefer-vector-width=512"])
def test_a_flag_that_is_not_accepted_is_left_out(
    fake_compiler: Callable[[str], Path], refused: str
) -> None:
    fake_compiler(f'case "$*" in *{refused}*) echo "error: {refused}" >&2; exit 1;; esac\n{REAL}')
    compiler = find_compiler()
    assert refused not in compiler.flags
    assert compiler.has_openmp == (refused != OPENMP_FLAG)
    assert compile_shared(GOOD)[:4] == b"\x7fELF"


@needs_cc
def test_openmp_without_its_header_is_no_openmp(fake_compiler: Callable[[str], Path]) -> None:
    fake_compiler(f"grep -q omp.h kernel.c 2>/dev/null && exit 1\n{REAL}")
    compiler = find_compiler()
    assert not compiler.has_openmp and "-march=native" in compiler.flags


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "does not answer to --version"),
        ('case "$*" in *--version*) echo v1; exit;; esac; echo "error: broken" >&2; exit 1',
         "makes no shared objects: error: broken"),
        ('echo v1; exit 0', "makes no shared objects"),
    ],
)  # fmt: skip
def test_a_compiler_that_does_not_work(
    fake_compiler: Callable[[str], Path], script: str, why: str
) -> None:
    fake_compiler(script)
    assert why in (why_no_compiler() or "")
    with pytest.raises(CompileError) as caught:
        compile_shared(GOOD)
    assert caught.value.code == "TC070" and "TCDSL_CC" in (caught.value.hint or "")


def test_no_compiler_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    why = why_no_compiler() or ""
    assert all(f"'{name}' is not in PATH" in why for name in ("cc", "gcc", "clang"))
    monkeypatch.setenv("TCDSL_CC", "no-such-compiler")
    assert why_no_compiler() == "'no-such-compiler' is not in PATH"
    with pytest.raises(CompileError, match="no-such-compiler"):
        find_compiler()


# --- the processor -------------------------------------------------------------------------


def test_the_processor_is_known_by_name_and_features() -> None:
    identity = c_compiler._cpu_identity_of
    one = "processor\t: 0\nmodel name\t: X 9\nflags\t\t: fpu avx2 sse\n\nprocessor\t: 1\n"
    assert "X 9" in identity(one)
    assert identity(one) == identity(one.replace("fpu avx2", "avx2 fpu"))
    assert identity(one) != identity(one.replace("avx2", "avx512f"))
    assert identity(one) != identity(one.replace("X 9", "X 8"))
    arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n"
    assert "0xd0c" in identity(arm) and identity(arm) != identity(arm.replace("asimd", "sve"))
    assert identity("")
    assert cpu_identity() == cpu_identity()


# --- compiling -----------------------------------------------------------------------------


@needs_cc
def test_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    assert c_flags(compiler) == compiler.flags
    assert "-ffast-math" not in c_flags(compiler, fast_math=True)
    assert without_tiles(("-O3", TILE_FLAG, "-fPIC")) == ("-O3", "-fPIC")
    # The last of two contradicting flags counts.
    flags = c_flags(compiler, fast_math=True)
    assert flags[-len(FAST_MATH_FLAGS) :] == FAST_MATH_FLAGS
    assert flags.index("-ffp-contract=fast") > flags.index("-ffp-contract=off")
    monkeypatch.setenv("TCDSL_CFLAGS", "-g -DX='a b'")
    assert c_flags(compiler)[-2:] == ("-g", "-DX=a b")


@needs_cc
def test_the_code_depends_on_the_source_only(own_cache: Path) -> None:
    first = compile_shared(GOOD)
    assert first[:4] == b"\x7fELF"
    assert compile_shared(GOOD) == first
    assert str(own_cache).encode() not in first
    assert list((own_cache / "work").iterdir()) == []


@needs_cc
def test_without_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCDSL_CACHE", "off")
    assert compile_shared(GOOD)[:4] == b"\x7fELF"
    assert [path for path in tmp_path.iterdir() if path.name.startswith("tcdsl-")] == []


@needs_cc
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int f(void) { return y; }", "'y' undeclared"),
        ("#include <no_such_header.h>", "no_such_header.h"),
        ("int f(", "expected"),
    ],
)
def test_a_rejected_source_is_kept(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        compile_shared(source)
    assert caught.value.code == "TC071"
    assert message in caught.value.message and "kernel.c:1" in caught.value.message
    (kept,) = tmp_path.glob("tcdsl-failed-*.c")
    assert kept.read_text() == source and str(kept) in (caught.value.hint or "")


@needs_cc
def test_flags_that_somebody_set_may_be_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CFLAGS", "-fno-such-flag")
    with pytest.raises(CompileError, match=r"(?s)-fno-such-flag.*unset TCDSL_CFLAGS"):
        compile_shared(GOOD)


@pytest.mark.parametrize(
    ("messages", "status", "line"),
    [
        ("In file x:\nk.c:1:2: error: bad\nk.c:2:2: error: worse", 1, "k.c:1:2: error: bad"),
        ("k.c:1:2: fatal error: no file", 1, "k.c:1:2: fatal error: no file"),
        ("ld: k.o: undefined reference to `g'", 1, "ld: k.o: undefined reference to `g'"),
        ("something odd\nmore", 3, "status 3: something odd"),
        ("Killed", 137, "it was killed by signal 9: Killed"),
        ("", 139, "it was killed by signal 11"),
    ],
)
def test_the_first_error(messages: str, status: int, line: str) -> None:
    assert first_error(messages, status) == line


def test_a_compiler_that_crashes(fake_compiler: Callable[[str], Path]) -> None:
    path = fake_compiler("kill -9 $$")
    with pytest.raises(InternalError, match="crashed: it was killed by signal 9"):
        compile_shared(GOOD, (), compiler=Compiler((str(path),), "fake", ()))


# --- stopping (row 39) ---------------------------------------------------------------------

# A compiler with a child of its own; both write their numbers to the file that $PIDS names.
SLOW = 'sleep 60 & echo $$ $! >> "$PIDS"; wait'


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie is gone, but for the parent's asking (in a container perhaps nobody asks).
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], limit_s: float = 10.0) -> float:
    """Wait until *condition* holds; return how long that took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < limit_s, "waited in vain"
        time.sleep(0.01)
    return time.monotonic() - start


@pytest.fixture
def slow(fake_compiler: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
         ) -> tuple[Compiler, Path]:  # fmt: skip
    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    return Compiler((str(fake_compiler(SLOW)),), "slow", ()), pids


def numbers(pids: Path) -> list[int]:
    return [int(word) for word in pids.read_text().split()] if pids.exists() else []


def test_a_time_limit_leaves_no_process(slow: tuple[Compiler, Path], own_cache: Path) -> None:
    compiler, pids = slow
    start = time.monotonic()
    with pytest.raises(CompileError) as caught:
        compile_shared(GOOD, (), compiler=compiler, timeout_s=0.3)
    assert caught.value.code == "TC072" and "0.3 s" in caught.value.message
    assert time.monotonic() - start < 2
    assert len(numbers(pids)) == 2
    wait_until(lambda: not any(map(is_alive, numbers(pids))), 2)
    assert list((own_cache / "work").iterdir()) == []


@needs_cc
def test_a_compiler_works_while_nobody_waits(own_cache: Path) -> None:
    with begun_shared(GOOD) as code_of:
        (folder,) = (own_cache / "work").iterdir()
        wait_until((folder / "kernel.so").exists)
        assert code_of() == compile_shared(GOOD)
    assert not folder.exists()


def test_what_nobody_waits_for_leaves_no_process(
    slow: tuple[Compiler, Path], own_cache: Path
) -> None:
    compiler, pids = slow
    with pytest.raises(ZeroDivisionError), begun_shared(GOOD, (), compiler=compiler):
        wait_until(lambda: len(numbers(pids)) == 2)
        raise ZeroDivisionError  # as a verification may fail
    wait_until(lambda: not any(map(is_alive, numbers(pids))), 2)
    assert list((own_cache / "work").iterdir()) == []


def test_an_interrupt_leaves_no_process(slow: tuple[Compiler, Path], own_cache: Path) -> None:
    compiler, pids = slow
    # A shell's background processes ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted_at: list[float] = []

    def interrupt() -> None:
        wait_until(lambda: len(numbers(pids)) == 2)
        interrupted_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_shared(GOOD, (), compiler=compiler)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - interrupted_at[0] < 2
    thread.join()
    wait_until(lambda: not any(map(is_alive, numbers(pids))), 2)
    assert list((own_cache / "work").iterdir()) == []


CRASHES = {
    "segfault": "kill -SEGV $$",
    "out of memory": "echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1",
    "gcc's bug": "echo 'kernel.c:3:1: internal compiler error: in expand' >&2; exit 4",
    "clang's bug": "echo 'clang: error: clang frontend command failed due to signal' >&2; exit 254",
}


@pytest.mark.parametrize("kind", CRASHES)
def test_row_30_a_compiler_that_crashes_is_run_once_more(
    kind: str, own_cache: Path, tmp_path: Path
) -> None:
    fake, log = tmp_path / "cc", tmp_path / "log"
    text = f'echo x >> {log}; case "$*" in *-O1*) exec cc "$@";; esac; {CRASHES[kind]}'
    fake.write_text(f"#!/bin/sh\n{text}\n")
    fake.chmod(0o755)
    compiler = Compiler((str(fake),), "it", ())
    with pytest.warns(TCWarning, match=f"{fake} crashed .*-O1"):
        code = compile_shared("int f(void) { return 3; }", ("-fPIC", "-shared"), compiler=compiler)
    assert code.startswith(b"\x7fELF") and log.read_text() == "x\nx\n"
    fake.write_text(f"#!/bin/sh\necho x >> {log}; {CRASHES[kind]}\n")
    with pytest.raises(InternalError) as caught:
        compile_shared("int g(void) { return 3; }", ("-fPIC", "-shared"), compiler=compiler)
    assert caught.value.code == "TC077" and log.read_text() == "x\n" * 4
    path = Path(str(caught.value.hint).partition("kept in ")[2].partition(";")[0])
    assert "int g(void)" in path.read_text()
    path.unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_our_own_death_leaves_no_process(
    slow: tuple[Compiler, Path], own_cache: Path, number: signal.Signals
) -> None:
    compiler, pids = slow
    program = (
        "from tcdsl.runtime.c_compiler import Compiler, compile_shared\n"
        f"compile_shared('', (), compiler={compiler!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: len(numbers(pids)) == 2)
    process.send_signal(number)
    process.wait(5)
    wait_until(lambda: not any(map(is_alive, numbers(pids))), 2)
    wait_until(lambda: not list((own_cache / "work").iterdir()), 2)


def test_no_descriptor_is_leaked(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        c_compiler._run_guarded(("true",), tmp_path, 5)
    assert c_compiler._run_guarded(("sh", "-c", "echo no >&2; exit 3"), tmp_path, 5) == (3, "no\n")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_with_odd_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a b;$(touch x)'\""
    folder.mkdir()
    assert c_compiler._run_guarded(("sh", "-c", "pwd >&2"), folder, 5) == (0, f"{folder}\n")
    assert list(folder.iterdir()) == []
