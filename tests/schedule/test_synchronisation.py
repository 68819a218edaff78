"""Barriers: no more than are needed, none less, and the verifier sees one that is missing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import GpuBackend
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Node, Sequence, sequence
from tcdsl.poly.scop import Kind, Scop
from tcdsl.schedule.cross_thread import cross_thread_dependences
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import FIXED, LocalDim, Placement, Ring, Space
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.promotion import promote
from tcdsl.schedule.synchronisation import (
    barrier_statement,
    synchronise,
    why_not_synchronised,
)

Lower = Callable[..., Scop]
MakeUnit = Callable[..., Any]
Places = dict[str, Placement]

SAME = "def f(float(N) x) -> (a, y) { a(i) = x(i)\n y(i) = a(i) }"
REVERSED = "def f(float(N) x) -> (a, y) { a(i) = x(i)\n y(i) = a(N - 1 - i) where i in 0:N }"
THREE = """def f(float(N) x) -> (a, b, y) {
    a(i) = x(i)
    b(i) = x(i) * 2.0
    y(i) = a(N - 1 - i) + b(N - 1 - i) where i in 0:N
}"""
STEPS = """def f(float(T,N) x) -> (c) {
    c(t,i) = x(t,i)
    c(t,i) = c(t-1,N-1-i) * 0.5 where t in 1:T, i in 0:N
}"""
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
N = 64


def threads(name: str, statement: str, dim: int = 0, width: int = N, extent: int = N) -> Loop:
    at = {statement: Coordinate(dim)}
    return Loop(name, at, LoopKind.THREAD, Leaf(statement), extent, axis=0, width=width)


def steps(*names: str, extent: int) -> Loop:
    """for t (together): for i (threads): each of *names*"""
    body = sequence([threads(f"i{name}", name, dim=1) for name in names])
    return Loop("t", {name: Coordinate(0) for name in names}, LoopKind.SERIAL, body, extent)


def shape_of(tree: Node, scop: Scop) -> Any:
    """Return the tree as nested lists: statements' names, "|" for a barrier."""
    match tree:
        case Leaf(statement=name):
            return "|" if scop.by_name[name].kind is Kind.BARRIER else name
        case Sequence(children=children):
            return [shape_of(child, scop) for child in children]
        case Loop(body=body, kind=LoopKind.THREAD):
            return shape_of(body, scop)
        case Loop(body=body):
            inner = shape_of(body, scop)
            return [inner] if isinstance(inner, str) else inner


def synchronised(scop: Scop, tree: Node, places: Places | None = None) -> tuple[Scop, Node]:
    done, (new,) = synchronise(scop, [tree], dependences_of(scop), places or {})
    return done, new


def why_not(scop: Scop, tree: Node, places: Places | None = None) -> str | None:
    return why_not_synchronised(Mapped(scop, tree), dependences_of(scop), places or {})


# --- how many, and where --------------------------------------------------------------------


def test_none_where_each_thread_reads_its_own(lower: Lower) -> None:
    scop = lower(SAME, (N,))
    tree = sequence([threads("i0", "S0"), threads("i1", "S1")])
    done, new = synchronised(scop, tree)
    assert new == tree and done.statements == scop.statements
    assert cross_thread_dependences(Mapped(scop, tree), dependences_of(scop), {}) == []
    assert why_not(scop, tree) is None


def test_one_where_a_thread_reads_anothers(lower: Lower) -> None:
    scop = lower(REVERSED, (N,))
    tree = sequence([threads("i0", "S0"), threads("i1", "S1")])
    assert why_not(scop, tree) == "no barrier is between S0 and S1"
    done, new = synchronised(scop, tree)
    assert shape_of(new, done) == ["S0", "|", "S1"]
    assert why_not(done, new) is None


def test_one_for_two_dependences(lower: Lower) -> None:
    """The last gap that serves both."""
    scop = lower(THREE, (N,))
    tree = sequence([threads(f"i{n}", f"S{n}") for n in range(3)])
    done, new = synchronised(scop, tree)
    assert shape_of(new, done) == ["S0", "S1", "|", "S2"]
    assert why_not(done, new) is None


def test_threads_of_two_turns_do_not_help(lower: Lower) -> None:
    """i % 32: what thread 0 wrote in its second turn, thread 31 reads in its first."""
    scop = lower(REVERSED, (N,))
    tree = sequence([threads("i0", "S0", width=32), threads("i1", "S1", width=32)])
    done, new = synchronised(scop, tree)
    assert shape_of(new, done) == ["S0", "|", "S1"]


def test_a_loop_that_carries_a_dependence_ends_with_one(lower: Lower) -> None:
    scop = lower(STEPS, (9, N))
    first = steps("S0", extent=9)
    tree = sequence([replace(first, name="t0"), steps("S1", extent=8)])
    done, new = synchronised(scop, tree)
    assert shape_of(new, done) == [["S0"], "|", ["S1", "|"]]
    assert why_not(done, new) is None


