"""Plants defects in the GPU path, one at a time, and asks whether the tests notice.

    python benchmarks/mutants.py              all of mutants.toml, and docs/mutants.md anew
    python benchmarks/mutants.py 3 17         these alone; the page keeps the others
    python benchmarks/mutants.py --rest       those not yet run with the code as it is
    python benchmarks/mutants.py --short      no slow tests, only the README's line
    python benchmarks/mutants.py --survey     only whether every defect still has its place
    python benchmarks/mutants.py --page       only the page anew, of what is recorded
    python benchmarks/mutants.py 3 --first FILE   these tests first: they were written for it
    python benchmarks/mutants.py --map        which test files call which functions, anew
    python benchmarks/mutants.py --map FILE   of this test file alone

Each defect goes into a copy of the checkout of its own, two copies at once.  There the test runs
that caught the defect the last time (mutants_record.jsonl); if it passes, the test files that call
the function with the defect (mutants_map.txt), likely and quick ones first, and those that are not
in the map, until the first failure: first what the README's line runs of them, then what it leaves
out.  A defect with a *reason* why nothing notices it has the likely tests alone.  A test that fails
without the defect too says nothing, and is left out and named.  What is found is recorded at once;
after an interruption, --rest goes on.
"""

import argparse
import compileall
import datetime
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from mutants_map import MAP, Coverage, write_map
from mutants_record import (
    PAGE,
    SHORT,
    SLOW,
    Defect,
    Outcome,
    add_to_record,
    page,
    read_record,
    tidy_record,
)

ROOT = Path(__file__).resolve().parent.parent
FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
LIST = ROOT / "benchmarks" / "mutants.toml"
CODE = ("tcdsl", "grammar")
COPIED = (*CODE, "tests", "benchmarks", "setup.cfg", "pyproject.toml", "README.md")
# The tests of device code, which is in no map, ...
DEVICE_TESTS = ("tests/regress/test_negated_extremes.py",
                "tests/codegen/test_cuda_device.py", "tests/codegen/test_gpu_defects.py",
                "tests/codegen/test_folds.py", "tests/codegen/test_compensated_device.py",
                "tests/codegen/test_ptx.py", "tests/emulator/", "tests/strategies/test_tile_mma.py",
                "tests/strategies/test_tensor_types.py", "tests/strategies/test_split_products.py",
                "tests/strategies/test_tile_implicit.py", "tests/strategies/test_multicast.py",
                "tests/strategies/test_column_planes.py",
                "tests/strategies/test_register_operands.py")  # fmt: skip
# ... and all that have something to say about kernels.
TESTS = (
    "tests/codegen/test_gpu_defects.py",
    "tests/rewrites",
    "tests/schedule",
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
    "tests/plan",
    "tests/display/test_pipelines.py",
    "tests/test_open_sizes.py",
    "tests/test_size_parameters.py",
    "tests/test_open_sizes_on_a_gpu.py",
    "tests/test_decisions.py",
)
MARKS = {SHORT: "not gpu and not fuzz and not slow", SLOW: "slow and not gpu and not fuzz"}
TIME_LIMIT_S = 1800  # of a run; of a test less: the machine may be busy
TEST_LIMIT_S = 600
LIKELY = 5  # files that run before the others are even collected
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
    reason: str = ""  # why no test without a GPU sees it

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


def mutants(path: Path = LIST) -> list[Mutant]:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(number, **entry) for number, entry in enumerate(entries, 1)]


def misfits(chosen: Sequence[Mutant], checkout: Path = ROOT) -> Iterator[tuple[Mutant, str]]:
    """Yield the defects that do not fit the present code, and why."""
    for mutant in chosen:
        try:
            text = (checkout / "tcdsl" / mutant.file).read_text(encoding="utf-8")
            if mutant.applied(text) == text:
                yield mutant, f"{mutant.number} ({mutant.what}) changes nothing"
        except (MisfitError, OSError) as error:
            yield mutant, str(error)


def outcome_of(returncode: int, output: str, seconds: float = 0.0, line: str = SHORT) -> Outcome:
    """Return what a run of pytest that printed *output* says; tests left out notice nothing.

    :raises RuntimeError: it says nothing: pytest was interrupted, or found no tests.
    """
    if returncode == 0 or (returncode == 5 and " deselected" in output):
        return Outcome("", "", seconds)
    found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*?\])?(?: - (.*))?$", output, re.MULTILINE)
    if -returncode in FATAL_SIGNALS:
        return Outcome("a signal", f"pytest ended by signal {-returncode}", seconds, line)
    if returncode not in (1, 2) or found is None:
        raise RuntimeError(f"pytest ended with {returncode}:\n{output[-3000:]}")
    return Outcome(found[1], found[2] or "", seconds, line)


