"""The hunt for wrong sums of products: random contractions, with what surrounds them.

    pytest -m fuzz -n 16 tests/test_random_contractions.py      5,000 on the emulator with either
                                                                chip, the CPU, plans alone
    pytest -m "gpu and fuzz" tests/test_random_contractions.py  5,000 of real sizes on a GPU

The ordinary run has some dozens.  A wrong result, a plan that falls back on another one (which is a
warning) and an internal error are finds.  The seeds are those that
docs/design_testing.md reports; another hunt takes others.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.request import Request
from tcdsl.options import Options
from tcdsl.testing import check, contractions
from tests.hunts import (
    OF_A_SEED,
    Hunt,
    drawn,
    for_each,
    hunt_in_batches,
    hunt_on_the_emulator,
    with_seeds,
)
from tests.programs import comprehension_of, specialisation_of

pytest.importorskip("hypothesis")

ORDINARY = 16  # without -m fuzz
GPU_SEEDS = range(6000, 6050)
PRECISIONS: tuple[Any, ...] = ("tf32", "float8", "float16x3", "bfloat16", "ieee")

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


@pytest.mark.slow
@with_seeds(5000, ORDINARY, range(5100, 5150))
@pytest.mark.timeout(4 * 3600)
def test_contractions_on_the_emulator(number: int, count: int, check_emulated: CheckAll) -> None:
    hunt_on_the_emulator(drawn(number, count, contractions()), check_emulated)


@pytest.mark.slow
@with_seeds(5010, ORDINARY, range(5200, 5250))
@pytest.mark.timeout(4 * 3600)
def test_contractions_on_a_small_chip(
    number: int, count: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    hunt_on_the_emulator(drawn(number, count, contractions()), check_emulated, gpu=small_chip)


@pytest.mark.slow
@with_seeds(5020, ORDINARY, range(5300, 5350))
@pytest.mark.timeout(4 * 3600)
def test_contractions_on_the_cpu(number: int, count: int, check_all: CheckAll) -> None:
    hunt_in_batches(drawn(number, count, contractions()), check_all)


@pytest.mark.slow
@with_seeds(5040, 8, range(5500, 5550))
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.timeout(4 * 3600)
def test_contractions_by_precision_on_the_emulator(
    number: int, count: int, precision: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    cases = drawn(number, count, contractions())
    options = Options(precision=precision)
    hunt_on_the_emulator(cases, check_emulated, gpu=small_chip, options=options)


@pytest.mark.gpu
@pytest.mark.fuzz
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", range(6100, 6150))
def test_contractions_by_precision_on_a_gpu(number: int) -> None:
    options = Options(precision=PRECISIONS[number % len(PRECISIONS)])
    with Hunt() as found:

        def run(source: str, inputs: Mapping[str, Any]) -> None:
            case = f"{options} {[given.shape for given in inputs.values()]}\n{source}"
            f = tcdsl.define(source)["f"]
            found.run(case, check, f, *inputs.values(), targets=("cuda",), options=options)

        for_each(number, OF_A_SEED, contractions("real"), run)


@pytest.mark.gpu
@pytest.mark.fuzz
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", GPU_SEEDS)
def test_contractions_on_a_gpu(number: int) -> None:
    """Twice each: the second run meets what the first has left behind."""
    with Hunt() as found:

        def run(source: str, inputs: Mapping[str, Any]) -> None:
            case = f"{[given.shape for given in inputs.values()]}\n{source}"
            f = tcdsl.define(source)["f"]
            found.run(case, check, f, *inputs.values(), targets=("cuda", "cuda"))

        for_each(number, OF_A_SEED, contractions("real"), run)


@pytest.mark.slow
@with_seeds(5030, 8, range(5400, 5450))
@pytest.mark.timeout(4 * 3600)
def test_plans_of_contractions_for_a_gpu(number: int, count: int) -> None:
    chip = load_chip("h200")
    with Hunt() as found:
        for source, inputs in drawn(number, count, contractions("real", with_values=False)):
            c = comprehension_of(source)
            shapes = [given.shape for given in inputs]
            case = f"{shapes}\n{source}"
            request = Request(c, specialisation_of(c, shapes))
            found.run(case, compile_to_cuda, request, chip)