def test_a_barrier_inside_a_loop_serves_its_next_iteration_too(lower: Lower) -> None:
    """t: S0 | S1: the one between them also stands between S1 and the next S0."""
    source = """def f(float(T,N) x) -> (c) {
        c(t,i) = x(t,i)
        c(t,i) = c(t,N-1-i) * 0.5 where t in 0:T, i in 0:N
    }"""
    scop = lower(source.replace("c(t,i) = c(t,N-1-i)", "d(t,i) = c(t,N-1-i)").replace(
        "-> (c)", "-> (c, d)"
    ), (9, N))  # fmt: skip
    done, new = synchronised(scop, steps("S0", "S1", extent=9))
    assert shape_of(new, done) == ["S0", "|", "S1"]
    assert why_not(done, new) is None


def test_storage_that_the_next_iteration_reuses(lower: Lower) -> None:
    """A shared row a, written anew in each t, must have been read by all threads."""
    source = """def f(float(T,N) x) -> (y) {
        a(t,i) = x(t,i)
        y(t,i) = a(t,N-1-i) where t in 0:T, i in 0:N
    }"""
    scop = lower(source, (9, N))
    tree = steps("S0", "S1", extent=9)
    row = Placement("a", "t", (FIXED, LocalDim(0, ((1, 0),), N)), Space.SHARED)
    done, new = synchronised(scop, tree, {"a": row})
    assert shape_of(new, done) == ["S0", "|", "S1", "|"]
    assert why_not(done, new, {"a": row}) is None
    assert why_not(done, _without(new, "barrier0_1"), {"a": row}) is not None
    whole = Placement(
        "a", None, (LocalDim(0, ((1, 0),), 9), LocalDim(0, ((1, 0),), N)), Space.SHARED
    )
    done, new = synchronised(scop, tree, {"a": whole})
    assert shape_of(new, done) == ["S0", "|", "S1"]


def test_a_buffer_that_is_filled_while_another_one_is_read(lower: Lower) -> None:
    """Row t + 1 of a is written in the iteration that reads row t: two buffers, one barrier."""
    source = """def f(float(T,N) x) -> (y) {
        a(t,i) = x(t,i)
        y(t,i) = a(t,N-1-i) where t in 0:T, i in 0:N
    }"""
    scop = lower(source, (9, N))
    tree = steps("S0", "S1", extent=9)
    tree = replace(tree, coordinates={**tree.coordinates, "S0": Coordinate(0, 1)})

    def ring_of(buffers: int) -> Places:
        dims = LocalDim(0, ((1, 0),), buffers), LocalDim(0, ((1, 0),), N)
        return {"a": Placement("a", None, dims, Space.SHARED, ring=Ring(0, buffers, "t"))}

    done, new = synchronised(scop, tree, ring_of(2))
    assert shape_of(new, done) == ["S0", "S1", "|"]
    assert why_not(done, new, ring_of(2)) is None
    assert why_not(done, new, ring_of(1)) == "S0 fills a buffer that S1 has still to use"
    assert why_not(scop, tree, ring_of(2)) == "no barrier is between S0 and S1"


def test_no_barrier_below_threads_that_leave_at_different_times(lower: Lower) -> None:
    """What such a loop carries can have no barrier: the verifier refuses the tree."""
    scop = lower(STEPS, (9, N))
    inner = Loop("t", {"S1": Coordinate(0)}, LoopKind.SERIAL, Leaf("S1"), 8)
    bad = Loop("i", {"S1": Coordinate(1)}, LoopKind.THREAD, inner, N, axis=0, width=32)
    tree = sequence([replace(steps("S0", extent=9), name="t0"), bad])
    done, new = synchronised(scop, tree)
    assert why_not(done, new) == "no barrier is between S1 and S1"


# --- the verifier ---------------------------------------------------------------------------


def test_a_barrier_in_the_wrong_place_is_none(lower: Lower) -> None:
    scop = lower(REVERSED, (N,))
    children = [threads("i0", "S0"), threads("i1", "S1")]
    statement = barrier_statement(scop, "b", ["S0", "S1"], ())
    done = scop.with_statements((*scop.statements, statement))
    for position, is_right in ((0, False), (1, True), (2, False)):
        tree = sequence([*children[:position], Leaf("b"), *children[position:]])
        assert (why_not(done, tree) is None) == is_right


def test_a_private_array_is_on_one_thread(lower: Lower) -> None:
    source = REVERSED.replace("-> (a, y)", "-> (y)")
    scop = lower(source, (N,))
    tree = sequence([threads("i0", "S0"), threads("i1", "S1")])
    private = {"a": Placement("a", None, (FIXED,))}
    assert why_not(scop, tree, private) == "a is private, but S1 is on another thread"
    own = lower(SAME.replace("-> (a, y)", "-> (y)"), (N,))
    assert why_not(own, tree, private) is None


