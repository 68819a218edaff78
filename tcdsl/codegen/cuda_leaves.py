"""The instances of one statement where they stand in a kernel: guards, indices, the statement.

    if (threadIdx.x == 3) {                        the guard of a loop that isl printed none of
      const int i = 32 * c0 + 3, j = c1;           those of the statement's indices that it mentions
      y[i * 64 + j] = ...
    }

All threads of a block call a collective: what guards the others stands within the call.
"""

from collections.abc import Sequence

from tcdsl.codegen import loop_ast
from tcdsl.codegen.c_statements import mentions
from tcdsl.codegen.cuda_kernel import KernelText
from tcdsl.codegen.cuda_statements import Vectors, is_block_collective, thread_index
from tcdsl.codegen.isl_texts import cuda_text
from tcdsl.poly.scop import Kind
from tcdsl.transforms.mapping import RANK


class LeafPrinter(KernelText):
    """Prints leaves."""

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
        elif id(leaf) in self.late:
            lines = printer.note_wrong(*self.late[id(leaf)])
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
                guards.append(cuda_text(mine))
        return [*guards, *self._printer(leaf).pins()] if is_pinned else guards

    def _indices(self, leaf: loop_ast.Leaf, lines: Sequence[str]) -> list[str]:
        """Return the declaration of the statement's indices that *lines* mention."""
        statement = self.scop.by_name[leaf.statement]
        named = zip(statement.indices, leaf.iterators, strict=True)
        texts = [(self.names.of("index", index), cuda_text(text)) for index, text in named]
        needed = [f"{n} = {t}" for n, t in texts if any(mentions(line, n) for line in lines)]
        return [f"const {self.index_type} {', '.join(needed)};"] if needed else []

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
