"""Plans as CUDA: a __global__ function a kernel, mapped loops as strides over blocks and threads.

What only fills an array is no function, but a memset (``memsets.py``).

    THREAD.x[256] j in 0:n     if (threadIdx.x < n) { const int j = threadIdx.x; ... }   n <= 256
                               for (int j = threadIdx.x; j < n; j += 256) ...            else

Loops above the threads' have bounds that no thread number is in: the threads of a block run them
together, and meet every barrier.  A collective below a guarded thread loop is called by all
threads, and the guard moves to what is around the call.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from tcdsl.codegen import loop_ast
from tcdsl.codegen.blocked_sums import BlockedSums, Blocks, Policy, set_aside
from tcdsl.codegen.c_expressions import c_type
from tcdsl.codegen.c_statements import Context, mentions
from tcdsl.codegen.cuda_source import (
    TICKETS_BYTES,
    AnyLaunch,
    CudaSource,
    Launch,
    Memset,
    Parameter,
    ParameterKind,
)
from tcdsl.codegen.cuda_statements import (
    CudaStatementPrinter,
    Vectors,
    is_block_collective,
    thread_index,
)
from tcdsl.codegen.lines import Line, statements_of_lines
from tcdsl.codegen.memsets import memset_of
from tcdsl.codegen.names import Names
from tcdsl.codegen.size_texts import SizeTexts
from tcdsl.codegen.tidy import without_idle_braces
from tcdsl.codegen.turns import Turns, batch_of, lanes_of, last_number, last_of, turns_of
from tcdsl.codegen.uniformity import why_not_uniform
from tcdsl.codegen.vectors import turns_without, vector_accesses
from tcdsl.costmodel.reductions import is_streamed
from tcdsl.errors import INTERNAL
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of, statements_of
from tcdsl.poly.scop import Array, Interleaved, Kind, Statement, Storage, Stride
from tcdsl.transforms.fold_slots import fold_slots
from tcdsl.transforms.mapping import RANK, Mapped
from tcdsl.transforms.placement import Placement, Space
from tcdsl.transforms.plan import Kernel, Plan
from tcdsl.transforms.synchronisation import is_replicated

SCRATCH_ALIGNMENT = 256  # bytes
VECTOR_BYTES = 16  # the widest load, and what arrays are aligned to if nothing else is known
MOST_LEAVES_IN_TURNS = 4  # statements of a loop that is printed by turns
_AXES = "xyz"
_MAPPED = (LoopKind.BLOCK, LoopKind.THREAD)
_STRIDE_LIMIT = 2**16
_INDEX_LIMIT = 2**31 - _STRIDE_LIMIT  # room for a stride past the end
# Accumulators are registers: few additions more, and few values set aside.
_SUM_BLOCK, _MOST_BLOCKS, _MOST_SET_ASIDE = 16, 32, 8
# The four of a column take a block of threads from 32 registers each to 44.
_LONG_SUMS = (64, 256)

_FIRST = """\
/* The least number from low on that leaves the remainder me, divided by width. */
static __device__ __forceinline__ int64_t tcdsl_first(int64_t low, int me, int width)
{
  const int64_t step = (me - low) % width;
  return low + (step < 0 ? step + width : step);
}

"""

_CLAMP = """\
static __device__ __forceinline__ int64_t tcdsl_clamp(int64_t index, int64_t extent)
{
  return (uint64_t)index < (uint64_t)extent ? index : 0;
}

