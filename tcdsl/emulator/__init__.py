"""Running generated CUDA on the CPU, every access checked.

    emulate.h    CUDA's intrinsics as C++, before the very text that NVRTC gets
    runtime/     C++: threads as fibres, barriers, shuffles, atomics, and the checks
    cxx          the C++ compiler
    shared       declarations of shared variables
    build        the text and the runtime, compiled into one shared object
    run          loading and running it
    batch        many programs in one object
    findings     what it found, as an error
    sanitized    the same kernels under the address sanitizer

A finding (a data race, an access out of bounds, a barrier that some threads do not reach, ...) is
an ``EmulationError``.
"""

from tcdsl.emulator.batch import emulated_programs
from tcdsl.emulator.build import build_identity, compile_emulated
from tcdsl.emulator.run import EmulatedProgram

__all__ = ["EmulatedProgram", "build_identity", "compile_emulated", "emulated_programs"]
