"""Separate sums: a sum of several products is the sum of each, one after another.

    y(m,n) +=! A(m,k) * B(k,n) + C(m,k) * D(k,n)
        --->
    T(m,n) +=! A(m,k) * B(k,n)          T of the type that is added in
    T(m,n) += C(m,k) * D(k,n)
    y(m,n) = T(m,n)

Each is then a product as tensor cores make it.  Terms are added in another order, as any sum's may
be.  Legal iff the sum may have accumulators of its own (``rfactor``).
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Expr, Operator
from tcdsl.poly.lowering import access, builder_of, evaluated, guarded_reads
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.rfactor import initialisation, rfactor, why_not_rfactored


def why_not_separate(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is no sum of several products, or None."""
    reduction, value = statement.reduction, statement.value
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return "it is no reduction"
    if reduction.operator is not Operator.ADD or statement.conditions:
        return "it is no sum"
    if reason := why_not_rfactored(statement):
        return reason
    if initialisation(scop, statement) is None:
        return "it adds to what was there"
    terms = _terms(value) if value is not None and value.dtype.is_float else []
    if len(terms) < 2 or not all(isinstance(term, Binary) and term.op == "*" for term in terms):
        return "its terms are no sums of products of floats"
    return None


def separate(scop: Scop, name: str) -> Scop:
    """Return *scop* with the sum *name* as one for each of its products."""
    assert why_not_separate(scop, scop.by_name[name]) is None
    done = rfactor(scop, name, ())
    statement = done.by_name[name]
    assert statement.value is not None and statement.reduction is not None
    first, *others = _terms(statement.value)
    found = [_with_value(done, statement, name, first)]
    for number, term in enumerate(others):
        found.append(_with_value(done, statement, f"{name}_term{number}", term))
    statements = list(done.statements)
    place = done.position(name)
    statements[place : place + 1] = found
    return done.with_statements(tuple(statements))


def _terms(value: Expr) -> list[Expr]:
    if isinstance(value, Binary) and value.op == "+":
        return [*_terms(value.left), *_terms(value.right)]
    return [value]


def _with_value(scop: Scop, statement: Statement, name: str, value: Expr) -> Statement:
    """Return *statement* as *name*, which adds *value*."""
    domain = statement.domain.set_tuple_name(name)
    builder = builder_of(statement.indices, name, scop.sizes)
    write = statement.write
    done = replace(
        statement, name=name, domain=domain, value=value,
        write=access(builder, write.array, write.subscripts, scop.arrays, domain),
    )  # fmt: skip
    return replace(done, reads=guarded_reads(builder, domain, evaluated(done), scop.arrays))
