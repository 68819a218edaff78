"""Phases of one launch: loops over the blocks of a wave, barriers between them, and defects."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import GpuBackend
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Sequence,
    iterations_of,
    sequence,
)
from tcdsl.poly.scop import Scop
from tcdsl.schedule.grid_phases import common_grid, grid_barriers, is_separated, with_grid
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.plan import Code, Plan

Lower = Callable[..., Scop]
H200 = load_chip("h200")
# y's rows want all of s: no block has it.
CENTRED = "def f(float(N) x, float(N) z) -> (s, y) { s +=! x(i)\n y(i) = z(i) * s }"
ASKED = """{"format": "tcdsl choices", "version": 1, "target": "cuda", "kernels": [
    {"kernel": "S0", "template": "row", "threads": 256},
    {"kernel": "S1", "template": "elementwise", "threads_x": 256},
    {"kernel": "S0 then S1", "template": "grid_phases"}]}"""


@pytest.fixture(scope="module")
def plan(lower: Lower) -> Plan:
    scop = lower(CENTRED, (3_000_000,), (3_000_000,))
    return plan_for_gpu(scop, Options(choices=ASKED), H200)


def why_not_legal(plan: Plan) -> str | None:
    return GpuBackend(H200, {}).why_not_legal(plan)


def with_tree(plan: Plan, children: list) -> Plan:  # type: ignore[type-arg]
    (kernel,) = plan.kernels
    return replace(plan, kernels=(replace(kernel, tree=sequence(children)),))


def test_kernels_are_phases_of_one_wave(plan: Plan) -> None:
    (kernel,) = plan.kernels
    mapped = Mapped(plan.scop, kernel.tree)
    x, y, z = mapped.grid
    assert y == z == 1 and 1 < x <= kernel.code.resident_blocks * H200.multiprocessors
    names = [barrier.name for barrier in grid_barriers(mapped)]
    assert len(names) == 2  # the sums of blocks are a phase of their own
    assert is_separated(mapped, "S0", "S1") and not is_separated(mapped, "S1", "S0")
    assert why_not_legal(plan) is None


def test_a_barrier_that_is_missing_is_noticed(plan: Plan) -> None:
    (kernel,) = plan.kernels
    assert isinstance(kernel.tree, Sequence)
    gone = grid_barriers(Mapped(plan.scop, kernel.tree))[-1].name
    scop = plan.scop.with_statements([s for s in plan.scop.statements if s.name != gone])
    left = [c for c in kernel.tree.children if c != Leaf(gone)]
    reason = why_not_legal(with_tree(replace(plan, scop=scop), left))
    assert reason is not None and reason.startswith("no barrier of all blocks is between")


def test_more_blocks_than_there_are_at_once_are_refused(plan: Plan) -> None:
    (kernel,) = plan.kernels
    scarce = replace(kernel, code=Code())
    chip = replace(H200, multiprocessors=2)
    reason = GpuBackend(chip, {}).why_not_legal(replace(plan, kernels=(scarce,)))
    assert reason is not None and "2 are there at once" in reason


def test_as_many_blocks_as_there_are_at_once_may_wait(plan: Plan) -> None:
    (kernel,) = plan.kernels
    one_beside = replace(plan, kernels=(replace(kernel, code=Code()),))
    blocks = prod(Mapped(plan.scop, kernel.tree).grid)

    def why_not(multiprocessors: int) -> str | None:
        chip = replace(H200, multiprocessors=multiprocessors)
        return GpuBackend(chip, {}).why_not_legal(one_beside)

    assert why_not(blocks) is None
    assert (why_not(blocks - 1) or "").startswith(f"{blocks} blocks wait for one another")


def test_every_block_comes_to_the_barrier_once(plan: Plan) -> None:
    (kernel,) = plan.kernels
    assert isinstance(kernel.tree, Sequence)
    *before, last = kernel.tree.children
    barrier = grid_barriers(Mapped(plan.scop, kernel.tree))[-1].name
    assert isinstance(last, Loop)
    inside = replace(
        last,
        coordinates={**last.coordinates, barrier: AffineCoordinate(())},
        body=sequence([Leaf(barrier), last.body]),
    )
    reason = why_not_legal(with_tree(plan, [*before[:-1], inside]))
    assert reason is not None and "not every block comes to" in reason


@pytest.mark.parametrize(
    "coordinate",
    [
        Coordinate(0, div=8),
        Coordinate(0, div=8, mod=132),  # a multiple of the inner loop's 6
        Coordinate(0, div=8, mod=128),
        AffineCoordinate(((1, Coordinate(0, div=8)),)),
    ],
)
def test_a_loop_over_blocks_is_split_along_two_axes(
    coordinate: AnyCoordinate, lower: Lower
) -> None:
    scop = lower("def f(float(N) x) -> (y) { y(i) = x(i) }", (1000,))
    leaf = Leaf("S0")
    tree = Loop("b", {"S0": coordinate}, LoopKind.BLOCK, leaf, 125, width=125)
    outer = with_grid(tree, (4, 6, 1))
    assert isinstance(outer, Loop) and isinstance(outer.body, Loop)
    assert (outer.axis, outer.width, outer.extent) == (0, 4, 21)
    assert (outer.body.axis, outer.body.width, outer.body.has_one_iteration) == (1, 6, True)
    domain = scop.by_name["S0"].domain
    assert iterations_of(domain, outer.coordinates["S0"]) == (0, 20)
    assert iterations_of(domain, outer.body.coordinates["S0"]) == (0, 5)


def test_what_has_no_blocks_is_one_blocks(lower: Lower) -> None:
    lower("def f(float(N) x) -> (y) { y(i) = x(i) }", (10,))
    outer = with_grid(Leaf("S0"), (4, 1, 1))
    assert isinstance(outer, Loop) and (outer.width, outer.extent) == (4, 1)


@pytest.mark.parametrize(
    ("grids", "most", "want"),
    [
        ([(64, 64, 1), (512, 1, 1)], 264, (4, 64, 1)),
        ([(100, 1, 1), (7, 1, 1)], 132, (100, 1, 1)),
        ([(265, 1, 1)], 264, (133, 1, 1)),
        ([(3, 5, 7)], 1, (1, 1, 1)),
    ],
)
def test_a_grid_is_cut_into_equal_iterations(
    grids: list[tuple[int, int, int]], most: int, want: tuple[int, int, int]
) -> None:
    assert common_grid(grids, most) == want
