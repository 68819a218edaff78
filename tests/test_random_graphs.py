"""The hunt for plans that are refused: random graphs of broadcasts and reductions.

    pytest -m fuzz tests/test_random_graphs.py                the emulator, the CPU, plans alone
    pytest -m "gpu and fuzz" tests/test_random_graphs.py      20,000 graphs of real sizes on a GPU

The ordinary run has some dozens.  A wrong result, a plan that falls back on another one (which is a
warning) and an internal error are finds.  The seeds are those that docs/design.md reports; another
hunt takes others.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import compile_to_c, compile_to_cuda
from tcdsl.errors import TCError, TCWarning
from tcdsl.options import Options
from tcdsl.testing import check, graphs
from tests.conftest import comprehension_of, specialisation_of

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, given, seed, settings

ORDINARY = 24  # without -m fuzz
GRAPHS = 3_000
GPU_SEEDS = range(4000, 4200)
GPU_GRAPHS = 100  # of each seed
BATCH = 50  # programs that are compiled together

CheckAll = Callable[..., None]
Graph = tuple[str, Mapping[str, Any]]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


def for_each(number: int, count: int, visit: Callable[[Graph], None], **choices: Any) -> None:
    """Call *visit* on *count* graphs, the same for the same *number*, one after another."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(**choices))
    def draw(graph: Graph) -> None:
        visit(graph)

    draw()


def drawn(number: int, count: int, **choices: Any) -> list[Graph]:
    """Return *count* graphs, the same for the same *number*."""
    found: list[Graph] = []
    for_each(number, count, found.append, **choices)
    return found


def fuzzed(number: int, count: int) -> Any:
    return pytest.param(number, count, marks=pytest.mark.fuzz)


def batches(number: int, count: int) -> Iterator[list[tuple[str, list[Any]]]]:
    cases = [(source, list(inputs.values())) for source, inputs in drawn(number, count)]
    for start in range(0, len(cases), BATCH):
        yield cases[start : start + BATCH]


# --- results --------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "count"), [(3000, ORDINARY), fuzzed(3001, GRAPHS)])
@pytest.mark.timeout(4 * 3600)
def test_graphs_on_the_emulator(number: int, count: int, check_emulated: CheckAll) -> None:
    for cases in batches(number, count):
        check_emulated(cases)


@pytest.mark.parametrize(("number", "count"), [(3010, ORDINARY), fuzzed(3011, GRAPHS)])
@pytest.mark.timeout(4 * 3600)
def test_graphs_on_a_small_chip(
    number: int, count: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    for cases in batches(number, count):
        check_emulated(cases, gpu=small_chip)


@pytest.mark.parametrize(("number", "count"), [(3020, ORDINARY), fuzzed(3021, GRAPHS)])
@pytest.mark.timeout(4 * 3600)
def test_graphs_on_the_cpu(number: int, count: int, check_all: CheckAll) -> None:
    for cases in batches(number, count):
        check_all(cases)


@pytest.mark.gpu
@pytest.mark.fuzz
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", GPU_SEEDS)
def test_graphs_on_a_gpu(number: int) -> None:
    finds: list[str] = []

    def run(graph: Graph) -> None:
        source, inputs = graph
        try:
            check(tcdsl.define(source)["f"], *inputs.values(), targets=("cuda",))
        except (AssertionError, TCError, TCWarning) as error:
            shapes = {name: value.shape for name, value in inputs.items()}
            finds.append(f"{shapes}: {type(error).__name__}: {error}\n{source}")

    for_each(number, GPU_GRAPHS, run, sizes="real")
    assert not finds, "\n\n".join(finds)


# --- plans alone, at real sizes ---------------------------------------------------------------


def refusals(number: int, count: int, plan: Callable[..., object]) -> list[str]:
    """Return what *plan* says of each of *count* graphs that it does not plan as usual."""
    found = []
    for source, inputs in drawn(number, count, sizes="real", with_values=False):
        c = comprehension_of(source)
        shapes = [given.shape for given in inputs.values()]
        special = specialisation_of(c, shapes)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", TCWarning)
                plan(c, special)
        except (TCError, TCWarning) as error:
            found.append(f"{shapes}: {error}\n{source}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("number", "count"), [(3030, ORDINARY), fuzzed(3031, GRAPHS)])
@pytest.mark.timeout(4 * 3600)
def test_plans_for_a_gpu(number: int, count: int) -> None:
    found = refusals(
        number, count, lambda c, s: compile_to_cuda(c, s, {}, Options(), load_chip("h200"))
    )
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("number", "count"), [(3040, ORDINARY), fuzzed(3041, GRAPHS)])
@pytest.mark.timeout(4 * 3600)
def test_plans_for_a_cpu(number: int, count: int) -> None:
    found = refusals(number, count, lambda c, s: compile_to_c(c, s, {}, Options(), Cpu(16)))
    assert not found, "\n".join(found)
