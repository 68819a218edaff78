"""Loops whose sums are cut into blocks (``blocked_sums.py``), as CUDA.

    for (c = me; c <= last; c += 32)       for (b = me; b <= last; b += 512) {
      s += x[c];                   --->      const float aside = s;  s = 0;
                                             for (c = b; c <= min(last, b + 511); c += 32)
                                               s += x[c];
                                             s = aside + s;
                                           }

Where a block's turns are few and simple they are counted, as those of a thread are.
"""

from tcdsl.codegen import loop_ast
from tcdsl.codegen.blocked_sums import BlockedSums, Blocks, Policy, set_aside
from tcdsl.codegen.cuda_lanes import LanesPrinter
from tcdsl.codegen.cuda_turns import TurnsPrinter
from tcdsl.codegen.index_width import STRIDE_LIMIT
from tcdsl.codegen.isl_texts import cuda_text
from tcdsl.codegen.turns import Turns, last_of
from tcdsl.poly.loop_tree import MAPPED, Loop

# Accumulators are registers: few additions more, and few values set aside.
_SUM_BLOCK, _MOST_BLOCKS, _MOST_SET_ASIDE = 16, 32, 8
# The four of a column take a block of threads from 32 registers each to 44.
_LONG_SUMS = (64, 256)


class SumsPrinter(LanesPrinter, TurnsPrinter):
    """Prints loops in blocks."""

    def _blocked_sums(self, ast: loop_ast.AstNode) -> BlockedSums:
        """Return which loops of the kernel *ast* are printed in blocks."""
        policy = Policy(self._turns, _SUM_BLOCK, _MOST_BLOCKS, _MOST_SET_ASIDE, _LONG_SUMS)
        return BlockedSums(self.scop, ast, self.loops, self.placements, policy)

    def _turns(self, loop: Loop) -> int | None:
        """Return how often a thread runs the body of *loop*."""
        is_shared = loop.kind in MAPPED and self._has_many(loop)
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
        is_shared = loop.kind in MAPPED and self._has_many(loop)
        if is_shared and node.step != "1":
            return False
        step = loop.width if is_shared else int(node.step)
        first, last = cuda_text(node.init), cuda_text(last)
        if is_shared:
            me = self._me(loop)
            first = me if first == "0" else f"tcdsl_first({first}, {me}, {step})"
        ends = []
        for size in reversed(blocks.turns):
            number, stride = self.n_blocks, step * size
            self.n_blocks += 1
            block, end = f"w_block{number}", f"w_last{number}"
            type_ = "int64_t" if stride >= STRIDE_LIMIT else self.index_type
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
