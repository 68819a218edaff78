"""Invariant code motion: what is the same for all of a row is computed once a row.

    s(i)   +=! x(i,j) * x(i,j)                        s(i)   +=! x(i,j) * x(i,j)
    y(i,j)  = x(i,j) * rsqrt(s(i) / N + eps)   --->   r(i)    = rsqrt(s(i) / N + eps)
                                                      y(i,j)  = x(i,j) * r(i)

A compiler of the printed text does not: it will not move a function of several instructions, some
of them inline, out of a loop that it has unrolled.  In one kernel r is a register, as s is.

Moved are the largest expressions that call a function or divide, always run, and name some but not
all indices of their statement, among them a sum of the same kernel (a kernel of its own for r would
cost more than it saves).  Legal, for r is computed just before y from the same values, of the same
rows, and rounded to its own type.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Expr,
    Index,
    Load,
    Select,
    children,
    indices_in,
    walk,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.isl_utils import constant_bounds, is_unbounded
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, loads_of
from tcdsl.rewrites.scop.assignment import assignment, over_indices, with_own_reads
from tcdsl.rewrites.scop.caching import insertion


def with_invariants(scop: Scop, kernels: Collection[Collection[str]]) -> Scop:
    """Return *scop* with what is invariant of rows apart.

    :arg kernels: the names of the statements of each.
    """
    if is_unbounded(scop.context):
        return scop
    for members in kernels:
        sums = {
            scop.by_name[name].write.array
            for name in members
            if scop.by_name[name].kind is Kind.UPDATE
        }
        for name in members:
            while (moved := _moved(scop.by_name[name], sums)) is not None:
                scop = _apart(scop, scop.by_name[name], moved)
    return scop


def _moved(statement: Statement, sums: Collection[str]) -> Expr | None:
    """Return the first expression of *statement* that is to be moved, if there is one."""
    if statement.kind not in (Kind.ASSIGN, Kind.UPDATE) or statement.value is None:
        return None
    inexact = {read.array for read in statement.reads if not read.is_exact}
    for expr in _always_run(statement.value):
        arrays = {load.tensor for load in loads_of(expr)}
        names = indices_in(expr)
        if not any(map(_is_slow, walk(expr))) or not arrays & set(sums):
            continue
        if arrays & (inexact | {statement.write.array}):
            continue
        if names and names < set(statement.indices):
            return expr
    return None


def _is_slow(node: Expr) -> bool:
    """Return whether *node* takes several instructions."""
    return isinstance(node, Call) or (
        isinstance(node, Binary) and node.op == "/" and node.dtype.is_float
    )


def _always_run(expr: Expr) -> Iterator[Expr]:
    """Yield the operands of *expr* that are evaluated whenever it is, the largest first."""
    pending = [expr]
    while pending:
        node = pending.pop(0)
        yield node
        if isinstance(node, Select):
            pending.append(node.condition)
        elif isinstance(node, Binary) and node.op in ("&&", "||"):
            pending.append(node.left)
        elif not isinstance(node, Load):
            pending += children(node)


def _apart(scop: Scop, statement: Statement, expr: Expr) -> Scop:
    """Return *scop* with *expr* of *statement* as a statement of its own before it."""
    names = indices_in(expr)
    kept = tuple(index for index in statement.indices if index in names)
    count = sum(s.name.startswith(f"{statement.name}_row") for s in scop.statements)
    name = f"{statement.name}_row{count}"
    domain = over_indices(statement, names, name)
    bounds = [constant_bounds(domain, dim) for dim in range(len(kept))]
    box = [(low, high + 1 - low) for low, high in (b for b in bounds if b is not None)]
    origin, shape = tuple(low for low, _ in box), tuple(n for _, n in box)
    array = Array(f"{name}.value", expr.dtype, origin, shape, Storage.SCRATCH)
    wide = replace(scop, arrays={**scop.arrays, array.name: array})
    load = Load(array.name, tuple(map(Index, kept)), expr.dtype)
    assert statement.value is not None
    value = rewrite(statement.value, lambda node: load if node == expr else node)
    rest = with_own_reads(wide, replace(statement, value=value))
    statements = [rest if old is statement else old for old in scop.statements]
    own = assignment(wide, domain, kept, load, expr, statement)
    statements.insert(insertion(scop, [statement.name]), own)
    return wide.with_statements(tuple(statements))
