"""Loops over blocks and threads: one iteration with a guard, a stride, or counted iterations.

    THREAD.x[256] j in 0:n     if (threadIdx.x < n) { const int j = threadIdx.x; ... }   n <= 256
                               for (int j = threadIdx.x; j < n; j += 256) ...            else
                               for (int w_turn0 = 0; w_turn0 < 8; w_turn0++) ...  passes/iterations

A collective below a guarded thread loop is called by all threads, and the guard moves to what is
around the call.
"""

from collections.abc import Sequence
from math import prod

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ONE, ZERO, binary, call, cast, code, substituted
from tcdsl.codegen.ast.nodes import Code, For, If, Name, Node, Scope, Type
from tcdsl.codegen.ast.opened_loops import opened_loops
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.cuda.kernel import KernelText, UnrolledLoop
from tcdsl.codegen.passes.iterations import Iterations, batch_of, covers, iterations_of, step_guard
from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import WARP
from tcdsl.poly.loop_tree import Loop, LoopKind, X, Z
from tcdsl.poly.scop import Kind

RANGE_BATCH = gpu_thresholds.RANGE_ITERATIONS
MOST_LEAVES_COUNTED = 4  # statements of a loop that is printed by iterations
MOST_THREADS_WITH_SEVERAL_TURNS = gpu_thresholds.THREADS_WITH_SEVERAL_TURNS


