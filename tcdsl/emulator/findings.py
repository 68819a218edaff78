"""What the runtime found, as an error."""

import ctypes
import re
import subprocess
import tempfile
from enum import IntEnum

from tcdsl.codegen.cuda.source import AnyLaunch
from tcdsl.emulator.build import KERNEL_FILE
from tcdsl.errors import EMULATION_FINDING, EmulationError


class FindingKind(IntEnum):
    """What is wrong; Kind of state.h."""

    NONE = 0
    DEADLOCK = 1
    DIVERGENT_BARRIER = 2
    WRONG_SHUFFLE = 3
    OUT_OF_BOUNDS = 4
    READ_ONLY = 5
    RACE = 6
    UNINITIALISED = 7
    MISALIGNED = 8
    LIMIT = 9
    CRASH = 10


class Finding(ctypes.Structure):
    """Finding of state.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("has_thread", ctypes.c_int32),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("address", ctypes.c_uint64),
        ("file", ctypes.c_char * 64),
        ("line", ctypes.c_int32),
        ("padding", ctypes.c_int32),
        ("text", ctypes.c_char * 1536),
    )


def error_of(finding: Finding, launch: AnyLaunch, seed: int, code: bytes) -> EmulationError:
    """Return the error for *finding* in *launch* of the shared object *code*."""
    thread = ""
    if finding.has_thread:
        thread = f", block {_dim(finding.block)}, thread {_dim(finding.thread)}"
    place = f"{finding.file.decode()}:{finding.line}" if finding.file else ""
    if KERNEL_FILE not in place and finding.address:
        place = _line_of(code, finding.address) or place
    where = f" ({place})" if place else ""
    what = finding.text.decode()
    return emulation_error(FindingKind(finding.kind), launch.name, thread, what, where, seed)


def emulation_error(
    kind: FindingKind, kernel: str, thread: str, what: str, where: str, seed: int
) -> EmulationError:
    error = EMULATION_FINDING(kernel=kernel, thread=thread, what=what, where=where, seed=seed)
    assert isinstance(error, EmulationError)
    error.kind = kind.name.lower()
    return error


def _line_of(code: bytes, address: int) -> str:
    """Return file and line of the call before *address*, or "" where nobody can tell."""
    with tempfile.NamedTemporaryFile(prefix="tcdsl-", suffix=".so") as file:
        file.write(code)
        file.flush()
        command = ("addr2line", "-i", "-s", "-e", file.name, hex(address - 1))
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ""
    # From the innermost inlined function outwards: the first one in the generated text.
    places = re.findall(rf"{re.escape(KERNEL_FILE)}:\d+|.+:\d+", done.stdout)
    return next((place for place in places if place.startswith(KERNEL_FILE)), "")


def _dim(values: "ctypes.Array[ctypes.c_uint32]") -> str:
    return "(" + ", ".join(str(value) for value in values) + ")"
