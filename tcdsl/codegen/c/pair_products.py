"""Products of pairs of 16-bit terms: one call for all that the COLLECTIVE loops run.

    for (c10 = 0; c10 <= 15; c10++)                       tc_pairs_16(&part[32 * c8],
      for (c11 = 0; c11 <= 1; c11++)             --->                 &A_panel[48 * c8 + 2 * c7],
        part[32 * c8 + c10] += A_panel[...] * B_panel[...];           &B_panel[64 * c7]);

The loops must be whole: each operand begins where both are 0, and the call's lanes are the loop's.
Neighbours of the sums are lanes; of the rows' panel the two terms, and of the columns' panel the
lanes' pairs of them (strategies/panels).
"""

from collections.abc import Mapping

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    ZERO,
    address,
    call,
    mentions,
    number,
    simplified,
    substituted,
)
from tcdsl.codegen.ast.nodes import Code, Evaluate, Node
from tcdsl.codegen.ast.walk import of_statement
from tcdsl.codegen.c.statements import Context, StatementPrinter
from tcdsl.codegen.passes.turns import last_of
from tcdsl.poly.loop_tree import Loop, LoopKind
from tcdsl.poly.scop import Access

LANES = (8, 16)  # of the device library's functions
TOGETHER = 2  # terms


def pair_products(context: Context, node: loop_ast.For, loops: Mapping[str, Loop]) -> list[Node]:
    """Return the call for the loop *node* over lanes, which has one over two terms inside."""
    inner = node.body
    assert isinstance(inner, loop_ast.Mark) and loops[inner.name].kind is LoopKind.COLLECTIVE
    terms = inner.body
    assert isinstance(terms, loop_ast.For) and isinstance(terms.body, loop_ast.Leaf)
    leaf, lanes = terms.body, _iterations(node)
    assert lanes in LANES and _iterations(terms) == TOGETHER, "the library has no such function"
    statement = context.scop.by_name[leaf.statement]
    first = {node.variable: ZERO, terms.variable: ZERO}
    printer = StatementPrinter(context, _at(leaf, first))
    along = {read.array: _moves(context, leaf, read, node.variable) for read in statement.reads}
    rows, columns = sorted(
        (r for r in statement.reads if r.array != statement.write.array),
        key=lambda read: along[read.array],
    )
    starts = (address(printer.place(access)) for access in (statement.write, rows, columns))
    return of_statement([Evaluate(call(f"tc_pairs_{lanes}", *starts))], leaf.statement)


def _iterations(node: loop_ast.For) -> int:
    """Return how many iterations the whole loop *node* has."""
    end = last_of(node)
    last = None if end is None else number(end)
    assert number(node.init) == 0 and last is not None, "panels have whole tiles"
    return last + 1


def _at(leaf: loop_ast.Leaf, values: Mapping[str, Code]) -> loop_ast.Leaf:
    """Return *leaf* where loop variables have *values*."""

    def each(codes: tuple[Code, ...]) -> tuple[Code, ...]:
        return tuple(simplified(substituted(code, values)) for code in codes)

    local = {key: each(indices) for key, indices in leaf.local.items()}
    return loop_ast.Leaf(leaf.statement, each(leaf.iterators), local)


def _moves(context: Context, leaf: loop_ast.Leaf, read: Access, variable: str) -> bool:
    """Return whether what is *read* depends on the loop's *variable*."""
    return mentions(StatementPrinter(context, leaf).place(read), variable)
