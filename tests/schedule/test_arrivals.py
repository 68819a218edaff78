"""Copies some steps ahead: what a barrier may leave on its way, and what goes wrong."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Kind
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Space
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.synchronisation import why_not_synchronised
from tcdsl.strategies.templates import tile_simt

MakeUnit = Callable[..., Any]
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIZES = (96, 140), (140, 72)


@pytest.fixture(scope="module", params=[(2, False), (3, False), (4, False), (3, True), (4, True)])
def staged(request: pytest.FixtureRequest, cuda_unit: MakeUnit) -> Any:
    """Return how many buffers the product has, whether it reads one step more, and the product."""
    stages, is_held = request.param
    kernel = {"kernel": "S0", "template": "tile_simt", "stages": stages, "is_held": is_held}
    choices = {"format": "tcdsl choices", "version": 1, "target": "cuda", "kernels": [kernel]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_simt, "MIN_CHUNK", 1000)
        unit = cuda_unit(MATMUL, *SIZES, options=Options(choices=json.dumps(choices)))
    assert unit.done.plan.weighed[0].choice["stages"] == stages
    return stages, int(is_held), unit


def reason(plan: Plan) -> str | None:
    (kernel,) = plan.kernels
    mapped = Mapped(plan.scop, kernel.tree)
    return why_not_synchronised(mapped, dependences_of(plan.scop), plan.placements)


def with_groups_left(plan: Plan, more: int) -> Plan:
    statements = tuple(
        replace(s, groups_left=s.groups_left + more) if s.kind is Kind.BARRIER else s
        for s in plan.scop.statements
    )
    return replace(plan, scop=plan.scop.with_statements(statements))


def test_buffers_and_groups_follow_from_the_shift(staged: Any) -> None:
    stages, held, unit = staged
    plan = unit.done.plan
    rings = {p.space: p.ring for p in plan.placements.values() if p.ring is not None}
    assert rings[Space.SHARED].buffers == stages
    assert (Space.PRIVATE in rings) == bool(held)
    assert not held or rings[Space.PRIVATE].buffers == 2
    left = stages - 2 - held
    barriers = [s.groups_left for s in plan.scop.statements if s.kind is Kind.BARRIER]
    assert barriers == [left]
    assert ("tc_copy_wait_but" in unit.source.functions) == (left > 0)
    assert reason(plan) is None


def test_a_wait_too_short_is_refused(staged: Any) -> None:
    found = reason(with_groups_left(staged[-1].done.plan, 1))
    assert re.match("no barrier is between .*tile.*copy and (S0|.*held_copy)", found)


def with_barriers(plan: Plan, change: Callable[[isl.Set], isl.Set]) -> Plan:
    """Return *plan* with barriers in the iterations that *change* makes of theirs."""
    statements = tuple(
        replace(s, domain=change(s.domain)) if s.kind is Kind.BARRIER else s
        for s in plan.scop.statements
    )
    return replace(plan, scop=plan.scop.with_statements(statements))


def shifted(domain: isl.Set, by: int) -> isl.Set:
    """Return *domain* with all instances *by* iterations later."""
    space = domain.get_space()
    moved = isl.MultiAff.identity(space.map_from_set())
    last = space.dim(isl.dim_type.set) - 1
    step = moved.get_aff(last).add_constant_val(isl.Val(by))
    return domain.apply(isl.Map.from_multi_aff(moved.set_aff(last, step)))


def test_barriers_before_the_first_copy_let_nothing_arrive(staged: Any) -> None:
    """One group more may not be left, though the barrier runs in earlier iterations, too."""
    plan = with_groups_left(staged[-1].done.plan, 1)
    found = reason(with_barriers(plan, lambda domain: domain.union(shifted(domain, -1))))
    assert re.match("no barrier is between .*tile.*copy and (S0|.*held_copy)", found or "")


def test_the_first_copies_end_a_group(staged: Any) -> None:
    """One that never ended would go on with the next."""
    stages, held, unit = staged
    later = with_barriers(unit.done.plan, lambda domain: domain.intersect(shifted(domain, 1)))
    if stages - held > 2:
        found = reason(later) or ""
        assert re.match("no barrier is between .*tile.*copy and (S0|.*held_copy)", found)


def test_a_longer_wait_is_as_good(staged: Any) -> None:
    stages, held, unit = staged
    if stages - held > 2:
        assert reason(with_groups_left(unit.done.plan, -1)) is None


@pytest.mark.parametrize("space", [Space.SHARED, Space.PRIVATE])
def test_a_buffer_less_is_refused(staged: Any, space: Space) -> None:
    plan = staged[-1].done.plan
    rings = {n: p.ring for n, p in plan.placements.items() if p.ring and p.space is space}
    fewer = {name: replace(ring, buffers=ring.buffers - 1) for name, ring in rings.items()}
    placements = {n: replace(p, ring=fewer.get(n, p.ring)) for n, p in plan.placements.items()}
    found = reason(replace(plan, placements=placements))
    expected = r"[AB].tile.*copy fills a buffer that .* has still to use"
    assert re.match(expected, found) if rings else found is None


def test_the_emulator_finds_faults_too(staged: Any) -> None:
    """Of the text: a wait for a group less, and a buffer less."""
    stages, held, unit = staged
    text, left = unit.source.text, stages - 2 - held
    fewer = text.replace(f"% {stages})", f"% {stages - 1})")
    texts = [text, fewer]
    texts.append(
        text.replace(f"wait_but<{left}>", f"wait_but<{left + 1}>")
        if left
        else text.replace("tc_copy_wait();", "")
    )
    assert len(set(texts)) == 3
    right, *wrong = emulated_programs([replace(unit.source, text=text) for text in texts])
    rng = np.random.default_rng(5)
    A, B = (rng.normal(size=size).astype(np.float32) for size in SIZES)
    C = np.full((96, 72), np.nan, np.float32)
    arrays = {"A": A, "B": B, "C": C}
    right.run(arrays, seed=1)
    np.testing.assert_allclose(C, A @ B, rtol=1e-4, atol=1e-4)
    for program in wrong:
        with pytest.raises(EmulationError, match="data race"):
            program.run(arrays, seed=1)
