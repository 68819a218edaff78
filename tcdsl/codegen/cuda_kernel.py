"""One kernel while it is printed: its lines, what is declared in them, and who runs a loop."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcdsl.codegen import loop_ast
from tcdsl.codegen.c_expressions import c_type
from tcdsl.codegen.c_statements import Context, mentions
from tcdsl.codegen.cuda_changing import changing_loads
from tcdsl.codegen.cuda_overlap import Start
from tcdsl.codegen.cuda_parameters import parameters_of, streamed_arrays
from tcdsl.codegen.cuda_plan import PlanText
from tcdsl.codegen.cuda_source import Launch
from tcdsl.codegen.cuda_statements import (
    CudaStatementPrinter,
    Vectors,
    is_block_collective,
    thread_index,
)
from tcdsl.codegen.index_width import needs_wide_index
from tcdsl.codegen.isl_texts import cuda_leaf
from tcdsl.codegen.lines import Line
from tcdsl.codegen.opened_loops import unopened_loops
from tcdsl.codegen.prefetches import prefetches_of
from tcdsl.codegen.spans import Span
from tcdsl.costmodel import chip
from tcdsl.poly.loop_tree import MAPPED, Loop, LoopKind, loops_of
from tcdsl.transforms.fold_slots import fold_slots
from tcdsl.transforms.mapping import Mapped
from tcdsl.transforms.placement import Placement, Space
from tcdsl.transforms.plan import Kernel, arrays_of
from tcdsl.transforms.synchronisation import is_replicated

VECTOR_BYTES = chip.VECTOR_BYTES  # and what arrays are aligned to if nothing else is known
AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Turn:
    """An unrolled loop: iteration ``step * variable + ...`` of *loop*, *count* values in all."""

    variable: str
    loop: Loop
    step: int
    count: int


class KernelText(ABC):
    """The lines of a kernel so far, and what the printers of its parts share.

    What prints a loop knows how its body is printed by :meth:`_node` alone.
    """

    def __init__(self, parent: PlanText, kernel: Kernel, number: int, start: Start) -> None:
        self.parent = parent
        self.start = start
        self.scop = parent.scop
        self.kernel = kernel
        self.mapped = Mapped(parent.scop, kernel.tree)
        self.placements = parent.plan.placements
        self.names = parent.names
        self.loops: Mapping[str, Loop] = {loop.name: loop for loop in loops_of(kernel.tree)}
        self.wide = needs_wide_index(parent.plan, kernel, parent.sizes)
        self.index_type = "int64_t" if self.wide else "int"
        self.context = Context(
            parent.scop, parent.names, parent.sizes, parent.plan.placements, parent.sites,
            "i64" if self.wide else "i32",
            changing_loads(parent.scop, kernel, parent.plan.placements, start.awaited),
        )  # fmt: skip
        # No name of the user's begins with tc (see names.py).
        self.name = f"tcdsl_{number}_{re.sub('[^A-Za-z0-9_]', '_', parent.scop.name)[:40]}"
        self.lines: list[str] = []
        self.eliminated: list[Loop] = []
        self.guarded: frozenset[str] = frozenset()  # eliminated loops whose guard stands around
        self.of_threads: frozenset[str] = frozenset()  # variables that differ between threads
        self.spans: Mapping[str, Span] = {}  # of the loops around, where they are numbers
        self.wide_shared: set[str] = set()  # shared arrays that are accessed in vectors
        self.declared: list[str] = []  # private arrays, in the scopes around
        self.folded: dict[str, str] = {}  # folds of all lanes that were printed before the loop
        self.slots = fold_slots(self.mapped, self.placements)
        self.numbered: list[str] = []  # folds with a number, as often as they were printed
        # Checks that are recorded after the loop: the first value at which one fails, its variable.
        self.late: dict[int, tuple[str, str]] = {}
        self.n_folds = 0
        self.n_predicates = 0
        self.n_ranges = 0
        self.n_turns = 0
        self.n_vectors = 0
        self.n_lanes = 0
        self.turns: list[Turn] = []  # of the unrolled loops around
        self.n_blocks = 0
        self.local_of: dict[str | None, list[Placement]] = {}
        own = set(arrays_of(parent.plan, kernel))
        for placement in self.placements.values():
            if placement.array in own:
                self.local_of.setdefault(placement.loop, []).append(placement)
        self.ahead = prefetches_of(self.mapped, self.placements, kernel.ahead_bytes)
        self.staged = self._staged_bytes()
        self.launch = self._launch()
        self.streamed = streamed_arrays(self.scop, kernel)

    def _launch(self) -> Launch:
        cluster = self.mapped.cluster
        x, y, z = self.mapped.grid
        assert x * y * z > 0, "what may run beside a kernel is known of those that run"
        return Launch(
            self.name, (x, y, cluster if cluster > 1 else z), self.mapped.block,
            sum(self.staged.values()),
            tuple(parameters_of(self.parent, self.kernel, self.start.awaited)),
            self.kernel.name, (*self.kernel.why, *self.start.why), cluster, self.start.overlap,
        )  # fmt: skip

    def _staged_bytes(self) -> dict[str, int]:
        """Return the bytes of every staged array, which are in one block of shared memory."""
        staged = {}
        for placements in self.local_of.values():
            for placement in placements:
                if placement.is_staged:
                    element = self.scop.arrays[placement.array].dtype.size_bytes
                    size = -(-placement.elements() * element // VECTOR_BYTES) * VECTOR_BYTES
                    staged[placement.array] = size
        return staged

    def _shared(self) -> list[str]:
        lines = []
        if self.staged:
            lines.append(f"extern __shared__ __align__({VECTOR_BYTES}) unsigned char w_staged[];")
        offset = 0
        for name, size in self.staged.items():
            type_ = c_type(self.scop.arrays[name].dtype)
            pointer = f"{type_} *const {self.names.of('array', name)}"
            lines.append(f"{pointer} = ({type_} *)(w_staged + {offset});")
            offset += size
        for placements in self.local_of.values():
            for placement in placements:
                if placement.space is Space.SHARED and not placement.is_staged:
                    array = self.scop.arrays[placement.array]
                    name = self.names.of("array", array.name)
                    size = max(placement.elements(), 1)
                    text = name if size == 1 else f"{name}[{size}]"
                    align = "__align__(16) " if array.name in self.wide_shared else ""
                    lines.append(f"__shared__ {align}{c_type(array.dtype)} {text};")
        return lines

    def _declare_locals(self, loops: Sequence[str | None], depth: int) -> None:
        """Declare the private arrays that live in one iteration of *loops*.

        isl may print some iterations of a loop outside its C loop: a scope around both has the
        array then, and the C loop declares none of its own.
        """
        for placement in (p for loop in loops for p in self.local_of.get(loop, ())):
            if placement.space is Space.SHARED or placement.array in self.declared:
                continue
            self.declared.append(placement.array)
            array = self.scop.arrays[placement.array]
            name = self.names.of("array", array.name)
            size = placement.elements()
            text = name if size == 1 else f"{name}[{max(size, 1)}]"
            self._emit(depth, f"{c_type(array.dtype)} {text};")

    # --- lines -----------------------------------------------------------------------------

    @abstractmethod
    def _node(
        self, node: loop_ast.AstNode, depth: int, pending: tuple[Loop, ...], active: list[str]
    ) -> None:
        """Print *node*.

        :arg pending: loops whose mark was met, but no C loop since.
        :arg active: conditions on the thread that guard all but collectives.
        """

    def _emit(self, depth: int, text: str, statement: str = "") -> None:
        self.lines.append(Line("  " * depth + text, statement))

    def _emit_all(self, depth: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._emit(depth, line)

    def _open(self, depth: int, head: str) -> None:
        self._emit(depth, f"{head} {{".lstrip())

    def _body(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        n_declared = len(self.declared)
        self._declare_locals([loop.name, *unopened_loops(node.body)], depth + 1)
        self._node(node.body, depth + 1, (), active)
        self._emit(depth, "}")
        del self.declared[n_declared:]

    # --- who runs what ---------------------------------------------------------------------

    def _has_many(self, loop: Loop) -> bool:
        widths = self.mapped.grid if loop.kind is LoopKind.BLOCK else self.mapped.threads
        return widths[loop.axis] > 1

    def _me(self, loop: Loop) -> str:
        if loop.kind is LoopKind.BLOCK:
            axis = AXES[loop.axis]
            if self.kernel.is_reversed:
                return f"(int)(gridDim.{axis} - 1 - blockIdx.{axis})"
            return f"(int)blockIdx.{axis}"
        return f"(int){thread_index(loop.axis)}"

    def _is_mine(self, loop: Loop, value: str) -> str:
        """Return the condition that this block or thread runs the iteration *value* of *loop*."""
        if loop.kind not in MAPPED or not self._has_many(loop):
            return ""
        me = self._me(loop)
        return f"{me} == ({value}) % {loop.width}" if not value.isdigit() else (
            f"{me} == {int(value) % loop.width}"
        )  # fmt: skip

    def _has_collective(self, node: loop_ast.AstNode) -> bool:
        return any(
            is_block_collective(self.mapped, self.scop.by_name[leaf.statement])
            for leaf in loop_ast.leaves(node)
        )

    def _must_be_met(self, condition: str, node: loop_ast.AstNode) -> bool:
        """Return whether threads of which some do not meet *condition* must all come to *node*."""
        differs = any(mentions(condition, variable) for variable in self.of_threads)
        return differs and self._has_collective(node)

    def _predicate(self, depth: int, condition: str) -> str:
        """Print the declaration of a predicate, and return its name."""
        name = f"w_active{self.n_predicates}"
        self.n_predicates += 1
        self._emit(depth, f"const bool {name} = {condition};")
        return name

    def _is_private(self, array: str) -> bool:
        return array in self.placements and self.placements[array].space is Space.PRIVATE

    def _printer(self, leaf: loop_ast.Leaf, vectors: Vectors | None = None) -> CudaStatementPrinter:
        statement = self.scop.by_name[leaf.statement]
        return CudaStatementPrinter(
            self.context, cuda_leaf(leaf), self.mapped,
            is_replicated(statement, self.placements), vectors,
            self.slots.numbers.get(leaf.statement),
        )  # fmt: skip
