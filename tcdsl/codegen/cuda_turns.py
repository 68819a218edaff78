"""Loops over blocks and threads: one turn with a guard, a stride, or turns that are counted.

    THREAD.x[256] j in 0:n     if (threadIdx.x < n) { const int j = threadIdx.x; ... }   n <= 256
                               for (int j = threadIdx.x; j < n; j += 256) ...            else
                               for (int w_turn0 = 0; w_turn0 < 8; w_turn0++) ...         turns.py

A collective below a guarded thread loop is called by all threads, and the guard moves to what is
around the call.
"""

import re
from math import prod

from tcdsl.codegen import loop_ast
from tcdsl.codegen.cuda_kernel import KernelText, Turn
from tcdsl.codegen.isl_texts import cuda_text, step_text
from tcdsl.codegen.opened_loops import opened_loops
from tcdsl.codegen.turns import Turns, batch_of, covers, step_guard, turns_of
from tcdsl.poly.loop_tree import Loop, LoopKind

RANGE_BATCH = 4  # iterations between loaded bounds whose loads start together
MOST_LEAVES_IN_TURNS = 4  # statements of a loop that is printed by turns


class TurnsPrinter(KernelText):
    """Prints loops that blocks or threads share."""

    def _head(self, node: loop_ast.For) -> str:
        return (
            f"for ({self.index_type} {node.variable} = {cuda_text(node.init)};"
            f" {cuda_text(node.condition)}; {step_text(node)})"
        )

    def _mapped_loop(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print a loop over blocks or threads: each takes every width-th iteration."""
        me, variable, width = self._me(loop), node.variable, loop.width
        init, condition = cuda_text(node.init), cuda_text(node.condition)
        if not self._has_many(loop):
            self._open(depth, self._head(node))
            self._body(node, depth, loop, active)
        elif loop.has_one_turn:
            guards = [] if init == "0" else [f"{variable} >= {init}"]
            if not covers(node, width):
                guards.append(condition)
            if between := step_guard(node):
                guards.append(cuda_text(between))
            self._open(depth, "")
            self._emit(depth + 1, f"const {self.index_type} {variable} = {me};")
            is_on_threads = loop.kind is LoopKind.THREAD
            if guards and is_on_threads and self._has_collective(node.body):
                name = self._predicate(depth + 1, " && ".join(guards))
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
                self._emit(depth, f"if ({cuda_text(turns.condition)}) {{")
                self._in_turns(node, depth + 1, (me, width), turns, loop, active)
                self._emit(depth, "} else {")
                self._strided(node, depth + 1, loop, active)
                self._emit(depth, "}")
            else:
                self._in_turns(node, depth, (me, width), turns, loop, active)

    def _strided(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print a loop over blocks or threads as a stride over its values."""
        me, variable, width, init = self._me(loop), node.variable, loop.width, cuda_text(node.init)
        first = me if init == "0" else f"tcdsl_first({init}, {me}, {width})"
        head = f"{self.index_type} {variable} = {first}; {cuda_text(node.condition)}"
        self._open(depth, f"for ({head}; {variable} += {width})")
        if between := step_guard(node):
            self._emit(depth + 1, f"if ({cuda_text(between)}) {{")
            self._body(node, depth + 1, loop, active)
            self._emit(depth, "}")
        else:
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
                self.turns.append(Turn(turn, loop, step, total))
            if stop <= turns.whole:
                self._body(node, depth, loop, active)
            else:
                # Unrolled, the whole turns ask nothing.
                guard = cuda_text(node.condition)
                guard = f"{turn} < {turns.whole} || {guard}" if turns.whole > start else guard
                self._emit(depth + 1, f"if ({guard}) {{")
                self._body(node, depth + 1, loop, active)
                self._emit(depth, "}")
            if is_of_thread:
                self.turns.pop()

    def _in_batches(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> bool:
        """Print a loop between loaded bounds in batches, whose loads start together.

        Return False where it has another form than that, or is no loop of one thread.
        """
        is_shared = loop.kind is LoopKind.THREAD and self._has_many(loop)
        batch = min(RANGE_BATCH, batch_of(self._load_bytes(node.body)))
        if batch < 2 or node.step != "1" or not self._is_simple(node.body):
            return False
        if not is_shared and loop.kind is not LoopKind.SERIAL:
            return False
        width, first, condition = 1, node.init, cuda_text(node.condition)
        if is_shared:
            width, first = loop.width, f"tcdsl_first({node.init}, {self._me(loop)}, {loop.width})"
        turn = f"w_turn{self.n_turns}"
        start = f"w_first{self.n_turns}"
        self.n_turns += 1
        variable, type_ = node.variable, self.index_type
        begun = re.sub(rf"\b{variable}\b", start, condition)
        stride = batch * width
        self._emit(depth, "#pragma unroll 1")
        self._open(depth, f"for ({type_} {start} = {first}; {begun}; {start} += {stride})")
        self._emit(depth + 1, "#pragma unroll")
        self._open(depth + 1, f"for (int {turn} = 0; {turn} < {batch}; {turn}++)")
        offset = turn if width == 1 else f"{width} * {turn}"
        self._emit(depth + 2, f"const {type_} {variable} = {start} + {offset};")
        self._emit(depth + 2, f"if ({condition}) {{")
        self._body(node, depth + 2, loop, active)
        self._emit(depth + 1, "}")
        self._emit(depth, "}")
        return True

    def _is_simple(self, node: loop_ast.AstNode) -> bool:
        """Return whether *node* is a few statements, or the lanes of vectors: worth unrolling."""
        leaves = list(loop_ast.leaves(node))
        return len(leaves) <= MOST_LEAVES_IN_TURNS and all(
            self.loops[name].kind in (LoopKind.LANES, LoopKind.UNROLL)
            for name in opened_loops(node)
        )

    def _load_bytes(self, node: loop_ast.AstNode) -> int:
        """Return the bytes that a thread loads from memory in *node*, where that is simple."""
        lanes = prod(self.loops[name].extent or 1 for name in opened_loops(node))
        reads = {
            read.array
            for leaf in loop_ast.leaves(node)
            for read in self.scop.by_name[leaf.statement].reads
            if not self._is_private(read.array)
        }
        return lanes * sum(self.scop.arrays[name].dtype.size_bytes for name in reads)
