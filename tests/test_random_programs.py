"""The hunt: random programs, compiled, against the oracle.

    pytest -m fuzz -n 16 tests/test_random_programs.py          3,000 on the CPU, on the emulator
                                                                with either chip, ...
    pytest -m "gpu and fuzz" tests/test_random_programs.py      5,000 on a GPU

The `slow` run has 200 of them, as CUDA on the emulator.  The seeds are those that
docs/design_testing.md reports; another hunt takes others.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip
from tcdsl.plan import cpu_planner
from tcdsl.strategies import catalogue, contraction, operations, row_functions
from tcdsl.strategies.templates import cpu_row, cpu_tile
from tcdsl.testing import check, programs
from tests.hunts import (
    OF_A_SEED,
    Hunt,
    batches,
    drawn,
    for_each,
    hunt_on_the_emulator,
    with_seeds,
)

pytest.importorskip("hypothesis")

ORDINARY = 100  # of each kind, without -m fuzz
GPU_SEEDS = range(2700, 2750)

CheckAll = Callable[..., None]

# A plan that fails, or is too hard for isl, falls back on a simpler one with a warning: here that
# is a find too.
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


# --- for the CPU ----------------------------------------------------------------------------


def hunt(number: int, target: str = "cpu") -> None:
    with Hunt() as found:

        def run(source: str, inputs: Mapping[str, Any]) -> None:
            f = tcdsl.define(source)["f"]
            found.run(source, check, f, *inputs.values(), targets=(target,))

        for_each(number, OF_A_SEED, programs(), run)


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(2100, 2130))
def test_random_programs_as_they_are(number: int) -> None:
    hunt(number)


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(2200, 2211))
def test_random_programs_with_every_threshold_lowered(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Small programs get threads, chunks, register tiles and materialised operands too."""
    # The cache knows nothing of thresholds.
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    for name, value in (("MIN_WORK", 1), ("MIN_REUSE", 1), ("MIN_USES", 0)):
        monkeypatch.setattr(contraction, name, value)
    monkeypatch.setattr(cpu_tile, "ROWS_A_BLOCK", 4)
    monkeypatch.setattr(operations, "PARALLEL_WORK", 1)
    monkeypatch.setattr(cpu_row, "PARALLEL_WORK", 1)
    monkeypatch.setattr(cpu_planner, "PARALLEL_WORK", 1)
    # The first template that applies, whatever it takes.
    monkeypatch.setattr(catalogue, "ALIKE_ON_CPU", inf)
    monkeypatch.setattr(cpu_row, "MIN_TILE", 3)
    monkeypatch.setattr(row_functions, "LEAST_ROWS", 2)
    monkeypatch.setattr(row_functions, "BLOCK_BYTES", 64)
    hunt(number)


# --- for the GPU, on the emulator -----------------------------------------------------------


@pytest.mark.slow
@with_seeds(2028, ORDINARY, range(2300, 2330))
@pytest.mark.timeout(1800)
def test_random_programs_on_the_emulator(number: int, count: int, check_emulated: CheckAll) -> None:
    hunt_on_the_emulator(drawn(number, count, programs()), check_emulated)


@pytest.mark.slow
@with_seeds(2029, ORDINARY, range(2400, 2430))
@pytest.mark.timeout(1800)
def test_random_programs_on_a_small_chip(
    number: int, count: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    """Small programs get several blocks, chunks, packed rows, lanes and tiles too."""
    hunt_on_the_emulator(drawn(number, count, programs()), check_emulated, gpu=small_chip)


# --- with compensated sums, whose bound is tighter -------------------------------------------


@pytest.mark.slow
@with_seeds(2032, 30, range(2500, 2511))
@pytest.mark.timeout(1800)
def test_random_programs_with_compensated_sums(
    number: int, count: int, check_all: CheckAll, check_emulated: CheckAll, small_chip: Chip
) -> None:
    options = tcdsl.Options(summation="compensated")
    with Hunt() as found:
        for cases in batches(drawn(number, count, programs())):
            found.run("", check_all, cases, options=options)
            found.run("", check_emulated, cases, gpu=small_chip, options=options)


# --- on a GPU -------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", GPU_SEEDS)
def test_random_programs_on_a_gpu(number: int) -> None:
    hunt(number, "cuda")
