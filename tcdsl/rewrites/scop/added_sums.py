"""Added sums: the sums that ``separate_sums`` has made of one are one again, product by product.

    C(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n)

    --->  a(m,n) +=! x(m,k) * w(k,n)                a(m,n) +=! x(m,k) * w(k,n)
          b(m,n) +=! u(m,k) * v(k,n)        --->    a(m,n) += u(m,k) * v(k,n)
          C(m,n) = a(m,n) + b(m,n)                  C(m,n) = a(m,n)

A kernel of products adds the terms of both to the same accumulators then (``joint_products``).

Legal iff both are of one statement: its terms are added in another order, as any sum's may be.  Two
statements' sums stay two, for a term of one is rounded where it is added to all of the other, and
lost if that is large.  And iff each is a sum of products, from 0, of the type that it is added in;
only that addition reads it; what initialises the first one's elements does so for all of the second
one's, and comes before all terms.  No statement moves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Expr, Load, Operator, walk
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.accesses import access, builder_of, evaluated
from tcdsl.poly.scop import Kind, Scop, Statement, Storage, loads_of
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.rfactor import initialisation

Sum = tuple[Statement, ...]  # what adds to one array


def why_not_added(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* adds up no sums that may be one, or None."""
    return None if next(_found(scop, statement), None) else "it adds up no two sums of products"


def added(scop: Scop, name: str) -> Scop:
    """Return *scop* with the sums that the statement *name* adds up as one."""
    while (pair := next(_found(scop, scop.by_name[name]), None)) is not None:
        scop = _added(scop, scop.by_name[name], *pair)
    return scop


def _added(scop: Scop, reader: Statement, first: Sum, second: Sum) -> Scop:
    """Return *scop* with the terms of *second* added to what *first* adds to."""
    array, other, value = first[0].write.array, second[0].write.array, reader.value
    assert value is not None

    def change(node: Expr) -> Expr:
        match node:
            case Binary(op="+", left=Load() as one, right=Load() as two):
                if {one.tensor, two.tensor} == {array, other}:
                    return one if one.tensor == array else two
        return node

    new = {reader.name: with_own_reads(scop, replace(reader, value=rewrite(value, change)))}
    for update in second:
        builder = builder_of(update.indices, update.name, scop.sizes)
        write = access(builder, array, update.write.subscripts, scop.arrays, update.domain)
        new[update.name] = replace(update, write=write)
    init = _init(scop, second)
    statements = tuple(new.get(s.name, s) for s in scop.statements if s is not init)
    arrays = {name: own for name, own in scop.arrays.items() if name != other}
    return replace(scop, arrays=arrays).with_statements(statements)


def _found(scop: Scop, statement: Statement) -> Iterator[tuple[Sum, Sum]]:
    """Yield two sums, in the order of the program, that *statement* alone reads, and adds up."""
    value = statement.value
    if statement.kind is not Kind.ASSIGN or value is None or statement.library:
        return
    for node in walk(value):
        match node:
            case Binary(op="+", left=Load() as one, right=Load() as other):
                sums = [_sum(scop, load.tensor, statement) for load in (one, other)]
                found = sorted(filter(None, sums), key=lambda own: scop.position(own[0].name))
                if len(found) == 2 and one.subscripts == other.subscripts and _are_one(scop, found):
                    yield found[0], found[1]


def _sum(scop: Scop, array: str, reader: Statement) -> Sum:
    """Return what adds up the products whose sums *array* has, and *reader* alone reads, if so."""
    users = scop.users.get(array, ())
    updates = tuple(s for s in users if s.kind is Kind.UPDATE)
    if scop.arrays[array].storage is not Storage.SCRATCH or not updates:
        return ()
    init, loads = _init(scop, updates), loads_of(*evaluated(reader))
    if init is None or {*users} != {init, *updates, reader}:
        return ()
    if updates[0].source_name != reader.source_name:
        return ()
    is_first = scop.position(init.name) < scop.position(updates[0].name)
    is_once = sum(load.tensor == array for load in loads) == 1
    is_sum = all(_is_product(scop, update) for update in updates)
    return updates if is_first and is_once and is_sum else ()


def _is_product(scop: Scop, update: Statement) -> bool:
    """Return whether *update* adds products, in the type of what it adds to."""
    reduction, value = update.reduction, update.value
    if reduction is None or reduction.operator is not Operator.ADD or update.library:
        return False
    is_plain = reduction.dtype == scop.arrays[update.write.array].dtype
    return is_plain and isinstance(value, Binary) and value.op == "*"


def _init(scop: Scop, updates: Sum) -> Statement | None:
    return initialisation(scop, updates[0])


def _are_one(scop: Scop, sums: Sequence[Sum]) -> bool:
    """Return whether two different *sums* have one type, and the first all elements of both."""
    arrays = [scop.arrays[own[0].write.array] for own in sums]
    if arrays[0] is arrays[1] or arrays[0].dtype != arrays[1].dtype:
        return False
    inits = [_init(scop, own) for own in sums]
    elements = [init.write.relation.range().reset_tuple_id() for init in inits if init is not None]
    return bool(elements[1].is_subset(elements[0]))
