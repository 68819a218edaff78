"""Separate sums: a sum of several products is the sum of each, one after another.

    y(m,n) +=! A(m,k) * B(k,n) + C(m,k) * D(k,n)
        --->
    T(m,n) +=! A(m,k) * B(k,n)          T and U of the type that is added in
    U(m,n) +=! C(m,k) * D(k,n)
    y(m,n) = T(m,n) + U(m,n)

Each is then a product as tensor cores make it, the last one with y as what follows it.  Terms are
added in another order, as any sum's may be.  Legal iff the sum may have accumulators of its own
(``rfactor``).
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Expr, Load, Operator
from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_reads
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
    done, init, store = rfactor(scop, name, ())
    update = done.by_name[name]
    assert update.value is not None and isinstance(store.value, Load)
    first, *others = _terms(update.value)
    sums: list[Load] = [store.value]
    for number in range(len(others)):
        array = replace(done.arrays[store.value.tensor], name=f"{store.value.tensor}.term{number}")
        done = replace(done, arrays={**done.arrays, array.name: array})
        sums.append(replace(store.value, tensor=array.name))
    found = [init, _changed(done, update, name, update.write.array, first)]
    for number, (term, own) in enumerate(zip(others, sums[1:], strict=True)):
        label = f"{name}_term{number}"
        found.append(_changed(done, init, f"{label}_init", own.tensor, None))
        found.append(_changed(done, update, label, own.tensor, term))
    total: Expr = sums[0]
    for one in sums[1:]:
        total = Binary("+", total, one, one.dtype)
    found.append(_changed(done, store, store.name, store.write.array, total))
    replaced = {statement.name: () for statement in (init, update)} | {store.name: tuple(found)}
    statements = [new for s in done.statements for new in replaced.get(s.name, (s,))]
    return done.with_statements(tuple(statements))


def _terms(value: Expr) -> list[Expr]:
    if isinstance(value, Binary) and value.op == "+":
        return [*_terms(value.left), *_terms(value.right)]
    return [value]


def _changed(
    scop: Scop, statement: Statement, name: str, array: str, value: Expr | None
) -> Statement:
    """Return *statement* as *name*, which writes *value* to *array*."""
    domain = statement.domain.set_tuple_name(name)
    builder = builder_of(statement.indices, name, scop.sizes)
    write = access(builder, array, statement.write.subscripts, scop.arrays, domain)
    done = replace(statement, name=name, domain=domain, value=value, write=write)
    return with_own_reads(scop, done)
