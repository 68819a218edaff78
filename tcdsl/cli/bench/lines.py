"""A table's rows as JSON lines, kept while they are made, so that no crash or time-out loses any.

    {"run": ...}      what the rows below it depend on
    {"begin": ...}    a row that is being timed
    {"row": ...}      its times

A later run appends, and leaves out what is there.  A row that was begun twice and never ended,
since the process ended in it, is left out too.  Lines for "-" go to the standard output, each of
them at once: what a run has printed when it is cut off, with any other text between, can be read.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tcdsl.cli.bench.measured import Measured, Run
from tcdsl.cli.bench.report import Key, Launches, Row

_MOST_TRIES = 2
_KINDS = ("run", "begin", "row")
STANDARD_OUTPUT = Path("-")


class Lines:
    """The file that a run appends to, or the standard output."""

    def __init__(self, path: Path, run: Run) -> None:
        self._path = path
        if path.exists() and not path.read_bytes().endswith(b"\n"):  # a line that was cut off
            path.write_bytes(path.read_bytes() + b"\n")
        self._append("run", asdict(run))

    def begin(self, key: Key) -> None:
        """Say that the row of *key* is being timed."""
        self._append("begin", list(key))

    def end(self, row: Row) -> None:
        """Keep *row*."""
        self._append("row", asdict(row))

    def _append(self, kind: str, content: Any) -> None:
        line = json.dumps({kind: content})
        if self._path == STANDARD_OUTPUT:
            print(line, flush=True)
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_lines(paths: Iterable[Path]) -> list[Measured]:
    """Return the rows of all files; of a case that is there twice, the later one's."""
    found: dict[tuple[Key, bool, bool], Measured] = {}
    for path in paths:
        run = None
        for kind, content in _contents(path):
            if kind == "run":
                run = run_of(content)
            elif kind == "row" and run is not None:
                row = row_of(content)
                found[row.key, run.flush, run.first_calls] = Measured(run, row)
    return list(found.values())


def keys_in(paths: Iterable[Path], run: Run) -> set[Key]:
    """Return what is in any of the files, beside whatever peers, timed as *run* times it."""
    return {one.row.key for one in read_lines(paths) if one.run.is_alike(run)}


def keys_to_leave_out(path: Path, run: Run) -> set[Key]:
    """Return what *run* need not time again, and what it should not."""
    begun: Counter[Key] = Counter()
    done: set[Key] = set()
    serves = is_alike = False
    for kind, content in _contents(path):
        if kind == "run":
            serves, is_alike = run_of(content).serves(run), run_of(content).is_alike(run)
        elif kind == "begin":
            begun[_key_of(content)] += is_alike
        else:
            key = row_of(content).key
            begun[key] *= not is_alike
            done |= {key} if serves else set()
    return done | {key for key, tries in begun.items() if tries >= _MOST_TRIES}


def run_of(content: Mapping[str, Any]) -> Run:
    """Return the run that was written as *content*."""
    return Run(**{**content, "peers": tuple(content["peers"])})


def row_of(content: Mapping[str, Any]) -> Row:
    """Return the row that was written as *content*."""
    launches = content.get("launches")
    if launches is not None:
        shapes = {name: tuple(launches[name]) for name in ("grid", "block")}
        launches = Launches(**{**launches, **shapes})
    return Row(**{**content, "problems": tuple(content["problems"]), "launches": launches})


def _key_of(content: list[str]) -> Key:
    case, sizes, dtype = content
    return case, sizes, dtype


def _contents(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (kind, content) of each line; the last one may be cut off."""
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        try:
            (pair,) = json.loads(line).items()
        except (ValueError, AttributeError):  # another text, or one that means a number
            continue
        if pair[0] in _KINDS:
            yield pair
