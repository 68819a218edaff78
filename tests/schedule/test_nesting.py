"""Nesting: loops opened from the outside in, shared where nothing moves along them."""

from collections.abc import Callable

import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Node, loops_around, loops_of, statements_of
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import why_not_legal
from tcdsl.schedule.fusion import affinities_of
from tcdsl.schedule.nesting import Alignment, Nester
from tcdsl.strategies.shapes import shapes_of

Lower = Callable[..., Scop]

SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
CHAIN = "def f(float(N,M) x) -> (y) { a(i,j) = x(i,j)\n y(i,j) = a(i,j) * x(i,j) }"
SCAN = "def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i-1) + a(i) where i in 1:N }"
STENCIL = "def f(float(N) x) -> (y) { a(i) = x(i)\n y(i) = a(i) + a(i+1) }"
CROSSED = "def f(float(N,M) x) -> (r, c) { r(i) +=! x(i,j)\n c(j) +=! x(i,j) }"


def nested(scop: Scop, lanes: dict[str, int] | None = None) -> Node:
    dependences = dependences_of(scop)
    alignment = Alignment(dependences, affinities_of(scop))
    nester = Nester(alignment, shapes_of(scop, dependences), lanes or {})
    names = [statement.name for statement in scop.statements]
    return nester.nest(names, {name: nester.whole(name) for name in names})


@pytest.mark.parametrize("source", [SOFTMAX, CHAIN, CROSSED])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (3, 7), (64, 65)])
def test_nested_loops_are_legal(source: str, shape: tuple[int, ...], lower: Lower) -> None:
    scop = lower(source, shape)
    tree = nested(scop)
    assert sorted(statements_of(tree)) == sorted(s.name for s in scop.statements)
    assert why_not_legal(scop, dependences_of(scop), tree) is None


@pytest.mark.parametrize("source", [SCAN, STENCIL])
@pytest.mark.parametrize("size", [2, 3, 64])
def test_recurrences_and_stencils_are_legal(source: str, size: int, lower: Lower) -> None:
    scop = lower(source, (size,))
    assert why_not_legal(scop, dependences_of(scop), nested(scop)) is None


@pytest.mark.parametrize("lanes", [2, 8, 16])
@pytest.mark.parametrize("shape", [(1, 8), (3, 7), (5, 64), (3, 65)])
def test_a_reduction_split_into_lanes_races(
    lanes: int, shape: tuple[int, ...], lower: Lower
) -> None:
    """Without partial accumulators the lanes would update one element together."""
    scop = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", shape)
    reason = why_not_legal(scop, dependences_of(scop), nested(scop, {"S0": lanes}))
    assert reason is not None and "vector loop" in reason


def test_producer_and_consumer_share_all_loops(lower: Lower) -> None:
    tree = nested(lower(CHAIN, (4, 5)))
    assert loops_around(tree, "S0") == loops_around(tree, "S1")
    assert [str(loop.kind) for loop in loops_of(tree)] == ["serial", "vector"]


def test_a_reduction_and_its_reader_share_the_loop_of_its_rows(lower: Lower) -> None:
    tree = nested(lower(SOFTMAX, (4, 5)))
    reduction, reader = (loops_around(tree, name) for name in ("S1", "S2"))
    assert reduction[0].name == reader[0].name
    assert reduction[1].name != reader[1].name


def test_a_dependence_along_a_loop_keeps_statements_apart(lower: Lower) -> None:
    for source in (SCAN, STENCIL):
        tree = nested(lower(source, (6,)))
        assert loops_around(tree, "S0")[0].name != loops_around(tree, "S1")[0].name


def test_only_loops_without_dependences_are_vectors(lower: Lower) -> None:
    tree = nested(lower(SCAN, (6,)))
    assert str(loops_around(tree, "S0")[-1].kind) == "vector"
    assert str(loops_around(tree, "S1")[-1].kind) == "serial"


def test_alignment_knows_equal_dimensions(lower: Lower) -> None:
    scop = lower(CHAIN, (4, 5))
    alignment = Alignment(dependences_of(scop), affinities_of(scop))
    assert alignment.may_share("S0", 0, "S1", 0) is True
    assert alignment.may_share("S0", 0, "S1", 1) is False
    assert alignment.may_share("S1", 0, "S0", 0) is None
    assert alignment.predecessors("S1") == {"S0"} and alignment.predecessors("S0") == set()
    assert alignment.has_affinity("S0", 1, "S1", 1)
    assert not alignment.has_affinity("S0", 1, "S1", 0)


def test_loops_have_names_of_their_own(lower: Lower) -> None:
    names = [loop.name for loop in loops_of(nested(lower(SOFTMAX, (4, 5))))]
    assert len(names) == len(set(names))


def test_vectors_of_different_lengths_are_not_shared(lower: Lower) -> None:
    """In one of 16 lanes two would add to the same of 8 partial sums."""
    scop = lower("def f(float(N) x) -> (s, t) { s +=! x(i)\n t max=! x(i) }", (64,))
    for lanes, n_loops in (({"S0": 8, "S1": 8}, 2), ({"S0": 16, "S1": 8}, 4)):
        assert len(list(loops_of(nested(scop, lanes)))) == n_loops