@dataclass(slots=True)
class Runner:
    """Runs defects in copies of *snapshot*; *known*: what caught them before, and others."""

    snapshot: Path
    coverage: Coverage
    known: dict[str, Outcome]
    lines: Sequence[str] = (SHORT, SLOW)
    first: Sequence[str] = ()  # tests that run before the likely ones
    passing: set[str] = field(default_factory=set)  # without a defect
    left_out: set[str] = field(default_factory=set)  # failing without a defect
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tested(self, mutant: Mutant) -> Outcome:
        """Return what the tests that can see *mutant* say of it."""
        seconds = 0.0
        for line, tests in self._attempts(mutant):
            outcome = self._outcome(mutant, tests, line)
            seconds += outcome.seconds
            while outcome.by and not self._says_something(outcome):
                outcome = self._outcome(mutant, tests, line)
                seconds += outcome.seconds
            if outcome.is_caught:
                return replace(outcome, seconds=round(seconds, 1))
        return Outcome("", "", round(seconds, 1))

    def check(self, tests: Sequence[str]) -> None:
        """Find out which of *tests*, of the README's line, fail without a defect."""
        there = [test for test in tests if (self.snapshot / test.partition("::")[0]).exists()]
        if there:
            _, output, _ = self._run(None, there, SHORT)
            failing = re.findall(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*?\])?(?: - .*)?$", output, re.M)
            self.left_out |= set(failing)
            self.passing |= set(there) - self.left_out
            print(f"without a defect {len(failing)} of {len(there)} fail", *failing, flush=True)

    def _attempts(self, mutant: Mutant) -> Iterator[tuple[str, list[str]]]:
        before = self.known.get(mutant.what, Outcome(""))
        if before.line == SHORT and before.by.startswith("tests/"):
            yield SHORT, [before.by]
        yield SHORT, list(self.first)
        tests = self._all(mutant)
        yield SHORT, tests[:LIKELY]
        if mutant.reason:
            return  # enough to see whether it still holds
        yield SHORT, tests[LIKELY:]
        if SLOW in self.lines:
            if before.line == SLOW:
                yield SLOW, [before.by]
            yield SLOW, tests

    def _outcome(self, mutant: Mutant, tests: Sequence[str], line: str) -> Outcome:
        there = [
            test
            for test in tests
            if test not in self.left_out and (self.snapshot / test.partition("::")[0]).exists()
        ]
        if not there:
            return Outcome("")
        returncode, output, seconds = self._run(mutant, there, line)
        if returncode == -signal.SIGKILL:
            return Outcome("the time limit", f"no end after {TIME_LIMIT_S} s", seconds, line)
        if returncode == 4 and "not found" in output:  # the test has another name now
            return Outcome("")
        return outcome_of(returncode, output, seconds, line)

    def _all(self, mutant: Mutant) -> list[str]:
        path, every = self.snapshot / "tcdsl" / mutant.file, test_files(self.snapshot)
        catches = Counter(
            outcome.by.partition("::")[0]
            for other in mutants()
            if other.file == mutant.file and (outcome := self.known.get(other.what))
        )
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            return self._naming(text, [t for t in every if t.startswith(DEVICE_TESTS)], catches)
        found = self.coverage.tests_of(mutant.file, text, mutant.old, catches)
        return [*found, *(test for test in every if test not in self.coverage.seconds)]

    def _naming(self, code: str, tests: Sequence[str], catches: Mapping[str, int]) -> list[str]:
        """Return *tests* of device code: those that caught others in it, then by names of it."""
        functions = set(re.findall(r"\btc_\w+", code))

        def likelihood(test: str) -> tuple[int, int]:
            named = re.findall(r"\btc_\w+", (self.snapshot / test).read_text(encoding="utf-8"))
            return catches.get(test, 0), len(functions.intersection(named))

        return sorted(tests, key=likelihood, reverse=True)

    def _says_something(self, outcome: Outcome) -> bool:
        """Return whether the test that failed passes without a defect."""
        test = outcome.by
        if test in self.passing or not test.startswith("tests/"):
            return True
        returncode, output, _ = self._run(None, [test], outcome.line)
        with self.lock:
            if returncode == 0:
                self.passing.add(test)
            else:
                self.left_out.add(test)
                print(f"{test} fails without a defect, and is left out:\n{output[-500:]}")
        return returncode == 0

    def _run(
        self, mutant: Mutant | None, tests: Sequence[str], line: str
    ) -> tuple[int, str, float]:
        """Return pytest's exit code, its output, and the processors' seconds that it took."""
        with tempfile.TemporaryDirectory(prefix="tcdsl-mutant-") as folder:
            checkout = Path(folder, "checkout")
            shutil.copytree(self.snapshot, checkout)
            if mutant is not None:
                mutant.plant(checkout)
            environment = {
                **os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1",
                "TCDSL_CACHE_DIR": str(Path(folder, "cache")), "COLUMNS": "300",
            }  # fmt: skip
            command = [
                sys.executable, "-m", "pytest", "-q", "-n0", "--tb=line", "-rfE", "-m",
                MARKS[line], "-p", "no:cacheprovider", f"--timeout={TEST_LIMIT_S}",
                *(["-x"] if mutant else []),
                *(f"--deselect={test}" for test in sorted(self.left_out)), *tests,
            ]  # fmt: skip
            output = Path(folder, "output")
            with output.open("wb") as stream:
                child = subprocess.Popen(
                    command, cwd=checkout, env=environment, stdout=stream,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                timer = threading.Timer(TIME_LIMIT_S, os.killpg, (child.pid, signal.SIGKILL))
                timer.start()
                _, status, used = os.wait4(child.pid, 0)  # unlike wait(): with what it used
                timer.cancel()
                child.returncode = os.waitstatus_to_exitcode(status)
            text = output.read_text(encoding="utf-8", errors="replace")
            return child.returncode, text, used.ru_utime + used.ru_stime


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
    compileall.compile_dir(folder / "tcdsl", quiet=1)  # once, not in each of the copies
    return folder


def code_of(checkout: Path) -> str:
    """Return a digest of the code without its tests."""
    digest = hashlib.sha256()
    for path in sorted(p for name in CODE for p in (checkout / name).rglob("*") if p.is_file()):
        if "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(checkout)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def write_page(every: Sequence[Mutant]) -> None:
    tidy_record([m.what for m in every])
    stale = {m.number for m, _ in misfits(every)}
    defects = [Defect(m.number, m.file, m.what, m.reason, m.number in stale) for m in every]
    PAGE.write_text(page(defects, read_record()), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, help="defects; all if none is named")
    parser.add_argument("--rest", action="store_true", help="not what ran with this code")
    parser.add_argument("--short", action="store_true", help="only the README's line")
    parser.add_argument("--first", nargs="+", default=[], metavar="FILE", help="try these first")
    parser.add_argument("--survey", action="store_true", help="plant nothing, only look")
    parser.add_argument("--page", action="store_true", help="run nothing, only write the page")
    parser.add_argument("--map", nargs="*", metavar="FILE", help="map these test files, or all")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="copies")
    given = parser.parse_args(arguments)
    every = mutants()
    chosen = [m for m in every if not given.numbers or m.number in given.numbers]
    if given.page:
        write_page(every)
        return 0
    with tempfile.TemporaryDirectory(prefix="tcdsl-snapshot-") as folder:
        snapshot = snapshot_of(ROOT, Path(folder))
        if given.map is not None:
            write_map(snapshot, given.map or test_files(snapshot), given.at_once)
            return 0
        stale = dict(misfits(chosen, snapshot))
        for why in stale.values():
            print(f"stale: {why}")
        if given.survey:
            print(f"{len(chosen) - len(stale)} of {len(chosen)} defects have their place")
            return 1 if stale else 0
        code, known = code_of(snapshot), read_record()
        done = {what for what, outcome in known.items() if given.rest and outcome.code == code}
        chosen = [m for m in chosen if m not in stale and m.what not in done]
        coverage = Coverage.read(MAP.read_text(encoding="utf-8"))
        lines = (SHORT,) if given.short else (SHORT, SLOW)
        runner = Runner(snapshot, coverage, known, lines, given.first)
        outcomes = _run_all(runner, chosen, code, given.at_once)
    write_page(every)
    caught = sum(outcome.is_caught for outcome in outcomes)
    print(
        f"{caught} of {len(outcomes)} caught, {sum(o.seconds for o in outcomes) / 60:.1f} minutes"
    )
    return 0 if caught >= 0.95 * len(outcomes) and not stale else 1


def _run_all(runner: Runner, chosen: Sequence[Mutant], code: str, at_once: int) -> list[Outcome]:
    """Run *chosen* and record what the tests say of each as soon as they do."""
    before = [runner.known[m.what] for m in chosen if m.what in runner.known]
    runner.check(sorted({o.by for o in before if o.line == SHORT and o.by.startswith("tests/")}))

    def run(mutant: Mutant) -> Outcome:
        today = str(datetime.date.today())
        outcome = replace(runner.tested(mutant), date=today, code=code)
        with runner.lock:
            add_to_record(mutant.what, outcome)
            runner.known[mutant.what] = outcome  # the test is likely to catch its neighbours
            print(f"{mutant.number:3} {outcome.seconds:4.0f} s  {mutant.file}: {mutant.what}")
            print(f"     {outcome.by or 'NOT CAUGHT'}  {outcome.why[:160]}", flush=True)
        return outcome

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(run, chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
