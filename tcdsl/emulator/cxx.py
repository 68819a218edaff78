"""The C++ compiler of this machine, for emulated kernels only."""

import os
import shutil
from functools import lru_cache

from tcdsl.errors import NO_COMPILER
from tcdsl.records import dataclass
from tcdsl.runtime.c_compiler import build, cpu_identity, file_stamps, identity_of
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.settings import settings

DEFAULT_COMMANDS = ("c++", "g++", "clang++")

BASE_FLAGS = ("-std=c++17", "-fPIC", "-w", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
# As for the C target: the machine's instructions, IEEE arithmetic, nothing contracted.
OPTIONAL_FLAGS = (
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Accesses are to be those that the text makes: vectors in one piece, none on the other side
    # of a guard.
    "-fno-tree-sra",
    "-fno-tree-loop-im",
    "-fno-tree-sink",
    "-ftrivial-auto-var-init=pattern",
)
CLANG_FLAGS = ("-mllvm -tsan-instrument-read-before-write=1",)
_PROBE = b"extern void use(int *); extern void kernel(int *x) { x[1] = x[0]; use(x); }\n"


@dataclass(frozen=True, slots=True)
class CxxCompiler:
    """A C++ compiler that can put a call before every memory access."""

    command: tuple[str, ...]
    identity: str  # the first line of its --version, and the processor
    flags: tuple[str, ...]


def find_cxx_compiler() -> CxxCompiler:
    """Return ``TCDSL_CXX``, or the first of c++, g++ and clang++; looked for once a process.

    :raises CompileError: (TC070) if there is none that works.
    """
    found = _search(settings().cxx, os.environ.get("PATH", ""))
    if isinstance(found, str):
        raise NO_COMPILER(
            why=f"the target 'emulate' needs one for C++: {found}",
            advice="install one, such as g++, or name it in TCDSL_CXX",
        )
    return found


def why_no_cxx_compiler() -> str | None:
    """Return why :func:`find_cxx_compiler` fails, or None if it does not."""
    found = _search(settings().cxx, os.environ.get("PATH", ""))
    return found if isinstance(found, str) else None


@lru_cache(maxsize=16)
def _search(chosen: tuple[str, ...], path: str) -> CxxCompiler | str:
    reasons: list[str] = []
    for command in [chosen] if chosen else [(name,) for name in DEFAULT_COMMANDS]:
        found = _examine(command)
        if isinstance(found, CxxCompiler):
            return found
        reasons.append(found)
    return "; ".join(reasons)


def _examine(command: tuple[str, ...]) -> CxxCompiler | str:
    """Return the compiler *command*, or why it is none; known from the cache the second time."""
    if shutil.which(command[0]) is None:
        return f"{command[0]!r} is not in PATH"
    key = key_of(
        what="cxx-compiler", command=command, files=file_stamps(command), cpu=cpu_identity(),
        flags=(*BASE_FLAGS, *OPTIONAL_FLAGS, *CLANG_FLAGS),
    )  # fmt: skip
    entry = default_cache().get(key)
    if entry is not None:
        return CxxCompiler(command, entry.manifest["identity"], tuple(entry.manifest["flags"]))
    found = _probe(command)
    if isinstance(found, CxxCompiler):
        default_cache().put(key, b"", {"identity": found.identity, "flags": found.flags})
    return found


def _probe(command: tuple[str, ...]) -> CxxCompiler | str:
    identity = identity_of(command)
    if not identity:
        return f"{' '.join(command)!r} does not answer to --version"
    needed = (*BASE_FLAGS, "-fsanitize=thread")
    if reason := _why_rejected(command, needed):
        return f"{' '.join(command)!r} does not instrument memory accesses: {reason}"
    accepted = [
        word
        for flags in (OPTIONAL_FLAGS, CLANG_FLAGS)
        for flag in _accepted(command, needed, flags)
        for word in flag.split()
    ]
    return CxxCompiler(command, f"{identity}; {cpu_identity()}", (*BASE_FLAGS, *accepted))


def _accepted(
    command: tuple[str, ...], needed: tuple[str, ...], flags: tuple[str, ...]
) -> tuple[str, ...]:
    """Return those of *flags* that *command* accepts: all in one run, or each alone."""
    strict = (*needed, "-Werror")  # clang only warns of a flag that it ignores
    if not _why_rejected(command, (*strict, *" ".join(flags).split())):
        return flags
    return tuple(f for f in flags if not _why_rejected(command, (*strict, *f.split())))


def _why_rejected(command: tuple[str, ...], flags: tuple[str, ...]) -> str | None:
    words = (*command, *flags, "-c", "probe.cpp", "-o", "probe.o")
    made = build({"probe.cpp": _PROBE}, [words], "probe.o", 20.0)
    return made if isinstance(made, str) else None
