"""Stores of pairs that four neighbouring threads exchange first, so that each stores 16 bytes.

    for c7 in 0:4                               tc_vec<uint16_t, 2> w_pairs0[4];
      w_vector0 = ...                           for c7 in 0:4
      tc_vstore(&C[8 * c7 + 2 * q], ..)  --->     w_vector0 = ...;  w_pairs0[c7] = w_vector0;
                                                tc_vstore_quad(&C[8 * q + 2 * q], w_pairs0);

with q = threadIdx.x % 4.  Fragments of tensor cores are held so (strategies/fragments.py): eight
rows would be written 16 bytes each by one instruction, and are written 64 bytes each.

Legal iff the threads run the loop together, which the fragments' rows say, nothing in the kernel
reads the array, and runs of eight elements lie at multiples of 16 bytes.
"""

from dataclasses import dataclass, field

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
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
    Index,
    Literal,
    Name,
    Node,
    Type,
    Variable,
)
from tcdsl.codegen.ast.walk import names

PAIR, QUAD = 2, 4


@dataclass(slots=True)
class Exchange:
    """A loop whose iterations' pairs are exchanged; *guards* say which of them there are."""

    variable: str
    guards: tuple[Code, ...]
    pairs: list[tuple[str, str, Index, str]] = field(default_factory=list)

    def keep(self, type_: str, vector: str, first: Index, statement: str) -> Node:
        """Return what keeps *vector*, a pair at *first*, for the store after the loop."""
        name = f"w_pairs{len(self.pairs)}"
        self.pairs.append((name, type_, first, statement))
        return Assign(index(name, self.variable), Name(vector), statement)

    def declarations(self) -> list[Node]:
        zeros = Literal("{}") if self.guards else None
        return [
            Declare(
                vector_type(type_, PAIR),
                (Variable(name, zeros, size=str(QUAD)),),
                statement=statement,
            )
            for name, type_, _, statement in self.pairs
        ]

    def stores(self) -> list[Node]:
        """Return the stores: each thread stores the run of its number."""
        own: dict[str, Code] = {self.variable: Name("w_quad")}
        found: list[Node] = []
        for name, _, first, statement in self.pairs:
            place = address(Index(first.array, substituted(first.index, own)))
            guards = [substituted(guard, own) for guard in self.guards]
            arguments = [place, Name(name), *([both(guards)] if guards else [])]
            found.append(Evaluate(call("tc_vstore_quad", *arguments), statement))
        number = binary(cast("int", member("threadIdx", "x")), "%", QUAD)
        return [Declare(Type("int"), (Variable("w_quad", number),), "const "), *found]


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
