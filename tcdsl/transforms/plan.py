"""A plan: the kernels of one compilation in order, and where their arrays live."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tcdsl.poly.loop_tree import Node
from tcdsl.poly.scop import Scop
from tcdsl.transforms.placement import Placement


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop nest that runs as a whole before the next kernel starts; *why* explains its shape."""

    name: str
    tree: Node
    why: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """Kernels over one scop.  *placements* holds the local arrays; other scratch is memory."""

    scop: Scop
    kernels: tuple[Kernel, ...]
    placements: Mapping[str, Placement] = field(default_factory=dict)
