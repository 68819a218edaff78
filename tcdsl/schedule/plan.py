"""A plan: the kernels of one compilation in order, and where their arrays live."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tcdsl.costmodel.cpu_thresholds import PIECES_A_THREAD, ROWS_AHEAD
from tcdsl.costmodel.gpu_thresholds import UNROLLED_BYTES
from tcdsl.poly.loop_tree import Node, statements_of
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Placement
from tcdsl.schedule.separation import Apart


@dataclass(frozen=True, slots=True)
class Code:
    """What is chosen of a kernel's code beside its loops, as data in ``Executable.choices``.

    *sum_terms* are added one after another; then the sum is stored (pairwise summation).

    On a GPU: blocks ask for what they will load in the next iteration of their loops if that is no
    more than *prefetch_bytes*, of all blocks together.
    If *resident_blocks* is not 0, threads are to have so few registers that a multiprocessor holds
    as many blocks at once.
    *early*: it begins before the kernel before it has ended, where dependences allow that.
    *streaming*: what nothing reads again is loaded past the first-level cache.
    Turns of a thread are unrolled till they load *unrolled_bytes*.
    If *thread_registers* is not 0, threads that multiply what a producer brings have so many: its
    role has four warps, of which three are idle, and gives up its own.
    If *row_bytes* is not 0, warps load and store whole lines of what products are computed with, by
    way of rows of as many bytes of shared memory.
    Blocks start in the order of their numbers.  If *is_reversed* the first of them runs the last
    iterations: what the kernel before has touched last is in the cache still.  None: if that is so.

    On a CPU: rows that data choose are prefetched *rows_ahead* iterations before they are added, 0:
    never; loops whose iterations data make unequal are dealt to threads in *pieces* for each.
    """

    prefetch_bytes: int = 0
    resident_blocks: int = 0
    early: bool = True
    streaming: bool = True
    unrolled_bytes: int = UNROLLED_BYTES
    sum_terms: int = 16  # accumulators are registers: few additions more, and few values stored
    thread_registers: int = 0
    row_bytes: int = 0
    is_reversed: bool | None = None
    rows_ahead: int = ROWS_AHEAD
    pieces: int = PIECES_A_THREAD


DEFAULT_CODE = Code()
CPU_CODE = Code(sum_terms=32)  # of vectors of sums, which take no registers of others


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop nest that runs as a whole before the next kernel starts; *why* explains its shape.

    *template* is the name of the strategy that made it.
    """

    name: str
    tree: Node
    why: tuple[str, ...] = ()
    code: Code = DEFAULT_CODE
    template: str = ""
    library: str = ""  # whose call runs in its place; the loops say what it computes


def _none_else() -> list[dict[str, Any]]:
    return []


@dataclass(frozen=True, eq=False)
class Weighed:
    """What a kernel, or a part of one, was made with, and what else there was to choose from.

    *choice* is the name of its template, the configuration and the code, as plain data;
    ``Executable.candidates`` are what *candidates* computes, the configurations, and *codes*, the
    chosen one with other code.
    """

    kernel: str
    choice: Mapping[str, Any]
    candidates: Callable[[], Sequence[dict[str, Any]]] = _none_else
    codes: Callable[[], Sequence[dict[str, Any]]] = _none_else


@dataclass(frozen=True, slots=True)
class Tried:
    """A rewrite of a statement or an array that was weighed, and what came of it."""

    rewrite: str
    site: str
    result: str


@dataclass(frozen=True, eq=False)
class Plan:
    """Kernels over one scop.  *placements* holds the local arrays; other scratch is memory.

    *shared_bytes* are what a block may have of shared memory, with what its launch asks for; 0
    where none does.

    *apart* computes why statements are in two kernels, *weighed* says what each was chosen from,
    *tried* which rewrites were weighed, *launches* which kernels share one, or might, *precision*
    what Options ask of libraries' products of float32.
    """

    scop: Scop
    kernels: tuple[Kernel, ...]
    placements: Mapping[str, Placement] = field(default_factory=dict)
    weighed: tuple[Weighed, ...] = ()
    apart: Callable[[], tuple[Apart, ...]] = tuple
    tried: tuple[Tried, ...] = ()
    launches: tuple[Weighed, ...] = ()
    precision: str = "float32"
    shared_bytes: int = 0


def arrays_of(plan: Plan, kernel: Kernel) -> list[str]:
    """Return the arrays that *kernel* touches, in the order of the scop."""
    touched = {
        access.array
        for name in statements_of(kernel.tree)
        for access in (*plan.scop.by_name[name].writes, *plan.scop.by_name[name].reads)
    }
    return [name for name in plan.scop.arrays if name in touched]
