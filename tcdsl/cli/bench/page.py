"""The page of a table of memory-bound programs: summary, aims, what is slow, every case.

Made from files of JSON lines (``bench_lines.py``), of one run or of several.
"""

from collections.abc import Iterator, Sequence

from tcdsl.cli.bench.aims import aims, of_quack, quack_rates
from tcdsl.cli.bench.first_call import first_calls_section
from tcdsl.cli.bench.jax_calls import WALL
from tcdsl.cli.bench.measured import COMPILED, EAGER, XLA, Measured, mean_ratio, of_family
from tcdsl.cli.bench.panamera import panamera_section
from tcdsl.cli.bench.report import mean, ratio_text, sizes_text, time_text
from tcdsl.cli.console import markdown_table
from tcdsl.runtime.timing import format_us

_INTRODUCTION = """\
Medians of the GPU's time, all in turns in one process on the same arrays: between events, the
launches queued before the first of them starts; XLA's (JAX) in its own stream, *wall* its time for
calls that are launched and waited for. Ratios are a peer's time over tcdsl's (above 1: tcdsl is
faster), means geometric. A star: torch.compile failed, and PyTorch's eager mode stands in. The
floor is the time of the fewest bytes, all inputs and outputs once, at the rate of pure reading
(reductions) or of a copy (graphs). Slower than the best peer is what is so by more than 3 % where
these bytes are 64 MB or more, else by more than 5 %.
"""


def page(rows: Sequence[Measured]) -> str:
    """Return the page as Markdown; cold and warm caches apart."""
    if not rows:
        return "there are no times in these files"
    timed = [one for one in rows if not one.run.first_calls]
    parts = [*([_INTRODUCTION] if timed else []), *_runs(rows)]
    for flush, title in ((True, "Cold cache"), (False, "Warm cache")):
        chosen = [one for one in timed if one.run.flush == flush]
        if chosen:
            parts += [f"## {title}", *_sections(chosen)]
    if len(timed) < len(rows):
        parts.append(first_calls_section([one for one in rows if one.run.first_calls]))
    return "\n\n".join(part.rstrip() for part in parts)


def _runs(rows: Sequence[Measured]) -> Iterator[str]:
    """Yield a line for each run that has rows."""
    runs = {id(one.run): one.run for one in rows}
    for run in runs.values():
        count = sum(one.run is run for one in rows)
        about = ", ".join(f"{name} {value}" for name, value in run.about.items())
        yield f"- {count} rows: {about}"


def _sections(rows: Sequence[Measured]) -> Iterator[str]:
    yield f"### Summary\n\n{summary_table(rows)}"
    if rows[0].run.flush:  # what is asked is asked of a cold cache
        yield f"### Aims\n\n{aims_table(rows)}"
    slower = sorted((one for one in rows if one.is_slower), key=lambda one: one.best_ratio or 0)
    yield f"### Slower than the best peer: {len(slower)} of {len(rows)}"
    if slower:
        yield slower_by_type(rows)
        yield slower_table(slower)
    if section := panamera_section(rows):
        yield section
    if any(quack_rates(one) for one in rows):
        yield f"### At QuACK's sizes\n\n{quack_table(rows)}"
    yield f"### Every case\n\n{cases_table(rows)}"
    problems = [f"- {one.row.label}: {what}" for one in rows for what in one.row.problems]
    if problems:
        yield "### Problems\n\n" + "\n".join(problems)


