"""How ``tcdsl bench`` times a case: tcdsl and its peers by turns, on the same arrays.

Whatever fails, one of them, the inputs, or all, becomes a problem of the case's row.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from tcdsl.cli.bench.cases import Work, key_of, label_of
from tcdsl.cli.bench.forced import FORCED, Forced
from tcdsl.cli.bench.lines import Lines
from tcdsl.cli.bench.measured import Run
from tcdsl.cli.bench.report import Launches, Row, write_json
from tcdsl.cli.console import progress_steps
from tcdsl.errors import TCError
from tcdsl.library import Case
from tcdsl.library.peer_calls import Call
from tcdsl.options import Options
from tcdsl.runtime.timing import Comparison, Timing


class Place(Protocol):
    """Where calls run: on what, beside which peers, and how they are compared."""

    @property
    def peers(self) -> tuple[str, ...]: ...
    @property
    def default_peers(self) -> str: ...
    @property
    def errors(self) -> tuple[type[Exception], ...]: ...
    @property
    def target(self) -> str: ...

    def why_missing(self, peer: str) -> str | None: ...
    def offers(self, peer: str, case: Case, dtype: str) -> bool: ...
    def sizes(self, case: Case, dtype: str) -> tuple[Mapping[str, int], ...]: ...
    def inputs(self, case: Case, sizes: Mapping[str, int], dtype: str) -> Mapping[str, Any]: ...
    def tcdsl_call(
        self, case: Case, inputs: Mapping[str, Any], dtype: str, options: Options | None = None
    ) -> tuple[Call, Launches | None]: ...
    def peer_call(self, peer: str, case: Case, inputs: Mapping[str, Any]) -> Call: ...
    def disagreement(self, result: Any, expected: Any, dtype: str) -> str | None: ...
    def compare(self, calls: Mapping[str, Call], min_time_s: float) -> Comparison: ...
    def wait(self) -> None: ...
    def settle(self) -> str | None: ...


def time_one(
    work: Work,
    peers: Sequence[str],
    place: Place,
    seconds: float,
    forced: Forced | None = None,
) -> Row:
    """Return the times of one case at one choice of sizes; what fails becomes a problem.

    :arg forced: what the column ``FORCED``, if it is among *peers*, is made with.
    """
    case, sizes, dtype = work
    problems: list[str] = []
    calls: dict[str, Call] = {}
    first_s: dict[str, float] = {}
    launches: Launches | None = None
    row = Row(case.name, case.family, dtype, sizes)
    try:
        inputs = place.inputs(case, sizes, dtype)
    except place.errors as error:
        return replace(row, problems=(f"its inputs: {error}",))
    try:
        start = time.perf_counter()
        call, launches = place.tcdsl_call(case, inputs, dtype)
        result = call()
        first_s["tcdsl"] = time.perf_counter() - start
        calls["tcdsl"] = call
    except place.errors as error:
        problems.append(f"tcdsl: {error}")
    for peer in peers:
        if peer != FORCED and not place.offers(peer, case, dtype):
            continue
        try:
            start = time.perf_counter()
            if peer == FORCED and forced is not None:
                options = forced.options(case, inputs, dtype, place.target)
                call, _ = place.tcdsl_call(case, inputs, dtype, options)
            else:
                call = place.peer_call(peer, case, inputs)
            expected = call()
            first_s[peer] = time.perf_counter() - start
            if "tcdsl" in calls and (what := place.disagreement(result, expected, dtype)):
                problems.append(f"tcdsl and {peer} disagree: {what}")
            calls[peer] = call
            del expected
        # torch.compile's failures have no common type; one peer's must not end the whole run.
        except Exception as error:
            problems.append(failure(peer, error))
    timings = timings_of(calls, place, seconds, problems)
    return replace(
        row,
        times_us={name: timing.median_us for name, timing in timings.items()},
        spreads={name: timing.spread for name, timing in timings.items()},
        problems=tuple(problems),
        launches=launches,
        first_s=first_s,
    )


def timings_of(
    calls: dict[str, Call], place: Place, seconds: float, problems: list[str]
) -> Mapping[str, Timing]:
    """Return the times of *calls*; of those that can still be called, where one has failed."""
    if not calls:
        return {}
    try:
        return place.compare(calls, seconds).timings
    # Out of memory, for the most part, and each library's own.
    except Exception as error:
        problems.append(failure("while it was timed", error))
    for name, call in tuple(calls.items()):
        try:
            call()
        except Exception as error:
            problems.append(failure(name, error))
            del calls[name]
    try:
        return place.compare(calls, seconds).timings if calls else {}
    except Exception as error:
        problems.append(failure("while it was timed again", error))
    return {}


def failure(what: str, error: Exception) -> str:
    """Return the line that tells of *error* in *what*, and what to do, if it says so."""
    lines = str(error).splitlines() or [""]
    hint = f" (hint: {error.hint})" if isinstance(error, TCError) and error.hint else ""
    return f"{what}: {type(error).__name__}: {lines[0]}{hint}"


class Keeper:
    """What each row is given to as soon as it is there."""

    def __init__(self, arguments: argparse.Namespace, run: Run) -> None:
        self._json: Path | None = arguments.json
        self._run = run
        self._lines = Lines(arguments.lines, run) if arguments.lines else None
        self._rows: list[Row] = []

    def begin(self, work: Work) -> None:
        """Say which row comes next."""
        if self._lines:
            self._lines.begin(key_of(work))

    def end(self, row: Row) -> None:
        """Keep *row*."""
        self._rows.append(row)
        if self._lines:
            self._lines.end(row)
        self.finish()

    def finish(self) -> None:
        """Write the file of all rows."""
        if self._json:
            write_json(self._rows, self._json, self._run.about)


def time_all(
    work: Sequence[Work], place: Place, measured: Callable[[Work], Row], keeper: Keeper,
    is_over: Callable[[], bool],
) -> list[Row]:  # fmt: skip
    """Return the rows of *work*, each as *measured*, until time *is_over*.

    *keeper* has what is done whenever the run is stopped.
    """
    rows: list[Row] = []
    with progress_steps(len(work)) as steps:
        for number, item in enumerate(work, 1):
            if is_over():
                break
            steps.begin(label_of(item))
            keeper.begin(item)
            row = measured(item)
            if why := place.settle():
                left = len(work) - number
                lost = f"the device is lost ({why}); {left} more are not timed"
                row = replace(row, problems=(*row.problems, lost))
            keeper.end(row)
            rows.append(row)
            if why:
                break
    keeper.finish()
    return rows
