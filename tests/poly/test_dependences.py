"""Dependences: the same pairs of instances as an enumeration of the program finds."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from weakref import ref

import islpy as isl
import pytest

from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.scop import Access, Kind, Scop, Statement

Lower = Callable[..., Scop]
Instance = tuple[str, tuple[int, ...]]

SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
SCAN = "def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i-1) + a(i) where i in 1:N }"
GRID = """def f(float(T,N) a) -> (c) {
    c(t,i) = a(t,i)
    c(t,i) = c(t-1,i+1) + c(t,i) where t in 1:T, i in 0:N-1
}"""
STENCIL = "def f(float(N) x) -> (y) { a(i) = x(i)\n y(i) = a(i) + a(i+2) }"
ANTIDIAGONALS = """def f(float(N,N) a) -> (c) {
    c(k) = 0.0 where k in 0:2*N-1
    c(i+j) += a(i,j)
}"""
IN_PLACE = "def f(float(N) a) -> (a) { a(i) = a(i) * 2.0\n a(i) += a(i) }"
INTERLEAVED = "def f(float(N) a) -> (o) { o(2*i) = a(i)\n o(2*i+1) = -a(i) }"
GUARDED = "def f(float(N) a) -> (c) { c(i) = i >= 2 ? c(i-2) + a(i) : a(i) where i in 0:N }"
TRIANGLE = "def f(float(N) a) -> (c) { c(i) +=! a(j) where i in 0:N, j in 0:i+1 }"

PROGRAMS: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "sum": (SUM, [(2, 3)]),
    "softmax": (SOFTMAX, [(2, 3)]),
    "scan": (SCAN, [(5,)]),
    "grid": (GRID, [(3, 4)]),
    "stencil": (STENCIL, [(6,)]),
    "antidiagonals": (ANTIDIAGONALS, [(3, 3)]),
    "in_place": (IN_PLACE, [(3,)]),
    "interleaved": (INTERLEAVED, [(3,)]),
    "guarded": (GUARDED, [(6,)]),
    "triangle": (TRIANGLE, [(4,)]),
    "empty": (SUM, [(2, 0)]),
}


def points(values: isl.Set) -> list[tuple[int, ...]]:
    """Return the elements of *values* in lexicographic order."""
    found: list[tuple[int, ...]] = []

    def collect(point: isl.Point) -> None:
        n = values.dim(isl.dim_type.set)
        coordinates = (point.get_coordinate_val(isl.dim_type.set, d) for d in range(n))
        found.append(tuple(value.to_python() for value in coordinates))

    values.foreach_point(collect)
    return sorted(found)


def pairs(relation: isl.Map) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    n = relation.dim(isl.dim_type.in_)
    for point in points(relation.wrap()):
        yield point[:n], point[n:]


def touched(accesses: tuple[Access, ...]) -> set[tuple[tuple[int, ...], str, tuple[int, ...]]]:
    """Return (instance, array, element) for everything that *accesses* touch."""
    return {(i, access.array, e) for access in accesses for i, e in pairs(access.relation)}


def enumerated(scop: Scop) -> set[tuple[Instance, Instance, str]]:
    """Return (earlier, later, array) for all conflicts, by running the program on paper."""
    order: list[tuple[Statement, tuple[int, ...]]] = [
        (statement, point) for statement in scop.statements for point in points(statement.domain)
    ]
    writes = {s.name: touched(s.writes) for s in scop.statements}
    reads = {s.name: touched(s.all_reads) for s in scop.statements}
    users: dict[tuple[str, tuple[int, ...]], list[tuple[int, bool]]] = {}
    for time, (statement, point) in enumerate(order):
        for kind in (writes, reads):
            for instance, array, element in kind[statement.name]:
                if instance == point:
                    users.setdefault((array, element), []).append((time, kind is writes))
    return {
        ((order[a][0].name, order[a][1]), (order[b][0].name, order[b][1]), array)
        for (array, _), uses in users.items()
        for a, a_writes in uses
        for b, b_writes in uses
        if a < b and (a_writes or b_writes)
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_dependences_are_those_of_an_enumeration(name: str, lower: Lower) -> None:
    source, shapes = PROGRAMS[name]
    scop = lower(source, *shapes)
    found = {
        ((edge.source, x), (edge.sink, y), edge.array)
        for edge in dependences_of(scop).edges
        for x, y in pairs(edge.relation)
    }
    assert found == enumerated(scop)


def test_updates_of_one_accumulator_are_relaxed(lower: Lower) -> None:
    dependences = dependences_of(lower(SUM, (2, 3)))
    (own,) = dependences.between("S0", "S0")
    assert own.is_relaxed and own.array == "y"
    assert {(e.source, e.sink) for e in dependences.strict} == {("S0_init", "S0")}
    assert dependences.relaxed == (own,)


def test_a_recurrence_is_strict(lower: Lower) -> None:
    own = dependences_of(lower(SCAN, (5,))).between("S1", "S1")
    assert own and not any(edge.is_relaxed for edge in own)
    assert any(edge.is_flow for edge in own)


def test_updates_that_read_their_target_elsewhere_are_strict(lower: Lower) -> None:
    source = "def f(float(N,M) a) -> (c) { c(i) = 1.0 where i in 0:N\n c(i) += c(i-1) * a(i,j) }"
    own = dependences_of(lower(source, (4, 2))).between("S1", "S1")
    assert any(not edge.is_relaxed for edge in own)


def test_a_gather_conflicts_with_every_element_that_it_may_read(lower: Lower) -> None:
    source = "def f(float(N) a, int32(N) p) -> (y) { b(i) = a(i)\n y(i) = b(p(i)) }"
    (edge,) = dependences_of(lower(source, (3,), (3,), check_gathers=False)).between("S0", "S1")
    assert len(list(pairs(edge.relation))) == 9


def test_reads_do_not_conflict(lower: Lower) -> None:
    source = "def f(float(N) a) -> (y, z) { y(i) = a(i)\n z(i) = a(i) }"
    assert dependences_of(lower(source, (4,))).edges == ()


def test_strict_and_relaxed_partition_the_edges(lower: Lower) -> None:
    dependences = dependences_of(lower(SOFTMAX, (3, 4)))
    assert isinstance(dependences, Dependences)
    assert {*dependences.strict, *dependences.relaxed} == set(dependences.edges)
    assert not set(dependences.strict) & set(dependences.relaxed)


def test_initialisations_of_one_element_are_relaxed(lower: Lower) -> None:
    source = "def f(float(N,N) a) -> (c) { c(i+j) +=! a(i,j) }"
    scop = lower(source, (3, 3))
    (init,) = [s for s in scop.statements if s.kind is Kind.INIT]
    own = dependences_of(scop).between(init.name, init.name)
    assert all(edge.is_relaxed for edge in own)


def test_a_rewrite_keeps_those_of_other_statements(lower: Lower) -> None:
    scop = lower(SOFTMAX, (2, 3))
    before = dependences_of(scop)
    assert dependences_of(scop).edges == before.edges  # the very same
    last = scop.statements[-1]
    blind = replace(last, reads=last.reads[:1])
    after = dependences_of(replace(scop, statements=(*scop.statements[:-1], blind)))
    others = [e for e in before.edges if last.name not in (e.source, e.sink)]
    assert [e for e in after.edges if last.name not in (e.source, e.sink)] == others
    assert len(before.edges) > len(after.edges) >= len(others) > 0


def test_nothing_is_kept_of_statements_that_are_gone(lower: Lower) -> None:
    scop = lower(SOFTMAX, (2, 3))
    dependences_of(scop)
    gone = [ref(statement) for statement in scop.statements]
    del scop
    gc.collect()
    assert [one() for one in gone] == [None] * len(gone)
