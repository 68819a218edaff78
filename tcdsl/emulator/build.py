"""Emulated kernels as a shared object.

    emulate.h + what the device library always has  -->  prelude.h, precompiled (once a machine)
    prelude.h + device library + generated text + calls  --  -fsanitize=thread  -->  kernels.o
    runtime.o (once a machine) + kernels.o  -->  kernels.so

``-fsanitize=thread`` makes the compiler call ``__tsan_read4`` and its kin before each memory
access; the runtime defines these, and no sanitizer library is linked.  The object is complete in
itself: it carries its own copy of the runtime.
"""

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device import cuda
from tcdsl.emulator.cxx import CxxCompiler, find_cxx_compiler
from tcdsl.errors import COMPILATION_FAILED, COMPILATION_TIMED_OUT, NO_COMPILER
from tcdsl.runtime.c_compiler import TIMEOUT_S, build, keep_source
from tcdsl.runtime.cache import default_cache, key_of

RUNTIME_FILES = (
    "switch.h", "state.h", "order.h", "memory.h", "access.h", "instrumentation.h", "fibres.h",
    "cluster.h", "async.h", "mbarriers.h", "products.h", "collectives.h", "grid.h", "intrinsics.h",
    "session.h", "runtime.cpp", "sanitized_main.cpp",
)  # fmt: skip
KERNEL_FILE = "kernels.cu"  # in messages: the generated text, lines counted from its first

_KERNEL_FLAGS = ("-O1", "-fno-strict-aliasing", "-fno-threadsafe-statics", "-g1")
_RUNTIME_FLAGS = ("-O2",)
_NOTICE = "tcdsl: compiling the emulator, {how_often}; that takes some seconds"
_kept: dict[str, bytes] = {}  # by key: the prelude, and what of the runtime no disk cache keeps
# Nothing of the C++ library is used, in which a linker would look for every name.
_LINK_FLAGS = ("-shared", "-Wl,-z,noexecstack", "-nodefaultlibs", "-lm", "-lc", "-lgcc")
_PRELUDE = "prelude.h"


def compile_emulated(source: CudaSource) -> bytes:
    """Return the shared object that runs *source*'s kernels, to be kept by the caller.

    :raises CompileError: if there is no C++ compiler, or it rejects the text.
    """
    compiler = find_cxx_compiler()
    given = {"runtime.o": _runtime_object(compiler, "runtime.cpp", ())}
    return _linked(compiler, source, given, (), ("-fsanitize=thread",), _LINK_FLAGS)


def compile_sanitized(source: CudaSource) -> bytes:
    """Return a program that runs *source*'s kernels under the address sanitizer.

    :raises CompileError: if there is no C++ compiler that can make it.
    """
    compiler = find_cxx_compiler()
    defines, flags = ("-DEMU_ADDRESS_SANITIZER",), ("-fsanitize=address",)
    given = {
        "runtime.o": _runtime_object(compiler, "runtime.cpp", defines),
        "main.o": _runtime_object(compiler, "sanitized_main.cpp", defines),
    }
    return _linked(compiler, source, given, defines, flags, (*flags, "-lm"))


def _linked(
    compiler: CxxCompiler,
    source: CudaSource,
    objects: Mapping[str, bytes],
    defines: Sequence[str],
    flags: Sequence[str],
    link_flags: Sequence[str],
) -> bytes:
    text, prelude = emulated_text(source), _prelude()
    given = {"kernels.cpp": text.encode(), **objects}
    if text.startswith(prelude):
        rest = text.removeprefix(prelude)
        given["kernels.cpp"] = f'#include "{_PRELUDE}"\n{rest}'.encode()
        given |= _precompiled(compiler, (*defines, *flags))
    kernels_o = ("kernels.cpp", "-c", "-o", "kernels.o")
    commands = (
        (*compiler.command, *compiler.flags, *_KERNEL_FLAGS, *defines, *flags, *kernels_o),
        (*compiler.command, "kernels.o", *objects, "-o", "kernels", *link_flags),
    )
    return _built(compiler, given, commands, "kernels", text)


def build_identity() -> str:
    """Return what :func:`compile_emulated` depends on besides its argument, for a cache's key."""
    compiler = find_cxx_compiler()
    texts = [_file(f"runtime/{name}") for name in RUNTIME_FILES] + [_file("emulate.h")]
    return key_of(
        compiler=compiler.identity, command=compiler.command, flags=compiler.flags,
        kernel_flags=_KERNEL_FLAGS, runtime_flags=_RUNTIME_FLAGS,
        texts=hashlib.sha256("\0".join(texts).encode()).hexdigest(),
    )  # fmt: skip


