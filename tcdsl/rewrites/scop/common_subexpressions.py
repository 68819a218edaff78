"""Common subexpressions: a statement reads a value that another one stores.

    d_h(b,n) = h(b,n) > 0 ? d_a(b,n) : 0              d_h(b,n) = h(b,n) > 0 ? d_a(b,n) : 0
    d_b(n) +=! h(b,n) > 0 ? d_a(b,n) : 0      --->    d_b(n) +=! d_h(b,n)

A kernel of the sum then moves one array instead of two; and where nothing else reads d_a, what
computes d_h keeps it in registers.  Derivatives of layers with a bias are so.  The reverse of
recomputation.

Legal iff the value is stored in its own type, every element that is read was written, and what the
value is computed from does not change between the two statements.
"""

from collections.abc import Iterator
from dataclasses import replace

from tcdsl.lang.comprehension import Const, Expr, Index, Load, children
from tcdsl.lang.rewrite import rewrite, with_operands
from tcdsl.poly.scop import Kind, Scop, Statement, loads_of
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.recomputation import is_temporary, writers_and_users

LEAST_LOADS = 2  # of a value that is worth reading instead


def why_not_shared(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* computes no value that is stored before it, or None if it does."""
    return None if next(_shared(scop, statement), None) else "it computes nothing that is stored"


def with_shared(scop: Scop, name: str) -> Scop:
    """Return *scop* with a value that *name* computes read from where it is stored."""
    new = next(_shared(scop, scop.by_name[name]), None)
    assert new is not None, "why_not_shared"
    return scop.with_statements(tuple(new if s.name == name else s for s in scop.statements))


def _shared(scop: Scop, statement: Statement) -> Iterator[Statement]:
    """Yield *statement*, each time with another value read instead of computed."""
    if statement.kind not in (Kind.ASSIGN, Kind.UPDATE) or statement.library:
        return
    read = {access.array for access in statement.reads}
    for producer in scop.statements[: scop.position(statement.name)]:
        if not read.issuperset(access.array for access in producer.reads):
            continue  # it does not compute that
        if why_not_stored(scop, producer, statement) is None:
            yield from _reading(scop, producer, statement)


def why_not_stored(scop: Scop, producer: Statement, reader: Statement) -> str | None:
    """Return why *reader* does not find the value of *producer* as that computes it, or None."""
    value = producer.value
    if not is_temporary(scop, producer) or value is None:
        return "it is no temporary"
    array = scop.arrays[producer.write.array]
    if value.dtype != array.dtype:
        return "its value is rounded"
    if sum(scop.arrays[load.tensor].rank >= array.rank for load in loads_of(value)) < LEAST_LOADS:
        return "its value is computed from little"
    if len(writers_and_users(scop, array.name)[0]) > 1:
        return "it is written again"
    sources = {read.array for read in producer.reads}
    between = scop.statements[scop.position(producer.name) : scop.position(reader.name) + 1]
    if any(write.array in sources for s in between for write in s.writes):
        return "what it is computed from changes"
    return None


def _reading(scop: Scop, producer: Statement, reader: Statement) -> Iterator[Statement]:
    """Yield *reader* with the value of *producer* read, if it computes that."""
    value, array = producer.value, producer.write.array
    assert value is not None and reader.value is not None

    def shared(node: Expr) -> Expr:
        names = _matched(value, node)
        if names is None or names.keys() != set(producer.indices):
            return node
        at = tuple(Index(names[index]) for index in producer.indices)
        return Load(array, at, value.dtype, node.span)

    new = rewrite(reader.value, shared)
    if new == reader.value:
        return
    done = with_own_reads(scop, replace(reader, value=new))
    written = producer.write.relation.range()
    own = [read for read in done.reads if read.array == array]
    if all(read.is_exact and read.relation.range().is_subset(written) for read in own):
        yield done


def _matched(pattern: Expr, node: Expr) -> dict[str, str] | None:
    """Return { index of *pattern*: that of *node* } if both are one expression, or None."""
    if isinstance(pattern, Index):
        if isinstance(node, Index) and node.dtype == pattern.dtype:
            return {pattern.name: node.name}
        return None
    if isinstance(pattern, Const) and isinstance(node, Const):  # 0.0 is not -0.0
        return {} if pattern == node and repr(pattern.value) == repr(node.value) else None
    ours, theirs = children(pattern), children(node)
    if type(pattern) is not type(node) or len(ours) != len(theirs):
        return None
    found: dict[str, str] = {}
    for own, other in zip(ours, theirs, strict=True):
        names = _matched(own, other)
        if names is None or any(found.get(k, v) != v for k, v in names.items()):
            return None
        found |= names
    return found if with_operands(node, ours) == pattern else None
