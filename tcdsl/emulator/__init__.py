"""Running generated CUDA on the CPU, every access checked.

    emulate.h    CUDA's intrinsics as C++, before the very text that NVRTC gets
    runtime/     C++: threads as fibres, barriers, shuffles, atomics, and the checks
    cxx          the C++ compiler
    build        the text and the runtime, compiled into one shared object
    run          loading and running it
    batch        many programs in one object
    findings     what it found, as an error
    sanitized    the same kernels under the address sanitizer

A finding (a data race, an access out of bounds, a barrier that some threads do not reach, ...) is
an ``EmulationError``.

The text is compiled as it is: what CUDA's words mean here is macros of ``emulate.h``, and what is
launched its record says.

The blocks of a launch with clusters (``Launch.cluster_dims``) run in turns, up to 16 of 1024
threads each, or 2048 threads of those that copy boxes to one another.  The address sanitizer has no
clusters.  Without boxes, clusters are along z, and fences and atomics publish nothing: what needs
them, as a ticket for the last block does, is reported as a race.
"""

from tcdsl.emulator.batch import emulated_programs
from tcdsl.emulator.build import build_identity, compile_emulated
from tcdsl.emulator.run import EmulatedProgram

__all__ = ["EmulatedProgram", "build_identity", "compile_emulated", "emulated_programs"]
