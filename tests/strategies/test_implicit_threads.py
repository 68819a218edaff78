"""Convolutions of float32 by fused multiply-adds whose operands are packed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.options import Options
from tcdsl.testing.comparison import check
from tests.strategies.test_implicit_parts import source_of
from tests.strategies.test_tile_implicit import CASES, drawn
from tests.strategies.tile_configs import choices_of, kernel_of, planned

MakeUnit = Callable[..., Any]


PLAIN = Options(precision="ieee")  # or else long sums are on tensor cores, in parts


@pytest.fixture(autouse=True)
def _are_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are worth while, and no other template is faster."""
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.least_seconds", lambda *_: inf)
    monkeypatch.setattr("tcdsl.strategies.implicit_threads.LEAST_EXTENT", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", inf)  # as they are


def asked(unit: Any, **config: Any) -> Options:
    """Return the options that ask for *config* for the first kernel of *unit*."""
    plain = {"step": 8, "stages": 2, "together": 0, "chunks": 1}
    choices = choices_of(kernel_of(unit), "tile_implicit", {**plain, **config})
    return replace(PLAIN, choices=choices)


def config_of(unit: Any) -> Mapping[str, Any]:
    """Return the configuration of the first kernel of *unit*, an implicit product."""
    choice: Mapping[str, Any] = unit.done.plan.weighed[0].choice
    assert choice["template"] == "tile_implicit"
    return choice


@pytest.mark.slow_but("masked")
@pytest.mark.parametrize("name", CASES)
def test_right(name: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, (_, shapes) = source_of(name), CASES[name]
    unit = cuda_unit(source, *shapes, options=PLAIN)
    assert config_of(unit)["together"] == 0
    assert not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *drawn(FLOAT32, shapes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes", "tile", "more"),
    [
        ("forward", [(2, 9, 7, 24), (72, 3, 3, 24)], (32, 64, 4, 2), {"step": 16, "stages": 3}),
        ("weights", [(3, 9, 10, 24), (3, 9, 10, 40)], (16, 64, 1, 2), {"chunks": 3}),
        ("planes", [(2, 6, 7, 9), (12, 6, 3, 3)], (8, 64, 1, 4), {}),
        ("groups", [(2, 5, 6, 3, 16), (3, 8, 3, 16)], (32, 8, 4, 1), {}),
        ("data of a stride", [(2, 3, 4, 40), (40, 3, 3, 24)], (32, 32, 4, 1), {"stages": 3}),
    ],
)
def test_other_configurations(
    name: str, shapes: list[tuple[int, ...]], tile: tuple[int, ...], more: Mapping[str, int],
    cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Other tiles, and blocks that share the terms."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.LEAST_STEPS", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit._is_filled", lambda *_: True)
    names = ("rows", "columns", "warp_rows", "warp_columns")
    config = {**dict(zip(names, tile, strict=True)), **more}
    source = source_of(name)
    unit = cuda_unit(
        source, *shapes, options=asked(planned(source, *shapes, options=PLAIN), **config)
    )
    assert config.items() <= config_of(unit).items()
    (program,) = emulated([unit])
    inputs = drawn(FLOAT32, shapes)
    check(program, *inputs)
    inputs[0].flat[7], inputs[1].flat[5] = np.inf, np.nan
    check(program, *inputs)