"""


def print_cuda(plan: Plan, known_alignments: Mapping[str, int] | None = None) -> CudaSource:
    """Return *plan* as CUDA.

    :arg known_alignments: bytes of which arguments' pointers are multiples; 16 for others.
    """
    return _PlanPrinter(plan, known_alignments or {}).print()


class _PlanPrinter:
    def __init__(self, plan: Plan, known_alignments: Mapping[str, int]) -> None:
        self.known_alignments = known_alignments
        self.plan = plan
        self.scop = plan.scop
        self.sites: list[tuple[str, int]] = []
        self.alignments: dict[str, int] = {}
        self.names = Names()
        self.sizes = SizeTexts(plan.scop, self.names)
        self.offsets, self.workspace_bytes = self._scratch()

    def print(self) -> CudaSource:
        lines: list[str] = []
        launches: list[AnyLaunch] = []
        for number, kernel in enumerate(self.plan.kernels):
            memset = self._memset(kernel)
            if memset is not None:
                first = next(statements_of(kernel.tree))
                lines += [Line(f"// {kernel.name}: {why}", first) for why in memset.why] + [""]
                launches.append(memset)
                continue
            printer = _KernelPrinter(self, kernel, number)
            lines += printer.print()
            launches.append(printer.launch)
        text = "\n".join(lines)
        for function, helper in (("tcdsl_clamp(", _CLAMP), ("tcdsl_first(", _FIRST)):
            if function in text:
                lines[:0] = [helper.removesuffix("\n")]
        text = "\n".join(lines)
        functions = frozenset(re.findall(r"\btc_[a-z0-9_]+", text))
        return CudaSource(
            text, functions, tuple(launches), self.workspace_bytes, tuple(self.sites),
            self.sizes.integers, self.alignments, tuple(statements_of_lines(lines)),
        )  # fmt: skip

    def _memset(self, kernel: Kernel) -> Memset | None:
        """Return the memset that does what *kernel* does, or None."""
        names = _arrays_of(self.plan, kernel)
        if len(names) != 1 or names[0] in self.plan.placements:
            return None
        return memset_of(self.scop, kernel, self.parameter(self.scop.arrays[names[0]]))

    def parameter(self, array: Array, qualifiers: tuple[str, str] = ("", "")) -> Parameter:
        """Return the pointer to *array* as a parameter, with *qualifiers* of what and of itself."""
        what, own = qualifiers
        text = f"{what}{c_type(array.dtype)} *{own}{self.names.of('array', array.name)}"
        if array.storage is Storage.ARGUMENT:
            return Parameter(text, ParameterKind.ARRAY, array.argument)
        return Parameter(text, ParameterKind.SCRATCH, array.name, self.offsets[array.name])

    def _scratch(self) -> tuple[dict[str, int], int]:
        """Return the offset of every scratch array in memory, and the workspace's bytes.

        Arrays whose kernels do not overlap in time share memory.
        """
        spans: dict[str, tuple[int, int]] = {}
        for number, kernel in enumerate(self.plan.kernels):
            for name in _arrays_of(self.plan, kernel):
                array = self.scop.arrays[name]
                if array.storage is Storage.SCRATCH and name not in self.plan.placements:
                    first, _ = spans.get(name, (number, number))
                    spans[name] = (first, number)
        offsets: dict[str, int] = {}
        has_tickets = any(map(_last_of, self.plan.kernels))
        start = TICKETS_BYTES if has_tickets else 0
        total = start
        for name, (first, last) in sorted(spans.items(), key=lambda item: -self._bytes(item[0])):
            busy = sorted(
                (offsets[other], offsets[other] + self._bytes(other))
                for other, (begin, end) in spans.items()
                if other in offsets and begin <= last and first <= end
            )
            offset = start
            for low, high in busy:
                if offset + self._bytes(name) <= low:
                    break
                offset = max(offset, high)
            offsets[name] = offset
            total = max(total, offset + self._bytes(name))
        return offsets, total

    def _bytes(self, name: str) -> int:
        size = self.scop.arrays[name].size_bytes()
        assert size is not None, "open sizes are specialised on a GPU"
        return -(-max(size, 1) // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT


def _arrays_of(plan: Plan, kernel: Kernel) -> list[str]:
    """Return the arrays that *kernel* touches, in the order of the scop."""
    touched = {
        access.array
        for name in statements_of(kernel.tree)
        for access in (*plan.scop.by_name[name].writes, *plan.scop.by_name[name].reads)
    }
    return [name for name in plan.scop.arrays if name in touched]


@dataclass(slots=True)
class _Vector:
    """Neighbours of *array* from *address* on, in registers called *name*."""

    array: str
    address: str
    name: str
    type: str
    width: int
    is_loaded: bool
    statement: str  # that first touches it
    is_stored: bool = False
    is_streamed: bool = False  # nothing reads it again

    def declaration(self, lanes: "_Lanes") -> str:
        """Return its declaration, loaded with what is there of *lanes*."""
        const = "" if self.is_stored else "const "
        load = lanes.load_once if self.is_streamed else lanes.load
        start = f", {self.address.partition('[')[0]}" if lanes.are_some else ""
        value = f" = {load}<{self.width}>(&{self.address}{start}{lanes})" if self.is_loaded else ""
        return f"{const}{self.type} {self.name}{value};"


@dataclass(frozen=True, slots=True)
class _Turn:
    """An unrolled loop: iteration ``step * variable + ...`` of *loop*, *count* values in all."""

    variable: str
    loop: Loop
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of a vector that are there: from *first* to *last*, or all."""

    first: str = ""
    last: str = ""

    @property
    def are_some(self) -> bool:
        return bool(self.first)

    @property
    def load(self) -> str:
        return "tc_vload_some" if self.are_some else "tc_vload"

    @property
    def load_once(self) -> str:
        return "tc_vload_some_once" if self.are_some else "tc_vload_once"

    @property
    def store(self) -> str:
        return "tc_vstore_some" if self.are_some else "tc_vstore"

    @property
    def copy(self) -> str:
        return "tc_copy_async_some" if self.are_some else "tc_copy_async"

    def guard(self, variable: str) -> str:
        """Return the condition that lane *variable* is there."""
        return f"{variable} >= {self.first} && {variable} <= {self.last}" if self.first else ""

    def __str__(self) -> str:
        """Return them as the last arguments of a call."""
        return f", {self.first}, {self.last}" if self.are_some else ""


