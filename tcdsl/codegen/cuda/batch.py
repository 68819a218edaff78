"""The kernels of many programs as one text.

What compiles CUDA takes longer to start than to read a kernel: a hundred programs in one text cost
what two or three cost one by one.

    tcdsl_0_f  of the first program  --->  tcdsl_0_0_f
    tcdsl_0_f  of the second         --->  tcdsl_1_0_f        so do the helpers that a text brings

The texts stay as they are: macros around each rename what its launches and its helpers are called.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.codegen.cuda.helpers import HELPERS
from tcdsl.codegen.cuda.source import CudaSource, Launch
from tcdsl.records import dataclass

_OURS = "tcdsl_"


@dataclass(frozen=True, slots=True)
class Batch:
    """*whole* is there to be compiled; *parts* say how each program's kernels are launched."""

    whole: CudaSource
    parts: tuple[CudaSource, ...]


def batched(sources: Sequence[CudaSource]) -> Batch:
    """Return *sources* in one text, every kernel under a name of its own."""
    parts = tuple(_renamed(source, f"tcdsl_{number}_") for number, source in enumerate(sources))
    whole = CudaSource(
        text="\n".join(part.text for part in parts),
        functions=frozenset().union(*(part.functions for part in parts)),
        launches=tuple(launch for part in parts for launch in part.launches),
        workspace_bytes=max((part.workspace_bytes for part in parts), default=0),
        sites=(),
    )
    return Batch(whole, parts)


def _renamed(source: CudaSource, prefix: str) -> CudaSource:
    """Return *source* with *prefix* for the start of its functions' names."""
    launched = dict.fromkeys(launch.name for launch in source.kernels)
    new = {name: prefix + name.removeprefix(_OURS) for name in (*launched, *HELPERS)}
    launches = tuple(
        replace(step, name=new[step.name]) if isinstance(step, Launch) else step
        for step in source.launches
    )
    begin = [f"#define {name} {own}" for name, own in new.items()]
    end = [f"#undef {name}" for name in new]
    return replace(source, text="\n".join((*begin, source.text, *end)), launches=launches)
