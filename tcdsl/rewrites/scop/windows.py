"""Sums over small windows as plain statements: one term after another, in one expression.

    s(i) +=! x(i + k) where k in 0:3    --->    s(i) = x(i) + x(i + 1) + x(i + 2)

Of several axes the sums along all but the first are the terms of those along that: a thread that
has rows i and i + 1 of a window of 3 x 3 adds row i + 1 of x for both at once::

    (x(i,j) + x(i,j+1) + x(i,j+2)) + (x(i+1,j) + x(i+1,j+1) + x(i+1,j+2)) + ( ... )

Legal iff the updates start from the identity, read nothing that they write, and run for every
combination of a result and a point of the window; then any order of the terms may be taken.  A
stage of a stencil then has one statement, without an accumulator to be cleared before it and kept
beside it (rewrites/scop/overlapped_tiles.py), and neighbours of a thread share loads.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial, reduce

import islpy as isl

from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Index, Operator
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32, INT64, arithmetic
from tcdsl.poly.isl_utils import constant_bounds, points_of_box
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.rfactor import initialisation

MOST_TERMS = 49  # a window of 7 x 7
_JOINED = {Operator.ADD: "+", Operator.MUL: "*"}
_CALLED = {Operator.MIN: "min", Operator.MAX: "max"}


def why_not_window(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is no sum over a small window, or None if it is one."""
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or not reduction.initialise:
        return "it is no sum that starts from nothing"
    if reduction.operator not in (*_JOINED, *_CALLED) or statement.conditions:
        return "its terms are not all of them, or no plain ones"
    target = scop.arrays[statement.write.array].dtype
    is_plain = target.is_float or target in (INT32, INT64)
    if reduction.dtype != arithmetic(target) or not is_plain:
        return "it accumulates in another type than its target's"
    init = initialisation(scop, statement)
    if init is None or init.indices != statement.left:
        return "its results are not its left-hand indices"
    if any(read.array == statement.write.array for read in statement.reads):
        return "it reads what it writes"
    window = _window(statement)
    points = points_of_box(window)
    if points is None or not 1 <= points <= MOST_TERMS:
        return "its window is no small box"
    return None if _is_product(statement, init, window, points) else "its window is not the same"


def with_windows(scop: Scop, names: Collection[str]) -> Scop:
    """Return *scop* with the sums *names* (see :func:`why_not_window`) as plain statements."""
    inits = {
        init.name
        for name in names
        if (init := initialisation(scop, scop.by_name[name])) is not None
    }
    statements = tuple(
        _unrolled(scop, s) if s.name in names else s for s in scop.statements if s.name not in inits
    )
    return scop.with_statements(statements)


def _window(statement: Statement) -> isl.Set:
    """Return the points of the window of some result, at some values of the open sizes."""
    window = statement.domain.project_out(isl.dim_type.set, 0, statement.n_left)
    return window.project_out_all_params()


def _is_product(statement: Statement, init: Statement, window: isl.Set, points: int) -> bool:
    """Return whether every result has the same *points* terms."""
    results = statement.domain.project_out(
        isl.dim_type.set, statement.n_left, len(statement.reduced)
    )
    whole = results.flat_product(window).reset_tuple_id()
    own = statement.domain.reset_tuple_id()
    if not whole.is_subset(own) or int(str(window.count_val())) != points:
        return False
    return bool(init.domain.reset_tuple_id().is_equal(results.reset_tuple_id()))


def _unrolled(scop: Scop, statement: Statement) -> Statement:
    """Return the updates *statement* as one statement a result."""
    value, reduction = statement.value, statement.reduction
    assert value is not None and reduction is not None
    window = _window(statement)
    ranges = []
    for dim in range(len(statement.reduced)):
        bounds = constant_bounds(window, dim)
        assert bounds is not None
        ranges.append(range(bounds[0], bounds[1] + 1))
    total = _total(reduction.operator, value, statement.reduced, ranges)
    domain = statement.domain.project_out(
        isl.dim_type.set, statement.n_left, len(statement.reduced)
    ).set_tuple_name(statement.name)
    space = statement.write.relation.project_out(
        isl.dim_type.in_, statement.n_left, len(statement.reduced)
    ).set_tuple_name(isl.dim_type.in_, statement.name)
    new = replace(
        statement,
        domain=domain,
        indices=statement.left,
        kind=Kind.ASSIGN,
        write=replace(statement.write, relation=space),
        value=total,
        reduction=None,
    )
    return with_own_reads(scop, new)


def _total(
    operator: Operator, value: Expr, indices: Sequence[str], ranges: Sequence[range]
) -> Expr:
    """Return the sum of *value* over *indices*: over the first, of those over the others."""
    if not indices:
        return value
    terms = (
        _total(operator, _at(value, {indices[0]: point}), indices[1:], ranges[1:])
        for point in ranges[0]
    )
    return reduce(partial(_joined, operator), terms)


def _at(value: Expr, point: dict[str, int]) -> Expr:
    """Return *value* with numbers for the indices of *point*; sums of numbers are added up."""

    def change(node: Expr) -> Expr:
        match node:
            case Index(name=name) if name in point:
                return Const(point[name], node.dtype, node.span)
            case Binary(op="+" | "-" as op, left=left, right=Const(value=int(n))) if (
                node.dtype.is_integer and not isinstance(n, bool)
            ):
                return _shifted(left, n if op == "+" else -n, node)
            case _:
                return node

    return rewrite(value, change)


def _shifted(left: Expr, number: int, node: Binary) -> Expr:
    """Return ``left + number``, of the type of *node*."""
    match left:
        case Const(value=int(known)):
            return Const(known + number, node.dtype, node.span)
        case Binary(op="+", left=first, right=Const(value=int(more))):
            return _shifted(first, number + more, node)
    if number == 0:
        return left
    return Binary("+", left, Const(number, node.dtype), node.dtype, node.span)


def _joined(operator: Operator, total: Expr, term: Expr) -> Expr:
    if operator in _CALLED:
        return Call(_CALLED[operator], (total, term), total.dtype, term.span)
    return Binary(_JOINED[operator], total, term, total.dtype, term.span)
