"""Plants defects in the GPU path, one at a time, and asks whether the tests notice.

    python benchmarks/mutants.py              all of mutants.toml, and docs/mutants.md anew
    python benchmarks/mutants.py 3 17         these alone; the page keeps the others
    python benchmarks/mutants.py --survey     only whether every defect still has its place
    python benchmarks/mutants.py --map        which test files call which functions, anew
    python benchmarks/mutants.py --map FILE   of this test file alone

Each defect goes into a copy of the checkout of its own, two copies at once.  There the test runs
that caught the defect the last time (docs/mutants.md); if it passes, the test files that call the
function with the defect (mutants_map.txt), quick ones first, and those that are not in the map,
until the first failure.  A test that fails without the defect too says nothing, and is left out and
named.
"""

import argparse
import ast
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST, REPORT = ROOT / "benchmarks" / "mutants.toml", ROOT / "docs" / "mutants.md"
MAP, TRACER = ROOT / "benchmarks" / "mutants_map.txt", ROOT / "benchmarks" / "called_functions.py"
COPIED = ("tcdsl", "tests", "grammar", "setup.cfg", "pyproject.toml", "README.md")
# Whose functions are in the map; the tests of what has no functions, such as device code, ...
MAPPED = ("codegen", "costmodel", "emulator", "poly", "runtime", "strategies", "transforms")
DEVICE_TESTS = ("tests/codegen/test_cuda_device.py", "tests/codegen/test_gpu_defects.py",
                "tests/codegen/test_folds.py", "tests/codegen/test_compensated_device.py",
                "tests/codegen/test_ptx.py", "tests/emulator")  # fmt: skip
# ... and all that have something to say about kernels.
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
    "tests/costmodel",
    "tests/runtime",
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

    Tests that the README's line leaves out notice nothing.

    :raises RuntimeError: it says nothing: pytest was interrupted, or found no tests.
    """
    if returncode == 0 or (returncode == 5 and " deselected" in output):
        return Outcome("", "", seconds)
    found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*?\])?(?: - (.*))?$", output, re.MULTILINE)
    if returncode not in (1, 2) or found is None:
        raise RuntimeError(f"pytest ended with {returncode}:\n{output[-3000:]}")
    return Outcome(found[1], found[2] or "", seconds)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which test files call which functions: { "transforms/skewing.py skewed" -> files }."""

    seconds: Mapping[str, float]  # of a test file
    callers: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, text: str) -> "Coverage":
        files, _, functions = text.partition("\n\n")
        rows = [line.split() for line in files.splitlines() if not line.startswith("#")]
        names = [name for _, name in rows]
        callers = {}
        for line in functions.splitlines():
            file, function, *numbers = line.split()
            callers[f"{file} {function}"] = [names[int(number)] for number in numbers]
        return cls({name: float(seconds) for seconds, name in rows}, callers)

    def text(self) -> str:
        numbers = {name: number for number, name in enumerate(self.seconds)}
        return "\n".join([
            "# python benchmarks/mutants.py --map: seconds and name of test files, then who calls",
            *(f"{seconds:.0f} {name}" for name, seconds in self.seconds.items()),
            "",
            *(" ".join([function, *(str(numbers[name]) for name in callers)])
              for function, callers in sorted(self.callers.items())),
            "",
        ])  # fmt: skip

    def tests_of(self, mutant: Mutant, text: str) -> list[str]:
        """Return the test files that call the function of *text* with the defect, quick ones first.

        All that call anything of the module where the defect is in no function, or in a new one.
        """
        functions = _functions_at(text, text.index(mutant.old), len(mutant.old))
        found = {t for f in functions for t in self.callers.get(f"{mutant.file} {f}", ())}
        if not found:
            found = {
                test
                for function, tests in self.callers.items()
                if function.startswith(f"{mutant.file} ")
                for test in tests
            }
        stem = Path(mutant.file).stem
        return sorted(found, key=lambda test: (stem not in test, self.seconds[test], test))


def _functions_at(text: str, start: int, length: int) -> list[str]:
    """Return the qualified names of the functions in the lines of *text* from *start* on."""
    first = text.count("\n", 0, start) + 1
    last = first + text.count("\n", start, start + length)
    found = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                name = f"{prefix}{child.name}"
                is_function = isinstance(child, ast.FunctionDef)
                if is_function and child.lineno <= last and (child.end_lineno or 0) >= first:
                    found.append(name)
                visit(child, f"{name}.<locals>." if is_function else f"{name}.")

    visit(ast.parse(text), "")
    return found


