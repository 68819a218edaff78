"""Short loops of a constant number of iterations: unrolled, folded at once, or as vectors.

    #pragma unroll                          {
    for (int c2 = 0; c2 < 4; c2++)    --->    tc_vec<float, 4> w_vector0 = tc_vload<4>(&x[4 * c1]);
      y[4 * c1 + c2] = x[4 * c1 + c2];        tc_vec<float, 4> w_vector1;
                                              for (int c2 = 0; c2 < 4; c2++)
                                                w_vector1[c2] = w_vector0[c2];
                                              tc_vstore(&y[4 * c1], w_vector1);
                                            }

Which accesses may move vectors is said by ``cuda/vectors.py``, which folds take all lanes in one
call by ``schedule/fold_lanes``; both hold only where isl has left the loop all of its lanes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    ZERO,
    address,
    binary,
    both,
    call,
    chain,
    choice,
    code,
    index,
    number,
    paren,
    substituted,
)
from tcdsl.codegen.ast.nodes import (
    Code,
    Declare,
    If,
    Name,
    Node,
    Scope,
    Type,
    Variable,
)
from tcdsl.codegen.ast.opened_loops import unopened_loops
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.cuda.exchanges import (
    QUAD,
    Ahead,
    Exchange,
    differs,
    for_each,
    is_straight,
)
from tcdsl.codegen.cuda.folds import is_block_collective
from tcdsl.codegen.cuda.kernel import KernelText, UnrolledLoop
from tcdsl.codegen.cuda.lane_accesses import vectors_of
from tcdsl.codegen.cuda.lane_moves import LaneMoves
from tcdsl.codegen.cuda.lane_statements import copied_vector, fold_of_lanes, is_near, is_pure
from tcdsl.codegen.cuda.lane_vectors import (
    Conditions,
    Lanes,
    LaneVector,
    load_or_zero,
    shared_conditions,
    without_branches,
)
from tcdsl.codegen.cuda.leaves import LeafPrinter
from tcdsl.codegen.cuda.spans import guard_of_last
from tcdsl.codegen.cuda.statements import Vectors
from tcdsl.codegen.cuda.vectors import (
    iterations_without,
    may_be_parted,
)
from tcdsl.codegen.passes.iterations import covers, lanes_of, step_guard
from tcdsl.lang.comprehension import Expr, Select, walk
from tcdsl.poly.loop_tree import MAPPED, Loop, LoopKind
from tcdsl.poly.scop import Kind


class LanesPrinter:
    """Prints loops over lanes, and unrolled ones."""

    def __init__(self, text: KernelText, leaves: LeafPrinter) -> None:
        self.text = text
        self.leaves = leaves

    def lanes_or_unrolled(
        self, node: loop_ast.For, loop: Loop, active: Sequence[Code]
    ) -> list[Node]:
        outside = self.text.folded
        calls, folded = self._folds_at_once(node, loop)
        self.text.folded = {**outside, **folded}
        unrolled = self._unrolled if loop.kind is LoopKind.UNROLL else self._vector
        found = unrolled(node, loop, active)
        self.text.folded = outside
        return [*calls, found]

    def _unrolled(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> Node:
        """Return a loop with a constant trip count, so that indices into registers are numbers."""
        assert loop.extent is not None
        variable = node.variable
        guards: list[Code] = [] if node.init == ZERO else [binary(variable, ">=", node.init)]
        if not covers(node, loop.extent):
            guards.append(guard_of_last(node, loop.extent, self.text.spans))
        guards += step_guard(node)
        may_exchange = loop.width == QUAD and not active and is_straight(node.body)
        exchange = ahead = None
        if may_exchange and not differs(tuple(guards), self.text.of_threads):
            exchange = Exchange(variable, tuple(guards), ahead=self.text.around)
            exchange.is_prefix = node.init == ZERO and not step_guard(node)
        elif not active and self._is_around_exchange(node) and not step_guard(node):
            ahead = Ahead(variable, loop.extent, tuple(guards))
        self.text.unrolled.append(UnrolledLoop(variable, loop, 1, loop.extent))
        outside = self.text.exchange, self.text.around
        self.text.exchange, self.text.around = exchange, ahead
        body = self.text.guarded_body(node, loop, guards, active)
        self.text.exchange, self.text.around = outside
        self.text.unrolled.pop()
        if ahead is not None and ahead.row is not None:
            body = tuple(ahead.row.around(body))
        whole = for_each(variable, loop.extent, body)
        if exchange is None or not (exchange.pairs or exchange.loads or exchange.early):
            return Scope((*ahead.before, whole)) if ahead and ahead.before else whole
        declared, ahead_of = exchange.declarations(), exchange.loads_ahead()
        return Scope((*declared, whole, *ahead_of, *exchange.stores()))

    def _is_around_exchange(self, node: loop_ast.For) -> bool:
        """Return whether *node*, from its first iteration on, runs a loop that exchanges pairs."""
        body = node.body
        while isinstance(body, loop_ast.Mark):
            if isinstance(body.body, loop_ast.For):
                return node.init == ZERO and self.text.loops[body.name].width == QUAD
            body = body.body
        return False

    def _folds_at_once(self, node: loop_ast.For, loop: Loop) -> tuple[list[Node], dict[str, Code]]:
        """Return the folds of a short loop as one for all of its iterations, before it.

        With what each statement's result is called in the loop.
        """
        leaves = self._leaves(node.body)
        nodes: list[Node] = []
        results: dict[str, Code] = {}
        if leaves is None or node.init != ZERO or not covers(node, loop.extent or 0):
            return nodes, results
        for leaf in leaves:
            if self.text.slots.lanes.get(leaf.statement) is not loop:
                continue
            folds = self.leaves.fold(leaf).at_once(node.variable, loop.extent or 0)
            name = f"w_folds{self.text.n_folds}"
            self.text.n_folds += 1
            self.leaves.count_call(leaf, is_at_once=True)
            nodes.append(replace(constant("auto", name, folds), statement=leaf.statement))
            results[leaf.statement] = index(name, node.variable)
        return nodes, results

    def _still_folds(self, leaf: loop_ast.Leaf) -> bool:
        """Return whether all threads of the block must come to *leaf*."""
        statement = self.text.scop.by_name[leaf.statement]
        return leaf.statement not in self.text.folded and is_block_collective(
            self.text.mapped, statement
        )

    def _vector(self, node: loop_ast.For, loop: Loop, active: Sequence[Code]) -> Node:
        """Return the lanes of a vector: all loads, then the lanes one by one, then all stores.

        Some lanes may be missing at the ends of rows; which are there is known before the loads.
        """
        width = loop.extent or 0
        leaves = self._leaves(node.body)
        bounds = lanes_of(node, width)
        # What guards the lanes must not keep threads from a fold: those before the loop will do.
        if leaves is None or bounds is None or any(map(self._still_folds, leaves)):
            return self._unrolled(node, loop, active)
        guards = [tuple(self.leaves.guards(leaf, active)) for leaf in leaves]
        is_whole = bounds == (ZERO, code(width - 1))
        known, lanes = self._lanes_here(bounds, loop, leaves)
        shared, conditions = self._conditions(leaves, node.variable, loop) if is_whole else ([], {})
        lanes = replace(lanes, conditions=conditions)
        vectors = vectors_of(self.text, leaves, node.variable, loop, lanes)
        self._mark_zeroed(leaves, node.variable, vectors, lanes)
        if len(set(guards)) > 1 or not (vectors or self._is_pure(leaves, node.variable, is_whole)):
            return self._unrolled(node, loop, active)
        if len(leaves) == 1 and len(vectors) == 2 and self.text.printer(leaves[0]).is_staging:
            from_, to = (address(vector.first) for vector in vectors)
            first = self.text.printer(leaves[0]).at_lane_zero(node.variable)
            body: list[Node] = [*known, first.copy(width, to, from_, lanes.ends)]
        else:
            here = frozenset(leaf.statement for leaf in leaves)
            moves = LaneMoves(self.text, loop, lanes, here, is_guarded=bool(guards[0]))
            written = [vector for vector in vectors if vector.is_stored]
            if self.text.exchange is not None:
                exchanges = map(moves.exchange, written)
                self.text.exchange.is_storing = any(one is not None for one in exchanges)
            body = [*known, *shared, *map(moves.loaded, vectors)]
            body += self._by_lanes(node, leaves, vectors, lanes, loop, active)
            body += map(moves.stored, written)
        # Stores are outside the lanes: what guards a lane guards them too.
        return If(both(guards[0]), tuple(body)) if guards[0] else Scope(tuple(body))

    def _by_lanes(
        self,
        node: loop_ast.For,
        leaves: Sequence[loop_ast.Leaf],
        vectors: Sequence[LaneVector],
        lanes: Lanes,
        loop: Loop,
        active: Sequence[Code],
    ) -> Iterator[Node]:
        """Yield *leaves* lane by lane, the last of them for all lanes at once where it can be."""
        width = loop.extent or 0
        names: dict[tuple[str, Code], str] = {
            (v.array, p): v.name for v in vectors for p in v.places
        }
        zeroed = {v.name: v.guard for v in vectors if v.is_zeroed and v.guard is not None}
        at_once = self._at_once(leaves, node.variable, width, names)
        one_by_one = leaves if at_once is None else leaves[:-1]
        if one_by_one:
            which = [
                replace(self._lanes(leaf, node.variable, width, names),
                        conditions=lanes.conditions.get(leaf.statement, {}), zeroed=zeroed)
                for leaf in one_by_one
            ]  # fmt: skip
            yield self._lane_loop(node, one_by_one, which, lanes, loop, active)
        if at_once is not None:
            yield self.leaves.leaf(leaves[-1], active, replace(at_once, present=lanes.ends))

    def _lane_loop(
        self,
        node: loop_ast.For,
        leaves: Sequence[loop_ast.Leaf],
        vectors: Sequence[Vectors],
        lanes: Lanes,
        loop: Loop,
        active: Sequence[Code],
    ) -> Node:
        """Return *leaves* lane by lane, each with its *vectors*."""
        n_declared = len(self.text.declared)
        body = self.text.locals_in([loop.name, *unopened_loops(node.body)])
        where, own = lanes.guard(node.variable), self.text.declared[n_declared:]
        pairs = list(zip(leaves, vectors, strict=True))
        printers = [self.text.printer(*pair) for pair in pairs]
        are_pure = where is None or all(map(is_pure, printers))
        if not are_pure and all(map(is_near, printers)):
            body += [self._nearest(leaf, active, which, lanes) for leaf, which in pairs]
            del self.text.declared[n_declared:]
            loop_ = for_each(node.variable, loop.extent or 0, body)
            return If(binary(lanes.ends[0], "<=", lanes.ends[1]), (loop_,))
        for leaf, which in pairs:
            body.append(self._lane(leaf, active, which, where, loop, own))
        del self.text.declared[n_declared:]
        return for_each(node.variable, loop.extent or 0, body)

    def _nearest(
        self, leaf: loop_ast.Leaf, active: Sequence[Code], vectors: Vectors, lanes: Lanes
    ) -> Node:
        """Return *leaf* for one lane, of those that are not there what the nearest does.

        A branch for each lane would keep its loads from starting with those of the others.
        """
        first, last = lanes.ends
        near = call("tc_imin", call("tc_imax", Name(vectors.variable), first), last)

        def moved(indices: tuple[Code, ...]) -> tuple[Code, ...]:
            return tuple(substituted(at, {vectors.variable: near}) for at in indices)

        placed = self.text.printer(leaf).context.placements
        local = {key: at if key[0] in placed else moved(at) for key, at in leaf.local.items()}
        nearest = replace(leaf, iterators=moved(leaf.iterators), local=local)
        return self.leaves.leaf(nearest, active, vectors)

    def _at_once(
        self,
        leaves: Sequence[loop_ast.Leaf],
        variable: str,
        width: int,
        names: Mapping[tuple[str, Code], str],
    ) -> Vectors | None:
        """Return the lanes of the last of *leaves* if one call takes them all, else None.

        It reads a vector, or what the leaf before it copies from one to registers.
        """
        which = self._lanes(leaves[-1], variable, width, names)
        if len(leaves) == 2 and not which.names:
            own = self._lanes(leaves[0], variable, width, names)
            copy, last = self.text.printer(leaves[0], own), self.text.printer(leaves[1])
            source = copied_vector(copy)
            reads = last.statement.reads
            if not source or [copy.place(copy.statement.write)] != list(map(last.place, reads)):
                return None
            which = replace(which, names={len(last.statement.writes): source})
        elif len(leaves) != 1:
            return None
        fold = fold_of_lanes(self.text.printer(leaves[-1], which))
        return replace(which, fold=fold) if fold else None

    def _is_pure(self, leaves: Sequence[loop_ast.Leaf], variable: str, is_whole: bool) -> bool:
        """Return whether lanes that may be missing compute in registers alone."""
        none = Vectors(0, variable)
        return not is_whole and all(is_pure(self.text.printer(leaf, none)) for leaf in leaves)

    def _lane(
        self,
        leaf: loop_ast.Leaf,
        active: Sequence[Code],
        vectors: Vectors,
        where: Code | None,
        loop: Loop,
        own: Collection[str],
    ) -> Node:
        """Return *leaf* for one lane of *vectors*, to be run *where* that is there.

        :arg own: the registers of a lane, which no other one sees.

        What has no other effect than on registers runs in any case, lest branches keep the loads
        that follow from starting.  It leaves a register as it is that may hold something there.
        """
        if where is None:
            return self.leaves.leaf(leaf, active, vectors)
        if is_pure(self.text.printer(leaf, vectors)):
            is_kept = self._may_hold(leaf, loop, own)
            return self.leaves.leaf(
                leaf, active, replace(vectors, where=where if is_kept else None)
            )
        return If(where, (self.leaves.leaf(leaf, active, vectors),))

    def _may_hold(self, leaf: loop_ast.Leaf, loop: Loop, own: Collection[str]) -> bool:
        """Return whether what *leaf* writes may hold a value where a lane of *loop* is missing."""
        statement = self.text.scop.by_name[leaf.statement]
        array = statement.write.array
        if statement.kind is Kind.UPDATE:
            return True
        if not self.text.is_private(array) or array in own:
            return False
        others = (
            self.text.scop.by_name[name]
            for name in self.text.mapped.paths
            if name != statement.name
        )
        is_shared = any(write.array == array for other in others for write in other.writes)
        return is_shared or may_be_parted(self.text.mapped, loop)

    def _lanes_here(
        self, bounds: tuple[Code, Code], loop: Loop, leaves: Sequence[loop_ast.Leaf]
    ) -> tuple[list[Node], Lanes]:
        """Return which lanes are there, and the declaration of that, unless all of them are.

        It says of which iterations of unrolled loops they all are, which compilers do not find out.
        """
        width = loop.extent or 0
        if bounds == (ZERO, code(width - 1)):
            return [], Lanes()
        first, last = f"w_from{self.text.n_lanes}", f"w_to{self.text.n_lanes}"
        self.text.n_lanes += 1
        unrolled_around = () if may_be_parted(self.text.mapped, loop) else self.text.unrolled
        values = []
        for bound, lane in ((bounds[0], 0), (bounds[1], width - 1)):
            outside: list[Code] = []
            for iteration in unrolled_around if number(bound) != lane else ():
                found = iterations_without(
                    self.text.mapped, loop, lane, iteration.loop, iteration.step
                )
                if found is not None and found.start > 0:
                    outside.append(binary(iteration.variable, "<", found.start))
                if found is not None and found.stop < iteration.count:
                    outside.append(binary(iteration.variable, ">=", found.stop))
            is_outside = paren(chain("||", outside)) if outside else None
            values.append(bound if is_outside is None else choice(is_outside, lane, bound))
        variables = tuple(map(Variable, (first, last), values))
        declared = Declare(Type(self.text.index_type), variables, before="const ")
        return [declared], Lanes((Name(first), Name(last)))

    def _leaves(self, node: loop_ast.AstNode) -> list[loop_ast.Leaf] | None:
        """Return the leaves of *node* if it holds nothing else, else None.

        A loop of one iteration, of which isl printed nothing, is nothing either.
        """
        match node:
            case loop_ast.Leaf():
                return [node]
            case loop_ast.Mark(name=name, body=body) if self.text.loops[name].kind not in MAPPED:
                return self._leaves(body)
            case loop_ast.Block(children=children):
                found = [self._leaves(child) for child in children]
                if any(leaves is None for leaves in found):
                    return None
                return [leaf for leaves in found if leaves is not None for leaf in leaves]
            case _:
                return None

    def _lanes(
        self,
        leaf: loop_ast.Leaf,
        variable: str,
        width: int,
        names: Mapping[tuple[str, Code], str],
    ) -> Vectors:
        """Return which accesses of *leaf* are lanes of which vector."""
        statement = self.text.scop.by_name[leaf.statement]
        first = self.text.printer(leaf).at_lane_zero(variable)
        found = {}
        for position, access in enumerate((*statement.writes, *statement.reads)):
            if self.text.is_private(access.array) or not access.is_exact:
                continue
            name = names.get((access.array, first.outside_element(access)))
            if name is not None:
                found[position] = name
        return Vectors(width, variable, found)

    def _mark_zeroed(
        self,
        leaves: Sequence[loop_ast.Leaf],
        variable: str,
        vectors: Sequence[LaneVector],
        lanes: Lanes,
    ) -> None:
        """Mark those of *vectors* that *leaves* read as zero where their one condition fails."""
        guarded = [v for v in vectors if v.guard is not None and not (v.is_stored or v.others)]
        for leaf in leaves if guarded else ():
            first, known = (
                self.text.printer(leaf).at_lane_zero(variable),
                lanes.conditions.get(leaf.statement, {}),
            )
            value = first.statement.value
            choices = (node for node in walk(value) if isinstance(node, Select)) if value else ()
            for select in choices:
                if (load := load_or_zero(select)) is None or select.condition not in known:
                    continue
                accesses = (*first.statement.writes, *first.statement.reads)
                place = load.tensor, first.outside_element(accesses[first.position(load)])
                for vector in guarded:
                    is_own = (vector.array, vector.first) == place
                    vector.is_zeroed |= is_own and vector.guard == known[select.condition]

    def _conditions(
        self, leaves: Sequence[loop_ast.Leaf], variable: str, loop: Loop
    ) -> tuple[list[Node], dict[str, Conditions]]:
        """Return the conditions that lanes share, computed, and their names for each statement."""
        names: dict[Code, Code] = {}
        nodes: list[Node] = []
        found: dict[str, Conditions] = {}
        if len({leaf.statement for leaf in leaves}) < len(leaves):
            return nodes, found
        for leaf in leaves:
            first, own = self.text.printer(leaf).at_lane_zero(variable), dict[Expr, Code]()
            for condition in shared_conditions(self.text.scop, first.statement, loop):
                value = first.outside(condition)
                if value not in names:
                    names[value], node = self.text.predicate(without_branches(value))
                    nodes.append(node)
                own[condition] = names[value]
            found[leaf.statement] = own
        return nodes, found