def test_a_private_array_of_one_thread_alone(lower: Lower) -> None:
    """S1 on all threads would read what one wrote; S0 on one, what all of them read."""
    scop = lower(SAME.replace("-> (a, y)", "-> (y)"), (N,))
    loop = Loop("i", {"S1": Coordinate(0)}, LoopKind.SERIAL, Leaf("S1"), N)
    private = {"a": Placement("a", None, (FIXED,))}
    mixed = sequence([threads("i0", "S0"), loop])
    assert why_not(scop, mixed, private) == "a is private, but all threads run S1"
    serial = Loop("i", {"S0": Coordinate(0)}, LoopKind.SERIAL, Leaf("S0"), N)
    spread = sequence([serial, threads("i1", "S1")])
    assert why_not(scop, spread, private) is None  # S0 is replicated
    assert why_not(scop, spread, {}) == "no barrier is between S0 and S1"


def test_a_private_array_of_two_kernels(lower: Lower) -> None:
    scop = lower(SAME.replace("-> (a, y)", "-> (y)"), (N,))
    private = {"a": Placement("a", None, (FIXED,))}
    assert why_not(scop, threads("i1", "S1"), private) == "a is private, but two kernels use it"


# --- whole plans ----------------------------------------------------------------------------

PROGRAMS: dict[str, tuple[str, list[tuple[int, ...]], int]] = {
    "pointwise": ("def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) * 2.0 }", [(65, 132)], 0),
    "row": ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(300, 4096)], 0),
    "softmax": (
        """def f(float(N,D) x) -> (y) {
            m(i) max=! x(i,j)
            s(i) +=! exp(x(i,j) - m(i))
            y(i,j) = exp(x(i,j) - m(i)) / s(i)
        }""",
        [(300, 1000)],
        0,  # folds are collectives
    ),
    "scatter": (
        """def f(float(E,D) g, int32(E) I, float(V,D) W) -> (o) {
            o(v,d) = W(v,d)
            o(I(e),d) += g(e,d)
        }""",
        [(300, 64), (300,), (77, 64)],
        1,
    ),
    "matmul": (MATMUL, [(64, 64), (64, 64)], 1),  # at the end of a step: the next one has arrived
}


def barriers(plan: Plan) -> list[str]:
    return [s.name for s in plan.scop.statements if s.kind is Kind.BARRIER]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_few_as_suffice(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes, count = PROGRAMS[name]
    unit = cuda_unit(source, *shapes)
    assert len(barriers(unit.done.plan)) == count
    assert ("__syncthreads" in unit.source.text) == (count > 0)


def _without(tree: Node, name: str) -> Node:
    """Return *tree* without the leaf *name*."""
    match tree:
        case Leaf():
            return tree
        case Loop(body=body):
            return replace(tree, body=_without(body, name))
        case Sequence(children=children):
            rest = [c for c in children if not (isinstance(c, Leaf) and c.statement == name)]
            return sequence([_without(child, name) for child in rest])


def _with_one_less(plan: Plan) -> Iterator[tuple[str, Plan]]:
    for name in barriers(plan):
        statements = tuple(s for s in plan.scop.statements if s.name != name)
        kernels = tuple(replace(k, tree=_without(k.tree, name)) for k in plan.kernels)
        yield name, replace(plan, scop=plan.scop.with_statements(statements), kernels=kernels)


def require_each(cuda_unit: MakeUnit, gpu: Chip) -> None:
    """Check that the verifier refuses a plan without any one of its barriers."""
    backend, seen = GpuBackend(gpu, {}), 0
    for source, shapes, _ in PROGRAMS.values():
        plan = cuda_unit(source, *shapes, gpu=gpu).done.plan
        assert backend.why_not_legal(plan) is None
        for name, less in _with_one_less(plan):
            seen += 1
            reason = backend.why_not_legal(less)
            assert reason is not None and "no barrier" in reason, (source, name)
    assert seen >= 2


def test_each_of_them_is_needed(cuda_unit: MakeUnit) -> None:
    require_each(cuda_unit, load_chip("h200"))


def test_each_of_them_is_needed_on_a_small_chip(cuda_unit: MakeUnit, small_chip: Chip) -> None:
    require_each(cuda_unit, small_chip)


def test_places_of_a_plan_need_no_more_than_it_has(lower: Lower) -> None:
    """promote, then synchronise: what became private asks for no barrier."""
    scop = lower(SAME.replace("-> (a, y)", "-> (y)"), (N,))
    tree = sequence([threads("i0", "S0"), threads("i1", "S1")])
    places = promote(scop, [tree], load_chip("h200"))
    assert places["a"].space is Space.PRIVATE
    assert synchronised(scop, tree, places)[1] == tree
