"""Which instances must stay in order, pair of statements by pair, memory based.

    D(s, t) = { s[x] -> t[y] : x before y in textual order, both touch an element, one writes it }

The dependences of a reduction's updates on one another (same statement, same accumulator) are
*relaxed*: their order is free, because the operator is associative and commutative, but they must
not run at the same time.  They are kept apart, as facts for parallel loops.  (Of argmin and argmax
only those within a left-hand instance are: among equal values the first instance's counts.)

All pairs are kept, not only the last writer's: with relaxed updates every update must come before
a reader of the sum, and no chain of dependences says so.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cached_property
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.poly.scop import Access, Kind, Scop, Statement
from tcdsl.records import dataclass


@dataclass(frozen=True, eq=False)
class Dependence:
    """``relation``: { source[x] -> sink[y] }, x before y; both touch an element of *array*."""

    source: str
    sink: str
    array: str
    relation: isl.Map
    is_relaxed: bool  # between updates, or initialisations, of one accumulator
    is_flow: bool  # the source writes what the sink reads
    _equal: dict[tuple[int, int], bool] = field(default_factory=dict, init=False, repr=False)

    def has_equal(self, source_dim: int, sink_dim: int) -> bool:
        """Return whether it enforces ``x[source_dim] == y[sink_dim]``.

        A dimension that the statement at that end does not have is equal to nothing.
        """
        key = source_dim, sink_dim
        if key not in self._equal:
            self._equal[key] = self._has_equal(source_dim, sink_dim)
        return self._equal[key]

    def _has_equal(self, source_dim: int, sink_dim: int) -> bool:
        in_, out, relation = isl.dim_type.in_, isl.dim_type.out, self.relation
        if source_dim >= relation.dim(in_) or sink_dim >= relation.dim(out):
            return False
        return bool(relation.is_subset(relation.equate(in_, source_dim, out, sink_dim)))


@dataclass(frozen=True, eq=False)
class Dependences:
    """All dependences of a scop."""

    edges: tuple[Dependence, ...]

    @cached_property
    def strict(self) -> tuple[Dependence, ...]:
        return tuple(edge for edge in self.edges if not edge.is_relaxed)

    @cached_property
    def relaxed(self) -> tuple[Dependence, ...]:
        return tuple(edge for edge in self.edges if edge.is_relaxed)

    def between(self, source: str, sink: str) -> list[Dependence]:
        return [e for e in self.edges if e.source == source and e.sink == sink]


Edges = tuple[Dependence, ...]
# By source, sink, array.  A rewrite leaves most statements as they are, and what two statements
# have to do with each other depends on nothing else.
_known: WeakKeyDictionary[Statement, WeakKeyDictionary[Statement, dict[str, Edges]]]
_known = WeakKeyDictionary()


def dependences_of(scop: Scop) -> Dependences:
    """Return the dependences of *scop*; the cost is quadratic in the accesses to one array."""
    touching: dict[str, list[Statement]] = {array: [] for array in scop.arrays}
    for statement in scop.statements:
        for array in {access.array for access in (*statement.writes, *statement.reads)}:
            touching[array].append(statement)
    edges: list[Dependence] = []
    for array, statements in touching.items():
        if not any(access.array == array for s in statements for access in s.writes):
            continue  # an input
        for i, source in enumerate(statements):
            for sink in statements[i:]:
                edges += _edges(source, sink, array)
    return Dependences(tuple(edges))


def _edges(source: Statement, sink: Statement, array: str) -> Edges:
    known = _known.setdefault(source, WeakKeyDictionary()).setdefault(sink, {})
    if array not in known:
        known[array] = tuple(_found(source, sink, array))
    return known[array]


def _found(source: Statement, sink: Statement, array: str) -> Iterator[Dependence]:
    # Updates of one accumulator may run in any order, and so may initialisations, which write
    # the same value however often (a left side like i + j).
    accumulates = source is sink and source.kind in (Kind.UPDATE, Kind.INIT)
    source_writes, sink_writes = _relation(source.writes, array), _relation(sink.writes, array)
    strict: list[tuple[isl.Map | None, isl.Map | None, bool]] = [
        (source_writes, _relation(sink.reads, array), True),
        (_relation(source.reads, array), sink_writes, False),
    ]
    if not accumulates:
        strict.append((source_writes, sink_writes, sink.accumulates))
    for from_, to, is_flow in strict:
        if (relation := _conflicts(source, sink, from_, to)) is not None:
            yield Dependence(source.name, sink.name, array, relation, False, is_flow)
    if accumulates:
        relation = _conflicts(source, sink, source_writes, sink_writes)
        # Of extreme values that are equal the first one's place is kept: that of the first
        # left-hand instance, where several update an element.
        is_arg = source.reduction is not None and source.reduction.operator.is_arg
        if relation is not None and is_arg and source.kind is Kind.UPDATE:
            others = relation.subtract(_same_left(source))
            if not others.is_empty():
                yield Dependence(source.name, sink.name, array, others, False, True)
                relation = relation.subtract(others)
        if relation is not None:
            yield Dependence(source.name, sink.name, array, relation, True, True)


def _same_left(statement: Statement) -> isl.Map:
    """Return { S[x] -> S[y] : the left-hand indices of x and y are equal }."""
    same = isl.Map.universe(statement.domain.get_space().map_from_set())
    for dim in range(statement.n_left):
        same = same.equate(isl.dim_type.in_, dim, isl.dim_type.out, dim)
    return same


def _relation(accesses: Iterable[Access], array: str) -> isl.Map | None:
    union: isl.Map | None = None
    for access in accesses:
        if access.array == array:
            union = access.relation if union is None else union.union(access.relation)
    return union


def _conflicts(
    source: Statement, sink: Statement, from_: isl.Map | None, to: isl.Map | None
) -> isl.Map | None:
    """Return { source[x] -> sink[y] : same element, x before y }, None if there is none."""
    if from_ is None or to is None:
        return None
    relation = from_.apply_range(to.reverse())
    if source is sink:
        relation = relation.intersect(isl.Map.lex_lt(source.domain.get_space()))
    return None if relation.is_empty() else relation
