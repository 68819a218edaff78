"""What is decided for every library program (benchmarks/decisions.py), and the tables of it.

The default run compares some, the slow run four parts of 32; all are compared by the script.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tcdsl.strategies import catalogue
from tests.scripts import script

ROOT = Path(__file__).parents[1]
SLOW_PARTS = 16


decisions = script("decisions")
HINT = "read what changed; if it is meant so: python benchmarks/decisions.py --write"


def require_kept(work: list[object], target: str) -> None:
    """Assert that the table says of *work* what is decided now."""
    kept = decisions.read_table(target)
    rows = {row.label: row for row in map(decisions.row_of, work)}
    before = {label: kept[label] for label in rows if label in kept}
    found = list(decisions.differences(before, rows))
    assert not found, "\n".join([HINT, *found])


@pytest.mark.parametrize(("target", "step"), [("gpu", 16), ("cpu", 8)])
def test_some_programs_are_decided_as_the_tables_say(target: str, step: int) -> None:
    require_kept(decisions.some(target, step), target)


@pytest.mark.slow
@pytest.mark.one_in(8)
@pytest.mark.parametrize("part", range(SLOW_PARTS))
@pytest.mark.parametrize("target", ["gpu", "cpu"])
def test_every_program_is_decided_as_the_table_says(target: str, part: int) -> None:
    require_kept(decisions.jobs(target)[part::SLOW_PARTS], target)


@pytest.mark.parametrize("target", ["gpu", "cpu"])
def test_the_table_has_every_program_once(target: str) -> None:
    labels = [job.label for job in decisions.jobs(target)]
    assert labels == list(decisions.read_table(target)), HINT
    text = decisions.table_path(target).read_text(encoding="utf-8")
    assert "a cheaper plan" not in text, "a program of the library falls back"


def row(*lines: str, text: str = "") -> object:
    return decisions.Row("matmul float32 M=8", lines, text)


def test_differences_name_the_lines() -> None:
    before = {"a": row("tiles: 4 blocks of 64 threads, S0"), "b": row("flat: 1, S0"), "c": row()}
    after = {"a": row("flat: 4 blocks of 64 threads, S0"), "b": row("flat: 1, S0"), "d": row()}
    assert list(decisions.differences(before, after)) == [
        "a\n  - tiles: 4 blocks of 64 threads, S0\n  + flat: 4 blocks of 64 threads, S0",
        "c: no longer there",
        "d: new",
    ]


def test_texts_differ_where_decisions_do_not() -> None:
    before, after = {"a": row("x: 1", text="k();\nm();")}, {"a": row("x: 1", text="k();\nn();")}
    assert list(decisions.differences(before, after)) == ["a: the same decisions, another text"]
    _, shown = decisions.differences(before, after, n_diffs=1)
    assert "-m();" in shown and "+n();" in shown


def test_an_older_revision_has_no_names_of_strategies() -> None:
    assert not list(decisions.differences({"a": row("?: 4, S0")}, {"a": row("flat: 4, S0")}))
    assert list(decisions.differences({"a": row("?: 4, S0")}, {"a": row("flat: 8, S0")}))


def test_a_revision_is_compared_with_itself() -> None:
    """The rows of another tree come from its own tcdsl, in a process of its own."""
    work = [job for job in decisions.jobs("gpu") if job.label == "row_sum float32 M=768 N=768"]
    found = decisions.rows_in(ROOT, work, 1)
    assert len(work) == 1 and found[work[0].label] == decisions.row_of(work[0])
    assert any("device library" in label for label in found)


def test_cases_that_the_revision_does_not_have_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = decisions.jobs("gpu")[0]
    unknown = replace(known, case="not_there")
    found = decisions.rows_in(ROOT, [known, unknown], 1)
    assert known.label in found and unknown.label not in found
    after = {known.label: row(), unknown.label: row()}
    assert list(decisions._without_new_cases(found, after)) == [known.label]
    assert "does not have them: not_there\n" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["gpu", "cpu"])
def test_every_line_names_its_template(target: str) -> None:
    """Or says that it is a memset, a copy of an operand, or the loops as written."""
    lines = [line for row in decisions.read_table(target).values() for line in row.lines]
    names = {name for line in lines for name in line.partition(": ")[0].split(" + ")}
    known = {template.name for template in catalogue.TEMPLATES}
    assert names - known <= {"memset", "panel copies", "plain"}