class _KernelPrinter:
    """Prints one kernel."""

    def __init__(self, parent: _PlanPrinter, kernel: Kernel, number: int) -> None:
        self.parent = parent
        self.scop = parent.scop
        self.kernel = kernel
        self.mapped = Mapped(parent.scop, kernel.tree)
        self.placements = parent.plan.placements
        self.names = parent.names
        self.loops: Mapping[str, Loop] = {loop.name: loop for loop in loops_of(kernel.tree)}
        self.wide = _needs_wide_index(parent, kernel)
        self.index_type = "int64_t" if self.wide else "int"
        self.context = Context(
            parent.scop, parent.names, parent.sizes, parent.plan.placements, parent.sites,
            "i64" if self.wide else "i32",
        )  # fmt: skip
        # No name of the user's begins with tc (see names.py).
        self.name = f"tcdsl_{number}_{re.sub('[^A-Za-z0-9_]', '_', parent.scop.name)[:40]}"
        self.lines: list[str] = []
        self.eliminated: list[Loop] = []
        self.guarded: frozenset[str] = frozenset()  # eliminated loops whose guard stands around
        self.wide_shared: set[str] = set()  # shared arrays that are accessed in vectors
        self.declared: list[str] = []  # private arrays, in the scopes around
        self.folded: dict[str, str] = {}  # folds of all lanes that were printed before the loop
        self.slots = fold_slots(self.mapped, self.placements)
        self.numbered: list[str] = []  # folds with a number, as often as they were printed
        self.n_folds = 0
        self.n_predicates = 0
        self.n_turns = 0
        self.n_vectors = 0
        self.n_lanes = 0
        self.turns: list[_Turn] = []  # of the unrolled loops around
        self.n_blocks = 0
        self.local_of: dict[str | None, list[Placement]] = {}
        own = set(_arrays_of(parent.plan, kernel))
        for placement in self.placements.values():
            if placement.array in own:
                self.local_of.setdefault(placement.loop, []).append(placement)
        self.staged = self._staged_bytes()
        self.launch = self._launch()
        self.streamed = self._streamed_arrays()

    # --- the function ----------------------------------------------------------------------

    def _launch(self) -> Launch:
        cluster = self.mapped.cluster
        x, y, z = self.mapped.grid
        return Launch(
            self.name, (x, y, cluster if cluster > 1 else z), self.mapped.block,
            sum(self.staged.values()), tuple(self._parameters()),
            self.kernel.name, self.kernel.why, cluster,
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

    def _parameters(self) -> Iterator[Parameter]:
        statements = [self.scop.by_name[name] for name in statements_of(self.kernel.tree)]
        written = {access.array for s in statements for access in s.writes}
        for name in _arrays_of(self.parent.plan, self.kernel):
            if name in self.placements:
                continue
            const = "" if name in written else "const "
            restrict = "__restrict__ " if self._is_restricted(name, statements) else ""
            yield self.parent.parameter(self.scop.arrays[name], (const, restrict))
        if _last_of(self.kernel) is not None:
            text = f"unsigned int *{self.names.of('ticket', 'tickets')}"
            yield Parameter(text, ParameterKind.TICKETS)
        for position, integer in enumerate(self.parent.sizes.integers):
            text = f"const int64_t {self.parent.sizes.name(integer)}"
            yield Parameter(text, ParameterKind.INTEGER, integer[0], position)
        if any(statement.kind is Kind.CHECK for statement in statements):
            yield Parameter("int64_t *fault", ParameterKind.FAULT)

    def _is_restricted(self, name: str, statements: Sequence[Statement]) -> bool:
        """Return whether no other thread changes what a thread sees of the array *name*.

        The CUDA compiler moves loads and stores through a __restrict__ pointer across a barrier,
        for nothing but this thread could change what it points to.
        """
        users = [s for s in statements if any(a.array == name for a in (*s.writes, *s.reads))]
        is_written = any(a.array == name for s in users for a in s.writes)
        has_barrier = any(s.kind is Kind.BARRIER for s in statements) or _last_of(self.kernel)
        return not is_written or not (
            any(s.is_atomic for s in users) or (bool(has_barrier) and len(users) > 1)
        )

    def _streamed_arrays(self) -> frozenset[str]:
        """Return the arrays that a reduction of the kernel loads, each element once.

        No other kernel reads them either: it would find less of them in the second-level cache.
        """
        statements = [self.scop.by_name[name] for name in statements_of(self.kernel.tree)]
        touched = [a.array for s in self.scop.statements for a in (*s.writes, *s.reads)]
        found = {
            read.array
            for s in statements
            if s.kind is Kind.UPDATE
            for read in s.reads
            if touched.count(read.array) == 1
            and self.scop.arrays[read.array].storage is Storage.ARGUMENT
            and len(read.subscripts) == len(s.indices)
        }
        sizes = [self.scop.arrays[name].size_bytes() or 0 for name in found]
        return frozenset(found) if is_streamed(sum(sizes)) else frozenset()

    def print(self) -> list[str]:
        """Return the lines of the kernel; an item may hold several."""
        tree, placements = self.kernel.tree, self.placements
        ast = loop_ast.generate(self.scop, tree, placements)
        lost = {name for name in _lost(ast) if self.loops[name].kind in _MAPPED}
        lost = {name for name in lost if self._has_many(self.loops[name])}
        if lost:
            ast = loop_ast.generate(self.scop, tree, placements, lost)
        policy = Policy(self._turns, _SUM_BLOCK, _MOST_BLOCKS, _MOST_SET_ASIDE, _LONG_SUMS)
        self.sums = BlockedSums(self.scop, ast, self.loops, placements, policy)
        self._declare_locals([None, *_unopened(ast)], 1)
        self._node(ast, 1, (), [])
        self.lines[:0] = self._shared()  # their alignment is known now
        body = without_idle_braces(self.lines, 1)
        x, y, z = self.mapped.block
        cluster = self.mapped.cluster
        sizes = map(self.parent.sizes.name, self.parent.sizes.integers)
        uniform = [*sizes, self.names.of("ticket", "tickets")]
        reason = why_not_uniform(body, self.mapped.threads, uniform) or self._why_not_once()
        if reason is not None:
            raise INTERNAL(where=f"printing {self.name}", what=reason, repro="the program")
        parameters = ",\n    ".join(p.declaration for p in self.launch.parameters)
        dims = f"__cluster_dims__(1, 1, {cluster}) " if cluster > 1 else ""
        beside = f", {self.kernel.beside}" if self.kernel.beside else ""
        bounds = f"__launch_bounds__({x * y * z}{beside})"
        head = [
            f"// {self.kernel.name}: {_times(self.launch.grid)} blocks of"
            f" {_times(self.mapped.block)} threads",
            *(f"// {reason}" for reason in self.kernel.why),
            f'extern "C" __global__ void {dims}{bounds} {self.name}(',
            f"    {parameters})",
        ]
        if cluster > 1:
            count = f"<{len(self.slots.numbers)}>" if self.slots.numbers else ""
            body = [f"  tc_cluster_begin{count}();", *body, f"  tc_cluster_end{count}();"]
        return [*head, "{", *body, "}", ""]

    def _has_many(self, loop: Loop) -> bool:
        widths = self.mapped.grid if loop.kind is LoopKind.BLOCK else self.mapped.threads
        return widths[loop.axis] > 1

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

    def _emit(self, depth: int, text: str, statement: str = "") -> None:
        self.lines.append(Line("  " * depth + text, statement))

    # --- loops -----------------------------------------------------------------------------

    def _node(
        self, node: loop_ast.AstNode, depth: int, pending: tuple[Loop, ...], active: list[str]
    ) -> None:
        """Print *node*.

        :arg pending: loops whose mark was met, but no C loop since.
        :arg active: conditions on the thread that guard all but collectives.
        """
        match node:
            case loop_ast.Block(children=children):
                self._sequence(children, depth, pending, active)
            case loop_ast.Mark(name=name, body=body) if self.loops[name].kind is LoopKind.LAST:
                self._last(body, depth, self.loops[name], pending)
            case loop_ast.Mark(name=name, body=body):
                self._sequence([body], depth, (*pending, self.loops[name]), active)
            case loop_ast.If():
                self._if(node, depth, pending, active)
            case loop_ast.For():
                *lost, own = pending
                before = self.eliminated
                self.eliminated = [*before, *lost]
                self._for(node, depth, own, active)
                self.eliminated = before
            case loop_ast.Leaf():
                before = self.eliminated
                self.eliminated = [*before, *pending]
                self._leaf(node, depth, active)
                self.eliminated = before

    def _sequence(
        self,
        nodes: Sequence[loop_ast.AstNode],
        depth: int,
        pending: tuple[Loop, ...],
        active: list[str],
    ) -> None:
        """Print *nodes* in order.

        Neighbours that are in one iteration of a loop over blocks, for which isl shows no C loop,
        are inside one guard: so are their barriers, which all threads of such a block meet then.
        """
        for guards, group in groupby(nodes, lambda node: self._block_guards(node, pending)):
            members = list(group)
            if not guards or (len(members) == 1 and isinstance(members[0], loop_ast.Leaf)):
                for node in members:
                    self._node(node, depth, pending, active)
                continue
            self._emit(depth, f"if ({' && '.join(condition for _, condition in guards)}) {{")
            before = self.guarded
            self.guarded = before | {name for name, _ in guards}
            for node in members:
                self._node(node, depth + 1, pending, active)
            self.guarded = before
            self._emit(depth, "}")

    def _block_guards(
        self, node: loop_ast.AstNode, pending: tuple[Loop, ...]
    ) -> tuple[tuple[str, str], ...]:
        """Return loops over blocks of which all of *node* is in one iteration, and its guard."""
        guards = []
        for loop in pending:
            is_lost = loop is not pending[-1] or _is_without_loop(node)
            if loop.kind is not LoopKind.BLOCK or loop.name in self.guarded or not is_lost:
                continue
            values = {leaf.values.get(loop.name, "") for leaf in loop_ast.leaves(node)}
            value = values.pop() if len(values) == 1 else ""
            if value.isdigit() and (mine := self._is_mine(loop, value)):
                guards.append((loop.name, mine))
        return tuple(guards)

    def _last(
        self, body: loop_ast.AstNode, depth: int, last: Loop, pending: tuple[Loop, ...]
    ) -> None:
        """Print what the last of the blocks does: each takes a ticket, numbered by what is kept."""
        number = "0"
        for axis in reversed(self._kept_axes(last)):
            me, width = f"blockIdx.{_AXES[axis]}", self.mapped.grid[axis]
            number = me if number == "0" else f"({number}) * {width} + {me}"
        tickets = self.names.of("ticket", "tickets")
        place = tickets if number == "0" else f"{tickets} + {number}"
        self._emit(depth, f"// the last of {last.width} blocks")
        self._emit(depth, f"if (tc_last_block({place}, {last.width})) {{")
        self._node(body, depth + 1, pending, [])
        self._emit(depth, "}")

    def _kept_axes(self, last: Loop) -> list[int]:
        """Return the axes of the grid along which every block has a last loop of its own."""
        name = next(statements_of(last.body))
        return [loop.axis for loop in self.mapped.paths[name] if loop.kind is LoopKind.BLOCK]

    def _if(
        self, node: loop_ast.If, depth: int, pending: tuple[Loop, ...], active: list[str]
    ) -> None:
        self._emit(depth, f"if ({_cuda(node.condition)}) {{")
        self._node(node.then, depth + 1, pending, active)
        if node.otherwise is not None:
            self._emit(depth, "} else {")
            self._node(node.otherwise, depth + 1, pending, active)
        self._emit(depth, "}")

    def _for(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        if active and not self._has_collective(node.body):
            self._emit(depth, f"if ({' && '.join(active)}) {{")
            self._for(node, depth + 1, loop, [])
            self._emit(depth, "}")
            return
        assert node.condition, "isl prints no loop of one iteration"
        blocks = None if self._has_collective(node.body) else self.sums.of(node, loop)
        if blocks is not None and self._in_blocks(node, depth, loop, blocks, active):
            return
        if loop.kind in _MAPPED:
            self._mapped_loop(node, depth, loop, active)
        elif loop.kind in (LoopKind.UNROLL, LoopKind.LANES):
            self._lanes_or_unrolled(node, depth, loop, active)
        else:
            self._open(depth, self._head(node))
            self._body(node, depth, loop, active)

    def _lanes_or_unrolled(
        self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]
    ) -> None:
        before = self.folded
        self.folded = {**before, **self._folds_at_once(node, depth, loop)}
        print_loop = self._unrolled if loop.kind is LoopKind.UNROLL else self._vector
        print_loop(node, depth, loop, active)
        self.folded = before

    def _turns(self, loop: Loop) -> int | None:
        """Return how often a thread runs the body of *loop*."""
        is_shared = loop.kind in _MAPPED and self._has_many(loop)
        return loop.extent and -(-loop.extent // loop.width) if is_shared else loop.extent

    def _in_blocks(
        self, node: loop_ast.For, depth: int, loop: Loop, blocks: Blocks, active: list[str]
    ) -> bool:
        """Print *loop*, its sums in *blocks*; return False where it has another form than that."""
        if not blocks.turns:
            after = self._set_aside(depth, blocks)
            self._lanes_or_unrolled(node, depth, loop, active)
            self._emit_all(depth, after)
            return True
        last = last_of(node)
        if last is None:
            return False
        is_shared = loop.kind in _MAPPED and self._has_many(loop)
        step = loop.width if is_shared else int(node.step)
        first, last = _cuda(node.init), _cuda(last)
        if is_shared:
            me = self._me(loop)
            first = me if first == "0" else f"tcdsl_first({first}, {me}, {step})"
        ends = []
        for size in reversed(blocks.turns):
            number, stride = self.n_blocks, step * size
            self.n_blocks += 1
            block, end = f"w_block{number}", f"w_last{number}"
            type_ = "int64_t" if stride >= _STRIDE_LIMIT else self.index_type
            head = f"for ({type_} {block} = {first}; {block} <= {last}; {block} += {stride})"
            self._open(depth, head)
            depth += 1
            bound = f"tc_imin({last}, {block} + {stride - 1})"
            self._emit(depth, f"const {type_} {end} = {bound};")
            ends.append(self._set_aside(depth, blocks))
            first, last = block, end
        size = blocks.turns[0]
        if self._is_simple(node.body):
            self._emit(depth, f"if ({first} + {step * (size - 1)} <= {last}) {{")
            self._in_turns(node, depth + 1, (first, step), Turns(size, size, ""), loop, active)
            self._emit(depth, "} else {")
            self._between(node, depth + 1, (first, last, step), loop, active)
            self._emit(depth, "}")
        else:
            self._between(node, depth, (first, last, step), loop, active)
        for after in reversed(ends):
            self._emit_all(depth, after)
            depth -= 1
            self._emit(depth, "}")
        return True

    def _between(
        self,
        node: loop_ast.For,
        depth: int,
        bounds: tuple[str, str, int],
        loop: Loop,
        active: list[str],
    ) -> None:
        """Print the iterations of *node* from a first value to a last one, in steps."""
        first, last, step = bounds
        head = f"{self.index_type} {node.variable} = {first}; {node.variable} <= {last}"
        self._open(depth, f"for ({head}; {node.variable} += {step})")
        self._body(node, depth, loop, active)

    def _set_aside(self, depth: int, blocks: Blocks) -> list[str]:
        """Clear the accumulators of *blocks*; return what adds to them what they held before."""
        after: list[str] = []
        for placement in blocks.accumulators:
            aside = f"w_sum{self.n_blocks}"
            self.n_blocks += 1
            lines, back = set_aside(placement, self.scop, self.names, aside, "#pragma unroll")
            self._emit_all(depth, lines)
            after += back
        return after

    def _emit_all(self, depth: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._emit(depth, line)

    def _is_mine(self, loop: Loop, value: str) -> str:
        """Return the condition that this block or thread runs the iteration *value* of *loop*."""
        if loop.kind not in _MAPPED or not self._has_many(loop):
            return ""
        me = self._me(loop)
        return f"{me} == ({value}) % {loop.width}" if not value.isdigit() else (
            f"{me} == {int(value) % loop.width}"
        )  # fmt: skip

    def _me(self, loop: Loop) -> str:
        if loop.kind is LoopKind.BLOCK:
            axis = _AXES[loop.axis]
            if self.kernel.is_reversed:
                return f"(int)(gridDim.{axis} - 1 - blockIdx.{axis})"
            return f"(int)blockIdx.{axis}"
        return f"(int){thread_index(loop.axis)}"

    def _head(self, node: loop_ast.For) -> str:
        return (
            f"for ({self.index_type} {node.variable} = {_cuda(node.init)};"
            f" {_cuda(node.condition)}; {_step(node)})"
        )

    def _mapped_loop(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print a loop over blocks or threads: each takes every width-th iteration."""
        me, variable, width = self._me(loop), node.variable, loop.width
        init, condition = _cuda(node.init), _cuda(node.condition)
        if not self._has_many(loop):
            self._open(depth, self._head(node))
            self._body(node, depth, loop, active)
        elif loop.has_one_turn:
            guards = [] if init == "0" else [f"{variable} >= {init}"]
            if not _covers(node, width):
                guards.append(condition)
            self._open(depth, "")
            self._emit(depth + 1, f"const {self.index_type} {variable} = {me};")
            is_on_threads = loop.kind is LoopKind.THREAD
            if guards and is_on_threads and self._has_collective(node.body):
                name = f"w_active{self.n_predicates}"
                self.n_predicates += 1
                self._emit(depth + 1, f"const bool {name} = {' && '.join(guards)};")
                self._body(node, depth, loop, [*active, name])
            elif guards:
                self._emit(depth + 1, f"if ({' && '.join(guards)}) {{")
                self._body(node, depth + 1, loop, active)
                self._emit(depth, "}")
            else:
                self._body(node, depth, loop, active)
        else:
            turns = turns_of(node, width) if init == "0" else None
            if turns is None or not self._is_simple(node.body):
                self._strided(node, depth, loop, active)
            elif turns.condition:
                self._emit(depth, f"if ({_cuda(turns.condition)}) {{")
                self._in_turns(node, depth + 1, (me, width), turns, loop, active)
                self._emit(depth, "} else {")
                self._strided(node, depth + 1, loop, active)
                self._emit(depth, "}")
            else:
                self._in_turns(node, depth, (me, width), turns, loop, active)

    def _strided(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print a loop over blocks or threads as a stride over its values."""
        me, variable, width, init = self._me(loop), node.variable, loop.width, _cuda(node.init)
        first = me if init == "0" else f"tcdsl_first({init}, {me}, {width})"
        head = f"{self.index_type} {variable} = {first}; {_cuda(node.condition)}"
        self._open(depth, f"for ({head}; {variable} += {width})")
        self._body(node, depth, loop, active)

    def _in_turns(
        self,
        node: loop_ast.For,
        depth: int,
        way: tuple[str, int],
        turns: Turns,
        loop: Loop,
        active: list[str],
    ) -> None:
        """Print the *turns* of a thread in a loop, in batches, and what is left at once.

        :arg way: the first value that the thread takes, and the step to the next.
        """
        first, step = way
        is_of_thread = first == self._me(loop)
        batch = batch_of(self._load_bytes(node.body))
        batched, total = turns.in_batches(batch)
        for start, stop in ((0, batched), (batched, total)):
            if start == stop:
                continue
            turn = f"w_turn{self.n_turns}"
            self.n_turns += 1
            self._emit(depth, f"#pragma unroll {batch}" if stop == batched else "#pragma unroll")
            self._open(depth, f"for (int {turn} = {start}; {turn} < {stop}; {turn}++)")
            own = f"({self.index_type}){turn}" if self.wide else turn
            value = f"{first} + {own}" if step == 1 else f"{first} + {step} * {own}"
            self._emit(depth + 1, f"const {self.index_type} {node.variable} = {value};")
            if is_of_thread:
                self.turns.append(_Turn(turn, loop, step, total))
            if stop <= turns.whole:
                self._body(node, depth, loop, active)
            else:
                # Unrolled, the whole turns ask nothing.
                guard = _cuda(node.condition)
                guard = f"{turn} < {turns.whole} || {guard}" if turns.whole > start else guard
                self._emit(depth + 1, f"if ({guard}) {{")
                self._body(node, depth + 1, loop, active)
                self._emit(depth, "}")
            if is_of_thread:
                self.turns.pop()

    def _is_simple(self, node: loop_ast.AstNode) -> bool:
        """Return whether *node* is a few statements, or the lanes of vectors: worth unrolling."""
        leaves = list(loop_ast.leaves(node))
        return len(leaves) <= MOST_LEAVES_IN_TURNS and all(
            self.loops[name].kind in (LoopKind.LANES, LoopKind.UNROLL) for name in _opened(node)
        )

    def _load_bytes(self, node: loop_ast.AstNode) -> int:
        """Return the bytes that a thread loads from memory in *node*, where that is simple."""
        lanes = prod(self.loops[name].extent or 1 for name in _opened(node))
        reads = {
            read.array
            for leaf in loop_ast.leaves(node)
            for read in self.scop.by_name[leaf.statement].reads
            if not self._is_private(read.array)
        }
        return lanes * sum(self.scop.arrays[name].dtype.size_bytes for name in reads)

    def _unrolled(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print a loop with a constant trip count, so that indices into registers are numbers."""
        assert loop.extent is not None
        variable = node.variable
        self._emit(depth, "#pragma unroll")
        self._open(depth, f"for (int {variable} = 0; {variable} < {loop.extent}; {variable}++)")
        guards = [] if node.init == "0" else [f"{variable} >= {_cuda(node.init)}"]
        if not _covers(node, loop.extent):
            guards.append(_cuda(node.condition))
        self.turns.append(_Turn(variable, loop, 1, loop.extent))
        if guards:
            self._emit(depth + 1, f"if ({' && '.join(guards)}) {{")
            self._body(node, depth + 1, loop, active)
            self._emit(depth, "}")
        else:
            self._body(node, depth, loop, active)
        self.turns.pop()

    def _folds_at_once(self, node: loop_ast.For, depth: int, loop: Loop) -> dict[str, str]:
        """Print the folds of a short loop as one for all of its iterations, before it.

        Returns what each statement's result is called in the loop.
        """
        leaves = self._leaves(node.body)
        if leaves is None or node.init != "0" or not _covers(node, loop.extent or 0):
            return {}
        found = {}
        for leaf in leaves:
            if self.slots.lanes.get(leaf.statement) is not loop:
                continue
            call = self._printer(leaf).fold_at_once(node.variable, loop.extent or 0)
            name = f"w_folds{self.n_folds}"
            self.n_folds += 1
            self._count_call(leaf, is_at_once=True)
            self._emit(depth, f"const auto {name} = {call};", leaf.statement)
            found[leaf.statement] = f"{name}[{node.variable}]"
        return found

    def _count_call(self, leaf: loop_ast.Leaf, *, is_at_once: bool) -> None:
        """Note a call of the fold *leaf*, if it is as is said of a fold with a number."""
        name = leaf.statement
        if name in self.slots.numbers and is_at_once == (name in self.slots.lanes):
            self.numbered.append(name)

    def _why_not_once(self) -> str | None:
        """Return why slots would be used twice, or None: isl decides how often a leaf stands."""
        if self.numbered == list(self.slots.numbers):
            return None
        return f"folds with slots of their own are called as {self.numbered}"

    def _still_folds(self, leaf: loop_ast.Leaf) -> bool:
        """Return whether all threads of the block must come to *leaf*."""
        statement = self.scop.by_name[leaf.statement]
        return leaf.statement not in self.folded and is_block_collective(self.mapped, statement)

    def _vector(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print the lanes of a vector: all loads, then the lanes one by one, then all stores.

        Some lanes may be missing at the ends of rows; which are there is known before the loads.
        """
        width = loop.extent or 0
        leaves = self._leaves(node.body)
        bounds = lanes_of(node, width)
        # What guards the lanes must not keep threads from a fold: those before the loop will do.
        if leaves is None or bounds is None or any(map(self._still_folds, leaves)):
            self._unrolled(node, depth, loop, active)
            return
        guards = [tuple(self._guards(leaf, active)) for leaf in leaves]
        vectors = self._vectors(leaves, node.variable, loop, width)
        is_whole = bounds == ("0", str(width - 1))
        if len(set(guards)) > 1 or not (vectors or self._is_pure(leaves, node.variable, is_whole)):
            self._unrolled(node, depth, loop, active)
            return
        # Stores are outside the lanes: what guards a lane guards them too.
        self._open(depth, f"if ({' && '.join(guards[0])})" if guards[0] else "")
        lanes = self._lanes_here(depth + 1, bounds, loop, leaves)
        if len(leaves) == 1 and len(vectors) == 2 and self._printer(leaves[0]).is_staging:
            from_, to = vectors
            self._emit(depth + 1, f"{lanes.copy}<{width}>(&{to.address}, &{from_.address}{lanes});")
            self._emit(depth, "}")
            return
        for vector in vectors:
            self._emit(depth + 1, vector.declaration(lanes), vector.statement)
        self._emit(depth + 1, "#pragma unroll")
        head = f"for (int {node.variable} = 0; {node.variable} < {width}; {node.variable}++)"
        self._open(depth + 1, head)
        n_declared = len(self.declared)
        self._declare_locals([loop.name, *_unopened(node.body)], depth + 2)
        names = {(v.array, v.address): v.name for v in vectors}
        where = lanes.guard(node.variable)
        for leaf in leaves:
            self._lane(
                leaf, depth + 2, active, self._lanes(leaf, node.variable, width, names), where
            )
        self._emit(depth + 1, "}")
        del self.declared[n_declared:]
        for vector in vectors:
            if vector.is_stored:
                store = f"{lanes.store}(&{vector.address}, {vector.name}{lanes});"
                self._emit(depth + 1, store, vector.statement)
        self._emit(depth, "}")

    def _is_pure(self, leaves: Sequence[loop_ast.Leaf], variable: str, is_whole: bool) -> bool:
        """Return whether lanes that may be missing compute in registers alone."""
        none = Vectors(0, variable)
        return not is_whole and all(
            self._printer(leaf, none).is_pure(self._is_private) for leaf in leaves
        )

    def _lane(
        self, leaf: loop_ast.Leaf, depth: int, active: list[str], vectors: Vectors, where: str
    ) -> None:
        """Print *leaf* for one lane of *vectors*, to be run *where* that is there.

        What has no other effect than on registers runs in any case, lest branches keep the loads
        that follow from starting.
        """
        if not where:
            self._leaf(leaf, depth, active, vectors)
        elif self._printer(leaf, vectors).is_pure(self._is_private):
            self._leaf(leaf, depth, active, replace(vectors, where=where))
        else:
            self._open(depth, f"if ({where})")
            self._leaf(leaf, depth + 1, active, vectors)
            self._emit(depth, "}")

    def _lanes_here(
        self, depth: int, bounds: tuple[str, str], loop: Loop, leaves: Sequence[loop_ast.Leaf]
    ) -> _Lanes:
        """Print which lanes are there, unless all of them are.

        It says of which turns of unrolled loops they all are, which compilers do not find out.
        """
        width = loop.extent or 0
        if bounds == ("0", str(width - 1)):
            return _Lanes()
        first, last = f"w_from{self.n_lanes}", f"w_to{self.n_lanes}"
        self.n_lanes += 1
        statements = [self.scop.by_name[leaf.statement] for leaf in leaves]
        texts = []
        for text, lane in ((bounds[0], 0), (bounds[1], width - 1)):
            outside: list[str] = []
            for turn in self.turns if text != str(lane) else ():
                found = turns_without(statements, loop, lane, turn.loop, turn.step)
                if found is not None and found.start > 0:
                    outside.append(f"{turn.variable} < {found.start}")
                if found is not None and found.stop < turn.count:
                    outside.append(f"{turn.variable} >= {found.stop}")
            text = _cuda(text)
            texts.append(f"({' || '.join(outside)}) ? {lane} : {text}" if outside else text)
        values = f"{first} = {texts[0]}, {last} = {texts[1]}"
        self._emit(depth, f"const {self.index_type} {values};")
        return _Lanes(first, last)

    def _leaves(self, node: loop_ast.AstNode) -> list[loop_ast.Leaf] | None:
        """Return the leaves of *node* if it holds nothing else, else None.

        A loop of one iteration, of which isl printed nothing, is nothing either.
        """
        match node:
            case loop_ast.Leaf():
                return [node]
            case loop_ast.Mark(name=name, body=body) if self.loops[name].kind not in _MAPPED:
                return self._leaves(body)
            case loop_ast.Block(children=children):
                found = [self._leaves(child) for child in children]
                if any(leaves is None for leaves in found):
                    return None
                return [leaf for leaves in found if leaves is not None for leaf in leaves]
            case _:
                return None

    def _lanes(
        self,
        leaf: loop_ast.Leaf,
        variable: str,
        width: int,
        names: Mapping[tuple[str, str], str],
    ) -> Vectors:
        """Return which accesses of *leaf* are lanes of which vector."""
        statement = self.scop.by_name[leaf.statement]
        first = self._printer(leaf).at_lane_zero(variable)
        found = {}
        for position, access in enumerate((*statement.writes, *statement.reads)):
            if self._is_private(access.array) or not access.is_exact:
                continue
            name = names.get((access.array, first.outside_element(access)))
            if name is not None:
                found[position] = name
        return Vectors(width, variable, found)

    def _vectors(
        self, leaves: Sequence[loop_ast.Leaf], variable: str, loop: Loop, width: int
    ) -> "list[_Vector]":
        """Return the vectors of *leaves*.

        An array that is written has vectors only if all that is touched of it is one vector: then
        what a lane reads is what the lane wrote.
        """
        touched: dict[str, set[str]] = {}
        written: set[str] = set()
        # array, address, is a vector, is a write, the statement
        order: list[tuple[str, str, bool, bool, str]] = []
        for leaf in leaves:
            statement = self.scop.by_name[leaf.statement]
            wide = vector_accesses(self.scop, statement, loop, width, self.placements)
            wide = frozenset(p for p in wide if self._is_aligned(statement, p, width))
            first = self._printer(leaf).at_lane_zero(variable)
            n_writes = len(statement.writes)
            accesses = list(enumerate((*statement.writes, *statement.reads)))
            for position, access in [*accesses[n_writes:], *accesses[:n_writes]]:
                if self._is_private(access.array):
                    continue
                address = first.outside_element(access)
                is_write = position < n_writes
                touched.setdefault(access.array, set()).add(address)
                way = access.array, address, position in wide
                if is_write:
                    written.add(access.array)
                    if statement.accumulates and not _is_first(statement):
                        order.append((*way, False, statement.name))
                order.append((*way, is_write, statement.name))
        narrow = {array for array, _, is_wide, _, _ in order if not is_wide} & written
        narrow |= {array for array in written if len(touched[array]) > 1}
        vectors: dict[tuple[str, str], _Vector] = {}
        for array, address, is_wide, is_write, name_of_statement in order:
            if array in narrow or not is_wide:
                continue
            key = (array, address)
            if key not in vectors:
                dtype = self.scop.arrays[array].dtype
                self._align(array, width * dtype.size_bytes)
                name = f"w_vector{self.n_vectors}"
                self.n_vectors += 1
                type_ = f"tc_vec<{c_type(dtype)}, {width}>"
                vectors[key] = _Vector(
                    array, address, name, type_, width, not is_write, name_of_statement,
                    is_streamed=array in self.streamed,
                )  # fmt: skip
            vectors[key].is_stored |= is_write
        return list(vectors.values())

    def _open(self, depth: int, head: str) -> None:
        self._emit(depth, f"{head} {{".lstrip())

    def _body(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        n_declared = len(self.declared)
        self._declare_locals([loop.name, *_unopened(node.body)], depth + 1)
        self._node(node.body, depth + 1, (), active)
        self._emit(depth, "}")
        del self.declared[n_declared:]

    def _has_collective(self, node: loop_ast.AstNode) -> bool:
        return any(
            is_block_collective(self.mapped, self.scop.by_name[leaf.statement])
            for leaf in loop_ast.leaves(node)
        )

    # --- leaves ----------------------------------------------------------------------------

    def _printer(self, leaf: loop_ast.Leaf, vectors: Vectors | None = None) -> CudaStatementPrinter:
        statement = self.scop.by_name[leaf.statement]
        return CudaStatementPrinter(
            self.context, _cuda_leaf(leaf), self.mapped,
            is_replicated(statement, self.placements), vectors,
            self.slots.numbers.get(leaf.statement),
        )  # fmt: skip

    def _leaf(
        self,
        leaf: loop_ast.Leaf,
        depth: int,
        active: list[str],
        vectors: Vectors | None = None,
    ) -> None:
        printer = self._printer(leaf, vectors)
        guards = self._guards(leaf, active, is_pinned=False) if vectors is None else []
        statement = self.scop.by_name[leaf.statement]
        if is_block_collective(self.mapped, statement):
            # All threads of a block agree on what is about blocks: it may stand around the call.
            inside = [guard for guard in guards if not self._is_about_blocks(guard)]
            is_fold = statement.kind is Kind.FOLD
            result = self.folded.get(leaf.statement, "")
            lines = printer.fold(inside, result) if is_fold else printer.lines()
            if not result:
                self._count_call(leaf, is_at_once=False)
            guards = [guard for guard in guards if self._is_about_blocks(guard)]
        elif statement.kind is Kind.FOLD:
            lines = printer.fold([], self.folded.get(leaf.statement, ""))
        else:
            lines = printer.lines()
        prefix = self._indices(leaf, lines)
        if guards:
            self._emit(depth, f"if ({' && '.join(guards)}) {{")
        elif prefix or len(lines) > 1:
            self._emit(depth, "{")
        else:
            self._emit(depth, lines[0], leaf.statement)
            return
        for line in [*prefix, *lines]:
            self._emit(depth + 1, line, leaf.statement)
        self._emit(depth, "}")

    def _is_about_blocks(self, guard: str) -> bool:
        """Return whether all blocks of a cluster agree on *guard*, which is no thread's."""
        is_rank = self.mapped.cluster > 1 and thread_index(RANK) in guard
        return "blockIdx" in guard and not is_rank

    def _guards(
        self, leaf: loop_ast.Leaf, active: Sequence[str], *, is_pinned: bool = True
    ) -> list[str]:
        """Return the conditions under which a thread runs *leaf*."""
        guards = list(active)
        for loop in self.eliminated:
            if loop.name in self.guarded:
                continue
            if loop.name in leaf.values and (mine := self._is_mine(loop, leaf.values[loop.name])):
                guards.append(_cuda(mine))
        return [*guards, *self._printer(leaf).pins()] if is_pinned else guards

    def _indices(self, leaf: loop_ast.Leaf, lines: Sequence[str]) -> list[str]:
        """Return the declaration of the statement's indices that *lines* mention."""
        statement = self.scop.by_name[leaf.statement]
        named = zip(statement.indices, leaf.iterators, strict=True)
        texts = [(self.names.of("index", index), _cuda(text)) for index, text in named]
        needed = [f"{n} = {t}" for n, t in texts if any(mentions(line, n) for line in lines)]
        return [f"const {self.index_type} {', '.join(needed)};"] if needed else []

    def _is_aligned(self, statement: Statement, position: int, width: int) -> bool:
        array = self.scop.arrays[(*statement.writes, *statement.reads)[position].array]
        size_bytes = width * array.dtype.size_bytes
        return size_bytes <= self.parent.known_alignments.get(array.argument, VECTOR_BYTES)

    def _is_private(self, array: str) -> bool:
        return array in self.placements and self.placements[array].space is Space.PRIVATE

    def _align(self, array: str, size_bytes: int) -> None:
        if array in self.placements:
            self.wide_shared.add(array)
        elif self.scop.arrays[array].storage is Storage.ARGUMENT:
            argument = self.scop.arrays[array].argument
            known = self.parent.alignments.get(argument, 1)
            self.parent.alignments[argument] = max(known, size_bytes)


# --- texts ---------------------------------------------------------------------------------


def _cuda(text: str) -> str:
    """Return isl's C with the device library's functions in place of its macros."""
    for name, function in (("floord", "tc_floordiv"), ("min", "tc_imin"), ("max", "tc_imax")):
        text = re.sub(rf"\b{name}\(", f"{function}(", text)
    return text


def _step(node: loop_ast.For) -> str:
    return f"{node.variable}++" if node.step == "1" else f"{node.variable} += {node.step}"


def _cuda_leaf(leaf: loop_ast.Leaf) -> loop_ast.Leaf:
    return loop_ast.Leaf(
        leaf.statement,
        tuple(map(_cuda, leaf.iterators)),
        {key: tuple(map(_cuda, texts)) for key, texts in leaf.local.items()},
        leaf.values,
    )


def _times(dims: Sequence[int]) -> str:
    kept = list(dims)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))


def _is_first(statement: Statement) -> bool:
    """Return whether *statement* is the fold that gives an accumulator its first value."""
    reduction = statement.reduction
    return statement.kind is Kind.FOLD and reduction is not None and reduction.initialise


def _covers(node: loop_ast.For, width: int) -> bool:
    """Return whether the upper bound of *node* is exactly *width* - 1, a number."""
    return last_number(node) == width - 1


def _lost(node: loop_ast.AstNode) -> set[str]:
    """Return the loops that isl printed without a C loop somewhere below *node*."""
    match node:
        case loop_ast.Mark(name=name, body=body):
            return _lost(body) | (set() if _is_loop(body) else {name})
        case loop_ast.Block(children=children):
            return {name for child in children for name in _lost(child)}
        case loop_ast.If(then=then, otherwise=otherwise):
            return _lost(then) | (_lost(otherwise) if otherwise is not None else set())
        case loop_ast.For(body=body):
            return _lost(body)
        case _:
            return set()


def _unopened(node: loop_ast.AstNode) -> list[str]:
    """Return the loops below *node*, outside any C loop, that have no C loop of their own."""
    match node:
        case loop_ast.Mark(name=name, body=body):
            own = [] if _is_loop(body) else [name]
            return list(dict.fromkeys([*own, *_unopened(body)]))
        case loop_ast.Block(children=children):
            return list(dict.fromkeys(n for child in children for n in _unopened(child)))
        case loop_ast.If(then=then, otherwise=otherwise):
            rest = _unopened(otherwise) if otherwise is not None else []
            return list(dict.fromkeys([*_unopened(then), *rest]))
        case _:
            return []


def _is_loop(node: loop_ast.AstNode) -> bool:
    """Return whether the band under a mark became nothing but C loops."""
    match node:
        case loop_ast.For():
            return True
        case loop_ast.Block(children=children):
            return all(_is_loop(child) for child in children)
        case loop_ast.If(then=then, otherwise=otherwise):
            return _is_loop(then) and (otherwise is None or _is_loop(otherwise))
        case _:
            return False


def _is_without_loop(node: loop_ast.AstNode) -> bool:
    """Return whether nothing of *node*, which is under a mark, is a C loop of that mark's band."""
    match node:
        case loop_ast.For():
            return False
        case loop_ast.Block(children=children):
            return all(map(_is_without_loop, children))
        case loop_ast.If(then=then, otherwise=otherwise):
            return _is_without_loop(then) and (otherwise is None or _is_without_loop(otherwise))
        case _:
            return True


def _last_of(kernel: Kernel) -> Loop | None:
    """Return the loop that the last of the kernel's blocks runs, if it has one."""
    return next((loop for loop in loops_of(kernel.tree) if loop.kind is LoopKind.LAST), None)


def _opened(node: loop_ast.AstNode) -> Iterator[str]:
    """Yield the loops of which isl printed C loops below *node*."""
    match node:
        case loop_ast.Mark(name=name, body=loop_ast.For(body=body)):
            yield name
            yield from _opened(body)
        case loop_ast.Block(children=children):
            for child in children:
                yield from _opened(child)
        case loop_ast.If(then=then, otherwise=otherwise):
            yield from _opened(then)
            if otherwise is not None:
                yield from _opened(otherwise)
        case loop_ast.For(body=body) | loop_ast.Mark(body=body):
            yield from _opened(body)


def _needs_wide_index(parent: _PlanPrinter, kernel: Kernel) -> bool:
    """Return whether an element's distance or an index may not fit 32 bits."""
    if parent.sizes.is_open:
        return True
    arrays = [parent.scop.arrays[name] for name in _arrays_of(parent.plan, kernel)]
    if any(_reach(array) >= _INDEX_LIMIT for array in arrays):
        return True
    for name in statements_of(kernel.tree):
        domain = parent.scop.by_name[name].domain
        for dim in range(len(parent.scop.by_name[name].indices)):
            bounds = constant_bounds(domain, dim)
            if bounds is not None and max(abs(b) for b in bounds) >= _INDEX_LIMIT:
                return True
    return False


def _reach(array: Array) -> int:
    """Return the largest distance of an element from the array's pointer, in elements."""
    extents = [extent for extent in array.shape if isinstance(extent, int)]
    if array.strides is None:
        total = 1
        for extent in extents:
            total *= max(extent, 1)
        return total
    return sum(map(_span, extents, array.strides))


def _span(extent: int, stride: Stride) -> int:
    """Return how far the last of *extent* elements is from the first, or a sum on the way there."""
    if isinstance(stride, Interleaved):
        within = (stride.run - 1) * abs(stride.step)
        runs = (extent - 1) // stride.run
        # As it is computed: all steps as if there was one run, and what that is off by.
        off = runs * abs(stride.outer - stride.run * stride.step)
        return max(runs * abs(stride.outer) + within, (extent - 1) * abs(stride.step) + off)
    return (extent - 1) * abs(stride or 0)
