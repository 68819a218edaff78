"""Loads and stores of the vectors of one loop over lanes: each thread its own, or four together.

Threads of a quad may load or store each other's pairs (``cuda/exchanges.py``), so that each moves
16 bytes; and a warp whole rows by way of shared memory (``cuda/rows.py``).
"""

from dataclasses import replace

from tcdsl.codegen.ast.build import call, template
from tcdsl.codegen.ast.nodes import Declare, Evaluate, Node, Variable
from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.cuda.exchanges import PAIR, QUAD, Exchange, Moved
from tcdsl.codegen.cuda.kernel import VECTOR_BYTES, KernelText
from tcdsl.codegen.cuda.lane_accesses import align
from tcdsl.codegen.cuda.lane_vectors import Lanes, LaneVector
from tcdsl.codegen.cuda.rows import RUN, Loops, Row, runs_of
from tcdsl.codegen.cuda.vectors import is_run
from tcdsl.lang.comprehension import Index, walk
from tcdsl.poly.loop_tree import AffineCoordinate, Coordinate, Loop, LoopKind, X
from tcdsl.poly.scop import Access, Array, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.placement import accesses_of


@dataclass(frozen=True, slots=True)
class LaneMoves:
    """What the moves of a loop's vectors have in common."""

    text: KernelText
    loop: Loop
    lanes: Lanes  # which are there
    statements: frozenset[str]  # of the loop
    is_guarded: bool  # some threads do not run the loop

    def exchange(self, vector: LaneVector) -> Exchange | None:
        """Return the exchange that moves *vector*, None if its thread moves it by itself."""
        if self.text.exchange is None or self.is_guarded or self.lanes.ends:
            return None
        if not self._may_exchange(vector):
            return None
        align(self.text, vector.array, VECTOR_BYTES)
        return self.text.exchange

    def _may_exchange(self, vector: LaneVector) -> bool:
        """Return whether threads may load or store each other's pairs of *vector*.

        What is written is touched in this loop alone: a lane reads what it has written.
        """
        scop, name = self.text.scop, vector.array
        statement, array = scop.by_name[vector.statement], scop.arrays[name]
        columns = self.loop.coordinates[statement.name]
        uses = [(s, a) for s, a in accesses_of(scop, name) if s.name in self.text.mapped.paths]
        own = [access for user, access in uses if user is statement]
        known = self.text.parent.known_alignments.get(array.argument, VECTOR_BYTES)
        is_written = any(use is write for user, use in uses for write in user.writes)
        sharing = _sharing(array)
        return (
            vector.is_stored != vector.is_loaded
            and not (vector.is_loaded and vector.is_changing)
            and vector.width == PAIR and sharing in ((QUAD, PAIR) if vector.is_stored else (QUAD,))
            and name not in self.text.placements and known >= VECTOR_BYTES
            and len(own) == 1 and (not is_written or {s.name for s, _ in uses} <= self.statements)
            and isinstance(columns, Coordinate)
            and is_run(scop, statement, own[0], columns, sharing * PAIR)
            and (vector.is_stored or self._differs_by_rows(own[0], statement, columns))
        )  # fmt: skip

    def _differs_by_rows(self, access: Access, statement: Statement, columns: Coordinate) -> bool:
        """Return whether threads with the same *columns* access different elements.

        Where they do not (a bias), a load of each pair is one instruction, and an exchange sixteen.
        """
        along = [loop for loop in self.text.mapped.paths[statement.name] if loop.axis == X]
        threads = (
            c
            for loop in along
            if loop.kind is LoopKind.THREAD
            if isinstance(c := loop.coordinates[statement.name], AffineCoordinate)
        )
        dims = {own.position for c in threads for _, own in c.terms if isinstance(own, Coordinate)}
        others = {statement.indices[dim] for dim in dims - {columns.position}}
        nodes = (node for subscript in access.subscripts for node in walk(subscript))
        return any(isinstance(node, Index) and node.name in others for node in nodes)

    def loaded(self, vector: LaneVector) -> Node:
        """Return the declaration of *vector*, with its load if there is one."""
        exchange = self.exchange(vector) if vector.is_loaded else None
        if exchange is None:
            declared = vector.declaration(self.lanes)
            assert isinstance(declared, Declare)
            early = self._early_of(vector)
            if early is None:
                return declared
            number, self.text.n_early = self.text.n_early, self.text.n_early + 1
            size_bytes = vector.width * self.text.scop.arrays[vector.array].dtype.size_bytes
            return early.load_early(declared, number, size_bytes)
        element = c_type(self.text.scop.arrays[vector.array].dtype)
        if exchange.is_storing and (row := self._row_of(vector, exchange)):
            row.loaded = vector.first
            value = Variable(vector.name, template("tc_vload", [PAIR], row.place()))
            return Declare(vector.type, (value,), "const ", statement=vector.statement)
        return exchange.take(element, vector.name, vector.first, vector.statement)

    def _early_of(self, vector: LaneVector) -> Exchange | None:
        """Return the exchange before whose loop *vector* is loaded, None if in its iteration.

        In the kernel nothing may write what it is loaded from.
        """
        exchange, name = self.text.exchange, vector.array
        if exchange is None or not exchange.is_storing or self.is_guarded or self.lanes.ends:
            return None
        is_own = vector.is_loaded and not (vector.is_stored or vector.guard or vector.others)
        users = [self.text.scop.by_name[user] for user in self.text.mapped.paths]
        is_written = any(write.array == name for user in users for write in user.writes)
        is_early = is_own and not is_written and name not in self.text.placements
        return exchange if is_early else None

    def stored(self, vector: LaneVector) -> Node:
        """Return the store of *vector*, or what keeps it until threads have exchanged theirs."""
        exchange = self.exchange(vector)
        if exchange is None:
            return vector.store(self.lanes)
        if row := self._row_of(vector, exchange):
            row.stored = vector.first
            return Evaluate(call("tc_vstore", row.place(), vector.name), vector.statement)
        array = self.text.scop.arrays[vector.array]
        element, threads = c_type(array.dtype), _sharing(array)
        moved = Moved("", element, vector.first, vector.statement, threads)
        return exchange.keep(vector.name, moved)

    def _row_of(self, vector: LaneVector, exchange: Exchange) -> Row | None:
        """Return the row of the loop around *exchange* by which *vector* is moved, or None.

        It has one array that is loaded and one that is stored, of one type.
        """
        around, scop = exchange.ahead, self.text.scop
        if around is None or not exchange.is_prefix or self.text.is_parted:
            return None
        array, own = scop.arrays[vector.array], self.loop.coordinates[vector.statement]
        assert isinstance(own, Coordinate), "_may_exchange"
        row = around.row
        if row is not None:
            is_taken = row.stored if vector.is_stored else row.loaded
            return None if is_taken or c_type(array.dtype) != row.type_ else row
        runs = runs_of(self.text.row_bytes, array.dtype.size_bytes, around.count)
        iterations = {iteration.variable: iteration.loop for iteration in self.text.unrolled}
        wanted = {exchange.variable: (RUN, QUAD), around.variable: (RUN * QUAD, around.count)}
        is_along = all(
            iterations[name].coordinates[vector.statement] == replace(own, div=div, mod=mod)
            for name, (div, mod) in wanted.items()
        )
        if not runs or not self.text.lane_variable or not is_along:
            return None
        number, self.text.n_rows = self.text.n_rows, self.text.n_rows + 1
        guards = (*around.guards, *exchange.guards)
        loops = Loops(around.variable, exchange.variable, self.text.lane_variable, guards)
        row = Row(
            f"w_row{number}", c_type(array.dtype), array.dtype.size_bytes, runs, loops,
            vector.statement,
        )  # fmt: skip
        around.collect(row)
        return row


def _sharing(array: Array) -> int:
    """Return how many threads move a vector of 16 bytes of *array*, of which each has a pair."""
    return VECTOR_BYTES // (PAIR * array.dtype.size_bytes)
