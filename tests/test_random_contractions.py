"""The hunt for wrong sums of products: random contractions, with what surrounds them.

    pytest -m fuzz tests/test_random_contractions.py                the emulator, the CPU, plans
    pytest -m "gpu and fuzz" tests/test_random_contractions.py      5,000 of real sizes on a GPU

The ordinary run has some dozens.  A wrong result, a plan that falls back on another one (which is a
warning) and an internal error are finds.  The seeds are those that docs/design.md reports; another
hunt takes others.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.options import Options
from tcdsl.testing import check, contractions
from tests.conftest import comprehension_of, specialisation_of
from tests.hunts import Hunt, batches, drawn, for_each

pytest.importorskip("hypothesis")

ORDINARY = 24  # without -m fuzz
CONTRACTIONS = 5_000
GPU_SEEDS = range(6000, 6050)
GPU_CONTRACTIONS = 100  # of each seed

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


def fuzzed(number: int, count: int) -> Any:
    return pytest.param(number, count, marks=pytest.mark.fuzz)


def hunt(number: int, count: int, check_cases: CheckAll, **choices: Any) -> None:
    with Hunt() as found:
        for cases in batches(drawn(number, count, contractions())):
            found.run("", check_cases, cases, **choices)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "count"), [(5000, ORDINARY), fuzzed(5001, CONTRACTIONS)])
@pytest.mark.timeout(4 * 3600)
def test_contractions_on_the_emulator(number: int, count: int, check_emulated: CheckAll) -> None:
    hunt(number, count, check_emulated)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "count"), [(5010, ORDINARY), fuzzed(5011, CONTRACTIONS)])
@pytest.mark.timeout(4 * 3600)
def test_contractions_on_a_small_chip(
    number: int, count: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    hunt(number, count, check_emulated, gpu=small_chip)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "count"), [(5020, ORDINARY), fuzzed(5021, CONTRACTIONS)])
@pytest.mark.timeout(4 * 3600)
def test_contractions_on_the_cpu(number: int, count: int, check_all: CheckAll) -> None:
    hunt(number, count, check_all)


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

        for_each(number, GPU_CONTRACTIONS, contractions("real"), run)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "count"), [(5030, 8), fuzzed(5031, CONTRACTIONS)])
@pytest.mark.timeout(4 * 3600)
def test_plans_of_contractions_for_a_gpu(number: int, count: int) -> None:
    chip = load_chip("h200")
    with Hunt() as found:
        for source, inputs in drawn(number, count, contractions("real", with_values=False)):
            c = comprehension_of(source)
            shapes = [given.shape for given in inputs]
            case = f"{shapes}\n{source}"
            found.run(case, compile_to_cuda, c, specialisation_of(c, shapes), {}, Options(), chip)
