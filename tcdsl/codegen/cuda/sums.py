"""Loops whose sums are cut into blocks (``passes/blocked_sums.py``), as CUDA.

    for (c = me; c <= last; c += 32)       for (b = me; b <= last; b += 512) {
      s += x[c];                   --->      const float aside = s;  s = 0;
                                             for (c = b; c <= min(last, b + 511); c += 32)
                                               s += x[c];
                                             s = aside + s;
                                           }

Where a block's iterations are few and simple they are counted, as those of a thread are.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ONE, ZERO, binary, call, code, number
from tcdsl.codegen.ast.nodes import Code, For, If, Name, Node, Type
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.cuda.index_width import STRIDE_LIMIT
from tcdsl.codegen.cuda.iterations import IterationsPrinter
from tcdsl.codegen.cuda.kernel import KernelText
from tcdsl.codegen.cuda.lanes import LanesPrinter
from tcdsl.codegen.passes.blocked_sums import BlockedSums, Blocks, Policy, set_aside
from tcdsl.codegen.passes.iterations import Iterations, last_of
from tcdsl.poly.loop_tree import MAPPED, Loop

_MOST_BLOCKS, _MOST_SET_ASIDE = 32, 8
# The four of a column take a block of threads from 32 registers each to 44.
_LONG_SUMS = (64, 256)


class SumsPrinter:
    """Prints loops in blocks."""

    def __init__(
        self, text: KernelText, lanes: LanesPrinter, iterations: IterationsPrinter
    ) -> None:
        self.text = text
        self.lanes = lanes
        self.iterations = iterations

    def blocked_sums(self, ast: loop_ast.AstNode) -> BlockedSums:
        """Return which loops of the kernel *ast* are printed in blocks."""
        terms = self.text.kernel.code.sum_terms
        policy = Policy(self._iterations, terms, _MOST_BLOCKS, _MOST_SET_ASIDE, _LONG_SUMS)
        return BlockedSums(self.text.scop, ast, self.text.loops, self.text.placements, policy)

    def _iterations(self, loop: Loop) -> int | None:
        """Return how often a thread runs the body of *loop*."""
        is_shared = loop.kind in MAPPED and self.text.has_many(loop)
        return loop.extent and -(-loop.extent // loop.width) if is_shared else loop.extent

    def in_blocks(
        self, node: loop_ast.For, loop: Loop, blocks: Blocks, active: Sequence[Code]
    ) -> list[Node] | None:
        """Return *loop*, its sums in *blocks*; None where it has another form than that."""
        if not blocks.iterations:
            before, after = self._set_aside(blocks)
            return [*before, *self.lanes.lanes_or_unrolled(node, loop, active), *after]
        last = last_of(node)
        is_shared = loop.kind in MAPPED and self.text.has_many(loop)
        if last is None or (is_shared and node.step != ONE):
            return None
        first, step = node.init, loop.width if is_shared else number(node.step)
        assert step is not None, "the last value is known"
        if is_shared:
            me = self.text.me(loop)
            first = me if first == ZERO else call("tcdsl_first", first, me, step)
        around: list[tuple[For, list[Node]]] = []
        for size in reversed(blocks.iterations):
            head, after, end = self._block(first, last, step * size, blocks)
            around.append((head, after))
            first, last = Name(head.variable), end
        found = self._one_block(node, (first, last, step), blocks.iterations[0], loop, active)
        for head, after in reversed(around):
            found = [replace(head, body=(*head.body, *found, *after))]
        return found

    def _block(
        self, first: Code, last: Code, stride: int, blocks: Blocks
    ) -> tuple[For, list[Node], Name]:
        """Return a loop over blocks, with what is before its body, what is after, and a last value.

        A block ends *stride* values after it begins, or with the loop.
        """
        block, end = f"w_block{self.text.n_blocks}", f"w_last{self.text.n_blocks}"
        self.text.n_blocks += 1
        type_ = "int64_t" if stride >= STRIDE_LIMIT else self.text.index_type
        limit = constant(type_, end, call("tc_imin", last, binary(block, "+", stride - 1)))
        before, after = self._set_aside(blocks)
        is_left = binary(block, "<=", last)
        head = For(Type(type_), block, first, is_left, code(stride), (limit, *before))
        return head, after, Name(end)

    def _one_block(
        self,
        node: loop_ast.For,
        bounds: tuple[Code, Code, int],
        size: int,
        loop: Loop,
        active: Sequence[Code],
    ) -> list[Node]:
        """Return the iterations of a block, which are *size* if it is whole."""
        first, last, step = bounds
        if not self.iterations.is_simple(node.body):
            return [self._between(node, bounds, loop, active)]
        is_whole = binary(binary(first, "+", step * (size - 1)), "<=", last)
        whole = self.iterations.counted(node, (first, step), Iterations(size, size), loop, active)
        return [If(is_whole, tuple(whole), (self._between(node, bounds, loop, active),))]

    def _between(
        self,
        node: loop_ast.For,
        bounds: tuple[Code, Code, int],
        loop: Loop,
        active: Sequence[Code],
    ) -> Node:
        """Return the iterations of *node* from a first value to a last one, in steps."""
        first, last, step = bounds
        is_left = binary(node.variable, "<=", last)
        body = self.text.body(node, loop, active)
        return For(Type(self.text.index_type), node.variable, first, is_left, code(step), body)

    def _set_aside(self, blocks: Blocks) -> tuple[list[Node], list[Node]]:
        """Return what clears the accumulators of *blocks*, and adds to them what they held."""
        before: list[Node] = []
        after: list[Node] = []
        for placement in blocks.accumulators:
            aside = f"w_sum{self.text.n_blocks}"
            self.text.n_blocks += 1
            clear, back = set_aside(
                placement, self.text.scop, self.text.names, aside, "#pragma unroll"
            )
            before += clear
            after += back
        return before, after
