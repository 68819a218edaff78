"""Many programs in one emulated object: for tests, which would else wait for the compiler."""

from collections.abc import Sequence

from tcdsl.codegen.cuda.batch import batched
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.emulator.build import compile_emulated, kernel_names
from tcdsl.emulator.run import EmulatedProgram


def emulated_programs(sources: Sequence[CudaSource]) -> list[EmulatedProgram]:
    """Return *sources* as programs, compiled together.

    :raises CompileError: there is no C++ compiler, or it rejects the text.
    """
    batch = batched(sources)
    code = compile_emulated(batch.whole)
    kernels = kernel_names(batch.whole)
    return [EmulatedProgram(code, part, kernels) for part in batch.parts]
