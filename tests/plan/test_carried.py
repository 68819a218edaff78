"""Groups go on as those of what a rewrite has made of the scop, and where the search is stopped."""

from collections.abc import Callable, Sequence
from typing import Any

import islpy as isl
import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import GpuBackend
from tcdsl.errors import TCWarning
from tcdsl.options import Options
from tcdsl.plan import carried as carried_module
from tcdsl.plan import state
from tcdsl.plan.carried import carried, in_groups_reached
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.plan.reached import Reached, followed
from tcdsl.plan.search import groups_of
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.invariants import with_invariants
from tcdsl.rewrites.scop.recomputation import without
from tcdsl.strategies import catalogue
from tcdsl.strategies.problem import Problem, analyses_shared
from tcdsl.strategies.template import Choice
from tests.scripts import script

Lower = Callable[..., Scop]
MakeUnit = Callable[..., Any]
Emulate = Callable[[Sequence[Any]], list[Any]]
H200, OPTIONS = load_chip("h200"), Options()
PLANS = script("plans")
NORM, GELU, COLUMNS, MIXED = PLANS.NORM, PLANS.GELU, PLANS.COLUMNS, PLANS.MIXED
chain: Callable[[str, int], str] = PLANS.chain
MOST_WORK = 900  # members of the schedules that are looked at, for each statement


def members(groups: Sequence[Any]) -> list[tuple[str, ...]]:
    return [group.members for group in groups]


# --- groups go on -----------------------------------------------------------------------------


def test_what_computes_a_temporary_leaves_its_group(lower: Lower) -> None:
    before = groups_of(lower(chain(NORM, 2), (64, 100_000)), OPTIONS, H200)
    fewer = without(before.scop, "y0")
    assert fewer is not None
    after = carried(before, fewer, OPTIONS, H200)
    assert after is not None
    (gone,) = {s.name for s in before.scop.statements} - {s.name for s in fewer.statements}
    expected = [tuple(n for n in own if n != gone) for own in members(before.groups)]
    assert members(after.groups) == [own for own in expected if own]


def test_an_invariant_joins_who_reads_it(lower: Lower) -> None:
    before = groups_of(lower(chain(NORM, 2), (4096, 1024)), OPTIONS, H200)
    done = with_invariants(before.scop, members(before.groups))
    after = carried(before, done, OPTIONS, H200)
    assert after is not None and len(after.groups) == len(before.groups)
    of = {name: n for n, own in enumerate(members(after.groups)) for name in own}
    added = {s.name for s in done.statements} - {s.name for s in before.scop.statements}
    assert added and all(of[name] == of[name.partition("_row")[0]] for name in added)


def test_groups_that_share_no_axis_any_more_are_not_carried(
    lower: Lower, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = groups_of(lower(chain(NORM, 2), (64, 100_000)), OPTIONS, H200)
    fewer = without(before.scop, "y0")
    assert fewer is not None
    monkeypatch.setattr(carried_module, "_whole", lambda *_: None)
    assert carried(before, fewer, OPTIONS, H200) is None


# --- a search that is stopped -----------------------------------------------------------------


def test_groups_that_are_not_legal_are_their_members_alone(lower: Lower) -> None:
    """A sum of rows, and who reads it all: no axis is of both."""
    scop = lower("def f(float(N) x) -> (y) { s +=! x(i)\n y(i) = x(i) / s }", (5000,))
    reached = Reached((("S0", "S1"),), frozenset(scop.arrays))
    assert members(in_groups_reached(reached, scop, OPTIONS, H200).groups) == [("S0",), ("S1",)]


def test_what_a_search_has_reached_is_what_it_ends_with(lower: Lower) -> None:
    scop = lower(chain(NORM, 3), (64, 100_000))
    with followed() as reached:
        plan = plan_for_gpu(scop, OPTIONS, H200)
    again = plan_for_gpu(scop, OPTIONS, H200, reached=reached)
    assert len(again.kernels) == len(plan.kernels) < len(scop.statements)
    assert GpuBackend(H200, {}).why_not_legal(again) is None


def _stopped_after(monkeypatch: pytest.MonkeyPatch, predictions: int) -> None:
    """Take isl's quota away after so many predictions, once."""
    usual, left = state.predicted_seconds, [predictions]

    def predicted(problem: Problem) -> float:
        left[0] -= 1
        if left[0] == 0:
            isl.DEFAULT_CONTEXT.set_max_operations(1)
        return usual(problem)

    monkeypatch.setattr(state, "predicted_seconds", predicted)


@pytest.mark.parametrize("predictions", [2, 9])
def test_a_search_that_is_stopped_keeps_its_groups(
    predictions: int, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped_after(monkeypatch, predictions)
    with pytest.warns(TCWarning, match="in the kernels that were found by then"):
        done = cuda_unit(chain(NORM, 4), (64, 100_000)).done
    assert done.is_fallback
    assert len(done.plan.kernels) < len(done.plan.scop.statements) // 2


@pytest.mark.slow
def test_results_of_a_search_that_is_stopped(
    check_emulated: Callable[..., None], monkeypatch: pytest.MonkeyPatch, small_chip: Any
) -> None:
    for layer in (NORM, COLUMNS, MIXED):
        _stopped_after(monkeypatch, 2)
        with pytest.warns(TCWarning, match="found by then"):
            check_emulated([(chain(layer, 2), [(7, 67)])], gpu=small_chip)
        monkeypatch.undo()


# --- how much is looked at --------------------------------------------------------------------


def _work_of_planning(scop: Scop, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many members all the schedules have among which the plan's are chosen."""
    counted, usual = [0], catalogue._least

    def least(problem: Problem, every: Sequence[Choice]) -> Choice:
        counted[0] += len(every) * len(problem.group.members)
        return usual(problem, every)

    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "_least", least)
        with analyses_shared():
            plan_for_gpu(scop, OPTIONS, H200)
    return counted[0]


LONG_CHAINS = {
    "norm": (NORM, 32, (64, 100_000)),
    "gelu": (GELU, 16, (64, 100_000)),
    "columns": (COLUMNS, 32, (4096, 1024)),
    "mixed": (MIXED, 16, (4096, 1024)),
}


@pytest.mark.slow
@pytest.mark.parametrize("layer", LONG_CHAINS)
def test_the_work_of_planning_grows_with_the_statements(
    layer: str, lower: Lower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By count, not by the clock: a search made anew for each temporary took 10 times as much."""
    text, count, size = LONG_CHAINS[layer]
    scop = lower(chain(text, count), size)
    assert _work_of_planning(scop, monkeypatch) <= MOST_WORK * len(scop.statements)
