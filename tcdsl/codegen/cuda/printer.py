"""Plans as CUDA: a __global__ function a kernel, mapped loops as strides over blocks and threads.

What only fills an array is no function, but a memset (``cuda/memsets.py``), and what a library
computes is its call (``cuda/library_calls.py``).

    THREAD.x[256] j in 0:n     if (threadIdx.x < n) { const int j = threadIdx.x; ... }   n <= 256
                               for (int j = threadIdx.x; j < n; j += 256) ...            else

Loops above the threads' have bounds that no thread number is in: the threads of a block run them
together, and meet every barrier.  A collective below a guarded thread loop is called by all
threads, and the guard moves to what is around the call.

From the whole to its parts: each has those that it prints by, and all have the kernel's text::

    printer       the text of a plan, the function of a kernel
    overlap       which kernels begin before others have ended
    loops         sequences, guards, last blocks, and which of these a loop is
    sums            loops whose sums are cut into blocks
    iterations           loops over blocks and threads
    lanes           short loops: unrolled, folded at once, vectors
    leaves        the guards and indices of a statement
    statements    the statement
    kernel        what they share: declarations, who runs a loop
    changing      which loads must not be merged with others
    plan          what kernels share: names, sizes, the workspace

They return nodes (``ast``), on which ``passes`` work before ``ast/text`` prints them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import binary, both, template
from tcdsl.codegen.ast.isl_code import CUDA
from tcdsl.codegen.ast.nodes import Call, Declare, Evaluate, If, Literal, Node, Type, Variable
from tcdsl.codegen.ast.opened_loops import lost_loops
from tcdsl.codegen.ast.text import Line, lines
from tcdsl.codegen.ast.walk import library_names
from tcdsl.codegen.cuda.boxes import barriers_from, map_name
from tcdsl.codegen.cuda.folds import TURNS
from tcdsl.codegen.cuda.helpers import HELPERS
from tcdsl.codegen.cuda.kernel import KernelText
from tcdsl.codegen.cuda.library_calls import library_call
from tcdsl.codegen.cuda.loops import LoopPrinter
from tcdsl.codegen.cuda.memsets import memset_of
from tcdsl.codegen.cuda.overlap import Start, starts_of
from tcdsl.codegen.cuda.plan import PlanText
from tcdsl.codegen.cuda.source import AnyLaunch, CudaSource, Memset, Overlap
from tcdsl.codegen.cuda.statements import thread_index
from tcdsl.codegen.passes.tidy import without_idle_braces
from tcdsl.codegen.passes.uniformity import why_not_uniform
from tcdsl.codegen.passes.waits import with_waits
from tcdsl.costmodel.registers import FEW_REGISTERS
from tcdsl.errors import INTERNAL
from tcdsl.poly.loop_tree import MAPPED, statements_of
from tcdsl.poly.loop_tree import Node as Tree
from tcdsl.poly.scop import PRODUCER
from tcdsl.schedule.packing import Blocks, own_blocks
from tcdsl.schedule.pipelines import only, roles_of
from tcdsl.schedule.plan import Kernel, Plan, arrays_of
from tcdsl.schedule.stitching import last_loop


def print_cuda(plan: Plan, known_alignments: Mapping[str, int] | None = None) -> CudaSource:
    """Return *plan* as CUDA.

    :arg known_alignments: bytes of which arguments' pointers are multiples; 16 for others.
    """
    return _PlanPrinter(plan, known_alignments or {}).print()


class _PlanPrinter(PlanText):
    """Prints all kernels of a plan."""

    def print(self) -> CudaSource:
        found: list[Line] = []
        used: set[str] = set()
        launches: list[AnyLaunch] = []
        kernels = self.plan.kernels
        others = [library_call(self, kernel) or self._memset(kernel) for kernel in kernels]
        steps = [k if other is None else None for k, other in zip(kernels, others, strict=True)]
        starts = [*starts_of(self, steps), Start(Overlap.ORDERED)]  # a program may follow
        for number, (kernel, other) in enumerate(zip(kernels, others, strict=True)):
            if other is not None:
                first = next(statements_of(kernel.tree))
                found += [Line(f"// {kernel.name}: {why}", first) for why in other.why]
                found.append(Line(""))
                launches.append(other)
                continue
            printer = _KernelPrinter(KernelText(self, kernel, number, starts[number]))
            body = printer.body(starts[number + 1])
            found += [*map(Line, printer.head()), Line("{"), *lines(body, 1), Line("}"), Line("")]
            used |= library_names(body)
            launches.append(printer.text.launch)
        helpers = [text for name, text in HELPERS.items() if name in used]
        found[:0] = [Line(line) for helper in helpers for line in helper.split("\n")]
        return CudaSource(
            "\n".join(line.text for line in found),
            frozenset(name for name in used if name.startswith("tc_")), tuple(launches),
            self.workspace_bytes, tuple(self.sites), self.sizes.integers, self.alignments,
            self.rooms, tuple(line.statement for line in found),
        )  # fmt: skip

    def _memset(self, kernel: Kernel) -> Memset | None:
        """Return the memset that does what *kernel* does, or None."""
        names = arrays_of(self.plan, kernel)
        if len(names) != 1 or names[0] in self.plan.placements:
            return None
        return memset_of(self.scop, kernel, self.parameter(self.scop.arrays[names[0]]))


class _KernelPrinter:
    """Prints one kernel."""

    def __init__(self, text: KernelText) -> None:
        self.text = text
        self.loops = LoopPrinter(text)

    def body(self, follower: Start) -> list[Node]:
        """Return the nodes of the kernel; *follower* begins next.

        :raises InternalError: not all threads would meet a barrier.
        """
        nodes = self._roles() if self.text.pipelines else self._tree(self.text.kernel.tree)
        # The alignment of what is shared is known now.
        body = without_idle_braces([*self.text.shared_arrays(), *nodes])
        sizes = [*map(self.text.parent.sizes.name, self.text.parent.sizes.integers)]
        uniform = [*sizes, self.text.names.of("ticket", "tickets"), *self._unchanged()]
        reason = (
            why_not_uniform(body, self.text.mapped.threads, uniform)
            or self.loops.leaves.why_not_once()
        )
        if reason is not None:
            raise INTERNAL(where=f"printing {self.text.name}", what=reason, repro="the program")
        if self.text.mapped.cluster > 1:
            found = self.text.slots
            slots = (Type(str(len(found.numbers))),) if found.numbers else ()
            if found.in_turns:
                slots = (*slots, Type("true"))
                body = (Declare(Type("uint32_t"), (Variable(TURNS, Literal("0")),)), *body)
            begin, end = (Call(f"tc_cluster_{end}", template=slots) for end in ("begin", "end"))
            body = (Evaluate(begin), *body, Evaluate(end))
        touched = self.text.start.first_touched
        ordered = None if touched is None else self._names_of(touched)
        return with_waits(body, self.text.start.overlap, follower.overlap, ordered, sizes)

    def _tree(self, tree: Tree) -> list[Node]:
        """Return the nodes of *tree*."""
        ast = loop_ast.generate(self.text.scop, tree, self.text.placements, self._asked, CUDA)
        return self.loops.tree(ast)

    def _roles(self) -> list[Node]:
        """Return what each role does; a thread of the first warp after the others is the producer.

        All of a block's threads take its ticket, after that.  Where those that multiply want more
        registers, the producer's four warps give up theirs.
        """
        _, _, warps = self.text.mapped.block
        blocks = prod(self.text.mapped.neighbours)
        nodes: list[Node] = []
        for stages, first in self.text.barriers.items():
            sizes = [stages, warps] if blocks == 1 else [stages, warps, blocks]
            begin = template("tc_begin_pipeline", sizes, barriers_from(first))
            nodes.append(Evaluate(replace(begin, participants="xyz")))
        # What is in shared memory stays while the others of a cluster may copy to it.
        end = [] if blocks == 1 else [Evaluate(Call("tc_end_pipeline", participants="xyz"))]
        is_other = binary(thread_index(2), "<", warps)
        is_producer = both([
            binary(thread_index(2), "==", warps), binary(thread_index(0), "==", 0)
        ])  # fmt: skip
        last = last_loop(self.text.kernel.tree)
        late: frozenset[str] = frozenset() if last is None else frozenset(statements_of(last.body))
        if registers := self.text.kernel.code.thread_registers:
            assert last is None, "all threads have as many there"
            roles = roles_of(self.text.scop, self.text.kernel.tree)
            fills = If(is_producer, tuple(self._of(frozenset(roles[PRODUCER]))), is_role=True)
            others = self._of(frozenset(roles[""]))
            fewer, more = (_registers(count) for count in (FEW_REGISTERS, registers))
            is_filling = binary(thread_index(2), ">=", warps)
            both_roles = If(is_filling, (fewer, fills), (more, *others), PRODUCER, is_role=True)
            return [*nodes, both_roles, *end]
        for role, names in roles_of(self.text.scop, self.text.kernel.tree).items():
            condition = is_producer if role == PRODUCER else is_other
            own = self._of(frozenset(names) - late)
            comment = role or "the others"
            nodes.append(If(condition, tuple(own), comment=comment, is_role=True))
        return [*nodes, *end, *(self._of(late) if late else [])]

    def _of(self, names: frozenset[str]) -> list[Node]:
        """Return the nodes of the statements *names*, of each part of the launch in its blocks."""
        self.text.role = names
        if len(self.text.pipelines) < 2:
            tree = only(self.text.kernel.tree, names)
            assert tree is not None, "a role without statements"
            return self._tree(tree)
        axis, parts = own_blocks(self.text.mapped)
        found: list[Node] = []
        for blocks in reversed(parts):
            own = self._in_blocks(blocks, axis, names)
            end = blocks.first[axis] + blocks.count[axis]
            is_here = binary(self.text.block(axis), "<", end)
            found = [If(is_here, tuple(own), tuple(found))] if found else own
        return found

    def _in_blocks(self, blocks: Blocks, axis: int, names: frozenset[str]) -> list[Node]:
        """Return the nodes of those of *names* that *blocks*, counted along *axis*, run."""
        tree = only(blocks.part.tree, names)
        assert tree is not None, "a role without statements in a part of the launch"
        with self.text.only_in(blocks):
            nodes = self._tree(tree)
        grid = self.text.mapped.grid
        beyond = [
            binary(self.text.block(other), "<", count)
            for other, (count, n) in enumerate(zip(blocks.count, grid, strict=True))
            if other != axis and count < n
        ]
        return [If(both(beyond), tuple(nodes))] if beyond else nodes

    def _names_of(self, arrays: Collection[str]) -> set[str]:
        """Return the names by which the kernel knows *arrays*."""
        names = (name for pipeline in self.text.pipelines for name in pipeline.copies)
        copies = map(self.text.scop.by_name.__getitem__, names)
        maps = {map_name(self.text.names, copy) for copy in copies if copy.reads[0].array in arrays}
        return maps | {self.text.names.of("array", name) for name in arrays}

    def head(self) -> list[str]:
        """Return the lines before the body."""
        launch = self.text.launch
        parameters = ",\n    ".join(p.declaration for p in launch.parameters)
        cluster = ", ".join(map(str, launch.cluster_dims))
        dims = f"__cluster_dims__({cluster}) " if launch.cluster > 1 else ""
        resident = self.text.kernel.code.resident_blocks
        bounds = f"__launch_bounds__({prod(launch.block)}{f', {resident}' if resident else ''})"
        return [
            f"// {self.text.kernel.name}: {_times(launch.grid)} blocks of"
            f" {_times(launch.block)} threads",
            *map("// {}".format, launch.why),
            f'extern "C" __global__ void {dims}{bounds} {self.text.name}(',
            *f"    {parameters})".split("\n"),
        ]

    def _unchanged(self) -> list[str]:
        """Return the arrays in memory that the kernel only reads: all threads find the same."""
        written = {
            w.array for name in self.text.mapped.paths for w in self.text.scop.by_name[name].writes
        }
        read = {
            r.array for name in self.text.mapped.paths for r in self.text.scop.by_name[name].reads
        }
        names = sorted(read - written - self.text.placements.keys())
        return [self.text.names.of("array", name) for name in names]

    def _asked(self, ast: loop_ast.AstNode) -> Collection[str]:
        """Return the loops whose coordinates leaves tell: who runs them, what is prefetched."""
        ahead = {name for found in self.text.ahead.values() for p in found for name in p.factors}
        lost = {name for name in lost_loops(ast) if self.text.loops[name].kind in MAPPED}
        return ahead | {name for name in lost if self.text.has_many(self.text.loops[name])}


def _registers(count: int) -> Node:
    """Return the call with which the threads of four warps have *count* registers from now on."""
    return Evaluate(template("tc_have_registers", [count, int(count > FEW_REGISTERS)]))


def _times(dims: Sequence[int]) -> str:
    kept = list(dims)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))
