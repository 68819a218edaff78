"""The instances of one statement where they stand in a kernel: guards, indices, the statement.

    if (threadIdx.x == 3) {                        the guard of a loop that isl printed none of
      const int i = 32 * c0 + 3, j = c1;           those of the statement's indices that it mentions
      y[i * 64 + j] = ...
    }

All threads of a block call a collective: what guards the others stands within the call.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import both, index
from tcdsl.codegen.ast.nodes import Code, Declare, Evaluate, If, Node, Scope, Type, Variable
from tcdsl.codegen.ast.walk import mentioned, names, of_statement, walk
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.cuda.barriers import sums_in_flight
from tcdsl.codegen.cuda.boxes import event_nodes
from tcdsl.codegen.cuda.folds import FoldPrinter, is_block_collective
from tcdsl.codegen.cuda.kernel import KernelText
from tcdsl.codegen.cuda.statements import CudaStatementPrinter, Vectors, thread_index
from tcdsl.poly.loop_tree import RANK
from tcdsl.poly.scop import Kind


class LeafPrinter:
    """Prints leaves."""

    def __init__(self, text: KernelText) -> None:
        self.text = text

    def leaf(
        self, leaf: loop_ast.Leaf, active: Sequence[Code], vectors: Vectors | None = None
    ) -> Node:
        printer = self.text.printer(leaf, vectors)
        guards = self.guards(leaf, active, is_pinned=False) if vectors is None else []
        statement = self.text.scop.by_name[leaf.statement]
        result = self.text.folded.get(leaf.statement)
        if is_block_collective(self.text.mapped, statement):
            # All threads of a block agree on what is about blocks: it may stand around the call.
            inside = [guard for guard in guards if not self._is_about_blocks(guard)]
            nodes = self._nodes(printer, inside, result)
            if result is None:
                self.count_call(leaf, is_at_once=False)
            guards = [guard for guard in guards if self._is_about_blocks(guard)]
        elif statement.event is not None:
            nodes = event_nodes(printer, sums_in_flight(printer.context, printer.mapped))
        elif id(leaf) in self.text.late:
            nodes = printer.note_wrong(*self.text.late[id(leaf)])
        else:
            nodes = self._nodes(printer, [], result)
        body = of_statement([*self._indices(leaf, nodes), *nodes], leaf.statement)
        if guards:
            return If(both(guards), tuple(body))
        return body[0] if len(body) == 1 else Scope(tuple(body))

    def _nodes(
        self, printer: CudaStatementPrinter, active: Sequence[Code], result: Code | None
    ) -> list[Node]:
        """Return the statement of *printer*; of a fold, *active* threads keep the *result*."""
        if printer.statement.kind is Kind.FOLD:
            return self._fold_of(printer).nodes(active, result)
        return printer.nodes()

    def fold(self, leaf: loop_ast.Leaf) -> FoldPrinter:
        """Return the printer of the fold *leaf*."""
        return self._fold_of(self.text.printer(leaf))

    def _fold_of(self, printer: CudaStatementPrinter) -> FoldPrinter:
        return FoldPrinter(printer, self.text.slots.own(printer.statement.name))

    def _is_about_blocks(self, guard: Code) -> bool:
        """Return whether all blocks of a cluster agree on *guard*, which is no thread's."""
        is_rank = self.text.mapped.cluster > 1 and thread_index(RANK) in walk(guard)
        return "blockIdx" in names(guard) and not is_rank

    def guards(
        self, leaf: loop_ast.Leaf, active: Sequence[Code], *, is_pinned: bool = True
    ) -> list[Code]:
        """Return the conditions under which a thread runs *leaf*."""
        guards = list(active)
        for loop in self.text.eliminated:
            if loop.name in self.text.guarded or loop.name not in leaf.values:
                continue
            if (mine := self.text.is_mine(loop, leaf.values[loop.name])) is not None:
                guards.append(mine)
        return [*guards, *self.text.printer(leaf).pins()] if is_pinned else guards

    def _indices(self, leaf: loop_ast.Leaf, nodes: Sequence[Node]) -> list[Node]:
        """Return the declaration of the statement's indices that *nodes* mention."""
        statement, needed = self.text.scop.by_name[leaf.statement], mentioned(nodes)
        variables = tuple(
            Variable(name, value)
            for index, value in zip(statement.indices, leaf.iterators, strict=True)
            if (name := self.text.names.of("index", index)) in needed
        )
        return (
            [Declare(Type(self.text.index_type), variables, before="const ")] if variables else []
        )

    def joint_call(
        self, first: loop_ast.AstNode, second: loop_ast.AstNode | None, active: Sequence[Code]
    ) -> tuple[list[Node], dict[str, Code]]:
        """Return one call for two folds that stand side by side, and what each finds in it.

        Nothing where they are not to be one (``schedule/joint_folds``), or isl has put guards of
        blocks around them.
        """
        if not isinstance(first, loop_ast.Leaf) or not isinstance(second, loop_ast.Leaf):
            return [], {}
        if self.text.slots.joint.get(first.statement) != second.statement:
            return [], {}
        leaves = first, second
        guards = [g for leaf in leaves for g in self.guards(leaf, active, is_pinned=False)]
        parts = [self.fold(leaf).own_part for leaf in leaves]
        has_indices = any(
            self._indices(leaf, [Evaluate(part)])
            for leaf, part in zip(leaves, parts, strict=True)
        )  # fmt: skip
        if has_indices or any(map(self._is_about_blocks, guards)):
            return [], {}
        name = f"w_folds{self.text.n_folds}"
        self.text.n_folds += 1
        together = constant("auto", name, self.fold(first).together(parts))
        for leaf in leaves:
            self.count_call(leaf, is_at_once=False)
        results: dict[str, Code] = {leaf.statement: index(name, n) for n, leaf in enumerate(leaves)}
        return [replace(together, statement=first.statement)], results

    def count_call(self, leaf: loop_ast.Leaf, *, is_at_once: bool) -> None:
        """Note a call of the fold *leaf*, if it is as is said of a fold with a number."""
        name = leaf.statement
        if name in self.text.slots.numbers and is_at_once == (name in self.text.slots.lanes):
            self.text.numbered.append(name)

    def why_not_once(self) -> str | None:
        """Return why slots would be used twice, or None: isl decides how often a leaf stands."""
        if self.text.numbered == list(self.text.slots.numbers):
            return None
        return f"folds with slots of their own are called as {self.text.numbered}"
