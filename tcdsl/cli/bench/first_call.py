"""How long a function's first call takes where nothing is cached: ``tcdsl bench --first-call``.

    import tcdsl, another program       before the clock starts: what a process pays once
    text -> parsed -> compiled -> loaded -> launched -> waited for        by the host's clock

Each case has an empty folder for compiled code, and a text or sizes that the process has not seen.
The arrays are those of the table, so that code is compiled for the sizes that matter.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

import tcdsl
from tcdsl.cli.bench.cases import Work
from tcdsl.cli.bench.measured import Measured
from tcdsl.cli.bench.report import Row, sizes_text
from tcdsl.cli.bench.timing import Place
from tcdsl.cli.console import markdown_table
from tcdsl.executable.cuda import forget_programs
from tcdsl.library import case, source_for
from tcdsl.runtime.timing import format_us

TOO_LONG_S = 0.6
_WORST = 20
_CACHE = "TCDSL_CACHE_DIR"


@contextmanager
def nothing_cached() -> Iterator[None]:
    """Give the block an empty folder for compiled code, and let the process forget its own."""
    before = os.environ.get(_CACHE)
    forget_programs()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(_CACHE)
            if before is not None:
                os.environ[_CACHE] = before


def run_another(place: Place) -> None:
    """Run a program that no table has: imports, compilers and contexts are there afterwards."""
    softmax = case("softmax")
    with nothing_cached():
        time_first_call((softmax, softmax.small_sizes[-1], "float32"), place)


def time_first_call(work: Work, place: Place) -> Row:
    """Return a row with the seconds of the first call of *work*, from its text on."""
    chosen, sizes, dtype = work
    row = Row(chosen.name, chosen.family, dtype, sizes)
    text = source_for(chosen, dtype)
    try:
        inputs = tuple(place.inputs(chosen, sizes, dtype).values())
        place.wait()
        with nothing_cached():
            start = time.perf_counter()
            tcdsl.define(text)[chosen.def_name](*inputs, target=place.target)
            place.wait()
            elapsed_s = time.perf_counter() - start
    except place.errors as error:
        return replace(row, problems=(f"tcdsl: {error}",))
    return replace(row, first_s={"tcdsl": elapsed_s})


def first_calls_text(rows: Sequence[Row]) -> str:
    """Return how many first calls take too long, and the table of the longest."""
    known = sorted((row for row in rows if row.first_s), key=first_s, reverse=True)
    if not known:
        return "no first call was timed"
    n_long = sum(first_s(row) > TOO_LONG_S for row in known)
    middle = format_us(median(map(first_s, known)) * 1e6)
    header = ("case", "type", "sizes", "first call")
    body = [
        (row.case, row.dtype, sizes_text(row.sizes), format_us(first_s(row) * 1e6))
        for row in known[:_WORST]
    ]
    summary = (
        f"{n_long} of {len(known)} first calls take more than {TOO_LONG_S} s, "
        f"the median is {middle}. The longest:"
    )
    return f"{summary}\n\n{markdown_table(header, body, n_left=3)}"


def first_s(row: Row) -> float:
    """Return the seconds of tcdsl's first call."""
    return row.first_s["tcdsl"]


def first_calls_section(rows: Sequence[Measured]) -> str:
    """Return the first calls of files of lines as a section of their page."""
    problems = [f"- {one.row.label}: {what}" for one in rows for what in one.row.problems]
    text = first_calls_text([one.row for one in rows])
    return "\n".join([f"## First calls, nothing cached\n\n{text}", *problems])
