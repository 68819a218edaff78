"""Folds of several lanes at once: where one call does, and where it does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import islpy as isl
import pytest

from tcdsl.options import Options
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Sequence
from tcdsl.poly.scop import Kind, Statement
from tcdsl.schedule.fold_lanes import has_all_lanes, short_loop_around, why_not_at_once
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placements, Space
from tcdsl.schedule.plan import Plan

MakeUnit = Callable[..., Any]

COLUMN_SUMS = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }"
ARGS = "def f(float(M,N) x) -> (y) { y(j) argmax=! x(i,j) }"
SIZE = (512, 4096)


def plan_of(cuda_unit: MakeUnit, source: str, *shapes: tuple[int, ...], **choices: Any) -> Plan:
    plan: Plan = cuda_unit(source, *shapes, **choices).done.plan
    return plan


def first_fold(plan: Plan) -> tuple[Mapped, Statement]:
    kernel = Mapped(plan.scop, plan.kernels[0].tree)
    names = (name for name in kernel.paths if plan.scop.by_name[name].kind is Kind.FOLD)
    return kernel, plan.scop.by_name[next(names)]


@pytest.fixture(scope="module")
def lanes(cuda_unit: MakeUnit) -> tuple[Mapped, Placements, Statement, Loop]:
    """Sums of columns, of which a thread has several: the kernel, its fold, and the loop."""
    plan = plan_of(cuda_unit, COLUMN_SUMS, SIZE)
    kernel, fold = first_fold(plan)
    loop = short_loop_around(kernel, fold)
    assert loop is not None
    return kernel, plan.placements, fold, loop


Given = tuple[Mapped, Placements, Statement, Loop]


def test_the_lanes_of_a_vector_are_folded_at_once(lanes: Given) -> None:
    kernel, placements, fold, loop = lanes
    assert loop.kind is LoopKind.LANES and loop.extent == 4
    assert why_not_at_once(kernel, placements, fold, loop) is None
    assert has_all_lanes(kernel, loop)


def test_a_fold_without_a_short_loop(cuda_unit: MakeUnit) -> None:
    kernel, fold = first_fold(
        plan_of(cuda_unit, COLUMN_SUMS, SIZE, options=Options(vectorise=False))
    )
    assert short_loop_around(kernel, fold) is None


def test_the_number_of_lanes_is_that_of_a_vector(lanes: Given) -> None:
    kernel, placements, fold, loop = lanes
    why = why_not_at_once(kernel, placements, fold, replace(loop, extent=3))
    assert why == "no vector has 3 lanes"
    assert why_not_at_once(kernel, placements, fold, replace(loop, extent=None)) is not None


def test_accumulators_are_registers(lanes: Given) -> None:
    kernel, placements, fold, loop = lanes
    (part,) = fold.reads
    shared = {**placements, part.array: replace(placements[part.array], space=Space.SHARED)}
    for places in (shared, {}):
        why = why_not_at_once(kernel, places, fold, loop)
        assert why == f"{part.array} is not in registers"


def test_extremes_are_pairs_and_no_vectors(cuda_unit: MakeUnit) -> None:
    # Not as a maximum, whose place is found after it.
    plan = plan_of(cuda_unit, ARGS, SIZE, options=Options(fuse="none"))
    kernel, fold = first_fold(plan)
    loop = next(loop for loop in kernel.paths[fold.name])
    assert fold.reduction is not None and fold.reduction.operator.is_arg
    why = why_not_at_once(kernel, plan.placements, fold, loop)
    assert why == f"{fold.name} is no fold of values over threads"


def test_accumulators_that_the_loop_writes(lanes: Given) -> None:
    """The call before the loop would read them too early."""
    kernel, placements, fold, loop = lanes
    (part,) = fold.reads
    (init,) = (
        s for s in kernel.scop.statements if s.kind is Kind.INIT and s.write.array == part.array
    )
    at = {**loop.coordinates, init.name: Coordinate(init.indices.index("j"))}
    both = replace(loop, body=Sequence((Leaf(init.name), loop.body)), coordinates=at)
    why = why_not_at_once(kernel, placements, fold, both)
    assert why == f"{part.array} is written in {loop.name}"


def test_a_lane_that_does_not_run_is_guarded(lanes: Given) -> None:
    kernel, _, fold, loop = lanes
    one = fold.domain.fix_val(isl.dim_type.set, fold.indices.index("j"), val(6))
    less = replace(fold, domain=fold.domain.subtract(one))
    statements = tuple(less if s is fold else s for s in kernel.scop.statements)
    assert not has_all_lanes(Mapped(kernel.scop.with_statements(statements), kernel.tree), loop)
