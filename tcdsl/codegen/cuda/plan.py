"""What the kernels of one plan print together: names, sizes, and the workspace they share."""

from collections.abc import Mapping
from itertools import accumulate

import islpy as isl

from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.c.size_texts import SizeTexts
from tcdsl.codegen.cuda.counts import SCRATCH_ALIGNMENT, Room
from tcdsl.codegen.cuda.grids import extent_counts
from tcdsl.codegen.cuda.source import TICKETS_BYTES, Parameter, ParameterKind
from tcdsl.codegen.names import Names
from tcdsl.costmodel.library_products import workspace_bytes
from tcdsl.lang.faults import Site
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Array, Storage
from tcdsl.schedule.grid_phases import has_phases
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.plan import Kernel, Plan, arrays_of
from tcdsl.schedule.signals import signal_count
from tcdsl.schedule.stitching import last_loop, ticket_count
from tcdsl.strategies.library_kernels import product_of

_SMALL_BYTES = 1 << 20
_TICKET_BYTES = 4
_GRID_TICKETS = 2  # see tc_grid_barrier


class PlanText:
    """What is told once for all kernels; *alignments* is what they ask of arguments' pointers."""

    def __init__(self, plan: Plan, known_alignments: Mapping[str, int]) -> None:
        self.known_alignments = known_alignments
        self.plan = plan
        self.scop = plan.scop
        self.sites: list[Site] = []
        self.alignments: dict[str, int] = {}
        self.names = Names()
        self.sizes = SizeTexts(plan.scop, self.names)
        self.tickets = self._tickets()
        self.offsets, self.workspace_bytes = self._scratch()
        self.library_offset = self.workspace_bytes  # of what libraries' calls have in turn
        self.workspace_bytes += self._library_bytes()
        self.rooms = tuple(map(self._room, self.offsets)) if self.sizes.is_open else ()

    def parameter(
        self, array: Array, qualifier: str = "", *, is_read_only: bool = False
    ) -> Parameter:
        """Return the pointer to *array* as a parameter, with a *qualifier* of its own."""
        what = "const " if is_read_only else ""
        text = f"{what}{c_type(array.dtype)} *{qualifier}{self.names.of('array', array.name)}"
        kind, name, offset = ParameterKind.ARRAY, array.argument, 0
        if array.storage is not Storage.ARGUMENT:
            kind, name, offset = ParameterKind.SCRATCH, array.name, self.offsets[array.name]
        return Parameter(text, kind, name, offset, is_read_only=is_read_only)

    def span(self, name: str) -> tuple[int, int]:
        """Return the bytes of the workspace that the scratch array *name* has: from, to."""
        return self.offsets[name], self.offsets[name] + self._bytes(name)

    def _tickets(self) -> dict[str, tuple[int, int]]:
        """Return { kernel that takes tickets -> the bytes of the workspace that they have }.

        Each has its own, for kernels may run at once, unless they have too many together: then all
        have the first.
        """
        sizes = {
            kernel.name: _TICKET_BYTES * self._ticket_count(kernel)
            for kernel in self.plan.kernels
            if last_loop(kernel.tree)
            or has_phases(self.scop, kernel.tree)
            or signal_count(self.scop, kernel.tree)
        }
        ends = list(accumulate(sizes.values()))
        if not ends or ends[-1] > TICKETS_BYTES:
            return {name: (0, size) for name, size in sizes.items()}
        return {
            name: (end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)
        }

    def _ticket_count(self, kernel: Kernel) -> int:
        if has_phases(self.scop, kernel.tree):
            return _GRID_TICKETS
        if flags := signal_count(self.scop, kernel.tree):
            return flags
        return ticket_count(Mapped(self.scop, kernel.tree))

    def _scratch(self) -> tuple[dict[str, int], int]:
        """Return the offset of every scratch array in memory, and the workspace's bytes.

        Large arrays whose kernels do not overlap in time share memory.  Small ones share it with
        none, so that kernels may run beside each other.
        """
        spans: dict[str, tuple[int, int]] = {}
        for number, kernel in enumerate(self.plan.kernels):
            for name in arrays_of(self.plan, kernel):
                array = self.scop.arrays[name]
                if array.storage is Storage.SCRATCH and name not in self.plan.placements:
                    first, _ = spans.get(name, (number, number))
                    spans[name] = (first, number)
        offsets: dict[str, int] = {}
        start = TICKETS_BYTES if self.tickets else 0
        total = start
        for name, (first, last) in sorted(spans.items(), key=lambda item: -self._bytes(item[0])):
            busy = sorted(
                (offsets[other], offsets[other] + self._bytes(other))
                for other, (begin, end) in spans.items()
                if other in offsets
                and (self._is_small(name, other) or (begin <= last and first <= end))
            )
            offset = start
            for low, high in busy:
                if offset + self._bytes(name) <= low:
                    break
                offset = max(offset, high)
            offsets[name] = offset
            total = max(total, offset + self._bytes(name))
        return offsets, total

    def _library_bytes(self) -> int:
        """Return the bytes of the workspace that the calls of libraries want, one at a time."""
        kernels = [kernel for kernel in self.plan.kernels if kernel.library]
        products = (
            product_of(
                self.scop,
                [self.scop.by_name[name] for name in statements_of(kernel.tree)],
                kernel.library,
            )
            for kernel in kernels
        )
        return max((workspace_bytes(p) for p in products if not isinstance(p, str)), default=0)

    def _room(self, name: str) -> Room:
        array = self.scop.arrays[name]
        taken = array.shape
        if array.strides is not None and isinstance(array.strides[0], (int, isl.PwAff)):
            taken = (array.shape[0], array.strides[0])  # rows with gaps, the outermost first
        extents = tuple(extent_counts(extent, self.sizes.open_sizes) for extent in taken)
        element_bytes = array.dtype.size_bytes
        return Room(self.offsets[name], self._bytes(name), element_bytes, extents)

    def _is_small(self, *names: str) -> bool:
        return any(self._bytes(name) <= _SMALL_BYTES for name in names)

    def _bytes(self, name: str) -> int:
        size = self.scop.arrays[name].reach_bytes()
        assert size is not None, "open sizes have bounds on a GPU"
        return -(-max(size, 1) // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
