"""The kernels of many programs as one text.

What compiles CUDA takes longer to start than to read a kernel: a hundred programs in one text cost
what two or three cost one by one.

    tcdsl_0_f  of the first program  --->  tcdsl_0_0_f
    tcdsl_0_f  of the second         --->  tcdsl_1_0_f        so do the helpers that a text brings

The compiler renames them: each program's text stands between definitions of its names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcdsl.codegen.cuda.source import HELPERS, CudaSource, Launch

_OURS = "tcdsl_"  # no name of the user's begins so


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
    names = {name: prefix + name.removeprefix(_OURS) for name in HELPERS}
    names |= {launch.name: prefix + launch.name.removeprefix(_OURS) for launch in source.kernels}
    defined = (f"#define {old} {new}\n" for old, new in names.items())
    undefined = (f"#undef {old}\n" for old in names)
    launches = tuple(
        replace(step, name=names[step.name]) if isinstance(step, Launch) else step
        for step in source.launches
    )
    text = "".join((*defined, source.text, "\n", *undefined))
    return replace(source, text=text, launches=launches)
