"""Blocks with equal shares of all steps (stream-K): that they are right, and faults are found."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.display.pipelines import timelines
from tcdsl.errors import OptionError
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import AffineCoordinate, Loop, LoopKind
from tcdsl.poly.scop import EventKind, Scop
from tcdsl.poly.signals import why_not_signalled
from tcdsl.poly.verify import why_not_free_of_races, why_not_legal
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.pipelines import pipelines_of
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.signals import why_not_in_order
from tcdsl.schedule.synchronisation import why_not_synchronised
from tcdsl.strategies.equal_shares import Shares, shares_of
from tcdsl.testing.comparison import check
from tests.strategies.test_tile_mma import PRODUCTS, assert_found, source_of, without
from tests.strategies.tile_configs import choices_of, inputs_of, kernel_of, planned

MakeUnit = Callable[..., Any]
Shapes = list[tuple[int, ...]]
BIASED = """def f(half(M,K) A, half(K,N) B, float(N) b, float(M,N) x) -> (C) {
    c(m,n) +=! A(m,k) * B(k,n)
    C(m,n) = fmax(c(m,n) + b(n), 0.0) + x(m,n)
}"""
UPDATE = "def f(float(M,N) C, half(M,K) A, half(K,N) B) -> (C) { C(m,n) += A(m,k) * B(k,n) }"
INTEGERS = "def f(int8(M,K) A, int8(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)


def chip(multiprocessors: int) -> Chip:
    return replace(load_chip("h200"), multiprocessors=multiprocessors)


def shared(source: str, shapes: Shapes, gpu: Chip, columns: int = 64) -> Options:
    """Return the options that ask for equal shares of tiles of 64 x *columns*."""
    unit = planned(source, *shapes, gpu=gpu)
    (weighed,) = unit.done.plan.weighed
    configs = (one.get("config", {}) for one in weighed.candidates())
    found = next(
        config for config in configs
        if config.get("shares") == gpu.multiprocessors
        and (config["columns"], config["warp_rows"]) == (columns, 4)
    )  # fmt: skip
    return Options(choices=choices_of(kernel_of(unit), "tile_mma", found))


def product(form: str, m: int, n: int, k: int) -> tuple[str, Shapes]:
    return source_of(form), PRODUCTS[form][1](m, n, k)


# Tiles of 64 x 64, steps of 64.  Of blocks: with two parts of tiles; with a part of one tile alone;
# without any step of the last ones; with whole shares of some tiles.
CASES: list[tuple[tuple[str, Shapes], int]] = [
    (product("nt", 128, 192, 384), 4), (product("nn", 136, 200, 264), 5),
    (product("tt", 64, 64, 1032), 3), (product("tn", 72, 328, 520), 7),
    (product("nn", 200, 136, 1032), 5), ((BIASED, [(136, 264), (264, 200), (200,), (136, 200)]), 5),
    ((UPDATE, [(72, 200), (72, 520), (520, 200)]), 3), ((INTEGERS, [(136, 528), (72, 528)]), 5),
    (product("nt", 64, 128, 448), 4),  # two parts of the last tile are stored
]  # fmt: skip


def check_cases(
    cases: list[tuple[tuple[str, Shapes], int]], cuda_unit: MakeUnit, emulated: Any
) -> None:
    units = []
    for (source, shapes), blocks in cases:
        options = shared(source, shapes, chip(blocks))
        units.append(cuda_unit(source, *shapes, gpu=chip(blocks), options=options))
        assert "tc_await_signal" in units[-1].source.functions and not units[-1].done.is_fallback
    for program, unit, ((_, shapes), _) in zip(emulated(units), units, cases, strict=True):
        check(program, *inputs_of(unit, shapes))


def test_results_are_right(cuda_unit: MakeUnit, emulated: Any) -> None:
    check_cases([CASES[5]], cuda_unit, emulated)


@pytest.mark.slow
def test_results_of_other_forms_are_right(cuda_unit: MakeUnit, emulated: Any) -> None:
    check_cases([*CASES[:5], *CASES[6:]], cuda_unit, emulated)


@pytest.mark.parametrize(
    ("blocks", "tiles", "steps"), [(4, (2, 3), 6), (5, (3, 4), 5), (7, (1, 1), 20), (3, (5, 2), 1)]
)
def test_every_step_has_one_block(blocks: int, tiles: tuple[int, int], steps: int) -> None:
    """Blocks have as many steps each, of neighbouring numbers, but for the last share."""
    shares = shares_of(blocks, tiles, steps, (64, 64), 64)
    total = tiles[0] * tiles[1] * steps
    own = [min(total, (b + 1) * shares.each) - b * shares.each for b in range(shares.blocks)]
    assert sum(own) == total and min(own) > 0 and set(own[:-1]) <= {shares.each}
    owners = [
        {step // shares.each for step in _steps_of(shares, tile)} for tile in range(total // steps)
    ]
    assert max(map(len, owners)) <= shares.parts <= blocks + 1


def _steps_of(shares: Shares, tile: int) -> range:
    return range(tile * shares.steps, (tile + 1) * shares.steps)


# --- legality --------------------------------------------------------------------------------


@cache
def _plan(case: int = 1) -> Plan:
    (source, shapes), blocks = CASES[case]
    gpu = chip(blocks)
    return planned(source, *shapes, gpu=gpu, options=shared(source, shapes, gpu)).done.plan


@pytest.mark.parametrize("case", [1, 8], ids=["two parts of a tile", "three"])
def test_the_plan_is_proved(case: int) -> None:
    plan = _plan(case)
    (kernel,) = plan.kernels
    dependences = dependences_of(plan.scop)
    assert why_not_legal(plan.scop, dependences, kernel.tree) is None
    assert why_not_in_order(plan.scop, kernel) is None
    mapped = Mapped(plan.scop, kernel.tree)
    assert why_not_synchronised(mapped, dependences, plan.placements) is None
    (drawn,) = timelines(plan)
    (pipeline,) = pipelines_of(mapped, plan.placements)
    assert drawn.steps == pipeline.path[-1].extent  # of a share


@pytest.mark.parametrize("kind", [EventKind.SIGNAL, EventKind.AWAIT_SIGNAL])
def test_parts_that_nobody_waits_for_are_refused(kind: EventKind) -> None:
    plan = _plan()
    (kernel,) = plan.kernels
    (name,) = (s.name for s in plan.scop.statements if s.event and s.event.kind is kind)
    tree = without(kernel.tree, name)
    reason = why_not_free_of_races(plan.scop, dependences_of(plan.scop), tree)
    assert reason is not None and "block loop" in reason
    assert why_not_signalled(plan.scop, tree) is not None


def _with_flags(scop: Scop, kind: EventKind, flag: tuple[int, ...]) -> Scop:
    events = (
        replace(s, event=replace(s.event, flag=flag)) if s.event and s.event.kind is kind else s
        for s in scop.statements
    )
    return scop.with_statements(tuple(events))


def test_other_flags_are_refused() -> None:
    plan = _plan()
    (kernel,) = plan.kernels
    (wait,) = (s for s in plan.scop.statements if s.event and s.event.flag[-2:-1] == (-1,))
    *factors, number = wait.event.flag
    scop = _with_flags(plan.scop, EventKind.AWAIT_SIGNAL, (*factors, number + 1))
    assert "other flags" in (why_not_signalled(scop, kernel.tree) or "")
    reason = why_not_free_of_races(scop, dependences_of(scop), kernel.tree)
    assert reason is not None and "conflict" in reason
    # All await the flag of their own block.
    scop = _with_flags(plan.scop, EventKind.AWAIT_SIGNAL, (1, 0, 0, 0, 0))
    assert why_not_signalled(scop, kernel.tree) is not None


def test_the_order_of_blocks_that_wait_is_not_chosen() -> None:
    source, shapes = product("nn", 136, 200, 264)
    gpu = chip(5)
    choices = json.loads(shared(source, shapes, gpu).choices)
    choices["kernels"][0]["code"] = {"is_reversed": True}
    with pytest.raises(OptionError, match="code is_reversed=True is none of False"):
        planned(source, *shapes, gpu=gpu, options=Options(choices=choices)).done  # noqa: B018


def test_blocks_that_wait_for_later_ones_are_refused() -> None:
    plan = _plan()
    (kernel,) = plan.kernels
    reason = why_not_in_order(
        plan.scop, replace(kernel, code=replace(kernel.code, is_reversed=True))
    )
    assert reason == "blocks that wait for one another start in reversed order"
    blocks = kernel.tree
    assert isinstance(blocks, Loop) and blocks.kind is LoopKind.BLOCK
    others = {
        name: AffineCoordinate(((-1, own),), 1 - blocks.width)
        for name, own in blocks.coordinates.items()
    }
    reason = why_not_signalled(plan.scop, replace(blocks, coordinates=others))
    assert "starts later" in (reason or "")


# --- faults in the code ------------------------------------------------------------------------

FAULTS = {
    "no wait": (r"tc_await_signal<4>\(.*?\);", "", "race|never written|tickets"),
    "no signal": (r"tc_signal<4>\(.*?\);", "", "deadlock"),
    "another flag": (r"tc_signal<4>\((\w+), ", r"tc_signal<4>(\1, 1 + ", "deadlock"),
    "signalled before it is stored": (
        r"(tc_end_products\(\w+\);\s*if \([^\n]*\) \{)((?:.|\n)*?)(tc_signal<4>\(.*?\);)",
        r"\1 \3 \2", "race",
    ),
    "a part of another tile": (r"(tc_vload<\d>\(&u\d+_C_part1\[)", r"\1 8 + ", ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_code_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    source, shapes = product("nn", 136, 200, 264)
    options = shared(source, shapes, chip(5))
    unit = cuda_unit(source, *shapes, gpu=chip(5), options=options)
    assert_found(unit.source, shapes, FAULTS[fault])


# --- when ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        ("def f(half(B,M,K) A, half(B,K,N) W) -> (C) { C(b,m,n) +=! A(b,m,k) * W(b,k,n) }",
         [(3, 256, 264), (3, 264, 200)]),
        (source_of("nn"), [(16384, 8192), (8192, 16384)]),
    ],
    ids=["batches", "more than the cache holds"],
)  # fmt: skip
def test_where_there_are_none(source: str, shapes: Shapes) -> None:
    (weighed,) = planned(source, *shapes).done.plan.weighed
    assert not any(one.get("config", {}).get("shares") for one in weighed.candidates())


def test_they_are_taken_by_choices_alone() -> None:
    (weighed,) = planned(source_of("nn"), (2560, 2560), (2560, 2560)).done.plan.weighed
    assert weighed.choice["shares"] == 0
    assert any(one.get("config", {}).get("shares") for one in weighed.candidates())


def test_blocks_that_would_have_a_whole_tile_each_have_none() -> None:
    """132 blocks for 128 tiles of 128 x 192 would have all 32 steps of one each, and 4 nothing."""
    (weighed,) = planned(source_of("nn"), (1000, 2048), (2048, 3000)).done.plan.weighed
    configs = [one["config"] for one in weighed.candidates() if "config" in one]
    found = {(c["columns"], c["warp_rows"]) for c in configs if c.get("shares") == 132}
    assert (128, 8) in found and (192, 8) not in found


@pytest.mark.parametrize(
    ("size", "timed_us"),
    [
        ((2560, 2560, 2560), {256: 62.1}),
        ((1536, 1536, 4096), {192: 43.7, 256: 44.1}),
        ((1280, 1280, 8192), {128: 64.5, 192: 69.3, 256: 63.4}),
    ],
)
def test_none_is_predicted_faster_than_it_was(
    size: tuple[int, int, int], timed_us: dict[int, float]
) -> None:
    """Times of an H200 (docs/trials.md), of one block for each multiprocessor."""
    source, shapes = product("nn", *size)
    (weighed,) = planned(source.replace("half", "bfloat16"), *shapes).done.plan.weighed
    found = [(one.get("config", {}), one.get("predicted_us")) for one in weighed.candidates()]
    for columns, us in timed_us.items():
        own = [
            predicted
            for config, predicted in found
            if predicted is not None
            and config.get("shares") == load_chip("h200").multiprocessors
            and config["columns"] * config["warp_columns"] == columns
            and config["warp_rows"] == 8
        ]
        assert own and min(own) >= us
