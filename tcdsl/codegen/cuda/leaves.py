"""The instances of one statement where they stand in a kernel: guards, indices, the statement.

    if (threadIdx.x == 3) {                        the guard of a loop that isl printed none of
      const int i = 32 * c0 + 3, j = c1;           those of the statement's indices that it mentions
      y[i * 64 + j] = ...
    }

All threads of a block call a collective: what guards the others stands within the call.
"""

from collections.abc import Sequence

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import both
from tcdsl.codegen.ast.nodes import Code, Declare, If, Node, Scope, Type, Variable
from tcdsl.codegen.ast.walk import mentioned, names, of_statement, walk
from tcdsl.codegen.cuda.boxes import event_nodes
from tcdsl.codegen.cuda.kernel import KernelText
from tcdsl.codegen.cuda.statements import Vectors, is_block_collective, thread_index
from tcdsl.poly.scop import Kind
from tcdsl.schedule.mapping import RANK


class LeafPrinter(KernelText):
    """Prints leaves."""

    def _leaf(
        self, leaf: loop_ast.Leaf, active: Sequence[Code], vectors: Vectors | None = None
    ) -> Node:
        printer = self._printer(leaf, vectors)
        guards = self._guards(leaf, active, is_pinned=False) if vectors is None else []
        statement = self.scop.by_name[leaf.statement]
        result = self.folded.get(leaf.statement)
        if is_block_collective(self.mapped, statement):
            # All threads of a block agree on what is about blocks: it may stand around the call.
            inside = [guard for guard in guards if not self._is_about_blocks(guard)]
            is_fold = statement.kind is Kind.FOLD
            nodes = printer.fold(inside, result) if is_fold else printer.nodes()
            if result is None:
                self._count_call(leaf, is_at_once=False)
            guards = [guard for guard in guards if self._is_about_blocks(guard)]
        elif statement.event is not None:
            nodes = event_nodes(printer, printer.sums_in_flight())
        elif id(leaf) in self.late:
            nodes = printer.note_wrong(*self.late[id(leaf)])
        else:
            is_fold = statement.kind is Kind.FOLD
            nodes = printer.fold([], result) if is_fold else printer.nodes()
        body = of_statement([*self._indices(leaf, nodes), *nodes], leaf.statement)
        if guards:
            return If(both(guards), tuple(body))
        return body[0] if len(body) == 1 else Scope(tuple(body))

    def _is_about_blocks(self, guard: Code) -> bool:
        """Return whether all blocks of a cluster agree on *guard*, which is no thread's."""
        is_rank = self.mapped.cluster > 1 and thread_index(RANK) in walk(guard)
        return "blockIdx" in names(guard) and not is_rank

    def _guards(
        self, leaf: loop_ast.Leaf, active: Sequence[Code], *, is_pinned: bool = True
    ) -> list[Code]:
        """Return the conditions under which a thread runs *leaf*."""
        guards = list(active)
        for loop in self.eliminated:
            if loop.name in self.guarded or loop.name not in leaf.values:
                continue
            if (mine := self._is_mine(loop, leaf.values[loop.name])) is not None:
                guards.append(mine)
        return [*guards, *self._printer(leaf).pins()] if is_pinned else guards

    def _indices(self, leaf: loop_ast.Leaf, nodes: Sequence[Node]) -> list[Node]:
        """Return the declaration of the statement's indices that *nodes* mention."""
        statement, needed = self.scop.by_name[leaf.statement], mentioned(nodes)
        variables = tuple(
            Variable(name, value)
            for index, value in zip(statement.indices, leaf.iterators, strict=True)
            if (name := self.names.of("index", index)) in needed
        )
        return [Declare(Type(self.index_type), variables, before="const ")] if variables else []

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
