"""Pairs that four neighbouring threads exchange, so that each loads and stores 16 bytes.

    for c7 in 0:4                               tc_vec<uint16_t, 2> w_pairs0[4];
      w_vector0 = ...                           for c7 in 0:4
      tc_vstore(&C[8 * c7 + 2 * q], ..)  --->     w_vector0 = ...;  w_pairs0[c7] = w_vector0;
                                                tc_vstore_quad(&C[8 * q + 2 * q], w_pairs0);

with q = threadIdx.x % 4; loads of pairs are exchanged in the same way before the loop.  What else
the loop loads is loaded in a loop before it: four loads are on their way at once, and NVRTC 13.5
does not unroll the loop otherwise, so that the sums would be in memory (bfloat16 results with a
residual of float32).  Fragments
of tensor cores are held so (strategies/fragments.py): eight rows would be written 16 bytes each by
one instruction, and are written 64 bytes each.

Legal iff the threads run the loop together, which the fragments' rows say, nothing else in the
kernel touches the array if it is written, and runs of eight elements lie at multiples of 16 bytes.
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
    index,
    member,
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
    Type,
    Variable,
)
from tcdsl.codegen.ast.walk import names
from tcdsl.records import dataclass

PAIR, QUAD = 2, 4


@dataclass(slots=True)
class Exchange:
    """A loop whose iterations' pairs are exchanged; *guards* say which of them there are."""

    variable: str
    guards: tuple[Code, ...]
    pairs: list[tuple[str, str, Index, str]] = field(default_factory=list)
    loads: list[tuple[str, str, Index, str]] = field(default_factory=list)
    is_storing: bool = False  # whether there are pairs to be stored
    early: list[tuple[str, Declare]] = field(default_factory=list)  # arrays, and what they have

    def take(self, type_: str, vector: str, first: Index, statement: str) -> Node:
        """Return the declaration of *vector*, a pair at *first*, of what is loaded before."""
        name = f"w_loads{len(self.loads)}"
        self.loads.append((name, type_, first, statement))
        variable = Variable(vector, index(name, self.variable))
        return Declare(vector_type(type_, PAIR), (variable,), "const ", statement=statement)

    def load_early(self, declared: Declare) -> Node:
        """Return *declared*, a vector, of what a loop before this one loads."""
        name = f"w_early{len(self.early)}"
        self.early.append((name, declared))
        variable = replace(declared.variables[0], value=index(name, self.variable))
        return replace(declared, variables=(variable,))

    def keep(self, type_: str, vector: str, first: Index, statement: str) -> Node:
        """Return what keeps *vector*, a pair at *first*, for the store after the loop."""
        name = f"w_pairs{len(self.pairs)}"
        self.pairs.append((name, type_, first, statement))
        return Assign(index(name, self.variable), Name(vector), statement)

    def declarations(self) -> list[Node]:
        """Return what stands before the loop, loads included."""
        zeros = Literal("{}") if self.guards else None
        number = binary(cast("int", member("threadIdx", "x")), "%", QUAD)
        quad = Declare(Type("int"), (Variable("w_quad", number),), "const ")
        arrays: list[Node] = [
            Declare(
                vector_type(type_, PAIR),
                (Variable(name, zeros, size=str(QUAD)),),
                statement=statement,
            )
            for name, type_, _, statement in [*self.pairs, *self.loads]
        ]
        loads: list[Node] = [
            Evaluate(call("tc_vload_quad", name, *self._run(first)), statement)
            for name, _, first, statement in self.loads
        ]
        own = [quad] if self.pairs or self.loads else []
        return [*own, *arrays, *loads, *self._early()]

    def _early(self) -> list[Node]:
        """Return what loads early: its arrays, and the loop."""
        zeros = Literal("{}") if self.guards else None
        arrays: list[Node] = []
        body: list[Node] = []
        for name, declared in self.early:
            variable = Variable(name, zeros, size=str(QUAD))
            arrays.append(replace(declared, variables=(variable,), before=""))
            value = declared.variables[0].value
            assert value is not None
            body.append(Assign(index(name, self.variable), value, declared.statement))
        if not body:
            return []
        guarded = [If(both(self.guards), tuple(body))] if self.guards else body
        return [*arrays, for_each(self.variable, QUAD, guarded)]

    def _run(self, first: Index) -> list[Code]:
        """Return where the thread's pair of the run of its number is, and whether there is one."""
        own: dict[str, Code] = {self.variable: Name("w_quad")}
        place = address(Index(first.array, substituted(first.index, own)))
        guards = [substituted(guard, own) for guard in self.guards]
        return [place, *([both(guards)] if guards else [])]

    def stores(self) -> list[Node]:
        """Return the stores: each thread stores the run of its number."""
        found: list[Node] = []
        for name, _, first, statement in self.pairs:
            place, *where = self._run(first)
            found.append(Evaluate(call("tc_vstore_quad", place, name, *where), statement))
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
