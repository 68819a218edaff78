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
    assert len(chosen) == 60 and len({(m.file, m.old, m.new) for m in chosen}) == 60
    assert list(runner.misfits(chosen)) == []


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
    with pytest.raises(RuntimeError, match="pytest ended with 5"):
        runner.outcome_of(5, "no tests ran")


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