def emulated_text(source: CudaSource) -> str:
    """Return the whole C++ text of *source*, that of its kernels as NVRTC gets it."""
    library = cuda.emulated_text(cuda.parts_for(source.functions))
    kernels = f'#line 1 "{KERNEL_FILE}"', source.text, '#line 1 "calls"', _calls(source), ""
    return "\n".join((_with_intrinsics(library), *kernels))


def _prelude() -> str:
    """Return what the text of every source begins with."""
    return _with_intrinsics(cuda.emulated_text(frozenset()))


def _with_intrinsics(library: str) -> str:
    return "\n".join((_file("emulate.h"), '#line 1 "device library"', library))


def _precompiled(compiler: CxxCompiler, flags: Sequence[str]) -> dict[str, bytes]:
    """Return the files of the prelude: where gcc compiles it, as it is after that, too.

    A compiler reads the text where it cannot use the other file.
    """
    text = _prelude().encode()
    given = {_PRELUDE: text}
    if "clang" in compiler.identity:
        return given
    key = key_of(what="emulator-prelude", identity=build_identity(), text=_prelude(), flags=flags)
    made = _kept.get(key) or _found(key)
    if made is None:
        words = (*compiler.command, *compiler.flags, *_KERNEL_FLAGS, *flags)
        command = (*words, "-x", "c++-header", _PRELUDE, "-o", "it.gch")
        made = _built(compiler, given, [command], "it.gch", text.decode())
        default_cache().put(key, made, {})
    _kept[key] = made
    return {**given, f"{_PRELUDE}.gch": made}


def _found(key: str) -> bytes | None:
    entry = default_cache().get(key)
    return None if entry is None else entry.code


def _calls(source: CudaSource) -> str:
    """Return a function for every kernel that takes its arguments from an array, in order."""
    names = kernel_names(source)
    bodies = [
        f"static void emu_kernel_{number}(const uint64_t *values) {{ emu_call({name}, values); }}"
        for number, name in enumerate(names)
    ]
    listed = ", ".join(f"emu_kernel_{number}" for number in range(len(names)))
    table = f'extern "C" void (*const emu_kernels[])(const uint64_t *) = {{{listed}}};'
    declared = 'extern "C" void (*const emu_kernels[])(const uint64_t *);'
    return "\n".join((*bodies, declared, table))


def kernel_names(source: CudaSource) -> tuple[str, ...]:
    """Return the kernels' functions, each once, in the order of their first launches."""
    return tuple(dict.fromkeys(launch.name for launch in source.kernels))


def _runtime_object(compiler: CxxCompiler, name: str, defines: Sequence[str]) -> bytes:
    """Return the file *name* of the runtime, compiled; kept in the disk cache, else in the process.

    Whoever waits for that is told, by a line on standard error, for it takes longer than a program.
    """
    key = key_of(what="emulator-runtime", name=name, identity=build_identity(), defines=defines)
    cache = default_cache()
    if found := _found(key) or _kept.get(key):
        return found
    how_often = (
        "once on this machine" if cache.may_store else "once in this process (no disk cache)"
    )
    print(_NOTICE.format(how_often=how_often), file=sys.stderr)
    given = {file: _file(f"runtime/{file}").encode() for file in RUNTIME_FILES}
    words = (*compiler.command, *compiler.flags, *_RUNTIME_FLAGS, *defines, name)
    made = _built(compiler, given, [(*words, "-c", "-o", "it.o")], "it.o", given[name].decode())
    if not cache.put(key, made, {}):
        _kept[key] = made
    return made


def _built(
    compiler: CxxCompiler,
    given: Mapping[str, bytes],
    commands: Sequence[Sequence[str]],
    result: str,
    text: str,
) -> bytes:
    name = " ".join(compiler.command)
    try:
        made = build(given, commands, result)
    except subprocess.TimeoutExpired:
        path = keep_source(text, ".cpp")
        raise COMPILATION_TIMED_OUT(compiler=name, limit_s=TIMEOUT_S, path=path) from None
    except OSError as error:
        why = f"{name!r} cannot be run: {error}"
        raise NO_COMPILER(why=why, advice="see 'tcdsl doctor'") from None
    if isinstance(made, str):
        raise COMPILATION_FAILED(compiler=name, message=made, path=keep_source(text, ".cpp"))
    return made


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
