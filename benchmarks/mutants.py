"""Plants defects in the GPU path, one at a time, and asks whether the tests notice.

    python benchmarks/mutants.py              all of mutants.toml, and docs/mutants.md anew
    python benchmarks/mutants.py 3 17         these alone, to the terminal
    python benchmarks/mutants.py --survey     only whether every defect still has its place

Each defect goes into a copy of the checkout of its own, where the tests that need no GPU run until
the first failure.  What fails without a defect too says nothing, and is left out and named.
"""

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST, REPORT = ROOT / "benchmarks" / "mutants.toml", ROOT / "docs" / "mutants.md"
COPIED = ("tcdsl", "tests", "grammar", "setup.cfg", "pyproject.toml", "README.md")
# Those that see most come first.  What is missing here has nothing to say about kernels.
TESTS = (
    "tests/codegen/test_gpu_defects.py",
    "tests/transforms",
    "tests/codegen/test_cuda_printer.py",
    "tests/codegen/test_cuda_statements.py",
    "tests/codegen/test_cuda_device.py",
    "tests/strategies",
    "tests/codegen",
    "tests/emulator",
    "tests/executable",
    "tests/regress",
    "tests/library/test_on_the_emulator.py",
    "tests/test_random_programs.py",
    "tests/library/test_nvrtc.py",
    "tests/poly",
)
TIME_LIMIT_S = 900
AT_ONCE = 2


class MisfitError(Exception):
    """A defect that has no place, or several, in the code as it is."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """In *file* the text *old* becomes *new*."""

    number: int
    file: str  # below tcdsl/
    what: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return *text* with the defect.

        :raises MisfitError: *old* is not there exactly once.
        """
        if text.count(self.old) != 1:
            raise MisfitError(
                f"{self.number} ({self.what}): the old text stands {text.count(self.old)} times"
                f" in {self.file}"
            )
        return text.replace(self.old, self.new)

    def plant(self, checkout: Path) -> None:
        path = checkout / "tcdsl" / self.file
        path.write_text(self.applied(path.read_text(encoding="utf-8")), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said; *by*: the first that failed, "" if none did."""

    by: str
    why: str = ""
    seconds: float = 0.0

    @property
    def is_caught(self) -> bool:
        return bool(self.by)


def mutants(path: Path = LIST) -> list[Mutant]:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(number, **entry) for number, entry in enumerate(entries, 1)]


def misfits(chosen: Sequence[Mutant], checkout: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the list at the present code."""
    for mutant in chosen:
        try:
            text = (checkout / "tcdsl" / mutant.file).read_text(encoding="utf-8")
            if mutant.applied(text) == text:
                yield f"{mutant.number} ({mutant.what}) changes nothing"
        except (MisfitError, OSError) as error:
            yield str(error)


def outcome_of(returncode: int, output: str, seconds: float = 0.0) -> Outcome:
    """Return what a run of pytest that printed *output* says.

    :raises RuntimeError: it says nothing: pytest was interrupted, or found no tests.
    """
    if returncode == 0:
        return Outcome("", "", seconds)
    found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*?\])?(?: - (.*))?$", output, re.MULTILINE)
    if returncode not in (1, 2) or found is None:
        raise RuntimeError(f"pytest ended with {returncode}:\n{output[-3000:]}")
    return Outcome(found[1], found[2] or "", seconds)


def failing(snapshot: Path) -> list[str]:
    """Return the tests that fail in *snapshot* as it is."""
    returncode, output, _ = _run(snapshot, None, ())
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    if returncode != 0 and not found:
        raise RuntimeError(f"pytest ended with {returncode}:\n{output[-3000:]}")
    return found


def tested(snapshot: Path, mutant: Mutant, left_out: Sequence[str] = ()) -> Outcome:
    """Run the tests but those *left_out* in a copy of *snapshot* with the defect *mutant*."""
    options = ["-x", *(f"--deselect={test}" for test in left_out)]
    try:
        returncode, output, seconds = _run(snapshot, mutant, options)
    except subprocess.TimeoutExpired:
        return Outcome("the time limit", f"no end after {TIME_LIMIT_S} s", TIME_LIMIT_S)
    return outcome_of(returncode, output, seconds)


