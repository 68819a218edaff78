"""The list of planted defects, and the runner that plants them (benchmarks/mutants.py)."""

import ast
import sys
from pathlib import Path

import pytest

from tests.scripts import script

ROOT = Path(__file__).parents[1]


runner = script("mutants")
record = sys.modules["mutants_record"]


def test_every_defect_has_its_place() -> None:
    """Whoever moves the code moves the defect: the text must stand there exactly once."""
    chosen = runner.mutants()
    assert len(chosen) >= 120 and len({(m.file, m.old, m.new) for m in chosen}) == len(chosen)
    assert len({m.what for m in chosen}) == len(chosen), "results are kept by this"
    assert [why for _, why in runner.misfits(chosen)] == []


def test_defects_are_code() -> None:
    """A defect that is no Python would be caught by anything, and say nothing."""
    for mutant in runner.mutants():
        path = ROOT / "tcdsl" / mutant.file
        if path.suffix == ".py":
            ast.parse(mutant.applied(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "file",
    [
        "strategies/templates/row_cluster.py", "costmodel/clusters.py", "codegen/cuda/overlap.py",
        "codegen/cuda/changing.py", "rewrites/scop/row_terms.py",
        "rewrites/scop/alignment_shift.py",
        "rewrites/scop/exponential_sums.py", "rewrites/scop/shifted_exponentials.py",
        "rewrites/scop/rescaling.py", "codegen/cuda/memsets.py", "codegen/cuda/prefetches.py",
        "strategies/templates/column_cluster.py", "codegen/passes/waits.py", "runtime/",
    ],
)  # fmt: skip
def test_later_modules_have_defects_too(file: str) -> None:
    assert sum(mutant.file.startswith(file) for mutant in runner.mutants()) >= 5


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
    assert outcome.line == record.SHORT
    assert outcome.is_caught and not runner.outcome_of(0, "3 passed").is_caught
    broken = runner.outcome_of(2, "ERROR tests/a.py - ImportError: no b\n")
    assert (broken.by, broken.why) == ("tests/a.py", "ImportError: no b")
    assert not runner.outcome_of(5, "1 deselected in 0.1s").is_caught, "a slow test"
    assert runner.outcome_of(-11, "..").is_caught, "the process did not survive it"
    with pytest.raises(RuntimeError, match="pytest ended with -2"):
        runner.outcome_of(-2, "..")
    with pytest.raises(RuntimeError, match="pytest ended with 5"):
        runner.outcome_of(5, "no tests ran")


MODULE = """class A:
    def f(self):
        return a + b

def g():
    return 1
"""
MAP = """# a comment
3 tests/quick.py
12 tests/slow.py
5 tests/test_x.py

y/x.py 0-2 A.f
y/x.py 1 g
y/z.py 0,2 h k
"""


@pytest.mark.parametrize(
    ("old", "wanted"),
    [
        ("a + b", ["tests/test_x.py", "tests/quick.py", "tests/slow.py"]),  # its own, quick ones
        ("return 1", ["tests/slow.py", "tests/test_x.py"]),  # cut off, it may call g too
        ("class A", ["tests/test_x.py", "tests/quick.py", "tests/slow.py"]),  # of all functions
    ],
)
def test_the_tests_that_call_a_function(old: str, wanted: list[str]) -> None:
    coverage = runner.Coverage.read(MAP)
    assert runner.Coverage.read(coverage.text()) == coverage
    assert coverage.tests_of("y/x.py", MODULE, old) == wanted


def test_a_test_that_caught_others_in_the_module_is_likely() -> None:
    coverage = runner.Coverage.read(MAP)
    found = coverage.tests_of("y/x.py", MODULE, "a + b", {"tests/slow.py": 2})
    assert found == ["tests/test_x.py", "tests/slow.py", "tests/quick.py"]


@pytest.mark.slow
def test_the_map_knows_the_functions_with_defects() -> None:
    """By the names that they have: `python benchmarks/mutants.py --map` after many have moved."""
    coverage = runner.Coverage.read(runner.MAP.read_text(encoding="utf-8"))
    known = [m for m in runner.mutants() if m.file.endswith(".py")]
    lost = []
    for mutant in known:
        text = (ROOT / "tcdsl" / mutant.file).read_text(encoding="utf-8")
        tests = coverage.tests_of(mutant.file, text, mutant.old)
        if not any((ROOT / test).exists() for test in tests):
            lost.append(f"{mutant.number}: {mutant.file}")
    assert not lost


def test_the_last_line_of_the_record_counts(tmp_path: Path) -> None:
    """An interruption loses nothing, and what was run again stands once."""
    path, first, second = tmp_path / "record", "a < b", "c"
    caught = record.Outcome("tests/t/test_a.py::test_b", "a | b < c", 2.5, record.SLOW, "today")
    for key, outcome in ((first, record.Outcome("")), (second, caught), (first, caught)):
        record.add_to_record(key, outcome, path)
    assert record.read_record(path) == {first: caught, second: caught}
    record.tidy_record([second, first, "gone"], path)
    assert list(record.read_record(path)) == [second, first]
    assert len(path.read_text().splitlines()) == 2
    assert record.read_record(tmp_path / "none") == {}


def test_what_the_page_says() -> None:
    files = {"a": "t/a.py", "b": "t/a.py", "c": "u/b.py", "d": "u/b.py"}
    defects = [
        record.Defect(n, file, what, "a reason", n == 4)
        for n, (what, file) in enumerate(files.items(), 1)
    ]
    found = record.Outcome("tests/t/test_a.py::test_b", "a | b < c", 60.0, record.SHORT, "today")
    late = record.Outcome("tests/t/test_c.py::test_d", "no", 30.0, record.SLOW, "today")
    outcomes = [found, late, record.Outcome("", "", 90.0, "", "today")]
    text = record.page(defects, dict(zip(files, outcomes, strict=False)))
    assert "Of 3 defects" in text and "2 (67 %) were caught" in text
    assert "| `t` | 2 | 1 | 1 | 0 | 1.5 |\n| `u` | 2 | 0 | 0 | 1 | 1.5 |" in text
    assert "| 1 | `t/a.py` | a | `t/test_a.py::test_b` | 60 | a \\| b &lt; c |" in text
    assert "`t/test_c.py::test_d` (slow)" in text
    assert "| 3 | `u/b.py` | c | **nothing** | 90 | a reason |" in text
    assert "| 4 | `u/b.py` | d | stale: not run yet |" in text


def test_defects_of_products_are_counted_by_subject() -> None:
    """Issue 17: of 40 in pipelines, swizzles, phases and promotion 38 are caught without a GPU."""
    every = runner.mutants()
    files = {file for subject in record._OF_PRODUCTS.values() for file in subject}
    assert files <= {mutant.file for mutant in every}
    known = record.read_record()
    run = [known[m.what] for m in every if m.file in files and m.what in known]
    assert len(run) >= 40 and sum(o.is_caught for o in run) >= 0.95 * len(run)
    (first, *_, last) = record._of_products([record.Defect(*n) for n in NUMBERED], known)
    assert first == "| pipelines: copies, stages, events | 3 | 0 | 0 | 1-2, 4 |"
    assert last == "| all | 3 | 0 | 0 | |"


NUMBERED = [(n, "schedule/pipelines.py", f"defect {n}", "", False) for n in (1, 2, 4)]


def test_a_defect_goes_into_the_copy_alone(tmp_path: Path) -> None:
    path = tmp_path / "tcdsl" / "x.py"
    path.parent.mkdir()
    path.write_text("y = a + b\n")
    runner.Mutant(1, "x.py", "a sign", "a + b", "a - b").plant(tmp_path)
    assert path.read_text() == "y = a - b\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package of one function, and what its tests say of it, one of them slow."""
    for name in ("tcdsl", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "tcdsl" / "__init__.py").touch()
    (tmp_path / "tcdsl" / "x.py").write_text("def f(a, b):\n    return a + b\n")
    (tmp_path / "tests" / "test_x.py").write_text(
        "import pytest\nfrom tcdsl.x import f\n\n"
        "def test_numbers():\n    assert f(2, 2) == 4\n\n"
        "@pytest.mark.slow\ndef test_others():\n    assert f(3, 2) == 5\n\n"
        "def test_that_never_passes():\n    assert not f\n"
    )
    markers = "\n".join(f"    {name}: x" for name in ("slow", "gpu", "fuzz"))
    (tmp_path / "setup.cfg").write_text(f"[tool:pytest]\nmarkers =\n{markers}\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "line", "by"),
    [("a - b", "short", "test_numbers"), ("a * b", "slow", "test_others"), ("b + a", "", "")],
)
def test_a_defect_is_run(checkout: Path, new: str, line: str, by: str) -> None:
    """A test that fails without it says nothing, and slow ones come after all others."""
    coverage = runner.Coverage({"tests/test_x.py": 1.0}, {"x.py f": ["tests/test_x.py"]})
    run = runner.Runner(checkout, coverage, {})
    outcome = run.tested(runner.Mutant(1, "x.py", "a sign", "a + b", new))
    assert (outcome.line, outcome.by.rpartition("::")[2]) == (line, by) and outcome.seconds > 0
    if new != "a - b":
        assert run.left_out == {"tests/test_x.py::test_that_never_passes"}
    if by:
        assert run.passing == {outcome.by}


def test_the_order_of_the_tests(tmp_path: Path) -> None:
    """Files that are named come before the rest of their folder."""
    for name in ("codegen/test_a.py", "codegen/test_gpu_defects.py", "schedule/test_b.py"):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert runner.test_files(tmp_path) == [
        "tests/codegen/test_gpu_defects.py",
        "tests/schedule/test_b.py",
        "tests/codegen/test_a.py",
    ]


def test_tests_that_name_device_code_come_first(tmp_path: Path) -> None:
    texts = {
        "tcdsl/x.cuh": "int tc_a(int); int tc_b(int);",
        "tests/codegen/test_folds.py": "",
        "tests/codegen/test_vectors.py": "tc_a(tc_b(1))",  # not of device code
        "tests/emulator/test_y.py": "tc_a(1)",
        "tests/strategies/test_tile_mma.py": "tc_b(tc_a(1))",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = runner.Runner(tmp_path, runner.Coverage({}, {}), {})
    assert run._all(runner.Mutant(1, "x.cuh", "a sign", "tc_a", "tc_b")) == [
        "tests/strategies/test_tile_mma.py",
        "tests/emulator/test_y.py",
        "tests/codegen/test_folds.py",
    ]
