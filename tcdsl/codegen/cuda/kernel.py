"""One kernel while it is printed: what is declared in it, and who runs a loop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import binary, both, cast, chain, member, number, paren
from tcdsl.codegen.ast.nodes import Code, Declare, If, Name, Node, Shared, Type, Variable
from tcdsl.codegen.ast.opened_loops import unopened_loops
from tcdsl.codegen.ast.walk import names
from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.c.statements import Context, constant
from tcdsl.codegen.cuda.boxes import BARRIER_BYTES, BARRIERS
from tcdsl.codegen.cuda.call_shared import Taken, taken_by
from tcdsl.codegen.cuda.changing import changing_loads
from tcdsl.codegen.cuda.counts import SharedCount
from tcdsl.codegen.cuda.exchanges import Ahead, Exchange
from tcdsl.codegen.cuda.folds import is_block_collective
from tcdsl.codegen.cuda.grids import extent_counts, grid_counts
from tcdsl.codegen.cuda.index_width import needs_wide_index
from tcdsl.codegen.cuda.overlap import Start
from tcdsl.codegen.cuda.parameters import parameters_of, streamed_arrays
from tcdsl.codegen.cuda.plan import PlanText
from tcdsl.codegen.cuda.prefetches import prefetches_of
from tcdsl.codegen.cuda.rows import ROWS
from tcdsl.codegen.cuda.source import Launch
from tcdsl.codegen.cuda.spans import Span
from tcdsl.codegen.cuda.statements import (
    CudaStatementPrinter,
    Vectors,
    thread_index,
)
from tcdsl.codegen.names import plain
from tcdsl.costmodel import chip
from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.registers import PRODUCING_WARPS
from tcdsl.costmodel.rows import rows_bytes
from tcdsl.poly.loop_tree import MAPPED, Loop, LoopKind, loops_of
from tcdsl.records import dataclass
from tcdsl.schedule.cross_thread import is_replicated
from tcdsl.schedule.fold_slots import fold_slots
from tcdsl.schedule.grid_phases import has_phases
from tcdsl.schedule.mapping import Dim3, Mapped
from tcdsl.schedule.packing import Blocks
from tcdsl.schedule.pipelines import Pipeline, begins, pipelines_of
from tcdsl.schedule.placement import Layout, Placement, Space, accesses_of, is_private
from tcdsl.schedule.plan import Kernel, arrays_of
from tcdsl.schedule.signals import signal_count

VECTOR_BYTES = chip.VECTOR_BYTES  # and what arrays are aligned to if nothing else is known
ATOM_BYTES = 1024  # see device/cuda/wgmma.cuh
AXES = "xyz"


@dataclass(frozen=True, slots=True)
class UnrolledLoop:
    """An unrolled loop: iteration ``step * variable + ...`` of *loop*, *count* values in all."""

    variable: str
    loop: Loop
    step: int
    count: int


# A node; loops whose mark was met, but no C loop since; conditions on the thread that guard all but
# collectives.
PrintNodes = Callable[[loop_ast.AstNode, tuple[Loop, ...], Sequence[Code]], list[Node]]


class KernelText:
    """What the printers of a kernel's parts share; each of them has it.

    What prints a loop knows how its body is printed by *nodes* alone, which whoever prints all
    kinds of nodes sets.
    """

    nodes: PrintNodes

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
        self.name = f"tcdsl_{number}_{plain(parent.scop.name)}"
        self.eliminated: list[Loop] = []
        self.guarded: frozenset[str] = frozenset()  # eliminated loops whose guard stands around
        self.of_threads: frozenset[str] = frozenset()  # variables that differ between threads
        self.spans: Mapping[str, Span] = {}  # of the loops around, where they are numbers
        self.wide_shared: set[str] = set()  # shared arrays that are accessed in vectors
        self.declared: list[str] = []  # private arrays, in the scopes around
        self.folded: dict[str, Code] = {}  # folds of all lanes that were printed before the loop
        self.slots = fold_slots(self.mapped, self.placements, parent.plan.shared_bytes)
        self.numbered: list[str] = []  # folds with a number, as often as they were printed
        # Checks that are recorded after the loop: the first value at which one fails, its variable.
        self.late: dict[int, tuple[str, str]] = {}
        self.n_folds = 0
        self.n_predicates = 0
        self.n_ranges = 0
        self.n_counted = 0
        self.n_vectors = 0
        self.n_lanes = 0
        self.unrolled: list[UnrolledLoop] = []  # of the unrolled loops around
        self.exchange: Exchange | None = None  # of pairs, in the loop around
        self.around: Ahead | None = None  # the unrolled loop around that
        self.n_early = 0
        self.n_rows = 0
        self.lane_variable = ""  # of the loop over the threads of a warp, around
        self.warp_variables: frozenset[str] = frozenset()  # that all threads of a warp have alike
        self.is_parted = False  # whether some threads of a warp may not be here
        self.n_blocks = 0
        self.local_of: dict[str | None, list[Placement]] = {}
        own = set(arrays_of(parent.plan, kernel))
        for placement in self.placements.values():
            if placement.array in own:
                self.local_of.setdefault(placement.loop, []).append(placement)
        self.ahead = prefetches_of(self.mapped, self.placements, kernel.code.prefetch_bytes)
        self.pipelines = pipelines_of(self.mapped, self.placements)
        self.pipeline_of: Mapping[str, Pipeline] = {
            name: pipeline
            for part, pipeline in zip(self.mapped.parts, self.pipelines, strict=False)
            for name in part.paths
        }
        self.first_block: Dim3 = (0, 0, 0)  # of the part of the launch that is printed
        self.role: frozenset[str] = frozenset(self.mapped.paths)  # statements that are printed
        self.staged = self._staged_bytes()
        self.places = self._places()
        self.taken = self._taken()
        self.launch = self._launch()
        self.streamed = streamed_arrays(self.scop, kernel)

    @property
    def threads(self) -> Dim3:
        """The threads of a block along x, y, z."""
        return self.mapped.launched(PRODUCING_WARPS if self.kernel.code.thread_registers else 1)

    def _launch(self) -> Launch:
        cluster, sizes = self.mapped.cluster, self.parent.sizes.open_sizes
        dims, (x, y, z) = self.mapped.cluster_dims, self.mapped.grid
        assert x * y * z > 0, "what may run beside a kernel is known of those that run"
        return Launch(
            self.name, (x, y, cluster if cluster > 1 else z), self.threads,
            self._staged_end() + self._barriers() * BARRIER_BYTES
            + rows_bytes(self.mapped.block[2], self.row_bytes),
            tuple(parameters_of(self.parent, self.kernel, self.start.awaited)),
            self.kernel.name, (*self.kernel.why, *self.start.why), dims, self.start.overlap,
            grid_counts(self.mapped, sizes),
            has_phases(self.scop, self.kernel.tree),
            tuple(
                SharedCount(own.each, own.most, extent_counts(own.values, sizes))
                for own in self.taken.values()
            ),
            signal_count(self.scop, self.kernel.tree) > 0,
        )  # fmt: skip

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of results in shared memory, 0 if there are none."""
        return self.kernel.code.row_bytes if self.mapped.block[0] == WARP else 0

    def _barriers(self) -> int:
        """Return how many barriers in phases the kernel has: of stages that are full, and empty."""
        return 2 * sum(self.barriers)

    @property
    def barriers(self) -> Mapping[int, int]:
        """The first of the barriers of pipelines, by how many stages these have."""
        return begins([pipeline.stages for pipeline in self.pipelines])

    def _staged_bytes(self) -> dict[str, int]:
        """Return the bytes of every staged array, which are in one block of shared memory."""
        staged = {}
        for placements in self.local_of.values():
            for placement in placements:
                if placement.is_dynamic:
                    element = self.scop.arrays[placement.array].dtype.size_bytes
                    size = -(-placement.elements() * element // VECTOR_BYTES) * VECTOR_BYTES
                    staged[placement.array] = size
        return staged

    def _taken(self) -> dict[str, Taken]:
        """Return what staged arrays take that take less at lesser sizes; stages never do."""
        found = {}
        for name in () if self.pipelines else self.staged:
            element_bytes = self.scop.arrays[name].dtype.size_bytes
            if taken := taken_by(self.scop, self.placements[name], element_bytes):
                found[name] = taken
        return found

    def _places(self) -> dict[str, int]:
        """Return the first byte of every staged array: those of a part begin where others do."""
        found: dict[str, int] = {}
        for part in self.mapped.parts:
            offset = 0
            for name, size in self.staged.items():
                if any(s.name in part.paths for s, _ in accesses_of(self.scop, name)):
                    found[name] = offset
                    offset += size
        return found

    def _staged_end(self) -> int:
        """Return how many bytes staged arrays take, where a call leaves out none."""
        return max((place + self.staged[name] for name, place in self.places.items()), default=0)

    def shared_arrays(self) -> Iterator[Node]:
        if self.staged:
            is_atoms = any(self.placements[name].layout is Layout.ATOMS for name in self.staged)
            alignment = ATOM_BYTES if is_atoms else VECTOR_BYTES
            yield Shared(Type("unsigned char"), "w_staged", "", alignment)
        saved, open_ = 0, list[Code]()
        for name, size in self.staged.items():
            type_ = c_type(self.scop.arrays[name].dtype)
            place = chain("+", ["w_staged", self.places[name] - saved, *open_])
            start = cast(f"{type_} *", paren(place))
            variable = Variable(self.names.of("array", name), start, pointer="*const ")
            yield Declare(Type(type_), (variable,))
            if taken := self.taken.get(name):
                open_.append(binary(taken.each, "*", self.parent.sizes.extent(taken.values)))
                saved += size
        offset = self._staged_end() - saved
        if self.pipelines:
            start = cast("uint64_t *", paren(binary("w_staged", "+", offset)))
            yield Declare(Type("uint64_t"), (Variable(BARRIERS, start, pointer="*const "),))
        if self.n_rows:
            after = binary("w_staged", "+", offset + self._barriers() * BARRIER_BYTES)
            yield Declare(Type("unsigned char"), (Variable(ROWS, after, pointer="*const "),))
        for placements in self.local_of.values():
            for placement in placements:
                if placement.space is Space.SHARED and not placement.is_dynamic:
                    yield self._shared(placement)

    def _shared(self, placement: Placement) -> Node:
        array = self.scop.arrays[placement.array]
        size = max(placement.elements(), 1)
        element_bytes = array.dtype.size_bytes
        is_wide = placement.array in self.wide_shared
        return Shared(
            Type(c_type(array.dtype)), self.names.of("array", array.name),
            None if size == 1 else str(size), VECTOR_BYTES if is_wide else element_bytes,
        )  # fmt: skip

    def _declared(self, placement: Placement) -> Node:
        array = self.scop.arrays[placement.array]
        size = max(placement.elements(), 1)
        is_array = placement.elements() != 1
        variable = Variable(
            self.names.of("array", array.name), size=str(size) if is_array else None
        )
        return Declare(Type(c_type(array.dtype)), (variable,))

    def locals_in(self, loops: Sequence[str | None]) -> list[Node]:
        """Return the declarations of the private arrays that live in one iteration of *loops*.

        isl may print some iterations of a loop outside its C loop: a scope around both has the
        array then, and the C loop declares none of its own.
        """
        found = []
        for placement in (p for loop in loops for p in self.local_of.get(loop, ())):
            is_own = not self.pipelines or self._is_of_role(placement.array)
            is_new = placement.space is not Space.SHARED and placement.array not in self.declared
            if is_new and is_own:
                self.declared.append(placement.array)
                found.append(self._declared(placement))
        return found

    def _is_of_role(self, array: str) -> bool:
        """Return whether a statement that is printed uses *array*."""
        return any(s.name in self.role for s, _ in accesses_of(self.scop, array))

    # --- nodes -----------------------------------------------------------------------------

    def body(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> tuple[Node, ...]:
        n_declared = len(self.declared)
        nodes = self.locals_in([loop.name, *unopened_loops(node.body)])
        nodes += self.nodes(node.body, (), active)
        del self.declared[n_declared:]
        return tuple(nodes)

    def guarded_body(
        self, node: loop_ast.For, loop: Loop, guards: Sequence[Code], active: Sequence[Code]
    ) -> tuple[Node, ...]:
        """Return the body of *node* under *guards*, around it or, for collectives, within."""
        if not guards:
            return self.body(node, loop, active)
        if self.must_be_met(guards, node.body):
            name, predicate = self.predicate(both(guards))
            return (predicate, *self.body(node, loop, [*active, name]))
        with self.parted_by(guards):
            return (If(both(guards), self.body(node, loop, active)),)

    @contextmanager
    def only_in(self, blocks: Blocks) -> Iterator[None]:
        """Print what a part of the launch runs, whose *blocks* are counted from its first one."""
        before = self.mapped, self.loops, self.first_block
        self.mapped, self.first_block = blocks.part, blocks.first
        self.loops = {loop.name: loop for loop in loops_of(blocks.part.tree)}
        yield
        self.mapped, self.loops, self.first_block = before

    @contextmanager
    def parted_by(self, conditions: Sequence[Code]) -> Iterator[None]:
        """Print what is run by those threads of a warp alone that meet *conditions*."""
        before = self.is_parted
        self.is_parted |= bool(names(*conditions) & (self.of_threads - self.warp_variables))
        yield
        self.is_parted = before

    # --- who runs what ---------------------------------------------------------------------

    def has_many(self, loop: Loop) -> bool:
        widths = self.mapped.grid if loop.kind is LoopKind.BLOCK else self.mapped.threads
        return widths[loop.axis] > 1

    def me(self, loop: Loop) -> Code:
        if loop.kind is not LoopKind.BLOCK:
            return cast("int", self._thread(loop.axis))
        own, first = self.block(loop.axis), self.first_block[loop.axis]
        return paren(binary(own, "-", first)) if first else own

    def block(self, axis: int) -> Code:
        """Return the number of a block of the launch along *axis*."""
        own = member("blockIdx", AXES[axis])
        if not self.kernel.code.is_reversed:
            return cast("int", own)
        last = binary(member("gridDim", AXES[axis]), "-", 1)
        return cast("int", paren(binary(last, "-", own)))

    def _thread(self, axis: int) -> Code:
        """Return the number of a thread along *axis*.

        Where operands are computed in registers NVRTC is told what numbers threads of a warp have:
        of ``s[(2 * (lane % 4) + 8 * i + j) / 32]`` it knows which are one, and loads 8, not 64.
        """
        number = thread_index(axis)
        if axis or self.mapped.block[0] != WARP or not self.has_register_operand:
            return number
        return paren(binary(number, "&", WARP - 1))

    @cached_property
    def has_register_operand(self) -> bool:
        """Whether threads compute an operand of tensor cores in registers."""
        return any(self.scop.by_name[name].register_operand for name in self.mapped.paths)

    def is_mine(self, loop: Loop, value: Code) -> Code | None:
        """Return the condition that this block or thread runs the iteration *value* of *loop*."""
        if loop.kind not in MAPPED or not self.has_many(loop):
            return None
        known = number(value)
        if known is None or known < 0:
            return binary(self.me(loop), "==", binary(paren(value), "%", loop.width))
        return binary(self.me(loop), "==", known % loop.width)

    def has_collective(self, node: loop_ast.AstNode) -> bool:
        return any(
            is_block_collective(self.mapped, self.scop.by_name[leaf.statement])
            for leaf in loop_ast.leaves(node)
        )

    def must_be_met(self, conditions: Sequence[Code], node: loop_ast.AstNode) -> bool:
        """Return whether threads of which some do not meet *conditions* must come to *node*."""
        differs = not self.of_threads.isdisjoint(names(*conditions))
        return differs and self.has_collective(node)

    def predicate(self, condition: Code) -> tuple[Name, Node]:
        """Return the name and the declaration of a predicate."""
        name = f"w_active{self.n_predicates}"
        self.n_predicates += 1
        return Name(name), constant("bool", name, condition)

    def is_private(self, array: str) -> bool:
        return is_private(array, self.placements)

    def printer(self, leaf: loop_ast.Leaf, vectors: Vectors | None = None) -> CudaStatementPrinter:
        statement = self.scop.by_name[leaf.statement]
        return CudaStatementPrinter(
            self.context, leaf, self.mapped,
            is_replicated(statement, self.placements), vectors,
        )  # fmt: skip