def _run(snapshot: Path, mutant: Mutant | None, options: Sequence[str]) -> tuple[int, str, float]:
    """Return pytest's exit code, its output and the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="tcdsl-mutant-") as folder:
        checkout = Path(folder, "checkout")
        shutil.copytree(snapshot, checkout)
        if mutant is not None:
            mutant.plant(checkout)
        environment = {
            **os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1",
            "TCDSL_CACHE_DIR": str(Path(folder, "cache")), "COLUMNS": "300",
        }  # fmt: skip
        start = datetime.datetime.now()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n0", "--tb=line", "-rfE",
             "-p", "no:cacheprovider", *options, *test_files(checkout)],
            cwd=checkout, env=environment, timeout=TIME_LIMIT_S, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        seconds = (datetime.datetime.now() - start).total_seconds()
        return done.returncode, done.stdout, seconds


def test_files(checkout: Path) -> list[str]:
    """Return the files of TESTS in that order: pytest would put a folder before its files."""
    found: list[Path] = []
    for name in TESTS:
        path = checkout / name
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return [str(p.relative_to(checkout)) for p in dict.fromkeys(found) if p.exists()]


def snapshot_of(checkout: Path, folder: Path) -> Path:
    """Copy what the tests need to *folder*: the checkout may change while they run."""
    for name in COPIED:
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def report(results: Sequence[tuple[Mutant, Outcome]], left_out: Sequence[str] = ()) -> str:
    """Return docs/mutants.md."""
    caught = sum(outcome.is_caught for _, outcome in results)
    lines = [
        "# Planted defects",
        "",
        f"Of {len(results)} defects planted in mapping, promotion and printing, one at a time,"
        f" {caught} were caught by the tests that need no GPU ({datetime.date.today()}).",
        "",
        "`python benchmarks/mutants.py` plants them again and writes this page. The exact changes"
        " are in `benchmarks/mutants.toml`; *caught by* is the first test that failed, in the order"
        " in which the runner has them, and what it said.",
        "",
        *(
            [f"Left out, for they failed without a defect: {', '.join(left_out)}.", ""]
            if left_out
            else []
        ),
        "| # | file | defect | caught by | what it said |",
        "| ---: | --- | --- | --- | --- |",
    ]
    for mutant, outcome in results:
        why = outcome.why.replace("|", "\\|").replace("<", "&lt;")[:90]
        by = f"`{outcome.by.removeprefix('tests/')}`" if outcome.is_caught else "**nothing**"
        lines.append(f"| {mutant.number} | `{mutant.file}` | {mutant.what} | {by} | {why} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, help="defects; all if none is named")
    parser.add_argument("--survey", action="store_true", help="plant nothing, only look")
    given = parser.parse_args(arguments)
    chosen = [m for m in mutants() if not given.numbers or m.number in given.numbers]
    with tempfile.TemporaryDirectory(prefix="tcdsl-snapshot-") as folder:
        snapshot = snapshot_of(ROOT, Path(folder))
        wrong = list(misfits(chosen, snapshot))
        if wrong or given.survey:
            print("\n".join(wrong) or f"all {len(chosen)} defects have their place")
            return 1 if wrong else 0
        left_out = failing(snapshot)
        print(f"without a defect {len(left_out)} tests fail", *left_out, sep="\n  ", flush=True)
        results = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = pool.map(lambda mutant: tested(snapshot, mutant, left_out), chosen)
            for mutant, outcome in zip(chosen, outcomes, strict=True):
                results.append((mutant, outcome))
                print(f"{mutant.number:3} {outcome.seconds:4.0f} s  {mutant.file}: {mutant.what}")
                print(f"     {outcome.by or 'NOT CAUGHT'}  {outcome.why[:160]}", flush=True)
    if not given.numbers:
        REPORT.write_text(report(results, left_out), encoding="utf-8")
    caught = sum(outcome.is_caught for _, outcome in results)
    print(f"{caught} of {len(results)} caught")
    return 0 if caught >= 0.95 * len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
