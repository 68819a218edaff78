"""Which test files call which functions of tcdsl (mutants_map.txt), for benchmarks/mutants.py.

    6 tests/codegen/test_gpu_defects.py           processor time, seconds
    3 tests/codegen/test_cuda_changing.py
                                                  numbers of the files above that call functions
    codegen/cuda/changing.py 0-1 _parts changing_loads

Per file, not per test: of nearly all defects the test that caught it the last time is known, and a
file runs until its first failure.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAP, TRACER = HERE / "mutants_map.txt", HERE / "called_functions.py"
CUT_OFF_S = 5.0  # of processors: called_functions.py then begins no further test of a file
# Whose functions are in the map.
MAPPED = (
    "codegen",
    "costmodel",
    "derivatives",
    "emulator",
    "executable",
    "interp/error_bounds",
    "lang/ranges",
    "lang/size_class",
    "opening",
    "options",
    "plan",
    "poly",
    "runtime",
    "strategies",
    "torch",
    "rewrites",
    "schedule",
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which test files call which functions: { "rewrites/scop/rfactor.py rfactor" -> files }."""

    seconds: Mapping[str, float]  # of a test file
    callers: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, text: str) -> "Coverage":
        files, _, functions = text.partition("\n\n")
        rows = [line.split() for line in files.splitlines() if not line.startswith("#")]
        names = [name for _, name in rows]
        callers = {}
        for line in functions.splitlines():
            file, numbers, *found = line.split()
            tests = [names[n] for text in numbers.split(",") for n in _range(text)]
            callers |= {f"{file} {function}": tests for function in found}
        return cls({name: float(seconds) for seconds, name in rows}, callers)

    def text(self) -> str:
        names = sorted(self.seconds)  # neighbours call the same functions
        numbers = {name: number for number, name in enumerate(names)}
        together: dict[tuple[str, str], list[str]] = {}
        for place, tests in sorted(self.callers.items()):
            file, function = place.split()
            key = file, _ranges([numbers[name] for name in tests])
            together.setdefault(key, []).append(function)
        return "\n".join([
            "# python benchmarks/mutants.py --map: test files, and who calls which functions",
            *(f"{self.seconds[name]:.0f} {name}" for name in names),
            "",
            *(" ".join([*key, *functions]) for key, functions in together.items()),
            "",
        ])  # fmt: skip

    def tests_of(
        self, file: str, text: str, old: str, catches: Mapping[str, int] | None = None
    ) -> list[str]:
        """Return the test files that call the function of *file* around *old*, likely ones first.

        All that call anything of the module where *old* is in no function, or in a new one.
        Likely are the module's own tests, then those that caught other defects in it (*catches*
        says how many each), then those of its layer; of equally likely ones the quickest is first.
        At the end are those that call anything of the module and were cut off before their end.
        """
        functions = _functions_at(text, text.index(old), len(old))
        found = {t for f in functions for t in self.callers.get(f"{file} {f}", ())}
        of_module = {
            test
            for function, tests in self.callers.items()
            if function.startswith(f"{file} ")
            for test in tests
        }
        stem, caught = Path(file).stem, catches or {}
        folder = f"tests/{Path(file).parent}/"

        def unlikeliness(test: str) -> tuple[bool, int, bool, float, str]:
            is_far = not test.startswith(folder)
            return stem not in test, -caught.get(test, 0), is_far, self.seconds[test], test

        if not found:
            return sorted(of_module, key=unlikeliness)
        cut_off = {test for test in of_module - found if self.seconds[test] >= CUT_OFF_S}
        return sorted(found, key=unlikeliness) + sorted(cut_off, key=unlikeliness)


def _range(text: str) -> range:
    """Return the numbers of "3" or "3-7"."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _ranges(numbers: Sequence[int]) -> str:
    """Return *numbers* in order, those that follow one another as "3-7"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


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

    What MAP says of other files stays, unless they are gone.
    """
    known = Coverage.read(MAP.read_text(encoding="utf-8") if MAP.exists() else "")
    stay = {name for name in known.seconds if name not in files and (snapshot / name).exists()}
    seconds = {name: took for name, took in known.seconds.items() if name in stay}
    callers = {f: [t for t in tests if t in stay] for f, tests in known.callers.items()}
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
