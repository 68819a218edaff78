"""Register tiles of products of narrow terms: one call for all that the COLLECTIVE loops run.

    for (c7 = 0; c7 <= 127; c7++)                         tc_dots_i16(&part[0],
      for (c8 = 0; c8 <= 9; c8++)                                     &A_panel[...],
        for (c9 = 0; c9 <= 31; c9++)              --->                &B_panel[...],
          for (c10 = 0; c10 <= 1; c10++)                              10, 32, 128);
            part[...] += A_panel[...] * B_panel[...];

The loops must be whole, those of steps, rows, columns and the terms of a step: each operand begins
where all of them are 0.  Neighbours of the sums are columns; of the rows' panel terms, and of the
columns' panel the terms of a step, then columns, then steps (strategies/panels).
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
from tcdsl.codegen.c.expressions import suffix
from tcdsl.codegen.c.statements import Context, StatementPrinter
from tcdsl.lang.types.dtypes import BFLOAT16, INT16
from tcdsl.poly.loop_tree import Loop, LoopKind
from tcdsl.poly.scop import Access


def dot_products(context: Context, node: loop_ast.Mark, loops: Mapping[str, Loop]) -> list[Node]:
    """Return the call for the COLLECTIVE loops from *node* on."""
    extents: list[int] = []
    variables: list[str] = []  # of each loop; of one iteration there may be none
    inner: loop_ast.AstNode = node
    while not isinstance(inner, loop_ast.Leaf):
        if isinstance(inner, loop_ast.Mark):
            loop = loops[inner.name]
            assert loop.kind is LoopKind.COLLECTIVE and isinstance(loop.extent, int)
            extents.append(loop.extent)
            variables.append("")
        else:
            assert isinstance(inner, loop_ast.For) and number(inner.init) == 0, "whole tiles"
            variables[-1] = inner.variable
        inner = inner.body
    steps, rows, columns, _ = extents
    statement = context.scop.by_name[inner.statement]
    along = {
        read.array: _moves(context, inner, read, variables[2])
        for read in statement.reads
        if read.array != statement.write.array
    }
    operands = sorted(
        (read for read in statement.reads if read.array in along),
        key=lambda read: along[read.array],
    )
    printer = StatementPrinter(context, _at(inner, {name: ZERO for name in variables if name}))
    starts = (address(printer.place(access)) for access in (statement.write, *operands))
    one, other = (context.scop.arrays[read.array].dtype for read in operands)
    types = suffix(one) if one in (INT16, BFLOAT16) else f"{suffix(one)}_{suffix(other)}"
    called = call(f"tc_dots_{types}", *starts, rows, columns, steps)
    return of_statement([Evaluate(called)], inner.statement)


def _at(leaf: loop_ast.Leaf, values: Mapping[str, Code]) -> loop_ast.Leaf:
    """Return *leaf* where loop variables have *values*."""

    def each(codes: tuple[Code, ...]) -> tuple[Code, ...]:
        return tuple(simplified(substituted(code, values)) for code in codes)

    local = {key: each(indices) for key, indices in leaf.local.items()}
    return loop_ast.Leaf(leaf.statement, each(leaf.iterators), local)


def _moves(context: Context, leaf: loop_ast.Leaf, read: Access, variable: str) -> bool:
    """Return whether what is *read* depends on the loop's *variable*."""
    return mentions(StatementPrinter(context, leaf).place(read), variable)
