"""Prints loops whose sums are cut into blocks (codegen/passes/blocked_sums), rows by turns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import binary, call, code
from tcdsl.codegen.ast.nodes import Code, For, Name, Node, Scope, Type
from tcdsl.codegen.ast.text import text
from tcdsl.codegen.c.saved_rows import Range, Saved, saved_by_turns, turns_of
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.names import Names
from tcdsl.codegen.passes.blocked_sums import BlockedSums, Blocks, Nest, set_aside
from tcdsl.codegen.passes.iterations import last_of
from tcdsl.poly.loop_tree import Loop
from tcdsl.poly.scop import Scop
from tcdsl.schedule.placement import Placement

_INDEX = "int64_t"
# Prints a loop with a pragma, and with nodes before its body.
WholeLoop = Callable[[loop_ast.For, Loop, str, Sequence[Node]], Node]
Cut = Callable[[Sequence[Node]], Node]


class SumsPrinter:
    """Prints the serial loops of a kernel that have blocks, or that are the blocks of a nest."""

    def __init__(self, scop: Scop, names: Names, sums: BlockedSums, whole_loop: WholeLoop) -> None:
        self.scop = scop
        self.names = names
        self.sums = sums
        self.whole_loop = whole_loop
        self.n_blocks = 0
        self.open: tuple[Nest, list[Saved]] | None = None  # whose loops are being printed

    def cut(self, node: loop_ast.For, loop: Loop, *, is_bounded: bool) -> Cut | None:
        """Return what prints *node* in blocks, None where it has none.

        :arg is_bounded: whether data say where it ends.
        """
        if self.open is not None:
            nest, saved = self.open
            if nest.innermost is not node:
                return None
            return lambda early: _scope(self._by_turns(node, loop, saved, nest.iterations, early))
        nested = None if is_bounded else self.sums.nest(node, loop)
        if nested is not None and turns_of(nested.accumulators, nested.iterations) > 1:
            return partial(self._nest, node, loop, nested)
        blocks = self.sums.of(node, loop)
        if blocks is None or not blocks.iterations:
            return None
        return partial(self._in_blocks, node, loop, blocks)

    def _nest(self, node: loop_ast.For, loop: Loop, nest: Nest, early: Sequence[Node]) -> Node:
        """Return *node*, in whose innermost loops rows of accumulators are saved by turns."""
        clear, after, saved = self._set_aside(nest.accumulators)
        self.open = nest, saved
        whole = self.whole_loop(node, loop, "", early)
        self.open = None
        return Scope((*clear, whole, *after))

    def _in_blocks(
        self, node: loop_ast.For, loop: Loop, blocks: Blocks, early: Sequence[Node]
    ) -> Node:
        """Return *node*, its sums in *blocks*."""
        assert node.step is not None, "the last value is known"
        first, last, step = node.init, _last(node), int(text(node.step))
        # Loops in an iteration would be printed for each turn: of 64 filters of three taps (a 3x3
        # convolution, AVX2) 22.7 ms, all at once 17.8.
        has_turns = blocks.each == 1 and turns_of(blocks.accumulators, blocks.iterations[0]) > 1
        around: list[tuple[For, list[Node]]] = []
        for size in reversed(blocks.iterations[has_turns:]):
            block, end, stride = f"w_block{self.n_blocks}", f"w_last{self.n_blocks}", step * size
            limit = call("min", last, binary(block, "+", stride - 1))
            clear, after, _ = self._set_aside(blocks.accumulators)
            before = (constant(_INDEX, end, limit), *clear)
            is_left = binary(block, "<=", last)
            around.append((For(Type(_INDEX), block, first, is_left, code(stride), before), after))
            first, last = Name(block), Name(end)
        if has_turns:
            clear, after, saved = self._set_aside(blocks.accumulators)
            own = replace(node, init=first, condition=binary(node.variable, "<=", last))
            turns = self._by_turns(own, loop, saved, blocks.iterations[0], early)
            found = [*clear, *turns, *after]
        else:
            found = [self._between(node, loop, early)(first, last)]
        for head, after in reversed(around):
            found = [replace(head, body=(*head.body, *found, *after))]
        return _scope(found)

    def _by_turns(
        self,
        node: loop_ast.For,
        loop: Loop,
        saved: Sequence[Saved],
        iterations: int,
        early: Sequence[Node],
    ) -> list[Node]:
        """Return *node* in blocks of *iterations*, in which rows of accumulators are saved."""
        assert node.step is not None, "the last value is known"
        names = f"w_block{self.n_blocks}", f"w_rest{self.n_blocks}"
        self.n_blocks += 1
        over = Range(
            node.init, _last(node), int(text(node.step)), iterations, self.open is not None
        )
        return saved_by_turns(saved, over, names, self._between(node, loop, early))

    def _between(
        self, node: loop_ast.For, loop: Loop, early: Sequence[Node]
    ) -> Callable[[Code, Code], Node]:
        """Return what prints *node* from a first value to a last one."""
        whole = self.whole_loop(node, loop, "", early)
        assert isinstance(whole, For), "it has a condition"

        def between(first: Code, last: Code) -> Node:
            return replace(whole, first=first, condition=binary(node.variable, "<=", last))

        return between

    def _set_aside(
        self, accumulators: Iterable[Placement]
    ) -> tuple[list[Node], list[Node], list[Saved]]:
        """Return what clears the accumulators, what adds to them what they held, their names."""
        clear: list[Node] = []
        back: list[Node] = []
        saved = []
        for placement in accumulators:
            aside = f"w_sum{self.n_blocks}"
            self.n_blocks += 1
            before, after = set_aside(placement, self.scop, self.names, aside, "#pragma omp simd")
            clear += before
            back += after
            dtype, name = self.scop.arrays[placement.array].dtype, placement.array
            saved.append(Saved(placement, dtype, self.names.of("array", name), aside))
        return clear, back, saved


def _last(node: loop_ast.For) -> Code:
    last = last_of(node)
    assert last is not None, "cut asks first"
    return last


def _scope(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Scope(tuple(nodes))
