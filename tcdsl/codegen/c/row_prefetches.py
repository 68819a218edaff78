"""Rows that data choose are prefetched some iterations before they are added.

    for (e = ptr[b]; e < ptr[b + 1]; e++)          for (e = ...; e++)
      for (d = 0; d < 32; d++)             --->      row = &table[word[min(e + 16, E - 1)] * 32]
        sum[d] += table[word[e] * 32 + d];           prefetch(row), prefetch(row + 16)
                                                     for (d = 0; d < 32; d++) ...

No processor guesses where the next row is.  What is loaded early is a subscript of another instance
in the statement's box, which is there whatever the data; of the row nothing is loaded, so that a
subscript out of range does no harm.
"""

from collections.abc import Iterator

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import address, binary, call, mentions, number, substituted
from tcdsl.codegen.ast.nodes import (
    Code,
    Declare,
    Evaluate,
    Index,
    Name,
    Node,
    Scope,
    Type,
    Variable,
)
from tcdsl.codegen.ast.walk import of_statement
from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.c.statements import Context, StatementPrinter
from tcdsl.codegen.passes.iterations import last_of
from tcdsl.costmodel import cpu_thresholds
from tcdsl.lang.comprehension import Binary, Expr, Load, Select, children
from tcdsl.lang.ranges.reads import index_names
from tcdsl.poly.scop import Scop, loads_of

_LINE_BYTES = cpu_thresholds.LINE_BYTES


def row_prefetches(
    context: Context, loop: loop_ast.For, vector: loop_ast.For, last: Code, rows_ahead: int
) -> list[Node]:
    """Return prefetches of the rows that *vector* adds in a later iteration of *loop*.

    :arg last: the value of the loop's variable beyond which nothing is, whatever the data say.
    :arg rows_ahead: how many iterations later; 0: nothing is prefetched.
    """
    if not rows_ahead:
        return []
    leaf, first, end = vector.body, number(vector.init), last_of(vector)
    if not isinstance(leaf, loop_ast.Leaf) or first is None or end is None:
        return []
    value = context.scop.by_name[leaf.statement].value
    if value is None or (final := number(end)) is None:
        return []
    moving = _indices(context.scop, leaf, loop.variable)
    lanes = _indices(context.scop, leaf, vector.variable)
    later = call("min", binary(loop.variable, "+", rows_ahead), last)
    values = {loop.variable: later, vector.variable: vector.init}
    iterators = tuple(substituted(at, values) for at in leaf.iterators)
    printer = StatementPrinter(context, loop_ast.Leaf(leaf.statement, iterators, leaf.local))
    nodes: list[Node] = []
    for load in dict.fromkeys(_unguarded(value)):
        if _is_row(context.scop, load, moving, lanes):
            row = printer.outside(load)
            if isinstance(row, Index):
                nodes.append(_prefetched(row, load, final - first + 1))
    return of_statement(nodes, leaf.statement)


def _indices(scop: Scop, leaf: loop_ast.Leaf, variable: str) -> set[str]:
    """Return the indices of the leaf's statement that are *variable* and what loops around add."""
    indices = scop.by_name[leaf.statement].indices
    return {i for i, at in zip(indices, leaf.iterators, strict=True) if mentions(at, variable)}


def _unguarded(value: Expr) -> Iterator[Load]:
    """Yield the loads in *value* that happen whatever the data are."""
    match value:
        case Load():
            yield value
        case Select() | Binary(op="&&" | "||"):
            return
        case _:
            for child in children(value):
                yield from _unguarded(child)


def _is_row(scop: Scop, load: Load, moving: set[str], lanes: set[str]) -> bool:
    """Return whether *load* is of neighbours along *lanes*, in a row that an argument chooses."""
    *rows, last = load.subscripts or (load,)
    chosen = loads_of(*rows)
    strides = scop.arrays[load.tensor].strides
    arrays = [scop.arrays[found.tensor] for found in chosen]
    names = set(index_names(*chosen))
    return (
        bool(names)
        and names <= moving
        and all(array.is_input and not array.is_output for array in arrays)
        and set(index_names(last)) == lanes
        and not loads_of(last)
        and (strides is None or strides[-1] == 1)
    )


def _prefetched(row: Index, load: Load, lanes: int) -> Node:
    """Return prefetches of every line of *row*."""
    pointer = Variable("w_row", address(row), pointer="*")
    starts = range(0, lanes, _LINE_BYTES // load.dtype.size_bytes)
    places = (binary("w_row", "+", lane) if lane else Name("w_row") for lane in starts)
    return Scope((
        Declare(Type(c_type(load.dtype)), (pointer,), before="const "),
        *(Evaluate(call("__builtin_prefetch", place)) for place in places),
    ))  # fmt: skip
