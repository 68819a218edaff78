"""The loops, guards and sequences of a kernel, as isl generated them.

A loop of which isl printed no C loop guards what is below it: its iteration is run by one block or
thread.  Loops above the threads' have bounds that no thread number is in: the threads of a block
run them together, and meet every barrier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    ONE,
    address,
    as_factor,
    binary,
    both,
    call,
    cast,
    chain,
    choice,
    code,
    index,
    member,
    negated,
    number,
    paren,
    substituted,
)
from tcdsl.codegen.ast.isl_code import CUDA
from tcdsl.codegen.ast.nodes import Code, Declare, Evaluate, If, Literal, Name, Node, Type, Variable
from tcdsl.codegen.ast.opened_loops import is_without_loop, unopened_loops
from tcdsl.codegen.ast.walk import names, of_statement
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.cuda.boxes import box_copies
from tcdsl.codegen.cuda.folds import is_block_collective
from tcdsl.codegen.cuda.iterations import IterationsPrinter
from tcdsl.codegen.cuda.kernel import AXES, KernelText
from tcdsl.codegen.cuda.lanes import LanesPrinter
from tcdsl.codegen.cuda.late_checks import late_checks
from tcdsl.codegen.cuda.leaves import LeafPrinter
from tcdsl.codegen.cuda.products import fragment_of, is_whole, product
from tcdsl.codegen.cuda.spans import Span
from tcdsl.codegen.cuda.statements import thread_index
from tcdsl.codegen.cuda.sums import SumsPrinter
from tcdsl.codegen.passes.loaded_bounds import SHORT_RANGE, LoadedBounds, loaded_bounds
from tcdsl.errors import INTERNAL
from tcdsl.lang.comprehension import Expr
from tcdsl.poly.loop_tree import MAPPED, RANK, Loop, LoopKind
from tcdsl.poly.scop import PRODUCER, Kind, loads_of
from tcdsl.schedule.stitching import kept_axes


class LoopPrinter:
    """Prints all that is in a kernel."""

    def __init__(self, text: KernelText) -> None:
        self.text = text
        self.leaves = LeafPrinter(text)
        self.lanes = LanesPrinter(text, self.leaves)
        self.iterations = IterationsPrinter(text)
        self.blocks = SumsPrinter(text, self.lanes, self.iterations)
        text.nodes = self.nodes

    def tree(self, ast: loop_ast.AstNode) -> list[Node]:
        """Return the kernel *ast*, or what one of its roles does."""
        self.sums = self.blocks.blocked_sums(ast)
        return [*self.text.locals_in([None, *unopened_loops(ast)]), *self.nodes(ast, (), [])]

    def nodes(
        self, node: loop_ast.AstNode, pending: tuple[Loop, ...], active: Sequence[Code]
    ) -> list[Node]:
        """Return *node* as CUDA.

        :arg pending: loops whose mark was met, but no C loop since.
        :arg active: conditions on the thread that guard all but collectives.
        """
        match node:
            case loop_ast.Block(children=children):
                return self._sequence(children, pending, active)
            case loop_ast.Mark(name=name, body=body) if self.text.loops[name].kind is LoopKind.LAST:
                return [self._last(body, self.text.loops[name], pending)]
            case loop_ast.Mark(name=name, body=body) if (
                self.text.loops[name].kind is LoopKind.COLLECTIVE
            ):
                return self._product(node, active)
            case loop_ast.Mark(name=name, body=body):
                return self._sequence([body], (*pending, self.text.loops[name]), active)
            case loop_ast.If():
                return self._if(node, pending, active)
            case loop_ast.For():
                *lost, own = pending
                before, of_threads, spans = (
                    self.text.eliminated,
                    self.text.of_threads,
                    self.text.spans,
                )
                self.text.eliminated = [*before, *lost]
                self.text.of_threads = self._of_threads(node, own)
                self.text.spans = self._spans(node, own)
                found = self._for(node, own, active)
                self.text.eliminated, self.text.of_threads, self.text.spans = (
                    before,
                    of_threads,
                    spans,
                )
                return found
            case loop_ast.Leaf():
                before = self.text.eliminated
                self.text.eliminated = [*before, *pending]
                leaf = self.leaves.leaf(node, active)
                self.text.eliminated = before
                return [leaf]

    def _product(self, node: loop_ast.Mark, active: Sequence[Code]) -> list[Node]:
        """Return a statement that all threads of a warp run together, or one for all."""
        (leaf,) = loop_ast.leaves(node)
        if self.text.scop.by_name[leaf.statement].role == PRODUCER:
            return self._boxes(node, leaf, active)
        fragment = fragment_of(leaf.statement, self.text.mapped.paths[leaf.statement])
        guards = self.leaves.guards(leaf, active)
        if fragment is None or guards or not is_whole(node, self.text.loops):
            why = f"{leaf.statement} is not what an instruction multiplies, or not whole"
            raise INTERNAL(where=f"printing {self.text.name}", what=why, repro="the program")
        own = product(self.text.printer(leaf), node, fragment)
        return [replace(own, statement=leaf.statement)]

    def _boxes(
        self, node: loop_ast.Mark, leaf: loop_ast.Leaf, active: Sequence[Code]
    ) -> list[Node]:
        """Return the copy of a whole box, or of some."""
        guards = self.leaves.guards(leaf, active, is_pinned=False)
        pipeline = self.text.pipeline_of.get(leaf.statement)
        if guards or pipeline is None or not is_whole(node, self.text.loops):
            why = f"{leaf.statement} is no copy of a whole box"
            raise INTERNAL(where=f"printing {self.text.name}", what=why, repro="the program")
        copies = box_copies(self.text.printer(leaf), node, pipeline)
        return [replace(copy, statement=leaf.statement) for copy in copies]

    def _sequence(
        self,
        nodes: Sequence[loop_ast.AstNode],
        pending: tuple[Loop, ...],
        active: Sequence[Code],
    ) -> list[Node]:
        """Return *nodes* in order.

        Neighbours that are in one iteration of a loop over blocks, for which isl shows no C loop,
        are inside one guard: so are their barriers, which all threads of such a block meet then.
        """
        found: list[Node] = []
        for guards, group in groupby(nodes, lambda node: self._block_guards(node, pending)):
            members = list(group)
            before = self.text.guarded
            is_leaf = len(members) == 1 and isinstance(members[0], loop_ast.Leaf)
            if guards and not is_leaf:
                self.text.guarded = before | {name for name, _ in guards}
            inside = self._members(members, pending, active)
            if guards and not is_leaf:
                inside = [If(both(condition for _, condition in guards), tuple(inside))]
            self.text.guarded = before
            found += inside
        return found

    def _members(
        self,
        members: Sequence[loop_ast.AstNode],
        pending: tuple[Loop, ...],
        active: Sequence[Code],
    ) -> list[Node]:
        """Return *members* in order; two folds that are one call after that."""
        found: list[Node] = []
        outside, eliminated = self.text.folded, self.text.eliminated
        for node, following in zip_longest(members, members[1:]):
            self.text.eliminated = [*eliminated, *pending]
            calls, results = self.leaves.joint_call(node, following, active)
            self.text.eliminated = eliminated
            self.text.folded = {**self.text.folded, **results}
            found += [*calls, *self.nodes(node, pending, active)]
        self.text.folded = outside
        return found

    def _block_guards(
        self, node: loop_ast.AstNode, pending: tuple[Loop, ...]
    ) -> tuple[tuple[str, Code], ...]:
        """Return loops over blocks of which all of *node* is in one iteration, and its guard."""
        guards = []
        for loop in pending:
            is_lost = loop is not pending[-1] or is_without_loop(node)
            if loop.kind is not LoopKind.BLOCK or loop.name in self.text.guarded or not is_lost:
                continue
            values = {leaf.values.get(loop.name) for leaf in loop_ast.leaves(node)}
            value = values.pop() if len(values) == 1 else None
            if value is None or (known := number(value)) is None or known < 0:
                continue
            if (mine := self.text.is_mine(loop, value)) is not None:
                guards.append((loop.name, mine))
        return tuple(guards)

    def _last(self, body: loop_ast.AstNode, last: Loop, pending: tuple[Loop, ...]) -> Node:
        """Return what the last block does: each takes a ticket, numbered by what is kept."""
        ticket: Code | None = None
        for axis in reversed(kept_axes(self.text.mapped)):
            me, width = member("blockIdx", AXES[axis]), self.text.mapped.grid[axis]
            around = None if ticket is None else binary(paren(ticket), "*", width)
            ticket = me if around is None else binary(around, "+", me)
        tickets = Name(self.text.names.of("ticket", "tickets"))
        place = tickets if ticket is None else binary(tickets, "+", ticket)
        is_last = replace(call("tc_last_block", place, last.width), participants="xyz")
        comment = f"the last of {last.width} blocks"
        found = self.nodes(body, pending, [])
        if self.text.pipelines:  # of whose threads the producer's have nothing to do
            is_other = binary(thread_index(2), "<", self.text.mapped.block[2])
            found = [If(is_other, tuple(found))]
        return If(is_last, tuple(found), comment=comment)

    def _if(
        self, node: loop_ast.If, pending: tuple[Loop, ...], active: Sequence[Code]
    ) -> list[Node]:
        """Return a guard; where all threads of a block must come to what is in it, a predicate."""

        def branch(of: loop_ast.AstNode | None, active: Sequence[Code]) -> list[Node]:
            return [] if of is None else self.nodes(of, pending, active)

        if self.text.must_be_met([node.condition], node):
            name, predicate = self.text.predicate(node.condition)
            then = branch(node.then, [*active, name])
            return [predicate, *then, *branch(node.otherwise, [*active, negated(name)])]
        with self.text.parted_by([node.condition]):
            then, otherwise = branch(node.then, active), branch(node.otherwise, active)
        return [If(node.condition, tuple(then), tuple(otherwise))]

    def _of_threads(self, node: loop_ast.For, loop: Loop) -> frozenset[str]:
        """Return the variables in the body of *node* that may differ between threads."""
        bounds = names(node.init) if node.condition is None else names(node.init, node.condition)
        differs = loop.kind is LoopKind.THREAD or not bounds.isdisjoint(self.text.of_threads)
        own = frozenset({node.variable})
        return self.text.of_threads | own if differs else self.text.of_threads - own

    def _spans(self, node: loop_ast.For, loop: Loop) -> Mapping[str, Span]:
        """Return values of variables in the body of *node*, where one iteration has them all."""
        around = {name: span for name, span in self.text.spans.items() if name != node.variable}
        if loop.kind in MAPPED and loop.has_one_iteration and self.text.has_many(loop):
            around[node.variable] = 0, loop.width - 1
        return around

    def _for(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> list[Node]:
        if active and not self.text.has_collective(node.body):
            return [If(both(active), tuple(self._for(node, loop, [])))]
        assert node.condition is not None, "isl prints no loop of one iteration"
        nodes: list[Node] = []
        late = [] if active else late_checks(self.text.scop, node, loop, self.text.placements)
        for leaf in late:
            wrong = f"w_wrong{len(self.text.late)}"
            self.text.late[id(leaf)] = wrong, node.variable
            variable = Variable(wrong, Literal("-1"))
            nodes.append(Declare(Type(self.text.index_type), (variable,), statement=leaf.statement))
        nodes += self._loop(node, loop, active)
        return [*nodes, *map(self._record, late)]

    def _record(self, leaf: loop_ast.Leaf) -> Node:
        """Return the check *leaf* for the iteration of the loop before at which it failed."""
        wrong, variable = self.text.late[id(leaf)]
        values = tuple(substituted(at, {variable: Name(wrong)}) for at in leaf.iterators)
        where = loop_ast.Leaf(leaf.statement, values, kept=leaf.kept)
        return If(binary(wrong, ">=", 0), (self.leaves.leaf(where, []),), statement=leaf.statement)

    def _loop(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> list[Node]:
        found = loaded_bounds(self.text.scop, node, loop)
        before, bounded = ([], None) if found is None else self._bounded(node, found, active)
        node = bounded or node
        blocks = None if self.text.has_collective(node.body) else self.sums.of(node, loop)
        if bounded is not None and blocks is not None and blocks.iterations:
            # Most ranges are short: what their blocks take would be more than what they add.
            width = loop.width if loop.kind in MAPPED and self.text.has_many(loop) else 1
            assert isinstance(node.init, Name)
            length = binary(f"{node.init.text}_end", "-", node.init)
            batches = self.iterations.in_batches(node, loop, active)
            short = self._whole_loop(node, loop, active) if batches is None else batches
            long = self.blocks.in_blocks(node, loop, blocks, active)
            assert long is not None
            is_short = binary(length, "<=", SHORT_RANGE * width)
            return [*before, If(is_short, tuple(short), tuple(long))]
        whole = None if blocks is None else self.blocks.in_blocks(node, loop, blocks, active)
        if whole is None and bounded is not None:
            whole = self.iterations.in_batches(node, loop, active)
        if whole is None:
            whole = self._whole_loop(node, loop, active)
        return [*before, *whole]

    def _whole_loop(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> list[Node]:
        """Return *node*, its sums not in blocks."""
        if loop.kind in MAPPED:
            return self.iterations.mapped_loop(node, loop, active)
        if loop.kind in (LoopKind.UNROLL, LoopKind.LANES):
            return self.lanes.lanes_or_unrolled(node, loop, active)
        ahead = self._prefetches(node, loop)
        return [self.iterations.plain_loop(node, (*ahead, *self.text.body(node, loop, active)))]

    def _bounded(
        self, node: loop_ast.For, found: LoadedBounds, active: Sequence[Code]
    ) -> tuple[list[Node], loop_ast.For | None]:
        """Return what loads bounds of *node*, and the loop between them; None if they change.

        Also None if threads that fold together in it may find other bounds: some would not come to
        the fold.  Its guard has them all come, and gives it nothing of those that it leaves out.
        """
        guards = self._shared_guards(node, found, active)
        if self._may_differ(found, guards):
            return [], None
        name = f"w_range{self.text.n_ranges}"

        def outside(leaf: loop_ast.Leaf, expr: Expr) -> Code:
            return self.text.printer(leaf).outside(expr)

        bounded = found.bounded(node, name, outside, CUDA, is_narrow=not self.text.wide)
        if bounded is None:
            return [], None
        self.text.n_ranges += 1
        nodes = []
        for end, value in ((name, bounded.first), (f"{name}_end", bounded.end)):
            # A thread without a row would load from outside its arrays, or what others store.
            chosen = choice(both(guards), value, 0) if guards else value
            nodes.append(
                constant(self.text.index_type, end, cast(self.text.index_type, paren(chosen)))
            )
        return of_statement(nodes, found.leaves[0].statement), bounded.node

    def _shared_guards(
        self, node: loop_ast.For, found: LoadedBounds, active: Sequence[Code]
    ) -> list[Code]:
        """Return the conditions on the thread that guard all leaves below *node*, before it."""
        first, *others = (
            self.leaves.guards(leaf, active, is_pinned=False) for leaf in found.leaves
        )
        shared = [guard for guard in first if all(guard in guards for guards in others)]
        return [g for g in shared if names(g).isdisjoint({node.variable, *found.inner})]

    def _may_differ(self, found: LoadedBounds, active: Sequence[Code]) -> bool:
        """Return whether threads that fold together below a loop may have *found* other bounds.

        They may where the kernel stores what bounds are read from: the check of barriers
        (``passes/uniformity``) takes no load of it for the same in all threads.
        """
        mapped, by_name = self.text.mapped, self.text.scop.by_name
        statements = [by_name[leaf.statement] for leaf in found.leaves]
        if not any(s.kind is Kind.FOLD and mapped.fold_axes(s) for s in statements):
            return False
        written = {w.array for name in mapped.paths for w in by_name[name].writes}
        loads = loads_of(*(bound for r in found.ranges for bound in (*r.lowers, *r.uppers)))
        if any(load.tensor in written for load in loads):
            return True
        used = [
            at
            for leaf, statement, r in zip(found.leaves, statements, found.ranges, strict=True)
            for index, at in zip(statement.indices, leaf.iterators, strict=True)
            if index in r.indices
        ]
        differs = not self.text.of_threads.isdisjoint(names(*active, *used))
        return differs and any(is_block_collective(mapped, s) for s in statements)

    def _prefetches(self, node: loop_ast.For, loop: Loop) -> list[Node]:
        """Return what asks for what the next iteration of *loop* loads."""
        values = next(loop_ast.leaves(node)).values
        found = self.text.ahead.get(loop.name, ())
        if not found or node.step != ONE or values.get(loop.name) != Name(node.variable):
            return []
        assert node.condition is not None
        after = Name("w_next")
        values = {**values, loop.name: after}
        has_next = substituted(node.condition, {node.variable: after})
        first = [
            binary(member("threadIdx", axis), "==", 0)
            for axis, n in zip(AXES, self.text.mapped.block, strict=True)
            if n > 1
        ]
        calls, cluster = [], self.text.mapped.cluster
        for prefetch in found:
            array = self.text.names.of("array", prefetch.array)
            terms: list[Code] = [
                binary(factor, "*", as_factor(values[name]))
                for name, factor in prefetch.factors.items()
                if factor
            ]
            terms += [code(prefetch.constant)] if prefetch.constant else []
            part = prefetch.size_bytes // cluster
            if cluster > 1:
                of_part = part // self.text.scop.arrays[prefetch.array].dtype.size_bytes
                terms.append(binary(of_part, "*", thread_index(RANK)))
            place = address(index(array, chain("+", terms)))
            calls.append(Evaluate(call("tc_prefetch", place, part)))
        next_ = constant(self.text.index_type, "w_next", binary(node.variable, "+", 1))
        return [next_, If(both([*first, has_next]), tuple(calls))]
