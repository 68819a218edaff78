"""Pairs that four neighbouring threads exchange, so that each loads and stores 16 bytes.

    for c7 in 0:4                               tc_vec<uint16_t, 2> w_pairs0[4];
      w_vector0 = ...                           for c7 in 0:4
      tc_vstore(&C[8 * c7 + 2 * q], ..)  --->     w_vector0 = ...;  w_pairs0[c7] = w_vector0;
                                                tc_vstore_quad(&C[8 * q + 2 * q], w_pairs0);

with q = threadIdx.x % 4; loads of pairs are exchanged in the same way before the loop.  Of elements
of four bytes two neighbours exchange pairs (``tc_vstore_twin``), of two iterations at a time.

What else the loop loads is loaded in a loop before it: four loads are on their way at once, and
NVRTC 13.5 does not unroll the loop otherwise, so that the sums would be in memory (bfloat16 with a
residual of float32).  Where a loop is around it, some iterations' loads are on their way before::

    for c6 in 0:4   w_early0[c6] = tc_vload<2>(&x[.. c6 ..])          (for all c7)
    for c6 in 0:8   for c7 ...  w_early0[c6 % 4] ...
                    if c6 + 4 < 8:  w_early0[c6 % 4] = tc_vload<2>(&x[.. c6 + 4 ..])

for CUDA's compiler moves no load before the stores of an iteration, and each iteration would wait
as long as memory takes.  Fragments of tensor cores are held so (strategies/fragments.py): eight
rows would be written 16 or 32 bytes each by one instruction, and are written 64 bytes each: the
first-level cache takes a row a cycle.

Legal iff the threads run the loop together, which the fragments' rows say, nothing else in the
kernel touches the array if it is written, and runs of 16 bytes lie at multiples of these.
"""

from collections.abc import Sequence
from dataclasses import field, replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    ZERO,
    address,
    binary,
    both,
    call,
    cast,
    code,
    index,
    member,
    paren,
    substituted,
    vector_type,
)
from tcdsl.codegen.ast.nodes import (
    Assign,
    Code,
    Declare,
    Evaluate,
    For,
    If,
    Index,
    Literal,
    Name,
    Node,
    Scope,
    Type,
    Variable,
)
from tcdsl.codegen.ast.walk import names
from tcdsl.codegen.cuda.rows import Row
from tcdsl.records import dataclass

PAIR, QUAD = 2, 4
W_QUAD = Name("w_quad")
REGISTERS_AHEAD = 16  # of each array that is loaded before


