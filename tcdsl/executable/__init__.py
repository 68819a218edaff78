"""An executable: one comprehension, compiled for certain types, sizes and strides.

base    what all of them share: checks of a call, results, what they show; the oracle
cpu     C
cuda    kernels for an NVIDIA GPU
build   from a call's arguments and target to one of these
"""

from tcdsl.executable.base import Bound, Executable, ReferenceExecutable, Run, _warned
from tcdsl.executable.build import build, require_arguments
from tcdsl.executable.cpu import CpuExecutable, layout_of

__all__ = [
    "Bound",
    "CpuExecutable",
    "Executable",
    "ReferenceExecutable",
    "Run",
    "_warned",
    "build",
    "layout_of",
    "require_arguments",
]
