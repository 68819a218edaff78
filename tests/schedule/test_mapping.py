"""Mapping: which block and thread runs an instance, what is uniform, which trees are kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import islpy as isl
import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import GpuBackend
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    Sequence,
    loops_of,
    sequence,
)
from tcdsl.poly.scop import Kind, Scop
from tcdsl.schedule.mapping import RANK, Mapped, why_not_mapped
from tcdsl.schedule.plan import Plan

Lower = Callable[..., Scop]
MakeUnit = Callable[..., Any]

CHAIN = "def f(float(N,M) x) -> (y) { a(i,j) = x(i,j)\n y(i,j) = a(i,j) }"
SERIAL, BLOCK, THREAD = LoopKind.SERIAL, LoopKind.BLOCK, LoopKind.THREAD


def loop(
    name: str, kind: LoopKind, body: Node, extent: int, axis: int = 0, width: int = 0, dim: int = 0
) -> Loop:
    """Return a loop over dimension *dim* of S0 and S1."""
    coordinates = {"S0": Coordinate(dim), "S1": Coordinate(dim)}
    return Loop(name, coordinates, kind, body, extent, axis=axis, width=width or extent)


def both(kind: LoopKind = THREAD, width: int = 0, axis: int = 0) -> Node:
    """for j: S0; for j: S1"""
    return sequence([
        loop(f"j{n}", kind, Leaf(f"S{n}"), 64, axis, width, dim=1) for n in range(2)
    ])  # fmt: skip


@pytest.fixture
def chain(lower: Lower) -> Scop:
    return lower(CHAIN, (8, 64))


def test_a_tree_is_a_grid_of_blocks(chain: Scop) -> None:
    mapped = Mapped(chain, loop("i", BLOCK, both(width=32, axis=1), 8, axis=2))
    assert mapped.grid == (1, 1, 8) and mapped.block == (1, 32, 1) and mapped.axes == (1,)
    assert why_not_mapped(mapped) is None


def test_the_thread_of_an_instance(chain: Scop) -> None:
    mapped = Mapped(chain, loop("i", BLOCK, both(width=32), 8))
    thread = mapped.thread("S0", 0)
    assert thread is not None
    expected = isl.PwAff("{ S0[i, j] -> [(j % 32)] }")
    assert isl.Map.from_pw_aff(thread).is_equal(isl.Map.from_pw_aff(expected))
    assert mapped.thread("S0", 1) is None and mapped.is_uniform("S0", 1)
    assert not mapped.is_uniform("S1", 0)


def test_a_statement_outside_the_threads_is_uniform(chain: Scop) -> None:
    tree = sequence([loop("j0", THREAD, Leaf("S0"), 64, dim=1), Leaf("S1")])
    mapped = Mapped(chain, tree)
    assert mapped.is_uniform("S1", 0) and not mapped.is_uniform("S0", 0)


# --- what is no kernel ----------------------------------------------------------------------


def test_blocks_stand_outside_of_everything(chain: Scop) -> None:
    inner = loop("i", BLOCK, Leaf("S0"), 8)
    tree = loop("t", SERIAL, sequence([inner, loop("i1", BLOCK, Leaf("S1"), 8)]), 64, dim=1)
    reason = why_not_mapped(Mapped(chain, tree))
    assert reason is not None and "outside one that is" in reason


def test_an_axis_is_mapped_once_on_a_path(chain: Scop) -> None:
    for kind in (BLOCK, THREAD):
        body = sequence([Leaf("S0"), Leaf("S1")])
        tree = loop("i", kind, loop("j", kind, body, 64, width=64, dim=1), 8, width=64)
        reason = why_not_mapped(Mapped(chain, tree))
        assert reason is not None and "one axis" in reason
        assert why_not_mapped(Mapped(chain, replace(tree, axis=1))) is None


def test_the_loops_of_an_axis_are_equally_wide(chain: Scop) -> None:
    first, second = both().children  # type: ignore[union-attr]
    tree = loop("i", BLOCK, sequence([first, replace(second, width=32)]), 8)
    reason = why_not_mapped(Mapped(chain, tree))
    assert reason is not None and "equally wide" in reason


def test_no_statement_runs_in_every_block(chain: Scop, lower: Lower) -> None:
    tree = sequence([loop("i", BLOCK, Leaf("S0"), 8), Leaf("S1")])
    assert why_not_mapped(Mapped(chain, tree)) == "every block would run S1"
    alone = sequence([loop("i", BLOCK, Leaf("S0"), 1), Leaf("S1")])
    assert why_not_mapped(Mapped(lower(CHAIN, (1, 64)), alone)) is None


@pytest.mark.parametrize("kind", [BLOCK, THREAD])
def test_a_loop_of_one_turn_has_no_more_iterations_than_it_says(
    kind: LoopKind, chain: Scop
) -> None:
    body = sequence([Leaf("S0"), Leaf("S1")])
    reason = why_not_mapped(Mapped(chain, loop("i", kind, body, 7)))
    assert reason == "i has more iterations of S0 than it says"
    assert why_not_mapped(Mapped(chain, loop("i", kind, body, 8))) is None


def test_the_driver_asks(cuda_unit: MakeUnit) -> None:
    """A plan whose blocks are below a serial loop does not get through."""
    plan: Plan = cuda_unit(
        CHAIN, (8, 64), gpu=replace(load_chip("h200"), multiprocessors=2)
    ).done.plan
    backend = GpuBackend(load_chip("h200"), {})
    assert backend.why_not_legal(plan) is None
    (kernel,) = plan.kernels
    names = tuple(Mapped(plan.scop, kernel.tree).paths)
    around = Loop("t", {n: Coordinate(0, 0, 1, 1) for n in names}, SERIAL, kernel.tree, 1)
    bad = replace(plan, kernels=(replace(kernel, tree=around),))
    has_blocks = any(la.kind is BLOCK for la in loops_of(kernel.tree))
    assert (backend.why_not_legal(bad) is not None) == has_blocks


def test_a_fold_over_blocks_is_of_one_value_of_each(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads with columns of their own have as many, of which one alone would be put."""
    source = """def f(float(M,N) x) -> (y) {
        m(j) max=! x(i,j)  s(j) +=! exp(x(i,j) - m(j))  y(i,j) = exp(x(i,j) - m(j)) / s(j) }"""
    plan = cuda_unit(source, (6272, 16)).done.plan
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    assert mapped.cluster > 1 and why_not_mapped(mapped) is None
    monkeypatch.setattr(Mapped, "fold_axes", lambda *_: (RANK,))
    assert "have values of their own" in (why_not_mapped(mapped) or "")


