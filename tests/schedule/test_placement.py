"""Placement: what lives inside an iteration, what must stay in memory, and the local indices."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tcdsl.driver import Compiled
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Node, loops_of, sequence
from tcdsl.poly.scop import Scop
from tcdsl.schedule.placement import MAX_LOCAL_BYTES, LocalDim, Placement, accesses_of, place

Lower = Callable[..., Scop]

CHAIN = "def f(float(N,M) x) -> (y) { a(i,j) = x(i,j)\n y(i,j) = a(i,j) }"


def loop(
    name: str, body: Node, kind: LoopKind = LoopKind.SERIAL, **coordinates: Coordinate
) -> Loop:
    return Loop(name, coordinates, kind, body)


def rows(kind: LoopKind = LoopKind.SERIAL, inner: LoopKind = LoopKind.SERIAL) -> Node:
    """for i: { for j: a = x; for j: y = a }"""
    at0, at1 = Coordinate(0), Coordinate(1)
    first = loop("j0", Leaf("S0"), inner, S0=at1)
    second = loop("j1", Leaf("S1"), inner, S1=at1)
    return loop("i", sequence([first, second]), kind, S0=at0, S1=at0)


def test_a_row_lives_in_the_iteration_of_its_loop(lower: Lower) -> None:
    scop = lower(CHAIN, (4, 5))
    assert place(scop, [rows()]) == {
        "a": Placement("a", "i", (LocalDim(0, (), 1), LocalDim(0, ((1, 0),), 5)))
    }


def test_an_element_lives_in_the_innermost_loop(lower: Lower) -> None:
    at0, at1 = Coordinate(0), Coordinate(1)
    inner = loop("j", sequence([Leaf("S0"), Leaf("S1")]), S0=at1, S1=at1)
    tree = loop("i", inner, S0=at0, S1=at0)
    placement = place(lower(CHAIN, (4, 5)), [tree])["a"]
    assert placement.loop == "j" and placement.elements() == 1


def test_a_tile_keeps_its_elements(lower: Lower) -> None:
    tile, point = Coordinate(1, 0, 4), Coordinate(1, 0, 1, 4)
    inner = [loop(f"p{n}", Leaf(f"S{n}"), S0=point, S1=point) for n in range(2)]
    at0 = Coordinate(0)
    body = loop("t", sequence(list(inner)), S0=tile, S1=tile)
    placement = place(lower(CHAIN, (4, 10)), [loop("i", body, S0=at0, S1=at0)])["a"]
    assert placement.loop == "t"
    assert placement.dims == (LocalDim(0, (), 1), LocalDim(0, ((1, 4),), 4))


def test_what_another_kernel_reads_stays_in_memory(lower: Lower) -> None:
    at0, at1 = Coordinate(0), Coordinate(1)
    trees: list[Node] = [
        loop("i0", loop("j0", Leaf("S0"), S0=at1), S0=at0),
        loop("i1", loop("j1", Leaf("S1"), S1=at1), S1=at0),
    ]
    assert place(lower(CHAIN, (4, 5)), trees) == {}


def test_what_threads_would_share_stays_in_memory(lower: Lower) -> None:
    scop = lower(CHAIN, (4, 5))
    assert place(scop, [rows(inner=LoopKind.PARALLEL)]) == {}
    assert place(scop, [rows(LoopKind.PARALLEL)])["a"].loop == "i"


def test_what_later_iterations_read_outlives_the_loop(lower: Lower) -> None:
    source = "def f(float(N) x) -> (y) { a(i) = x(i)\n y(i) = a(i) + a(i+1) }"
    at0 = Coordinate(0)
    trees: list[Node] = [loop("i0", Leaf("S0"), S0=at0), loop("i1", Leaf("S1"), S1=at0)]
    placement = place(lower(source, (9,)), [sequence(trees)])["a"]
    assert placement.loop is None and placement.elements() == 9


def test_what_is_large_stays_in_memory(lower: Lower) -> None:
    most = MAX_LOCAL_BYTES // 4
    assert "a" in place(lower(CHAIN, (2, most)), [rows()])
    assert "a" not in place(lower(CHAIN, (2, most + 1)), [rows()])


def test_arguments_are_never_placed(lower: Lower) -> None:
    scop = lower(CHAIN, (4, 5))
    assert set(place(scop, [rows()])) == {"a"}
    assert [s.name for s, _ in accesses_of(scop, "a")] == ["S0", "S1"]


def test_an_unused_array_is_not_placed(lower: Lower) -> None:
    scop = lower(CHAIN, (4, 5))
    unused = replace(scop.arrays["a"], name="b")
    assert set(place(replace(scop, arrays={**scop.arrays, "b": unused}), [rows()])) == {"a"}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("shape", [(1, 1), (5, 64), (700, 65), (3, 20011)])
def test_no_parallel_loop_shares_a_local_array(
    threads: int, shape: tuple[int, int], compiled: Callable[..., Compiled]
) -> None:
    """Every parallel loop around a use of a local array is around its declaration too."""
    source = """def f(float(N,D) x) -> (y) {
        m(i) max=! x(i,j)
        s +=! exp(x(i,j) - m(i))
        e(i,j) = exp(x(i,j)) / s
        y(i,j) = e(i,j) * m(i)
    }"""
    plan = compiled(source, shape, threads=threads).plan
    for placement in plan.placements.values():
        users = {s.name for s, _ in accesses_of(plan.scop, placement.array)}
        for kernel in plan.kernels:
            order = [found.name for found in loops_of(kernel.tree)]
            for found in loops_of(kernel.tree):
                if found.kind is LoopKind.PARALLEL and users & set(found.coordinates):
                    assert placement.loop is not None
                    assert order.index(found.name) <= order.index(placement.loop)
