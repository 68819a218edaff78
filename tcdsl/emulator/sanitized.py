"""Emulated kernels under the compiler's address sanitizer: a second opinion on bounds.

The same text, compiled with ``-fsanitize=address`` in place of the emulator's checks, runs as a
program of its own, with every array in a heap block of exactly its size.  Shared variables are
static ones there, so that there is one block at a time: no clusters.
"""

import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tcdsl.codegen.cuda.source import (
    TICKETS_BYTES,
    AnyLaunch,
    CudaSource,
    LibraryCall,
    Memset,
    ParameterKind,
)
from tcdsl.emulator.build import compile_sanitized, kernel_names
from tcdsl.emulator.findings import FindingKind, emulation_error
from tcdsl.emulator.run import launch_sizes
from tcdsl.runtime.launch import FAULT_WORDS

_TIMEOUT_S = 300.0
_SUMMARY = re.compile(r"ERROR: AddressSanitizer: (\S+).*?\n(\w+ of size \d+)?", re.DOTALL)

_Array = np.ndarray[Any, Any]


def run_sanitized(
    source: CudaSource,
    arrays: Mapping[str, _Array],
    integers: Sequence[int] = (),
    *,
    seed: int = 1,
) -> None:
    """Run *source* on *arrays*, which must be contiguous, in place.

    :raises EmulationError: with what the sanitizer reports, or for any other failure.
    """
    for launch in source.kernels:
        if launch.cluster > 1:
            what = "the address sanitizer runs one block at a time, and no clusters"
            raise emulation_error(FindingKind.LIMIT, launch.name, "", what, "", seed)
        if any(parameter.map is not None for parameter in launch.parameters):
            what = "the address sanitizer knows no copies of boxes"
            raise emulation_error(FindingKind.LIMIT, launch.name, "", what, "", seed)
    names = list(arrays)
    contents = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    tickets = bytes(TICKETS_BYTES if source.has_tickets else 0)
    workspace = tickets + b"\xff" * (source.workspace_bytes - len(tickets))
    contents += [workspace, bytes(8 * FAULT_WORDS)]
    words = _words(seed, source.residents, len(contents))
    words += b"".join(_words(len(content)) + content for content in contents)
    words += _words(len(source.launches))
    words += b"".join(_packed(source, launch, names, integers) for launch in source.launches)
    done = _run(compile_sanitized(source), words)
    if done.returncode != 0:
        kind, what = _reported(done.stderr.decode(errors="replace"), done.returncode)
        kernels = ", ".join(kernel_names(source))
        raise emulation_error(kind, kernels, "", what, "", seed)
    start = 0
    for array in arrays.values():
        if array.flags.writeable:
            end = start + array.nbytes
            array[...] = np.frombuffer(done.stdout[start:end], array.dtype).reshape(array.shape)
        start += array.nbytes


def _packed(
    source: CudaSource, launch: AnyLaunch, names: Sequence[str], integers: Sequence[int]
) -> bytes:
    assert not isinstance(launch, LibraryCall), "no code of ours"
    if isinstance(launch, Memset):
        words = _words(-1, launch.value, launch.width, launch.count)
    else:
        number = kernel_names(source).index(launch.name)
        words = _words(number, *launch_sizes(launch))
        words += _words(launch.shared_bytes, len(launch.parameters))
    for parameter in launch.parameters:
        match parameter.kind:
            case ParameterKind.ARRAY:
                words += _words(names.index(parameter.name), 0)
            case ParameterKind.SCRATCH | ParameterKind.TICKETS:
                words += _words(len(names), parameter.offset)
            case ParameterKind.FAULT:
                words += _words(len(names) + 1, 0)
            case ParameterKind.INTEGER:
                words += _words(-1, integers[parameter.offset])
    return words


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _run(program: bytes, words: bytes) -> "subprocess.CompletedProcess[bytes]":
    with tempfile.TemporaryDirectory(prefix="tcdsl-") as folder:
        path = Path(folder) / "kernels"
        path.write_bytes(program)
        path.chmod(0o700)
        # Fibres have stacks that the sanitizer does not know; leaks do not matter here.
        options = "detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0"
        environment = {**os.environ, "ASAN_OPTIONS": options}
        return subprocess.run(
            [str(path)], input=words, capture_output=True, timeout=_TIMEOUT_S, check=False,
            env=environment,
        )  # fmt: skip


def _reported(messages: str, status: int) -> tuple[FindingKind, str]:
    found = _SUMMARY.search(messages)
    if found is None:
        what = f"the sanitized program failed with status {status}: {messages.strip()[:200]}"
        return FindingKind.CRASH, what
    access = f", {found[2]}" if found[2] else ""
    return FindingKind.OUT_OF_BOUNDS, f"the address sanitizer reports {found[1]}{access}"
