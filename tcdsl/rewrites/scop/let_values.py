"""Let clauses as statements: what a let stands for is computed once for the indices it depends on.

    y(i,j) = g * x(k,j)                            k.S0(i) = int32(floor(exp(g(i))))
        where k = int32(floor(exp(g(i))))   --->   y(i,j)  = g * x(k.S0(i), j)

Semantic analysis has substituted the lets; here their values are found again, by equality, in the
statement and in the checks of its gathered subscripts.  The new statement is what the user would
have written: fusion and placement treat it so.

Set apart is a value that is part of a gathered subscript, which the checks evaluate as well, or
that takes several instructions and depends on some of the statement's indices only (on a GPU,
beside such a subscript). Legal, for a value without loads is defined everywhere, and one with
loads runs for every instance anyway: it stands under no guard, no condition is left to the
instance, and the statement does not write what it loads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Expr,
    Index,
    Let,
    Load,
    Select,
    indices_in,
    walk,
)
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.accesses import builder_of, evaluated
from tcdsl.poly.isl_utils import dim_bounds, minus
from tcdsl.poly.scop import Array, Scop, Statement, Storage, loads_of
from tcdsl.rewrites.scop.assignment import (
    assignment,
    over_indices,
    with_own_accesses,
    with_own_reads,
)


def with_lets_apart(
    scop: Scop, statements: Sequence[tc.Statement], *, only_gathered: bool = False
) -> Scop:
    """Return *scop*, lowered from *statements*, with the values of their lets set apart.

    :arg only_gathered: only in statements that subscript by one of theirs: elsewhere computing a
        value many times is cheaper than another kernel.
    """
    for statement in statements:
        own: dict[Expr, Load] = {}  # the values that are statements by now
        if only_gathered and not _subscripts_by_lets(scop, statement):
            continue
        for let in statement.lets:
            value = rewrite(let.value, lambda node, own=own: own.get(node, node))  # type: ignore[misc]
            body = scop.by_name.get(statement.name)
            if body is None or value in own or not _is_worthwhile(scop, body, value):
                continue
            if not _may_run_early(body, value, {load.tensor for load in own.values()}):
                continue
            scop, own[value] = _apart(scop, body, Let(let.name, value))
    return scop


def _is_worthwhile(scop: Scop, body: Statement, value: Expr) -> bool:
    indices = indices_in(value)
    if not indices or isinstance(value, Load | Index):
        return False
    if any(value in walk(subscript) for subscript in _gathered(body)):
        return builder_of(body.indices, body.name, scop.sizes).affine(value) is None
    is_used = any(value in walk(expr) for expr in evaluated(body))
    return is_used and indices < set(body.indices) and any(map(_is_slow, walk(value)))


def _gathered(body: Statement) -> Iterator[Expr]:
    """Yield the subscripts of *body* that isl does not know."""
    for touched in (body.write, *body.reads):
        for dim in touched.inexact:
            yield touched.subscripts[dim]


def _subscripts_by_lets(scop: Scop, statement: tc.Statement) -> bool:
    body = scop.by_name.get(statement.name)
    if body is None or not statement.lets:
        return False
    parts = [node for subscript in _gathered(body) for node in walk(subscript)]
    lets = (let.value for let in statement.lets if not isinstance(let.value, Load | Index))
    return any(value in parts for value in lets)


def _is_slow(node: Expr) -> bool:
    """Return whether *node* takes several instructions."""
    match node:
        case Call() | Binary(op="/" | "%"):
            return node.dtype.is_float
        case Cast(operand=operand):
            return operand.dtype.is_float and node.dtype.is_integer
        case _:
            return False


def _may_run_early(body: Statement, value: Expr, total: set[str]) -> bool:
    """Return whether *value* may be computed before *body*; all of the arrays *total* is known."""
    loaded = {load.tensor for load in loads_of(value)} - total
    if not loaded:
        return True
    written = {touched.array for touched in body.writes}
    runs = any(value == node for expr in evaluated(body) for node in _always_run(expr))
    return runs and not body.conditions and not loaded & written


def _always_run(expr: Expr) -> Iterator[Expr]:
    """Yield *expr* and its operands that are evaluated whenever it is."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        match node:
            case Select(condition=first) | Binary(op="&&" | "||", left=first):
                pending.append(first)
            case _:
                pending += tc.children(node)


def _apart(scop: Scop, body: Statement, let: Let) -> tuple[Scop, Load]:
    """Return *scop* with *let*'s value of *body* as a statement of its own, and its load."""
    array, own = _statement(scop, body, let)
    scop = replace(scop, arrays={**scop.arrays, array.name: array})
    load = Load(array.name, tuple(map(Index, own.indices)), array.dtype, let.value.span)
    statements: list[Statement] = []
    is_placed = False
    for statement in scop.statements:
        if statement.source_name != body.source_name:
            statements.append(statement)
            continue
        if not is_placed:
            statements.append(own)
            is_placed = True
        statements.append(_with_load(scop, statement, let.value, load))
    return scop.with_statements(tuple(statements)), load


def _statement(scop: Scop, body: Statement, let: Let) -> tuple[Array, Statement]:
    """Return the array of *let*'s values and the statement that computes them."""
    used = indices_in(let.value)
    kept = tuple(index for index in body.indices if index in used)
    name = fresh_name(f"{body.name}_{let.name}", scop.by_name)
    domain = over_indices(body, used, name)
    box = [dim_bounds(domain, dim, scop.context) for dim in range(len(kept))]
    origin, shape = tuple(low for low, _ in box), tuple(minus(end, low) for low, end in box)
    array = Array(
        fresh_name(f"{let.name}.{body.name}", scop.arrays), let.value.dtype, origin, shape,
        Storage.SCRATCH,
    )  # fmt: skip
    known = replace(scop, arrays={**scop.arrays, array.name: array})
    target = Load(array.name, tuple(map(Index, kept)), array.dtype)
    return array, replace(assignment(known, domain, kept, target, let.value, body), source_name="")


def _with_load(scop: Scop, statement: Statement, value: Expr, load: Load) -> Statement:
    """Return *statement* with *load* wherever it computes *value*."""

    def changed(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(rewrite(expr, lambda node: load if node == value else node) for expr in exprs)

    if not any(node == value for expr in evaluated(statement) for node in walk(expr)):
        return statement
    new = replace(
        statement,
        value=None if statement.value is None else changed((statement.value,))[0],
        conditions=changed(statement.conditions),
        checked=tuple((dim, changed((expr,))[0]) for dim, expr in statement.checked),
    )
    if not statement.writes:
        return with_own_reads(scop, new)
    return with_own_accesses(scop, new, statement.write.array, changed(statement.write.subscripts))
