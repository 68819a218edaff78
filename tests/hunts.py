"""What hunts share: how they draw, and how all that one finds is told at its end."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tcdsl.errors import TCError, TCWarning

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

BATCH = 50  # programs that are compiled together
OF_A_SEED = 100  # programs of each seed of a hunt, so that processes share the seeds

Program = tuple[str, list[Any]]

FINDS = (AssertionError, TCError, TCWarning)


def for_each(
    number: int,
    count: int,
    strategy: "SearchStrategy[tuple[str, Any]]",
    visit: Callable[[str, Any], None],
) -> None:
    """Call *visit* on *count* programs and their inputs, the same for the same *number*.

    No two have the same text and sizes: Hypothesis varies what it has drawn, and often only the
    values of inputs, or what changes nothing.
    """
    from hypothesis import HealthCheck, Phase, assume, given, seed, settings

    seen: set[tuple[Any, ...]] = set()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(program: tuple[str, Any]) -> None:
        source, inputs = program
        case = (source, *(given.shape for given in inputs.values()))
        assume(case not in seen)
        seen.add(case)
        visit(*program)

    draw()
    assert len(seen) == count


def drawn(number: int, count: int, strategy: "SearchStrategy[tuple[str, Any]]") -> list[Program]:
    """Return *count* programs with their inputs, the same for the same *number*."""
    found: list[Program] = []
    for_each(number, count, strategy, lambda s, inputs: found.append((s, list(inputs.values()))))
    return found


def with_seeds(ordinary: int, count: int, hunted: range) -> Any:
    """Parametrise a test by *number* and *count*: *count* programs of *ordinary*, or a hunt."""
    found = [pytest.param(number, OF_A_SEED, marks=pytest.mark.fuzz) for number in hunted]
    return pytest.mark.parametrize(("number", "count"), [(ordinary, count), *found])


def batches(cases: Sequence[Program]) -> Iterator[Sequence[Program]]:
    for start in range(0, len(cases), BATCH):
        yield cases[start : start + BATCH]


def hunt_in_batches(
    cases: Sequence[Program], check_cases: Callable[..., None], **choices: Any
) -> None:
    with Hunt() as found:
        for batch in batches(cases):
            found.run("", check_cases, batch, **choices)


def hunt_on_the_emulator(
    cases: Sequence[Program], check_emulated: Callable[..., None], **choices: Any
) -> None:
    """Hunt in batches, and read the PTX that NVRTC makes of the first: the rest would take long."""
    with Hunt() as found:
        for number, batch in enumerate(batches(cases)):
            found.run("", check_emulated, batch, is_ptx_read=number == 0, **choices)


class Hunt:
    """What was found so far; leaving the ``with`` block fails if that is anything."""

    def __init__(self) -> None:
        self.finds: list[str] = []

    def __enter__(self) -> "Hunt":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self.finds:
            pytest.fail(f"{len(self.finds)} finds\n\n" + "\n\n".join(self.finds), pytrace=False)

    def run(self, case: str, check: Callable[..., object], *args: Any, **choices: Any) -> None:
        """Call *check*, and keep what it does not like about *case*."""
        try:
            check(*args, **choices)
        except FINDS as error:
            self.finds.append(f"{type(error).__name__}: {error}\n{case}")