def write_map(snapshot: Path, files: Sequence[str], at_once: int) -> None:
    """Write to MAP which functions the test *files* of *snapshot* call, after each of them.

    What MAP says of other files stays.
    """
    known = Coverage.read(MAP.read_text(encoding="utf-8") if MAP.exists() else "")
    seconds = {name: took for name, took in known.seconds.items() if name not in files}
    callers = {f: [t for t in tests if t not in files] for f, tests in known.callers.items()}
    with ThreadPoolExecutor(at_once) as pool:
        for name, (took, functions) in zip(
            files, pool.map(partial(_calls, snapshot), files), strict=True
        ):
            print(f"{took:5.0f} s  {name}", flush=True)
            seconds[name] = took
            for function in functions:
                if function.startswith(MAPPED):
                    callers.setdefault(function, []).append(name)
            callers = {function: tests for function, tests in callers.items() if tests}
            MAP.write_text(Coverage(seconds, callers).text(), encoding="utf-8")


def _calls(snapshot: Path, name: str) -> tuple[float, list[str]]:
    """Return the processor time of the test file *name*, and the functions that it calls."""
    with tempfile.TemporaryDirectory(prefix="tcdsl-calls-") as folder:
        to = Path(folder, "calls")
        shutil.copy2(TRACER, folder)
        environment = {
            **os.environ, "PYTHONPATH": f"{snapshot}:{folder}", "TCDSL_CALLS": str(to),
            "TCDSL_CACHE_DIR": str(Path(folder, "cache")), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "called_functions",
             "-p", "no:cacheprovider", name],
            cwd=snapshot, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
        seconds, *functions = to.read_text(encoding="utf-8").splitlines()
        return float(seconds), functions


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs defects in copies of *snapshot*; *left_out* are tests that fail without a defect."""

    snapshot: Path
    coverage: Coverage
    caught: Mapping[tuple[str, str], str]  # (file, what) -> the test that caught it
    left_out: Sequence[str] = ()

    def tested(self, mutant: Mutant) -> Outcome:
        """Return what the tests that can see *mutant* say of it."""
        before = self.caught.get((mutant.file, mutant.what), "")
        seconds = 0.0
        for tests in (
            [before] if before and before not in self.left_out else [],
            self._all(mutant),
        ):
            if not tests:
                continue
            try:
                outcome = outcome_of(*self._run(mutant, tests))
            except subprocess.TimeoutExpired:
                return Outcome("the time limit", f"no end after {TIME_LIMIT_S} s", TIME_LIMIT_S)
            seconds += outcome.seconds
            if outcome.is_caught:
                return replace(outcome, seconds=seconds)
        return Outcome("", "", seconds)

    def _all(self, mutant: Mutant) -> list[str]:
        path = self.snapshot / "tcdsl" / mutant.file
        if path.suffix != ".py":
            return list(DEVICE_TESTS)
        found = self.coverage.tests_of(mutant, path.read_text(encoding="utf-8"))
        every = test_files(self.snapshot)
        unknown = [test for test in every if test not in self.coverage.seconds]
        return [*(test for test in found if (self.snapshot / test).exists()), *unknown]

    def _run(self, mutant: Mutant | None, tests: Sequence[str]) -> tuple[int, str, float]:
        options = ["-x", *(f"--deselect={test}" for test in self.left_out)]
        return _run(self.snapshot, mutant, [*(options if mutant else ()), *tests])

    def failing(self, tests: Sequence[str]) -> list[str]:
        """Return those of *tests* that fail without a defect; what is gone does not count."""
        there = [test for test in tests if (self.snapshot / test.partition("::")[0]).exists()]
        if not there:
            return []
        returncode, output, _ = self._run(None, there)
        found = re.findall(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*?\])?(?: - .*)?$", output, re.MULTILINE)
        if returncode != 0 and not found:
            raise RuntimeError(f"pytest ended with {returncode}:\n{output[-3000:]}")
        return sorted(set(found))


def outcomes_before(page: str) -> dict[tuple[str, str], Outcome]:
    """Return { (file, what) -> what caught it, and said } of docs/mutants.md."""
    rows = re.findall(r"^\| \d+ \| `(.*?)` \| (.*?) \| `(.*?)` \| (.*) \|$", page, re.MULTILINE)
    return {
        (file, what): Outcome(
            f"tests/{by}" if ".py" in by else by, why.replace("\\|", "|").replace("&lt;", "<")
        )
        for file, what, by, why in rows
    }


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
             "-p", "no:cacheprovider", *options],
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


def report(results: Sequence[tuple[Mutant, Outcome | None]], left_out: Sequence[str] = ()) -> str:
    """Return docs/mutants.md; None: this defect has not been run."""
    run = [outcome for _, outcome in results if outcome is not None]
    caught = sum(outcome.is_caught for outcome in run)
    lines = [
        "# Planted defects",
        "",
        f"Of {len(run)} defects planted in planning and printing for the GPU, one at a time,"
        f" {caught} were caught by the tests of the README's line ({datetime.date.today()});"
        f" {len(results) - len(run)} have not been run yet.",
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
        if outcome is None:
            lines.append(f"| {mutant.number} | `{mutant.file}` | {mutant.what} | not run yet | |")
            continue
        why = outcome.why.replace("|", "\\|").replace("<", "&lt;")[:90]
        by = f"`{outcome.by.removeprefix('tests/')}`" if outcome.is_caught else "**nothing**"
        lines.append(f"| {mutant.number} | `{mutant.file}` | {mutant.what} | {by} | {why} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, help="defects; all if none is named")
    parser.add_argument("--survey", action="store_true", help="plant nothing, only look")
    parser.add_argument("--map", nargs="*", metavar="FILE", help="map these test files, or all")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="copies")
    given = parser.parse_args(arguments)
    every = mutants()
    chosen = [m for m in every if not given.numbers or m.number in given.numbers]
    with tempfile.TemporaryDirectory(prefix="tcdsl-snapshot-") as folder:
        snapshot = snapshot_of(ROOT, Path(folder))
        if given.map is not None:
            write_map(snapshot, given.map or test_files(snapshot), given.at_once)
            return 0
        wrong = list(misfits(chosen, snapshot))
        if wrong or given.survey:
            print("\n".join(wrong) or f"all {len(chosen)} defects have their place")
            return 1 if wrong else 0
        results, left_out = _tested(snapshot, chosen, given.at_once)
    known = outcomes_before(REPORT.read_text(encoding="utf-8"))
    known |= {(m.file, m.what): outcome for m, outcome in results}
    rows = [(m, known.get((m.file, m.what))) for m in every]
    REPORT.write_text(report(rows, left_out), encoding="utf-8")
    caught = sum(outcome.is_caught for _, outcome in results)
    print(f"{caught} of {len(results)} caught")
    return 0 if caught >= 0.95 * len(results) else 1


def _tested(
    snapshot: Path, chosen: Sequence[Mutant], at_once: int
) -> tuple[list[tuple[Mutant, Outcome]], Sequence[str]]:
    """Return what the tests say of each of *chosen*, and the tests that say nothing."""
    known = outcomes_before(REPORT.read_text(encoding="utf-8"))
    before = {
        (m.file, m.what): known[m.file, m.what].by for m in chosen if (m.file, m.what) in known
    }
    before = {key: test for key, test in before.items() if test.startswith("tests/")}
    runner = Runner(snapshot, Coverage.read(MAP.read_text(encoding="utf-8")), before)
    catchers = sorted(set(before.values()))
    runner = replace(runner, left_out=runner.failing(catchers))
    print(f"without a defect {len(runner.left_out)} tests fail", *runner.left_out, sep="\n  ")
    results = []
    with ThreadPoolExecutor(at_once) as pool:
        for mutant, outcome in zip(chosen, pool.map(runner.tested, chosen), strict=True):
            results.append((mutant, outcome))
            print(f"{mutant.number:3} {outcome.seconds:4.0f} s  {mutant.file}: {mutant.what}")
            print(f"     {outcome.by or 'NOT CAUGHT'}  {outcome.why[:160]}", flush=True)
    # Who has caught a defect that nothing had caught before may fail without it, too.
    new = sorted({o.by for _, o in results if o.by.startswith("tests/")} - set(catchers))
    for test in runner.failing(new):
        print(f"{test} fails without a defect: what it caught says nothing")
        results = [(m, Outcome("") if o.by == test else o) for m, o in results]
    return results, runner.left_out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
