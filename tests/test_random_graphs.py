"""The hunt for plans that are refused: random graphs of broadcasts and reductions.

    pytest -m fuzz -n 16 tests/test_random_graphs.py          3,000 on the emulator with either
                                                              chip and on the CPU, plans alone
    pytest -m "gpu and fuzz" tests/test_random_graphs.py      20,000 graphs of real sizes on a GPU

The ordinary run has some dozens.  A wrong result, a plan that falls back on another one (which is a
warning) and an internal error are finds.  The seeds are those that
docs/design_testing.md reports; another hunt takes others.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import compile_to_c, compile_to_cuda
from tcdsl.lang.request import Request
from tcdsl.testing import graphs
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

ORDINARY = 12  # without -m fuzz
GPU_SEEDS = range(4000, 4200)

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


# --- results --------------------------------------------------------------------------------


@with_seeds(3000, ORDINARY, range(3100, 3130))
@pytest.mark.timeout(4 * 3600)
def test_graphs_on_the_emulator(number: int, count: int, check_emulated: CheckAll) -> None:
    hunt_on_the_emulator(drawn(number, count, graphs()), check_emulated)


@with_seeds(3010, ORDINARY, range(3200, 3230))
@pytest.mark.timeout(4 * 3600)
def test_graphs_on_a_small_chip(
    number: int, count: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    hunt_on_the_emulator(drawn(number, count, graphs()), check_emulated, gpu=small_chip)


@with_seeds(3020, ORDINARY, range(3300, 3330))
@pytest.mark.timeout(4 * 3600)
def test_graphs_on_the_cpu(number: int, count: int, check_all: CheckAll) -> None:
    hunt_in_batches(drawn(number, count, graphs()), check_all)


@pytest.mark.gpu
@pytest.mark.fuzz
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", GPU_SEEDS)
def test_graphs_on_a_gpu(number: int) -> None:
    pytest.importorskip("torch")
    from tests.dense_oracle import check_dense

    with Hunt() as found:

        def run(source: str, inputs: Mapping[str, Any]) -> None:
            case = f"{[given.shape for given in inputs.values()]}\n{source}"
            f = tcdsl.define(source)["f"]
            # Not while other processes wait for their turn.
            found.run(case, f.compile, *inputs.values(), target="cuda")
            found.run(case, check_dense, f, inputs, "cuda", "cuda")

        for_each(number, OF_A_SEED, graphs("real"), run)


# --- plans alone, at real sizes ---------------------------------------------------------------


def hunt_plans(number: int, count: int, plan: Callable[..., object]) -> None:
    with Hunt() as found:
        for source, inputs in drawn(number, count, graphs("real", with_values=False)):
            c = comprehension_of(source)
            shapes = [given.shape for given in inputs]
            found.run(f"{shapes}\n{source}", plan, c, specialisation_of(c, shapes))


@pytest.mark.slow
@with_seeds(3030, ORDINARY, range(3400, 3430))
@pytest.mark.timeout(4 * 3600)
def test_plans_for_a_gpu(number: int, count: int) -> None:
    chip = load_chip("h200")
    hunt_plans(number, count, lambda c, s: compile_to_cuda(Request(c, s), chip))


@with_seeds(3040, ORDINARY, range(3500, 3530))
@pytest.mark.timeout(4 * 3600)
def test_plans_for_a_cpu(number: int, count: int) -> None:
    hunt_plans(number, count, lambda c, s: compile_to_c(Request(c, s), Cpu(16)))
