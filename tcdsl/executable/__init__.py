"""An executable: one comprehension, compiled for certain types, sizes and strides.

base        what all of them share: checks of a call, results, what they show
cpu         C
cuda        kernels for an NVIDIA GPU
emulated    the CUDA text on the CPU
reference   the NumPy reference
build       from a call's arguments and target to one of these
"""

from tcdsl.executable.base import Bound, Executable, Run, _warned
from tcdsl.executable.build import build, require_arguments
from tcdsl.executable.known_calls import KnownCalls

__all__ = ["Bound", "Executable", "KnownCalls", "Run", "_warned", "build", "require_arguments"]