def summary_table(rows: Sequence[Measured]) -> str:
    """Return the geometric means, a family and type a line, then a family, then all."""
    groups: list[tuple[str, str, list[Measured]]] = []
    for family in dict.fromkeys(one.row.family for one in rows):
        in_family = of_family(rows, family)
        types = dict.fromkeys(one.row.dtype for one in in_family)
        groups += [(family, dtype, of_family(rows, family, dtype)) for dtype in types]
        groups += [(family, "all", in_family)] if len(types) > 1 else []
    header = ("family", "type", "cases", "best peer / tcdsl", "torch", "torch.compile", "XLA",
              "XLA wall", "of the floor", "from 64 MB on", "slower than the best")  # fmt: skip
    body = []
    for family, dtype, chosen in groups:
        values = (
            mean(one.best_ratio for one in chosen),
            *(mean_ratio(chosen, peer) for peer in (EAGER, COMPILED, XLA, WALL)),
            mean(one.of_floor for one in chosen),
            mean(one.of_floor for one in chosen if one.is_large),
        )
        slower = sum(one.is_slower for one in chosen)
        body.append((family, dtype, str(len(chosen)), *map(ratio_text, values), str(slower)))
    return markdown_table(header, body, n_left=2)


def aims_table(rows: Sequence[Measured]) -> str:
    """Return what is asked and what was found."""
    header = ("aim", "asked", "found", "met", "where")
    return markdown_table(header, [aim.cells() for aim in aims(rows)])


def slower_by_type(rows: Sequence[Measured]) -> str:
    """Return how many of *rows* are slower than the best peer, by element type."""
    counts = []
    for dtype in dict.fromkeys(one.row.dtype for one in rows):
        chosen = [one for one in rows if one.row.dtype == dtype]
        counts.append(f"{dtype} {sum(one.is_slower for one in chosen)} of {len(chosen)}")
    return f"By type: {', '.join(counts)}."


def slower_table(rows: Sequence[Measured]) -> str:
    """Return *rows* with the peer that is faster."""
    header = ("case", "type", "sizes", "MB", "tcdsl", "best peer", "its time", "ratio")
    body = [
        (
            one.row.case, one.row.dtype, sizes_text(one.row.sizes), _megabytes(one),
            time_text(one.row, "tcdsl"), one.best_peer or "-",
            time_text(one.row, one.best_peer or ""), ratio_text(one.best_ratio),
        )
        for one in rows
    ]  # fmt: skip
    return markdown_table(header, body, n_left=3)


def quack_table(rows: Sequence[Measured]) -> str:
    """Return the rates beside QuACK's and torch.compile's of its table."""
    header = ("case", "type", "sizes", "tcdsl GB/s", "torch.compile GB/s", "QuACK's GB/s",
              "torch.compile in QuACK's run", "tcdsl of QuACK")  # fmt: skip
    body = []
    for one in rows:
        rates = quack_rates(one)
        if rates is None:
            continue
        ours, ratio = one.row.rate_gbs, one.peer_ratio(COMPILED)
        theirs = ours / ratio if ours and ratio else None
        cells = ["-" if rate is None else f"{rate:.0f}" for rate in (ours, theirs, *rates)]
        body.append(
            (one.row.case, one.row.dtype, sizes_text(one.row.sizes), *cells,
             ratio_text(of_quack(one)))
        )  # fmt: skip
    return markdown_table(header, body, n_left=3)


def cases_table(rows: Sequence[Measured]) -> str:
    """Return every case."""
    header = ("case", "type", "sizes", "MB", "tcdsl", "torch", "torch.compile", "XLA", "XLA wall",
              "best peer / tcdsl", "floor", "of the floor", "kernels")  # fmt: skip
    body = []
    for one in rows:
        star = "*" if one.has_stand_in else ""
        times = [time_text(one.row, name) for name in ("tcdsl", EAGER)]
        times.append(format_us(one.compiled_us) + star if one.compiled_us else "-")
        times += [time_text(one.row, name) for name in (XLA, WALL)]
        floor = format_us(one.floor_us) if one.floor_us else "-"
        kernels = str(one.row.launches.kernels) if one.row.launches else "-"
        body.append(
            (one.row.case, one.row.dtype, sizes_text(one.row.sizes), _megabytes(one), *times,
             ratio_text(one.best_ratio), floor, ratio_text(one.of_floor), kernels)
        )  # fmt: skip
    return markdown_table(header, body, n_left=3)


def _megabytes(one: Measured) -> str:
    return f"{one.least_bytes / 1e6:.3g}"
