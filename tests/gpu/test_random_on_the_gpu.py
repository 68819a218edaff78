"""A thousand random programs on a real GPU, twice each."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tcdsl.costmodel import reductions
from tcdsl.strategies import contracted, gpu_grouping, problem
from tcdsl.strategies.templates import tile_simt
from tcdsl.testing import programs

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, given, seed, settings

Check = Callable[[str, Sequence[Any]], str | None]

PARTS = 16  # for pytest-xdist to spread
A_PART = 63

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
]


def hunt(number: int, check_on_the_gpu: Check) -> None:
    failures = []

    @seed(number)
    @settings(
        max_examples=A_PART,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def draw(program: tuple[str, dict[str, Any]]) -> None:
        source, inputs = program
        reason = check_on_the_gpu(source, list(inputs.values()))
        if reason is not None:
            failures.append(reason)

    draw()
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("part", range(PARTS // 2))
def test_random_programs(part: int, check_on_the_gpu: Check) -> None:
    hunt(3000 + part, check_on_the_gpu)


@pytest.mark.parametrize("part", range(PARTS // 2))
def test_random_programs_with_every_threshold_lowered(
    part: int, check_on_the_gpu: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Small programs get chunks, packed rows, lanes and tiles too."""
    # The cache knows nothing of thresholds.
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    for module, name, value in (
        (problem, "MIN_LANES", 2), (reductions, "TICKET", 0.0), (reductions, "PARTIAL", 0.0),
        (contracted, "MIN_WORK", 1), (tile_simt, "SHAPES", ((2, 4, 8, 16), (1, 1, 8, 16))),
        (tile_simt, "STEPS", (4, 2)),
        (gpu_grouping, "SMALL_WORK", 1),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    hunt(4000 + part, check_on_the_gpu)
