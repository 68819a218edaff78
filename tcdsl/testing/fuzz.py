"""Searching for inputs on which a function is wrong, and shrinking and saving what is found.

fuzz(softmax, targets=("cpu", "emulate"), save="tests/cases")

draw sizes and arrays --> check against the reference --> wrong: Hypothesis shrinks them
                                                   --> the smallest is saved as a script
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcdsl.api import Function, define, require_choices, shortened
from tcdsl.errors import DATA_RANGE, OUT_OF_RANGE, OptionError, TargetError, TCError
from tcdsl.options import BAD_ARGUMENT, Options
from tcdsl.records import dataclass
from tcdsl.runtime.files import make_folder
from tcdsl.testing.cases import save_case
from tcdsl.testing.comparison import Checkable, check
from tcdsl.testing.inputs import inputs_for
from tcdsl.testing.random_programs import programs
from tcdsl.testing.required import require_checkable, require_keywords, targets_of, whole_number

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Define = Callable[[str], Checkable]

_DRAWING = ("sizes", "min_size", "max_size", "special", "layouts")  # arguments of inputs_for
_OWN = ("targets", "options", "examples", "seed", "save")


@dataclass(slots=True)
class Failure:
    """The smallest case so far that fails, and how."""

    f: Checkable
    inputs: tuple[Any, ...]
    error: Exception


def fuzz(
    f: Checkable,
    *,
    targets: str | Sequence[str] = ("cpu",),
    options: Options | None = None,
    examples: int = 100,
    seed: int = 0,
    save: str | Path | None = None,
    **drawing: Any,
) -> None:
    """Check *f* on *examples* random inputs on each of *targets*.

    :arg targets: one name, or several: "cpu", "cuda", "emulate", "reference".
    :arg options: of the compilation.
    :arg examples: how many inputs are drawn, at least 1.
    :arg seed: of the draws; the same number draws the same inputs.
    :arg save: the folder for a script of the smallest failing case; None: nothing is written.
    :arg drawing: arguments of :func:`inputs_for`: ``sizes``, ``min_size``, ``max_size``,
        ``special`` and ``layouts``.
    :raises AssertionError: with the shapes of the smallest inputs that fail, what is wrong with
        the result, and where the case is saved.
    :raises TCError: the arguments are wrong (OptionError, TargetError).
    """
    require_checkable(f, "fuzz", options)
    require_keywords(drawing, _DRAWING, "fuzz", others=_OWN)
    cases = inputs_for(f, **drawing).map(lambda inputs: (f, inputs))
    _search(cases, targets, options, examples, seed, save)


def fuzz_programs(
    *,
    targets: str | Sequence[str] = ("cpu",),
    options: Options | None = None,
    examples: int = 100,
    seed: int = 0,
    save: str | Path | None = None,
    make: Define | None = None,
) -> None:
    """Check *examples* random programs, each on random inputs: a test of the compiler itself.

    The other arguments are those of :func:`fuzz`.

    :arg make: what makes a function of a program's text; by default ``tcdsl.define``.
    :raises AssertionError: as :func:`fuzz`, with the smallest program.
    :raises TCError: the arguments are wrong (OptionError, TargetError).
    """
    made = make or _defined
    if not callable(made):
        what = f"{shortened(made)} is no function of a text"
        raise BAD_ARGUMENT(argument="make", what=what, advice="give one like tcdsl.define")
    cases = programs().map(lambda drawn: (made(drawn[0]), tuple(drawn[1].values())))
    _search(cases, targets, options, examples, seed, save)


def _defined(source: str) -> Function:
    return define(source)["f"]


def _search(
    cases: "SearchStrategy[tuple[Checkable, tuple[Any, ...]]]",
    targets: str | Sequence[str],
    options: Options | None,
    examples: int,
    seed: int,
    save: str | Path | None,
) -> None:
    names = targets_of(targets)
    whole_number("examples", examples, 1)
    whole_number("seed", seed)
    require_choices(None, options)
    if save is not None:
        make_folder(save, "save")  # now: not when the search is over
    failure = _smallest_failure(cases, names, options, examples, seed)
    if failure is None:
        return
    f, inputs, error = failure.f, failure.inputs, failure.error
    named = zip(f.comprehension.parameters, inputs, strict=True)
    shapes = ", ".join(f"{name} {getattr(x, 'shape', x)}" for name, x in named)
    text = f"{error}\nfor inputs of the shapes {shapes}"
    if save is not None:
        path = save_case(save, f, *inputs, targets=names, options=options, seed=seed, message=text)
        text += f"\nsaved as {path}"
    raise AssertionError(text) from error


def _smallest_failure(
    cases: "SearchStrategy[tuple[Checkable, tuple[Any, ...]]]",
    targets: Sequence[str],
    options: Options | None,
    examples: int,
    number: int,
) -> Failure | None:
    """Return the failure that Hypothesis ends with: of those it found, the simplest."""
    from hypothesis import HealthCheck, Phase, assume, given, seed, settings
    from hypothesis.errors import Flaky

    last: list[Failure] = []
    mistake: list[TCError] = []  # the caller's: no other inputs would help

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, print_blob=False,
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
        # Not Phase.explain, which runs other failing cases once the smallest is found.
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(cases)
    def holds(case: tuple[Checkable, tuple[Any, ...]]) -> None:
        f, inputs = case
        if mistake:
            return
        try:
            check(f, *inputs, targets=targets, options=options)
        except (TargetError, OptionError) as error:
            mistake.append(error)
        except (AssertionError, TCError) as error:
            # The reference itself says so of a subscript that the drawing could not know.
            assume(getattr(error, "code", "") not in (OUT_OF_RANGE.code, DATA_RANGE.code))
            last[:] = [Failure(f, inputs, error)]
            raise

    try:
        holds()
    except (AssertionError, TCError, Flaky):
        # Flaky: a race, say, that the emulator does not meet in every order of the threads.
        if not last:
            raise
        return last[0]
    if mistake:
        raise mistake[0]
    return None
