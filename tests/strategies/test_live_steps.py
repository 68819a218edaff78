"""Steps of masked sums that have a term: which there are, where they begin, and results."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.plan import search
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.masked_sums import masked, why_not_masked
from tcdsl.strategies import contracted
from tcdsl.strategies.live_steps import live_instances
from tcdsl.strategies.templates import tile_mma
from tests.emulated_programs import cuda_unit_of

Lower = Callable[..., Scop]
FEW = replace(load_chip("h200"), multiprocessors=4)
HEAD = "def f(bfloat16(M,K) x, bfloat16(K,N) w) -> (y) { y(m,n) +=! float(x(m,k)) * w(k,n) "
GUARDS = {
    "lower": "where m in 0:M, k in 0:m+1 }",
    "upper": "where m in 0:M, k in m:K }",
    "band": "where k in 0:K, exists m - 70 <= k, exists k <= m + 70 }",
}  # fmt: skip
SHAPES = ((320, 320), (320, 128))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch, brief_tiles: None) -> None:
    monkeypatch.setattr(contracted, "MIN_WORK", 1)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)
    monkeypatch.setattr(search, "WORTH", 100.0)


@pytest.mark.parametrize("name", GUARDS)
def test_live_instances_are_those_as_written(name: str, lower: Lower) -> None:
    scop = lower(HEAD + GUARDS[name], *SHAPES)
    before = scop.by_name["S0"]
    assert why_not_masked(scop, before) is None
    after = masked(scop, "S0")
    wide = after.by_name["S0"]
    assert wide.is_masked and before.domain.is_strict_subset(wide.domain)
    assert live_instances(after, wide).is_equal(before.domain)
    plain = replace(wide, is_masked=False)
    assert live_instances(after, plain).is_equal(wide.domain), "0 times NaN counts"


def test_masks_of_the_program_are_left(lower: Lower) -> None:
    source = HEAD.replace("x(m,k)", "k > 3 ? x(m,k) : 0") + GUARDS["lower"]
    after = masked(lower(source, *SHAPES), "S0")
    assert not after.by_name["S0"].is_masked


def test_what_is_not_masked(lower: Lower) -> None:
    for body, why in {
        "+=! float(x(m,k)) * w(k,n) }": "a box",
        "+=! float(x(m,k)) * w(k,n) where exists m + n <= k, k in 0:K }": "several factors",
        "max=! float(x(m,k)) * w(k,n) where m in 0:M, k in 0:m+1 }": "no sum",
        "+=! float(x(m,k)) * w(k,n) where k in 0:K, exists x(m,k) > 0.0 }": "data say",
    }.items():
        scop = lower(HEAD.partition("+=!")[0] + body, *SHAPES)
        sums = next(s for s in scop.statements if s.kind is Kind.UPDATE)
        assert why in (why_not_masked(scop, sums) or "")


@pytest.mark.parametrize(("name", "bound"), [("lower", "c0"), ("upper", "-c0 + 4")])
def test_a_producer_brings_live_steps_alone(name: str, bound: str, always: None) -> None:
    unit = cuda_unit_of(HEAD + GUARDS[name], SHAPES, gpu=FEW)
    text = unit.source.text
    assert "tc_copy_box" in text, text
    loops = re.findall(r"for \(int (c\d) = 0; \1 <= ([^;]*); \1\+\+\) \{\n *tc_acquire", text)
    assert [end for _, end in loops] == [bound]


def test_results(check_emulated: Callable[..., None], always: None) -> None:
    check_emulated([(HEAD + guard, SHAPES) for guard in GUARDS.values()], gpu=FEW)
