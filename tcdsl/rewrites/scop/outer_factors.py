"""Outer factors: what all terms of a sum are multiplied by is multiplied with the sum.

    C(m,n) +=! A(m,k) * (W(k,n) * s(n))             T(m,n) +=! A(m,k) * W(k,n)
                                           --->     C(m,n) = T(m,n) * s(n)

Scales of quantised weights and of attention are so.  What is left may be elements that tensor cores
multiply (``computed_factors``), and the sum has one product a term less.  The distributive law:
each term is rounded once less, so that the error bound holds; where the scale is 0 or tiny, sums of
the terms may overflow that would not have, so ``Options(reassociate=False)`` keeps the terms.

Legal iff the sum is initialised, the outer factors mention no reduced index, they do not read the
target, and every element has a term: the sum of none is 0, and infinity times 0 is not.
"""

from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Expr,
    Index,
    Load,
    Operator,
    indices_in,
    multiplied,
    walk,
)
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.rfactor import initialisation, rfactor, why_not_rfactored


def why_not_outer(scop: Scop, statement: Statement) -> str | None:
    """Return why no factor of the terms of *statement* is multiplied with their sum, or None."""
    reduction, value = statement.reduction, statement.value
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return "it is no reduction"
    if reduction.operator is not Operator.ADD or value is None or not value.dtype.is_float:
        return "it is no sum of floats"
    if reason := why_not_rfactored(statement):
        return reason
    init = initialisation(scop, statement)
    left = tuple(s.name for s in statement.write.subscripts if isinstance(s, Index))
    is_whole = init is not None and init.indices == statement.left == left
    if init is None or not is_whole or init.conditions or statement.conditions:
        return "it adds to what was there"
    inner, outer = _factors(statement)
    if not outer:
        return "all of its factors are summed over"
    if not inner:
        return "none of its factors is summed over"
    if any(_reads(factor, statement.write.array) for factor in outer):
        return "a factor is what it adds to"
    if not _has_terms(statement, init):
        return "some of its elements may have no terms"
    return None


def with_outer_factors(scop: Scop, name: str) -> Scop:
    """Return *scop* with what all terms of the sum *name* have multiplied with their sum."""
    statement = scop.by_name[name]
    assert why_not_outer(scop, statement) is None
    inner, outer = _factors(statement)
    done, _, store = rfactor(scop, name, ())
    update = done.by_name[name]
    assert store.value is not None
    changed = {
        name: with_own_reads(done, replace(update, value=_product(inner))),
        store.name: with_own_reads(done, replace(store, value=_product([store.value, *outer]))),
    }
    return done.with_statements(tuple(changed.get(s.name, s) for s in done.statements))


def _factors(statement: Statement) -> tuple[list[Expr], list[Expr]]:
    """Return the factors of the terms that depend on what is summed over, and the others."""
    reduced = set(statement.reduced)
    inner: list[Expr] = []
    outer: list[Expr] = []
    assert statement.value is not None
    for factor in multiplied(statement.value):
        names = indices_in(factor)
        (inner if names & reduced else outer).append(factor)
    return inner, outer


def _product(factors: list[Expr]) -> Expr:
    product, *others = factors
    for factor in others:
        product = Binary("*", product, factor, product.dtype)
    return product


def _has_terms(statement: Statement, init: Statement) -> bool:
    """Return whether *statement* adds to each element that *init* initialises."""
    count = len(statement.reduced)
    updated = statement.domain.project_out(isl.dim_type.set, statement.n_left, count)
    name = init.domain.get_tuple_name()
    return bool(init.domain.is_subset(updated.set_tuple_name(name)))


def _reads(factor: Expr, array: str) -> bool:
    return any(isinstance(node, Load) and node.tensor == array for node in walk(factor))
