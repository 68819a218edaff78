"""The loops, guards and sequences of a kernel, as isl generated them.

A loop of which isl printed no C loop guards what is below it: its iteration is run by one block or
thread.  Loops above the threads' have bounds that no thread number is in: the threads of a block
run them together, and meet every barrier.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from tcdsl.codegen import loop_ast
from tcdsl.codegen.blocked_sums import BlockedSums
from tcdsl.codegen.c_statements import as_factor, mentions
from tcdsl.codegen.cuda_kernel import AXES
from tcdsl.codegen.cuda_sums import SumsPrinter
from tcdsl.codegen.isl_texts import cuda_text
from tcdsl.codegen.late_checks import late_checks
from tcdsl.codegen.loaded_bounds import SHORT_RANGE, LoadedBounds, loaded_bounds
from tcdsl.codegen.opened_loops import is_without_loop
from tcdsl.codegen.spans import Span
from tcdsl.lang.comprehension import Expr
from tcdsl.poly.loop_tree import MAPPED, Loop, LoopKind
from tcdsl.transforms.stitching import kept_axes


class LoopPrinter(SumsPrinter):
    """Prints all that is in a kernel; *sums* are set once its loops are known."""

    sums: BlockedSums

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
                before, of_threads, spans = self.eliminated, self.of_threads, self.spans
                self.eliminated = [*before, *lost]
                self.of_threads = self._of_threads(node, own)
                self.spans = self._spans(node, own)
                self._for(node, depth, own, active)
                self.eliminated, self.of_threads, self.spans = before, of_threads, spans
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
            is_lost = loop is not pending[-1] or is_without_loop(node)
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
        for axis in reversed(kept_axes(self.mapped)):
            me, width = f"blockIdx.{AXES[axis]}", self.mapped.grid[axis]
            number = me if number == "0" else f"({number}) * {width} + {me}"
        tickets = self.names.of("ticket", "tickets")
        place = tickets if number == "0" else f"{tickets} + {number}"
        self._emit(depth, f"// the last of {last.width} blocks")
        self._emit(depth, f"if (tc_last_block({place}, {last.width})) {{")
        self._node(body, depth + 1, pending, [])
        self._emit(depth, "}")

    def _if(
        self, node: loop_ast.If, depth: int, pending: tuple[Loop, ...], active: list[str]
    ) -> None:
        """Print a guard; where all threads of a block must come to what is in it, a predicate."""
        condition = cuda_text(node.condition)
        if self._must_be_met(condition, node):
            name = self._predicate(depth, condition)
            self._node(node.then, depth, pending, [*active, name])
            if node.otherwise is not None:
                self._node(node.otherwise, depth, pending, [*active, f"!{name}"])
            return
        self._emit(depth, f"if ({condition}) {{")
        self._node(node.then, depth + 1, pending, active)
        if node.otherwise is not None:
            self._emit(depth, "} else {")
            self._node(node.otherwise, depth + 1, pending, active)
        self._emit(depth, "}")

    def _of_threads(self, node: loop_ast.For, loop: Loop) -> frozenset[str]:
        """Return the variables in the body of *node* that may differ between threads."""
        bounds = f"{node.init} {node.condition}"
        differs = loop.kind is LoopKind.THREAD or any(mentions(bounds, v) for v in self.of_threads)
        own = frozenset({node.variable})
        return self.of_threads | own if differs else self.of_threads - own

    def _spans(self, node: loop_ast.For, loop: Loop) -> Mapping[str, Span]:
        """Return the values of the variables in the body of *node*, where one turn has them all."""
        around = {name: span for name, span in self.spans.items() if name != node.variable}
        if loop.kind in MAPPED and loop.has_one_turn and self._has_many(loop):
            around[node.variable] = 0, loop.width - 1
        return around

    def _for(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        if active and not self._has_collective(node.body):
            self._emit(depth, f"if ({' && '.join(active)}) {{")
            self._for(node, depth + 1, loop, [])
            self._emit(depth, "}")
            return
        assert node.condition, "isl prints no loop of one iteration"
        late = [] if active else late_checks(self.scop, node, loop, self.placements)
        for leaf in late:
            wrong = f"w_wrong{len(self.late)}"
            self.late[id(leaf)] = wrong, node.variable
            self._emit(depth, f"{self.index_type} {wrong} = -1;", leaf.statement)
        self._loop(node, depth, loop, active)
        for leaf in late:
            self._record(leaf, depth)

    def _record(self, leaf: loop_ast.Leaf, depth: int) -> None:
        """Print the check *leaf* for the iteration of the loop before at which it failed."""
        wrong, variable = self.late[id(leaf)]
        texts = [re.sub(rf"\b{variable}\b", wrong, text) for text in leaf.iterators]
        where = loop_ast.Leaf(leaf.statement, tuple(texts), kept=leaf.kept)
        self._emit(depth, f"if ({wrong} >= 0) {{", leaf.statement)
        self._leaf(where, depth + 1, [])
        self._emit(depth, "}")

    def _loop(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        found = loaded_bounds(self.scop, node, loop)
        bounded = None if found is None else self._bounded(node, depth, found, active)
        node = bounded or node
        blocks = None if self._has_collective(node.body) else self.sums.of(node, loop)
        if bounded is not None and blocks is not None and blocks.turns:
            # Most ranges are short: what their blocks take would be more than what they add.
            width = loop.width if loop.kind in MAPPED and self._has_many(loop) else 1
            self._open(depth, f"if ({node.init}_end - {node.init} <= {SHORT_RANGE * width})")
            if not self._in_batches(node, depth + 1, loop, active):
                self._whole_loop(node, depth + 1, loop, active)
            self._emit(depth, "} else {")
            assert self._in_blocks(node, depth + 1, loop, blocks, active)
            self._emit(depth, "}")
        elif blocks is not None and self._in_blocks(node, depth, loop, blocks, active):
            return
        elif bounded is None or not self._in_batches(node, depth, loop, active):
            self._whole_loop(node, depth, loop, active)

    def _whole_loop(self, node: loop_ast.For, depth: int, loop: Loop, active: list[str]) -> None:
        """Print *node*, its sums not in blocks."""
        if loop.kind in MAPPED:
            self._mapped_loop(node, depth, loop, active)
        elif loop.kind in (LoopKind.UNROLL, LoopKind.LANES):
            self._lanes_or_unrolled(node, depth, loop, active)
        else:
            self._open(depth, self._head(node))
            self._emit_all(depth + 1, self._prefetches(node, loop))
            self._body(node, depth, loop, active)

    def _bounded(
        self, node: loop_ast.For, depth: int, found: LoadedBounds, active: Sequence[str]
    ) -> loop_ast.For | None:
        """Return *node* with bounds that are loaded before it; None if they change in it."""
        name = f"w_range{self.n_ranges}"

        def text(leaf: loop_ast.Leaf, expr: Expr) -> str:
            return self._printer(leaf).outside(expr)

        bounded = found.bounded(node, name, text, cuda_text, is_narrow=not self.wide)
        if bounded is None:
            return None
        self.n_ranges += 1
        # A thread that is not active has no row, and would load from outside its arrays.
        guard = f"{' && '.join(active)} ? " if active else ""
        for number, value in ((name, bounded.first), (f"{name}_end", bounded.end)):
            chosen = f"{guard}{value} : 0" if guard else value
            line = f"const {self.index_type} {number} = ({self.index_type})({chosen});"
            self._emit(depth, line, found.leaves[0].statement)
        return bounded.node

    def _prefetches(self, node: loop_ast.For, loop: Loop) -> list[str]:
        """Return the lines that ask for what the next iteration of *loop* loads."""
        values = next(loop_ast.leaves(node)).values
        found = self.ahead.get(loop.name, ())
        if not found or node.step != "1" or values.get(loop.name) != node.variable:
            return []
        values = {**values, loop.name: "w_next"}
        condition = re.sub(rf"\b{node.variable}\b", "w_next", cuda_text(node.condition))
        first = [
            f"threadIdx.{a} == 0" for a, n in zip(AXES, self.mapped.block, strict=True) if n > 1
        ]
        lines = []
        for prefetch in found:
            array = self.scop.arrays[prefetch.array]
            terms = [
                f"{factor} * {as_factor(cuda_text(values[name]))}"
                for name, factor in prefetch.factors.items()
                if factor
            ]
            terms += [str(prefetch.constant)] if prefetch.constant else []
            place = f"&{self.names.of('array', array.name)}[{' + '.join(terms)}]"
            lines.append(f"  tc_prefetch({place}, {prefetch.size_bytes});")
        return [
            f"const {self.index_type} w_next = {node.variable} + 1;",
            f"if ({' && '.join([*first, condition])}) {{",
            *lines,
            "}",
        ]
