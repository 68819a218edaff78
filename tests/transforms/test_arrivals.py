"""Copies some steps ahead: what a barrier may leave on its way, and what goes wrong."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Kind
from tcdsl.strategies.templates import tile_simt
from tcdsl.transforms.mapping import Mapped
from tcdsl.transforms.plan import Plan
from tcdsl.transforms.synchronisation import why_not_synchronised

MakeUnit = Callable[..., Any]
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIZES = (96, 140), (140, 72)


@pytest.fixture(params=[2, 3, 4])
def staged(request: pytest.FixtureRequest, cuda_unit: MakeUnit, monkeypatch: Any) -> Any:
    """Return the product with as many buffers as the parameter says."""
    monkeypatch.setattr(tile_simt, "STAGES", (request.param,))
    monkeypatch.setattr(tile_simt, "MIN_CHUNK", 1000)
    return request.param, cuda_unit(MATMUL, *SIZES)


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
    stages, unit = staged
    plan = unit.done.plan
    rings = [p.ring for p in plan.placements.values() if p.ring is not None]
    assert [ring.buffers for ring in rings] == [stages, stages]
    barriers = [s.groups_left for s in plan.scop.statements if s.kind is Kind.BARRIER]
    assert barriers == [stages - 2]
    assert ("tc_copy_wait_but" in unit.source.functions) == (stages > 2)
    assert reason(plan) is None


def test_a_wait_too_short_is_refused(staged: Any) -> None:
    plan = staged[1].done.plan
    assert re.match("no barrier is between .*tile.*copy and S0", reason(with_groups_left(plan, 1)))


def test_a_longer_wait_is_as_good(staged: Any) -> None:
    stages, unit = staged
    if stages > 2:
        assert reason(with_groups_left(unit.done.plan, -1)) is None


def test_a_buffer_less_is_refused(staged: Any) -> None:
    plan = staged[1].done.plan
    fewer = {
        name: p if p.ring is None else replace(p, ring=replace(p.ring, buffers=p.ring.buffers - 1))
        for name, p in plan.placements.items()
    }
    found = reason(replace(plan, placements=fewer))
    assert re.match("[AB].tile.*copy fills a buffer that S0 has still to use", found)


def test_the_emulator_finds_faults_too(staged: Any) -> None:
    """Of the text: a wait for a group less, and a buffer less."""
    stages, unit = staged
    text = unit.source.text
    fewer = text.replace(f"% {stages})", f"% {stages - 1})")
    assert fewer != text
    texts = [text, fewer]
    if stages > 2:
        texts.append(text.replace(f"wait_but<{stages - 2}>", f"wait_but<{stages - 1}>"))
        assert texts[-1] != text
    else:
        texts.append(text.replace("tc_copy_wait();", ""))
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
