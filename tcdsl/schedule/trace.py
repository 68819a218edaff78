"""What a planner did, one transform after another, kept for people to look at.

    with recorded() as steps:
        plan = plan_scop(...)          # which calls record("rfactor", scop) and so on
    steps[0].name, steps[0].scop       # the scop after the first transform

Nothing reads the steps but displays: what is not recorded changes no plan.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.plan import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The program after a transform."""

    name: str
    scop: Scop
    kernels: tuple[Kernel, ...] = ()  # none: the loops are not chosen yet
    notes: tuple[str, ...] = ()


_steps: ContextVar[list[Step] | None] = ContextVar("tcdsl_steps", default=None)


@contextmanager
def recorded() -> Iterator[list[Step]]:
    """Collect the steps that are recorded inside."""
    steps: list[Step] = []
    token = _steps.set(steps)
    try:
        yield steps
    finally:
        _steps.reset(token)


def record(
    name: str, scop: Scop, kernels: Sequence[Kernel] = (), notes: Sequence[str] = ()
) -> None:
    """Note that the transform *name* made *scop* and *kernels*.

    Repetitions of a transform, kernel by kernel, are one step.
    """
    steps = _steps.get()
    if steps is None:
        return
    if steps and steps[-1].name == name:
        notes = (*steps.pop().notes, *notes)
    steps.append(Step(name, scop, tuple(kernels), tuple(notes)))


def repeat(steps: Sequence[Step]) -> None:
    """Note *steps*, which were recorded elsewhere, here as well."""
    for step in steps:
        record(step.name, step.scop, step.kernels, step.notes)