@dataclass(slots=True)
class Ahead:
    """A loop of *count* iterations, for some of which those before load: *before* it, the first.

    *guards* say which of them there are: the first ones, for a later one is loaded by an earlier.
    """

    variable: str
    count: int
    guards: tuple[Code, ...] = ()
    before: list[Node] = field(default_factory=list)
    row: Row | None = None  # in which what is stored is collected

    def collect(self, row: Row) -> None:
        """Load and store by way of *row*."""
        self.row = row
        self.before.append(row.declaration())

    def depth(self, size_bytes: int) -> int:
        """Return how many iterations load ahead, of pairs of *size_bytes*; less than two: none."""
        registers = QUAD * -(-size_bytes // 4)
        return min(self.count, REGISTERS_AHEAD // registers)


@dataclass(slots=True)
class Early:
    """A vector that is loaded in a loop before: *depth* iterations of a loop around it before."""

    name: str
    declared: Declare
    depth: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What so many *threads* exchange: pairs of the array *name* of the loop, at *first*."""

    name: str
    type_: str
    first: Index
    statement: str
    threads: int


@dataclass(slots=True)
class Exchange:
    """A loop whose iterations' pairs are exchanged; *guards* say which of them there are.

    *ahead* is the loop around it, if that may load some iterations before.
    """

    variable: str
    guards: tuple[Code, ...]
    pairs: list[Moved] = field(default_factory=list)
    loads: list[Moved] = field(default_factory=list)
    is_storing: bool = False  # whether there are pairs to be stored
    early: list[Early] = field(default_factory=list)
    ahead: Ahead | None = None
    is_prefix: bool = False  # iterations that are there are the first ones

    def take(self, type_: str, vector: str, first: Index, statement: str) -> Node:
        """Return the declaration of *vector*, a pair at *first*, of what is loaded before."""
        name = f"w_loads{len(self.loads)}"
        self.loads.append(Moved(name, type_, first, statement, QUAD))
        variable = Variable(vector, index(name, self.variable))
        return Declare(vector_type(type_, PAIR), (variable,), "const ", statement=statement)

    def load_early(self, declared: Declare, number: int, size_bytes: int) -> Node:
        """Return *declared*, a vector, of what a loop before this one loads.

        :arg number: of the arrays that are loaded so.
        """
        depth = 1 if self.ahead is None else max(1, self.ahead.depth(size_bytes))
        found = Early(f"w_early{number}", declared, depth)
        self.early.append(found)
        variable = replace(declared.variables[0], value=self._element(found))
        return replace(declared, variables=(variable,))

    def _element(self, early: Early) -> Code:
        """Return where *early* has what is loaded for this iteration."""
        if early.depth == 1 or self.ahead is None:
            return index(early.name, self.variable)
        turn = binary(self.ahead.variable, "%", early.depth)
        return index(index(early.name, turn), self.variable)

    def keep(self, vector: str, moved: Moved) -> Node:
        """Return what keeps *vector*, the pair of *moved*, for the store after the loop."""
        name = f"w_pairs{len(self.pairs)}"
        self.pairs.append(replace(moved, name=name))
        return Assign(index(name, self.variable), Name(vector), moved.statement)

    def declarations(self) -> list[Node]:
        """Return what stands before the loop, loads included."""
        zeros = Literal("{}") if self.guards else None
        number = binary(cast("int", member("threadIdx", "x")), "%", QUAD)
        quad = Declare(Type("int"), (Variable(W_QUAD.text, number),), "const ")
        arrays: list[Node] = [
            Declare(
                vector_type(own.type_, PAIR),
                (Variable(own.name, zeros, size=str(QUAD)),),
                statement=own.statement,
            )
            for own in [*self.pairs, *self.loads]
        ]
        loads: list[Node] = [
            Evaluate(call("tc_vload_quad", own.name, *self._run(own.first, W_QUAD)), own.statement)
            for own in self.loads
        ]
        own = [quad] if self.pairs or self.loads else []
        return [*own, *arrays, *loads, *self._early()]

    def _early(self) -> list[Node]:
        """Return what loads early for this iteration: its arrays, and the loop.

        What is loaded some iterations before is left to the loop around.
        """
        found: list[Node] = []
        for early in self.early:
            if early.depth == 1:
                found += [self._array(early), self._loading(early)]
            elif self.ahead is not None:
                first = for_each(self.ahead.variable, early.depth, [self._loading(early)])
                self.ahead.before += [self._array(early), first]
        return found

    def _array(self, early: Early) -> Node:
        """Return the declaration of the registers of *early*."""
        zeros = Literal("{}") if self._guards(early) else None
        size = f"{early.depth}][{QUAD}" if early.depth > 1 else str(QUAD)
        variable = Variable(early.name, zeros, size=size)
        return replace(early.declared, variables=(variable,), before="")

    def _loading(self, early: Early) -> Node:
        """Return the loop that loads *early*."""
        value = early.declared.variables[0].value
        assert value is not None
        body: list[Node] = [Assign(self._element(early), value, early.declared.statement)]
        guards = self._guards(early)
        guarded = [If(both(guards), tuple(body))] if guards else body
        return for_each(self.variable, QUAD, guarded)

    def _guards(self, early: Early) -> tuple[Code, ...]:
        """Return the conditions under which *early* has something to load."""
        around = () if self.ahead is None or early.depth == 1 else self.ahead.guards
        return (*around, *self.guards)

    def loads_ahead(self) -> list[Node]:
        """Return what an iteration loads for later ones: in scopes whose loop is at these."""
        found: list[Node] = []
        for early in self.early:
            if early.depth == 1 or self.ahead is None:
                continue
            name, later = self.ahead.variable, binary(self.ahead.variable, "+", early.depth)
            int_ = Type("int")
            there = Declare(int_, (Variable("w_later", later),), "const ")
            here = Declare(int_, (Variable(name, Name("w_later")),), "const ")
            inside = Scope((there, Scope((here, self._loading(early)))))
            found.append(If(binary(later, "<", self.ahead.count), (inside,)))
        return found

    def _run(self, first: Index, number: Code) -> list[Code]:
        """Return where the thread's pair of the run *number* is, and whether there is one."""
        own: dict[str, Code] = {self.variable: number}
        place = address(Index(first.array, substituted(first.index, own)))
        guards = [substituted(guard, own) for guard in self.guards]
        return [place, *([both(guards)] if guards else [])]

    def stores(self) -> list[Node]:
        """Return the stores: each thread stores the run of its number, or of two runs one."""
        found: list[Node] = []
        for own in self.pairs:
            if own.threads == QUAD:
                place, *where = self._run(own.first, W_QUAD)
                store = call("tc_vstore_quad", place, own.name, *where)
                found.append(Evaluate(store, own.statement))
                continue
            for begin in range(0, QUAD, PAIR):
                mine = binary(W_QUAD, "%", PAIR)
                place, *where = self._run(own.first, paren(binary(begin, "+", mine)))
                pairs = [index(own.name, code(begin + turn)) for turn in range(PAIR)]
                store = call("tc_vstore_twin", place, *pairs, *where)
                found.append(Evaluate(store, own.statement))
        return found


def for_each(variable: str, count: int, body: Sequence[Node]) -> Node:
    """Return an unrolled loop."""
    is_left = binary(variable, "<", count)
    return For(Type("int"), variable, ZERO, is_left, None, tuple(body), "#pragma unroll")


def is_straight(node: loop_ast.AstNode) -> bool:
    """Return whether nothing in *node* is run under a condition."""
    match node:
        case loop_ast.Leaf():
            return True
        case loop_ast.Mark(body=body) | loop_ast.For(body=body):
            return is_straight(body)
        case loop_ast.Block(children=children):
            return all(map(is_straight, children))
        case _:
            return False


def differs(guards: tuple[Code, ...], of_threads: frozenset[str]) -> bool:
    """Return whether *guards* may differ between threads."""
    return bool(guards) and not of_threads.isdisjoint(names(*guards))
