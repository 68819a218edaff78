"""What the tests said of each planted defect: mutants_record.jsonl, and docs/mutants.md of it.

A line is added as soon as a defect has been run; of several for one defect the last one counts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD, PAGE = ROOT / "benchmarks" / "mutants_record.jsonl", ROOT / "docs" / "mutants.md"
SHORT, SLOW = "short", "slow"  # the README's line, and what it leaves out for its time
# What a product on tensor cores consists of, and the files that make it.
_OF_PRODUCTS = {
    "pipelines: copies, stages, events": (
        "schedule/pipelines.py", "schedule/arrivals.py", "strategies/tile_copies.py",
    ),
    "phases of barriers": ("codegen/device/cuda/pipeline.cuh",),
    "boxes and multicast": (
        "codegen/cuda/boxes.py", "schedule/multicast.py", "poly/bulk_copies.py",
        "strategies/bulk_tiles.py",
    ),
    "swizzles and fragments": (
        "codegen/device/cuda/mma.cuh", "codegen/device/cuda/wgmma.cuh",
        "codegen/device/cuda/wgmma_from.cuh", "codegen/cuda/products.py", "strategies/fragments.py",
    ),
    "promotion, and parts of factors": (
        "codegen/device/cuda/wgmma_f32.cuh", "codegen/device/cuda/wgmma_planes.cuh",
        "rewrites/scop/column_planes.py",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said; *by*: the first that failed, "" if none did; *line*: SHORT or SLOW."""

    by: str
    why: str = ""
    seconds: float = 0.0  # of processors, of all tests that ran
    line: str = ""
    date: str = ""
    code: str = ""  # a digest of all code that was run, but for the defect

    @property
    def is_caught(self) -> bool:
        return bool(self.by)


class Defect(NamedTuple):
    """One row of the page."""

    number: int
    file: str
    what: str
    reason: str  # why no test without a GPU sees it
    is_stale: bool  # its text is no longer in the file


def read_record(path: Path = RECORD) -> dict[str, Outcome]:
    """Return what is recorded of each defect, by what it is: files get other names."""
    found: dict[str, Outcome] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            entry.pop("file", None)
            what = entry.pop("what")
            found[what] = Outcome(**entry)
    return found


def add_to_record(what: str, outcome: Outcome, path: Path = RECORD) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(_line(what, outcome))


def tidy_record(defects: Iterable[str], path: Path = RECORD) -> None:
    """Keep one line for each of *defects*, in their order."""
    known = read_record(path)
    lines = [_line(what, known[what]) for what in defects if what in known]
    path.write_text("".join(lines), encoding="utf-8")


def _line(what: str, outcome: Outcome) -> str:
    return json.dumps({"what": what, **asdict(outcome)}) + "\n"


def page(defects: Sequence[Defect], known: Mapping[str, Outcome]) -> str:
    """Return docs/mutants.md."""
    run = [outcome for d in defects if (outcome := known.get(d.what))]
    caught = sum(o.is_caught for o in run)
    short = sum(o.line == SHORT for o in run)
    dates = sorted({o.date for o in run})
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "never"
    share = f"{100 * caught / len(run):.0f} %" if run else "none"
    stale = sum(d.is_stale for d in defects)
    lines = [
        "# Planted defects",
        "",
        f"Of {len(run)} defects planted in planning, printing and the runtime for GPUs, one at a"
        f" time, {caught} ({share}) were caught by tests that need no GPU: {short} by tests of the"
        f" README's line, {caught - short} by slow ones alone ({when}). {len(defects) - len(run)}"
        f" have not been run; of {stale} the code is no longer there (*stale*).",
        "",
        "`python benchmarks/mutants.py` plants them again and writes this page:"
        f" {sum(o.seconds for o in run) / 60:.0f} minutes of processors, compilers included. The"
        " exact changes are in `benchmarks/mutants.toml`, what was measured in"
        " `benchmarks/mutants_record.jsonl`; *caught by* is the first test that failed, in the"
        " order in which the runner has them, and what it said.",
        "",
        "| where | defects | the README's line | slow tests alone | nothing | CPU minutes |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *_summary(defects, known),
        "",
        "Those of [products on tensor cores](design_products.md#tensor-cores-tile_mma):",
        "",
        "| of | defects | run | caught | numbers |",
        "| --- | ---: | ---: | ---: | --- |",
        *_of_products(defects, known),
        "",
        "| # | file | defect | caught by | CPU s | what it said |",
        "| ---: | --- | --- | --- | ---: | --- |",
        *(_row(d, known.get(d.what)) for d in defects),
        "",
    ]
    return "\n".join(lines)


def _summary(defects: Sequence[Defect], known: Mapping[str, Outcome]) -> list[str]:
    def folder(d: Defect) -> str:
        return "/".join(d.file.split("/")[:-1])

    rows = []
    for name, group in groupby(sorted(defects, key=folder), key=folder):
        every = list(group)
        found = [known[d.what] for d in every if d.what in known]
        lines = [o.line for o in found if o.is_caught]
        counts = lines.count(SHORT), lines.count(SLOW), len(found) - len(lines)
        minutes = sum(o.seconds for o in found) / 60
        numbers = " | ".join(map(str, [len(every), *counts]))
        rows.append(f"| `{name}` | {numbers} | {minutes:.1f} |")
    return rows


def _of_products(defects: Sequence[Defect], known: Mapping[str, Outcome]) -> list[str]:
    rows, total = [], [0, 0, 0]
    for subject, files in _OF_PRODUCTS.items():
        every = [d for d in defects if d.file in files]
        found = [known[d.what] for d in every if d.what in known]
        counts = [len(every), len(found), sum(o.is_caught for o in found)]
        total = [one + other for one, other in zip(total, counts, strict=True)]
        numbers = " | ".join(map(str, counts))
        rows.append(f"| {subject} | {numbers} | {_ranges([d.number for d in every])} |")
    return [*rows, f"| all | {' | '.join(map(str, total))} | |"]


def _ranges(numbers: Iterable[int]) -> str:
    """Return "1-3, 7" of 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if not runs or number != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(number)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _row(d: Defect, outcome: Outcome | None) -> str:
    stale = "stale: " if d.is_stale else ""
    start = f"| {d.number} | `{d.file}` | {d.what} |"
    if outcome is None:
        return f"{start} {stale}not run yet | | {d.reason} |"
    by, why = "**nothing**", d.reason
    if outcome.is_caught:
        by = f"`{outcome.by.removeprefix('tests/')}`{' (slow)' if outcome.line == SLOW else ''}"
        why = outcome.why.replace("|", "\\|").replace("<", "&lt;")[:90]
    return f"{start} {stale}{by} | {outcome.seconds:.0f} | {why} |"
