"""The list of planted defects, and the runner that plants them (benchmarks/mutants.py)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def _runner() -> ModuleType:
    path = ROOT / "benchmarks" / "mutants.py"
    spec = importlib.util.spec_from_file_location("tcdsl_mutants", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


runner = _runner()


def test_every_defect_has_its_place() -> None:
    """Whoever moves the code moves the defect: the text must stand there exactly once."""
    chosen = runner.mutants()
    assert len(chosen) >= 120 and len({(m.file, m.old, m.new) for m in chosen}) == len(chosen)
    assert len({(m.file, m.what) for m in chosen}) == len(chosen), "results are kept by these"
    assert list(runner.misfits(chosen)) == []


def test_defects_are_code() -> None:
    """A defect that is no Python would be caught by anything, and say nothing."""
    for mutant in runner.mutants():
        path = ROOT / "tcdsl" / mutant.file
        if path.suffix == ".py":
            compile(mutant.applied(path.read_text(encoding="utf-8")), str(path), "exec")


@pytest.mark.parametrize(
    "file",
    [
        "strategies/templates/row_cluster.py", "costmodel/clusters.py", "codegen/cuda_overlap.py",
        "codegen/cuda_changing.py", "transforms/row_terms.py", "transforms/skewing.py",
        "transforms/exponential_sums.py", "transforms/shifted_exponentials.py",
        "transforms/rescaling.py", "codegen/memsets.py", "codegen/prefetches.py",
    ],
)  # fmt: skip
def test_later_modules_have_defects_too(file: str) -> None:
    assert sum(mutant.file == file for mutant in runner.mutants()) >= 5


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    for mutant in runner.mutants():
        assert f"| {mutant.number} | `{mutant.file}` | {mutant.what} |" in page


@pytest.mark.parametrize("text", ["nothing of it", "a + b, a + b"])
def test_a_defect_without_a_place_is_told(text: str) -> None:
    mutant = runner.Mutant(1, "x.py", "a sign", "a + b", "a - b")
    assert mutant.applied("(a + b)") == "(a - b)"
    with pytest.raises(runner.MisfitError, match=r"the old text stands [02] times in x\.py"):
        mutant.applied(text)


def test_what_pytest_says() -> None:
    said = "..F\nFAILED tests/a.py::test_b[f(x) - 1] - AssertionError: 1 != 2\n1 failed\n"
    outcome = runner.outcome_of(1, said)
    assert (outcome.by, outcome.why) == ("tests/a.py::test_b", "AssertionError: 1 != 2")
    assert outcome.is_caught and not runner.outcome_of(0, "3 passed").is_caught
    broken = runner.outcome_of(2, "ERROR tests/a.py - ImportError: no b\n")
    assert (broken.by, broken.why) == ("tests/a.py", "ImportError: no b")
    assert not runner.outcome_of(5, "1 deselected in 0.1s").is_caught, "a slow test"
    with pytest.raises(RuntimeError, match="pytest ended with 5"):
        runner.outcome_of(5, "no tests ran")


MODULE = """class A:
    def f(self):
        return a + b

def g():
    return 1
"""
MAP = """# a comment
12 tests/slow.py
3 tests/quick.py
5 tests/test_x.py

y/x.py A.f 0 1 2
y/x.py g 0
y/z.py h 1
"""


@pytest.mark.parametrize(
    ("old", "wanted"),
    [
        ("a + b", ["tests/test_x.py", "tests/quick.py", "tests/slow.py"]),  # its own, quick ones
        ("return 1", ["tests/slow.py"]),
        ("class A", ["tests/test_x.py", "tests/quick.py", "tests/slow.py"]),  # of all functions
    ],
)
def test_the_tests_that_call_a_function(old: str, wanted: list[str]) -> None:
    coverage = runner.Coverage.read(MAP)
    assert runner.Coverage.read(coverage.text()) == coverage
    assert coverage.tests_of(runner.Mutant(1, "y/x.py", "", old, ""), MODULE) == wanted


def test_the_map_knows_the_functions_with_defects() -> None:
    """By the names that they have: `python benchmarks/mutants.py --map` after many have moved."""
    coverage = runner.Coverage.read(runner.MAP.read_text(encoding="utf-8"))
    known = [m for m in runner.mutants() if m.file.endswith(".py")]
    lost = []
    for mutant in known:
        text = (ROOT / "tcdsl" / mutant.file).read_text(encoding="utf-8")
        if not any((ROOT / test).exists() for test in coverage.tests_of(mutant, text)):
            lost.append(f"{mutant.number}: {mutant.file}")
    assert not lost


def test_what_the_page_says_is_read_again() -> None:
    mutant = runner.Mutant(1, "a.py", "a < b", "x", "y")
    outcome = runner.Outcome("tests/t/test_a.py::test_b", "a | b < c")
    page = runner.report([(mutant, outcome)])
    assert runner.outcomes_before(page) == {("a.py", "a < b"): outcome}
    nothing = runner.report([(mutant, runner.Outcome(""))])
    assert runner.outcomes_before(nothing) == {}


def test_a_defect_goes_into_the_copy_alone(tmp_path: Path) -> None:
    path = tmp_path / "tcdsl" / "x.py"
    path.parent.mkdir()
    path.write_text("y = a + b\n")
    runner.Mutant(1, "x.py", "a sign", "a + b", "a - b").plant(tmp_path)
    assert path.read_text() == "y = a - b\n"


def test_the_order_of_the_tests(tmp_path: Path) -> None:
    """Files that are named come before the rest of their folder."""
    for name in ("codegen/test_a.py", "codegen/test_gpu_defects.py", "transforms/test_b.py"):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert runner.test_files(tmp_path) == [
        "tests/codegen/test_gpu_defects.py",
        "tests/transforms/test_b.py",
        "tests/codegen/test_a.py",
    ]