# --- collectives ----------------------------------------------------------------------------


def folds(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Return the axes of every fold of the first kernel."""
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    return {
        name: mapped.fold_axes(plan.scop.by_name[name])
        for name in mapped.paths
        if plan.scop.by_name[name].kind is Kind.FOLD
    }


@pytest.mark.parametrize(
    ("source", "shape", "axes"),
    [
        ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (300, 4096), (0,)),
        ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (2000, 64), (0,)),
        ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", (1000, 67), (1,)),
    ],
)
def test_a_fold_is_a_collective_of_the_threads_that_hold_its_parts(
    source: str, shape: tuple[int, ...], axes: tuple[int, ...], cuda_unit: MakeUnit
) -> None:
    plan = cuda_unit(source, shape).done.plan
    assert folds(plan) and set(folds(plan).values()) == {axes}
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    for name in folds(plan):
        fold = plan.scop.by_name[name]
        for axis in mapped.axes:
            reads = [mapped.is_collective_read(fold, read, axis) for read in fold.reads]
            assert set(reads) == {axis in axes}
            assert not mapped.is_collective_read(fold, fold.write, axis)


COLUMNS = """def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C, s) {
    C(m,n) +=! A(m,k) * B(k,n)
    s(n) +=! C(m,n)
}"""


def test_a_fold_of_threads_that_are_some_others_apart(cuda_unit: MakeUnit) -> None:
    """A thread of a warp has rows m % 8 of a product; eight threads fold a column, four apart."""
    plan = cuda_unit(COLUMNS, (512, 256), (256, 512)).done.plan
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    (fold,) = (plan.scop.by_name[name] for name in folds(plan))
    assert mapped.fold_axes(fold) == (0,) and mapped.fold_stride(fold) == 4
    assert all(mapped.is_collective_read(fold, read, 0) for read in fold.reads)
    assert mapped.fold_stride(plan.scop.by_name["S0"]) == 1


@pytest.mark.parametrize("turned", ["the fold", "what is folded"])
def test_a_fold_is_of_its_own_threads(turned: str, cuda_unit: MakeUnit) -> None:
    """On threads with the parts of other columns a fold would combine what it does not read."""
    plan = cuda_unit(COLUMNS, (512, 256), (256, 512)).done.plan
    tree = plan.kernels[0].tree
    (name,) = folds(plan)
    fold = plan.scop.by_name[name]

    def moved(node: Node) -> Node:
        """Return *node* with other threads: 8 (n / 2 % 4) + m % 8, or results on other ones."""
        match node:
            case Loop(kind=LoopKind.THREAD, axis=0) if (name in node.coordinates) == (
                turned == "the fold"
            ):
                found = {n: _other(c) for n, c in node.coordinates.items()}
                return replace(node, coordinates=found, body=moved(node.body))
            case Loop():
                return replace(node, body=moved(node.body))
            case Sequence(children=children):
                return sequence([moved(child) for child in children])
            case _:
                return node

    mapped = Mapped(plan.scop, moved(tree))
    assert mapped.fold_axes(fold) == () and mapped.fold_stride(fold) == 1


def _other(coordinate: AnyCoordinate) -> AnyCoordinate:
    """Return the same digits in another order, or one digit of others."""
    match coordinate:
        case Coordinate():
            return replace(coordinate, div=2 * coordinate.div)
        case AffineCoordinate(terms=((_, high), (_, low))):
            return replace(coordinate, terms=((8, low), (1, high)))
        case _:
            return coordinate
