"""Rows of a warp in shared memory, by which its threads load and store whole lines.

    for c6 in 0:8                      uint16_t *const w_row0 = tc_row<..>(w_rows, threadIdx.x / 4);
      for c7 in 0:4                    for c6 in 0:8
        w_vector0 = ..x[..]              if c6 % 8 == 0:  the lines of x
        w_vector1 = ..                   for c7 in 0:4
        tc_vstore(&C[..], ..)  --->        w_vector0 = tc_vload<2>(w_row0 + ..);  w_vector1 = ..
                                           tc_vstore(w_row0 + .., w_vector1);
                                         if c6 % 8 == 7:  the lines of C

Four threads have pairs of one row's neighbours: an instruction moves 64 bytes of each of eight
rows, and the first-level cache takes a row a cycle.  By way of shared memory an instruction moves
512 bytes of one row, and nothing is exchanged: pairs are stored by four threads, and read by all.
The threads of the warp meet between lines and pairs (``tc_rows_done``).  What is loaded and what is
stored of one place has one place in the row, and one thread.

The loops are those of an exchange (``exchanges.py``) and the loop around it; it is legal under the
same conditions, and where all threads of a warp come there.
"""

from collections.abc import Sequence

from tcdsl.codegen.ast.build import (
    ZERO,
    address,
    binary,
    both,
    call,
    cast,
    member,
    paren,
    simplified,
    substituted,
    template,
)
from tcdsl.codegen.ast.nodes import (
    Code,
    Declare,
    Evaluate,
    For,
    If,
    Index,
    Name,
    Node,
    Type,
    Variable,
)
from tcdsl.costmodel.chip import VECTOR_BYTES, WARP
from tcdsl.costmodel.rows import ROWS_OF_WARP
from tcdsl.records import dataclass

PAIR, RUN = 2, 8  # of a thread, and of four
RUNS = 4  # of an exchange
ROWS = "w_rows"  # all rows of a block, in shared memory
W_LINE, W_AT, W_RUN = "w_line", "w_at", "w_run"


@dataclass(frozen=True, slots=True)
class Loops:
    """The variables of the loop around, of the exchange, of the threads; *guards* of the former."""

    outer: str
    inner: str
    thread: str
    guards: tuple[Code, ...] = ()


@dataclass(slots=True)
class Row:
    """A row called *name* of elements of *size_bytes*, with what *runs* iterations have.

    *loaded* is where what is loaded before is, and *stored* where what is stored after it is.
    """

    name: str
    type_: str
    size_bytes: int
    runs: int
    loops: Loops
    statement: str
    loaded: Index | None = None
    stored: Index | None = None

    @property
    def columns(self) -> int:
        """The elements of the row."""
        return self.runs * RUNS * RUN

    @property
    def lanes(self) -> int:
        """The threads that move a line."""
        return self.columns * self.size_bytes // VECTOR_BYTES

    def declaration(self) -> Node:
        """Return the declaration of the row that a thread has pairs of."""
        line = binary(cast("int", member("threadIdx", "x")), "/", RUNS)
        row = Variable(self.name, self._row(line), pointer="*const ")
        return Declare(Type(self.type_), (row,), statement=self.statement)

    def place(self) -> Code:
        """Return where this thread's pair of the iterations is."""
        turn = paren(binary(self.loops.outer, "%", self.runs))
        quad = paren(binary(cast("int", member("threadIdx", "x")), "%", RUNS))
        parts = (RUNS * RUN, turn), (RUN, self.loops.inner), (PAIR, quad)
        found: Code = Name(self.name)
        for size, number in parts:
            found = binary(found, "+", binary(size, "*", number))
        return found

    def around(self, body: Sequence[Node]) -> list[Node]:
        """Return *body*, an iteration of the loop around, with what moves lines."""
        done: Node = Evaluate(call("tc_rows_done"), self.statement)
        turn = binary(self.loops.outer, "%", self.runs)
        before = (done, self._lines(self.loaded, True), done) if self.loaded else (done,)
        begin = If(binary(turn, "==", 0), before)
        if self.stored is None:
            return [begin, *body]
        after = done, self._lines(self.stored, False)
        end = If(binary(turn, "==", self.runs - 1), after)
        return [begin, *body, end]

    def _lines(self, of: Index, is_load: bool) -> Node:
        """Return the loop that moves all lines between the array of *of* and shared memory."""
        int_, at_once = Type("int"), WARP // self.lanes
        vector: Code
        line: Code
        lane = cast("int", member("threadIdx", "x"))
        width = VECTOR_BYTES // self.size_bytes  # a run of eight, or a half of it
        vector, line = lane, Name(W_LINE)
        if at_once > 1:
            vector = paren(binary(lane, "%", self.lanes))
            line = binary(binary(W_LINE, "*", at_once), "+", binary(lane, "/", self.lanes))
        outer: Code = Name(self.loops.outer)
        first = outer if is_load else paren(binary(outer, "-", self.runs - 1))
        values: dict[str, Code] = {
            self.loops.outer: paren(binary(first, "+", binary(W_RUN, "/", RUNS))),
            self.loops.inner: paren(binary(W_RUN, "%", RUNS)),
            self.loops.thread: paren(binary(RUNS, "*", W_AT)),
        }
        own: Code = Index(of.array, simplified(substituted(of.index, values)))
        place: Code = address(own)
        if width < RUN:
            offset = binary(width, "*", paren(binary(vector, "%", RUN // width)))
            place = binary(place, "+", offset)
        here = binary(self._row(Name(W_AT)), "+", binary(width, "*", vector))
        to, from_ = (here, place) if is_load else (place, here)
        moved: Node = Evaluate(call("tc_vstore", to, template("tc_vload", [width], from_)))
        if self.loops.guards:
            there = [substituted(guard, values) for guard in self.loops.guards]
            moved = If(both(there), (moved,))
        run = binary(vector, "/", RUN // width) if width < RUN else vector
        body = (
            Declare(int_, (Variable(W_AT, line),), "const "),
            Declare(int_, (Variable(W_RUN, run),), "const "),
            moved,
        )
        count = ROWS_OF_WARP // at_once
        is_left = binary(W_LINE, "<", count)
        return For(int_, W_LINE, ZERO, is_left, None, body, "#pragma unroll")

    def _row(self, line: Code) -> Code:
        # Eight rows of a warp lie in all banks, and threads store a word or two each.
        pad = PAIR * self.size_bytes * RUNS
        sizes: list[str | int | Type] = [self.type_, self.columns * self.size_bytes, pad]
        return template("tc_row", sizes, ROWS, line)


def runs_of(row_bytes: int, size_bytes: int, count: int) -> int:
    """Return how many of *count* iterations a row of *row_bytes* has, 0 where lines are not whole.

    :arg size_bytes: of an element.
    """
    runs = min(row_bytes // (size_bytes * RUNS * RUN), count)
    if size_bytes not in (2, 4) or not runs or count % runs:
        return 0
    lanes = runs * RUNS * RUN * size_bytes // VECTOR_BYTES
    return runs if WARP % lanes == 0 and WARP // lanes <= ROWS_OF_WARP else 0
