"""Row terms: what a sum over rows adds of a row is computed beside the row.

                                                    k(b)      = label(b)
    top(b)   max=! x(b,v)                           top(b)   max=! x(b,v)
                                                    g(b)      = x(b, k(b))
    total(b) +=! exp(x(b,v) - top(b))               total(b) +=! exp(x(b,v) - top(b))
    loss     +=! log(total(b)) - x(b, label(b))     t(b)      = log(total(b)) - g(b)
                                            --->    loss     +=! t(b)

The sum needs all rows, its terms one each: t is an epilogue of the kernel that reduces the rows, by
blocks that have the row at hand, and loss adds up one array of neighbours, where it would have read
several, and gathered from x.  A gather is a load that waits for another one: the first stands
before the loads of the row, the second before what is done with it, so that nobody waits.  Both
are for the rows of which isl cannot say that the conditions around them fail.

Legal for every reduction that does not read its own target: a term is computed once, from the same
values, and rounded to its own type, which is what the reduction takes.  Only what nothing writes is
loaded before.
"""

from dataclasses import replace

import islpy as isl

from tcdsl.costmodel import gpu_thresholds
from tcdsl.lang.comprehension import Cast, Expr, Index, Load
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import arithmetic
from tcdsl.poly.accesses import access, builder_of, guarded_reads
from tcdsl.poly.isl_utils import constant_bounds, is_unbounded
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, loads_of
from tcdsl.rewrites.scop.rfactor import initialisation

LEAST_LENGTH = gpu_thresholds.TERM_VALUES


def with_row_terms(scop: Scop) -> Scop:
    """Return *scop* with the terms of sums over rows as arrays of their own."""
    if is_unbounded(scop.context):
        return scop
    for statement in scop.statements:
        rows = _rows_of(scop, statement)
        if rows is not None:
            scop = _with_terms(scop, statement, rows)
    return scop


def _rows_of(scop: Scop, statement: Statement) -> Statement | None:
    """Return the first reduction of rows whose results *statement* adds up, row by row, or None."""
    if statement.kind is not Kind.UPDATE or statement.companion is not None or statement.n_left:
        return None
    if len(statement.reduced) != 1 or statement.conditions or not statement.write.is_exact:
        return None
    if statement.value is None or isinstance(statement.value, Load):
        return None  # it is an array already
    if any(read.array == statement.write.array for read in statement.reads):
        return None
    (index,) = map(Index, statement.reduced)
    made = {read.array for read in statement.reads if read.subscripts == (index,)}
    before = scop.statements[: scop.position(statement.name)]
    return next((s for s in before if s.write.array in made and _reduces_long_rows(s)), None)


def _reduces_long_rows(statement: Statement) -> bool:
    if statement.kind is not Kind.UPDATE:
        return False
    bounds = [
        constant_bounds(statement.domain, dim)
        for dim in range(statement.n_left, len(statement.indices))
    ]
    return any(b is not None and b[1] - b[0] + 1 >= LEAST_LENGTH for b in bounds)


def _with_terms(scop: Scop, statement: Statement, rows: Statement) -> Scop:
    """Return *scop* with the terms of *statement* computed by one of its own."""
    value = statement.value
    assert value is not None
    written = {write.array for s in scop.statements for write in s.writes}
    runs = {  # where each load may run: a condition may guard it
        (read.array, read.subscripts): read.relation.domain() for read in statement.reads
    }
    gathered = [
        load
        for load in dict.fromkeys(loads_of(value))
        if loads_of(*load.subscripts)
        and not written & {one.tensor for one in loads_of(load)}
        and any(r.subscripts == load.subscripts and not r.is_exact for r in statement.reads)
        and not runs[load.tensor, load.subscripts].is_empty()
    ]
    arrays = dict(scop.arrays)
    first: list[Statement] = []
    second: list[Statement] = []
    for load in gathered:
        own: Expr = load
        for inner in dict.fromkeys(loads_of(*load.subscripts)):
            name = f"{statement.name}_where{len(first)}"
            where = runs[inner.tensor, inner.subscripts]
            first.append(_assigned(scop, statement, name, inner, where, arrays))
            own = _replaced(own, inner, first[-1])
        name = f"{statement.name}_gather{len(second)}"
        where = runs[load.tensor, load.subscripts]
        second.append(_assigned(scop, statement, name, own, where, arrays))
        value = _replaced(value, load, second[-1])
    name = f"{statement.name}_term"
    term = _assigned(scop, statement, name, value, statement.domain, arrays)
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    total = replace(
        statement,
        value=_load(term, arrays),
        reads=(access(builder, term.write.array, term.write.subscripts, arrays, statement.domain),),
    )
    statements = [total if old is statement else old for old in scop.statements]
    init = initialisation(scop, statement)  # which stands directly before its updates
    statements.insert(scop.position(statement.name if init is None else init.name), term)
    checks = [s for s in statements if _checks(s, statement, written)]
    statements = [s for s in statements if s not in checks]
    after = next(n for n, s in enumerate(statements) if s.name == rows.name) + 1
    statements[after:after] = [*second, *checks]
    init = initialisation(scop, rows)
    start = scop.position(rows.name if init is None else init.name)
    statements[start:start] = first
    return replace(scop, arrays=arrays, statements=tuple(statements))


def _checks(check: Statement, statement: Statement, written: set[str]) -> bool:
    """Return whether *check* is of what *statement* gathers, from arrays that nothing writes."""
    is_own = check.kind is Kind.CHECK and check.source_name == statement.source_name
    return is_own and not written & {read.array for read in check.reads}


def _assigned(
    scop: Scop,
    statement: Statement,
    name: str,
    value: Expr,
    where: isl.Set,
    arrays: dict[str, Array],
) -> Statement:
    """Return the statement *name*, ``array(b) = value`` for the rows *where*; declare its array."""
    bounds = constant_bounds(where, 0)
    assert bounds is not None, "the sizes are numbers"
    low, high = bounds
    array = f"{name}.rows"
    arrays[array] = Array(array, value.dtype, (low,), (high + 1 - low,), Storage.SCRATCH)
    if arithmetic(value.dtype) != value.dtype:
        value = Cast(value, arithmetic(value.dtype))
    builder = builder_of(statement.indices, name, scop.sizes)
    domain = where.set_tuple_name(name)
    subscripts = (Index(statement.reduced[0]),)
    return replace(
        statement, name=name, domain=domain, n_left=1, kind=Kind.ASSIGN, reduction=None,
        value=value, write=access(builder, array, subscripts, arrays, domain),
        reads=guarded_reads(builder, domain, (value,), arrays),
    )  # fmt: skip


def _load(statement: Statement, arrays: dict[str, Array]) -> Load:
    """Return what loads the element that *statement* writes."""
    write = statement.write
    return Load(write.array, write.subscripts, arrays[write.array].dtype)


def _replaced(value: Expr, load: Load, own: Statement) -> Expr:
    """Return *value* with what *own* has made of *load* in its place."""
    there = Load(own.write.array, own.write.subscripts, load.dtype)
    return rewrite(value, lambda node: there if node == load else node)