class IterationsPrinter:
    """Prints loops that blocks or threads share."""

    def __init__(self, text: KernelText) -> None:
        self.text = text

    def plain_loop(self, node: loop_ast.For, body: tuple[Node, ...]) -> Node:
        """Return *node* as isl made it."""
        assert node.condition is not None, "isl prints no loop of one iteration"
        step = None if node.step == ONE else node.step
        return For(Type(self.text.index_type), node.variable, node.init, node.condition, step, body)

    def mapped_loop(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> list[Node]:
        """Return a loop over blocks or threads: each takes every width-th iteration."""
        if not self.text.has_many(loop):
            return [self.plain_loop(node, self.text.body(node, loop, active))]
        if loop.has_one_iteration:
            return [self._one_iteration(node, loop, active)]
        iterations = iterations_of(node, loop.width) if node.init == ZERO else None
        if iterations is None or not self.is_simple(node.body):
            return [self._strided(node, loop, active)]
        counted = self.counted(node, (self.text.me(loop), loop.width), iterations, loop, active)
        if iterations.condition is None:
            return counted
        return [If(iterations.condition, tuple(counted), (self._strided(node, loop, active),))]

    def _one_iteration(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> Node:
        """Return the iteration that each block or thread runs, with a guard."""
        guards: list[Code] = [] if node.init == ZERO else [binary(node.variable, ">=", node.init)]
        if not covers(node, loop.width):
            assert node.condition is not None
            guards.append(node.condition)
        guards += step_guard(node)
        own = constant(self.text.index_type, node.variable, self.text.me(loop))
        before = self.text.lane_variable, self.text.warp_variables
        if loop.kind is LoopKind.THREAD and loop.axis == X:
            self.text.lane_variable = node.variable
        if loop.kind is LoopKind.THREAD and loop.axis == Z and self.text.mapped.block[0] == WARP:
            self.text.warp_variables |= {node.variable}
        body = self.text.guarded_body(node, loop, guards, active)
        self.text.lane_variable, self.text.warp_variables = before
        return Scope((own, *body))

    def _strided(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> Node:
        """Return a loop over blocks or threads as a stride over its values."""
        assert node.condition is not None
        me, width = self.text.me(loop), loop.width
        first = me if node.init == ZERO else call("tcdsl_first", node.init, me, width)
        inside = self.text.body(node, loop, active)
        for between in step_guard(node):
            inside = (If(between, inside),)
        type_ = Type(self.text.index_type)
        return For(type_, node.variable, first, node.condition, code(width), inside)

    def counted(
        self,
        node: loop_ast.For,
        way: tuple[Code, int],
        iterations: Iterations,
        loop: Loop,
        active: Sequence[Code],
    ) -> list[Node]:
        """Return the *iterations* of a thread in a loop, in batches, and what is left at once.

        :arg way: the first value that the thread takes, and the step to the next.
        """
        first, step = way
        assert node.condition is not None
        is_of_thread = first == self.text.me(loop)
        batch = self._batch(node.body)
        batched, total = iterations.in_batches(batch)
        found: list[Node] = []
        for start, stop in ((0, batched), (batched, total)):
            if start == stop:
                continue
            iteration = f"w_turn{self.text.n_counted}"
            self.text.n_counted += 1
            own = cast(self.text.index_type, iteration) if self.text.wide else Name(iteration)
            value = binary(first, "+", own if step == 1 else binary(step, "*", own))
            if is_of_thread:
                self.text.unrolled.append(UnrolledLoop(iteration, loop, step, total))
            inside = self.text.body(node, loop, active)
            if stop > iterations.whole:
                # Unrolled, the whole iterations ask nothing.
                guard, is_whole = node.condition, binary(iteration, "<", iterations.whole)
                guard = binary(is_whole, "||", guard) if iterations.whole > start else guard
                inside = (If(guard, inside),)
            if is_of_thread:
                self.text.unrolled.pop()
            body = (constant(self.text.index_type, node.variable, value), *inside)
            pragma = f"#pragma unroll {batch}" if stop == batched else "#pragma unroll"
            is_left = binary(iteration, "<", stop)
            found.append(For(Type("int"), iteration, code(start), is_left, None, body, pragma))
        return found

    def in_batches(
        self, node: loop_ast.For, loop: Loop, active: Sequence[Code]
    ) -> list[Node] | None:
        """Return a loop between loaded bounds in batches, whose loads start together.

        None where it has another form than that, or is no loop of one thread.
        """
        is_shared = loop.kind is LoopKind.THREAD and self.text.has_many(loop)
        batch = min(RANGE_BATCH, self._batch(node.body))
        if batch < 2 or node.step != ONE or not self.is_simple(node.body):
            return None
        if not is_shared and loop.kind is not LoopKind.SERIAL:
            return None
        assert node.condition is not None
        width, first = 1, node.init
        if is_shared:
            width, first = (
                loop.width,
                call("tcdsl_first", node.init, self.text.me(loop), loop.width),
            )
        iteration, start = f"w_turn{self.text.n_counted}", f"w_first{self.text.n_counted}"
        self.text.n_counted += 1
        type_ = Type(self.text.index_type)
        offset = Name(iteration) if width == 1 else binary(width, "*", iteration)
        own = constant(self.text.index_type, node.variable, binary(start, "+", offset))
        guarded = If(node.condition, self.text.body(node, loop, active))
        is_left = binary(iteration, "<", batch)
        one = For(Type("int"), iteration, ZERO, is_left, None, (own, guarded), "#pragma unroll")
        begun = substituted(node.condition, {node.variable: Name(start)})
        stride = code(batch * width)
        return [For(type_, start, first, begun, stride, (one,), "#pragma unroll 1")]

    def is_simple(self, node: loop_ast.AstNode) -> bool:
        """Return whether *node* is a few statements, or the lanes of vectors: worth unrolling.

        Values that only registers have are parts of the statements that they are computed for; in
        wide blocks they count, for several iterations would take the registers of a second block.
        """
        statements = [self.text.scop.by_name[leaf.statement] for leaf in loop_ast.leaves(node)]
        is_wide = prod(self.text.threads) > MOST_THREADS_WITH_SEVERAL_TURNS
        few = [s for s in statements
               if is_wide or s.kind is not Kind.ASSIGN or not self.text.is_private(s.write.array)
        ]  # fmt: skip
        return len(few) <= MOST_LEAVES_COUNTED and all(
            self.text.loops[name].kind in (LoopKind.LANES, LoopKind.UNROLL)
            for name in opened_loops(node)
        )

    def _batch(self, node: loop_ast.AstNode) -> int:
        """Return how many iterations of *node* to unroll."""
        return batch_of(self._load_bytes(node), self.text.kernel.code.unrolled_bytes)

    def _load_bytes(self, node: loop_ast.AstNode) -> int:
        """Return the bytes that a thread loads from memory in *node*, where that is simple."""
        lanes = prod(self.text.loops[name].extent or 1 for name in opened_loops(node))
        reads = {
            read.array
            for leaf in loop_ast.leaves(node)
            for read in self.text.scop.by_name[leaf.statement].reads
            if not self.text.is_private(read.array)
        }
        return lanes * sum(self.text.scop.arrays[name].dtype.size_bytes for name in reads)
