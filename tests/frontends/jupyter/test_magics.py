"""Cells that define, show, time, or are wrong."""

import re
from typing import Any

import pytest

import tcdsl
from tcdsl.frontends import benchmark
from tcdsl.frontends.jupyter.magics import CELL_MAGICS, LINE_MAGICS
from tcdsl.frontends.stages import STAGES

TWO = "def one(float(N) x) -> (y) { y(i) = x(i) }\ndef two(float(N) x) -> (s) { s +=! x(i) }\n"
WRONG = "def f(float(N) x) -> (y) {\n    y(i) +=! x(i + j)\n}\n"


def plain(text: str) -> str:
    """Return *text* without the colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# --- %%tcdsl -----------------------------------------------------------------------------------


def test_a_cell_defines_its_functions(notebook: Any, matmul: str) -> None:
    cell = notebook.run(f"%%tcdsl\n{matmul}")
    assert isinstance(cell.value, tcdsl.Program)
    assert "matmul(float32(M, K) A, float32(K, N) B) -> (float32(M, N) C)" in cell.printed
    assert notebook.run("matmul(A, B).shape").value == (6, 4)
    assert notebook.run("np.allclose(matmul(A, B), A @ B, atol=1e-5)").value


def test_a_cell_with_a_name_defines_the_program(notebook: Any) -> None:
    notebook.run(f"%%tcdsl prog\n{TWO}")
    assert notebook.names["prog"].names == ("one", "two")
    assert "one" not in notebook.names


def test_defs_of_a_cell_may_be_many(notebook: Any) -> None:
    notebook.run(f"%%tcdsl\n{TWO}")
    assert {"one", "two"} <= set(notebook.names)


def test_names_of_python_that_are_hidden_are_told(notebook: Any) -> None:
    cell = notebook.run("%%tcdsl\ndef sum(float(N) x) -> (s) { s +=! x(i) }")
    assert "note: sum hides what Python calls so" in cell.printed


def test_braces_and_dollars_are_the_programs(notebook: Any) -> None:
    """IPython would put values of variables there."""
    notebook.names["i"] = 3
    assert notebook.run("%%tcdsl\ndef f(float(N) x) -> (y) {y(i) = x(i)}").error is None


def test_a_mistake_shows_carets_and_hint_and_no_traceback(notebook: Any) -> None:
    cell = notebook.run(f"%%tcdsl\n{WRONG}")
    assert isinstance(cell.error, tcdsl.RangeError)
    lines = plain(cell.shown).splitlines()
    assert "error[TC040]" in lines[0]
    assert lines[1] == "    y(i) +=! x(i + j)"
    assert lines[2] == " " * 6 + "^"
    assert lines[3].startswith("hint: ")
    assert len(lines) == 4
    assert "Traceback" not in cell.shown + cell.printed
    assert "f" not in notebook.names


def test_lines_of_errors_are_those_of_the_cell(notebook: Any) -> None:
    error = notebook.run(f"%%tcdsl\n{WRONG}").error
    assert (error.line, error.column) == (3, 7)
    cells = notebook.names["In"]  # what In[1], In[2], ... are
    assert error.source.name == f"<cell {len(cells) - 1}>"
    assert "run_cell_magic" in cells[-1]


def test_all_mistakes_of_a_cell_are_shown(notebook: Any) -> None:
    lines = "def f(float(N) x) -> (y, z) {\n    y(i) = u(i)\n    z(i) = v(i)\n}"
    cell = notebook.run(f"%%tcdsl\n{lines}")
    assert "unknown tensor or function 'u'" in plain(cell.shown)
    assert "unknown tensor or function 'v'" in plain(cell.shown)
    assert len(re.findall(r"^ +\^+$", plain(cell.shown), re.MULTILINE)) == 2


def test_a_mistake_in_one_def_defines_none(notebook: Any) -> None:
    notebook.run(f"%%tcdsl\n{TWO}{WRONG}")
    assert not {"one", "two", "f"} & set(notebook.names)


def test_an_error_outside_of_magics_keeps_its_traceback(notebook: Any) -> None:
    cell = notebook.run("import tcdsl\ntcdsl.define('def')")
    assert isinstance(cell.error, tcdsl.ParseError)
    assert "Traceback" in plain(cell.shown)


@pytest.mark.parametrize(
    ("line", "what"),
    [("a b", "'a b' is more than a name"), ("3x", "'3x' is no name"), ("x.y", "'x.y' is no name"),
     ("__x", "'__x' is no name"), ("class", "'class' is no name")],
)  # fmt: skip
def test_a_wrong_name_is_told(line: str, what: str, notebook: Any, matmul: str) -> None:
    cell = notebook.run(f"%%tcdsl {line}\n{matmul}")
    assert what in plain(cell.shown)
    assert "hint: begin the cell with %%tcdsl or %%tcdsl NAME" in plain(cell.shown)
    assert "matmul" not in notebook.names


@pytest.mark.parametrize("text", ["%%tcdsl", "%%tcdsl\n", "%%tcdsl\n\n", "%tcdsl"])
def test_an_empty_cell_is_told(text: str, notebook: Any) -> None:
    cell = notebook.run(text)
    assert cell.error is not None
    assert re.search("is empty|defines nothing|did you mean", cell.printed + cell.shown)
    assert "Traceback" not in cell.printed + cell.shown


# --- %tcdsl_show -------------------------------------------------------------------------------

PARTS = {
    "program": "def matmul(", "ast": "Def name='matmul'", "comprehension": "C: float32(M, N)",
    "coalesced": "S0", "transforms": "S0", "plan": "kernel",
    "scop": "S0[m, n, k]", "schedule": "kernel S0",
    "tree": "domain", "code": "tcdsl_entry", "explain": "target cpu, 1 kernel",
    "choices": '"format": "tcdsl choices"', "candidates": '"target": "cpu"',
}  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_shown(stage: str, notebook: Any, matmul: str, checked: Any) -> None:
    notebook.run(f"%%tcdsl\n{matmul}")
    cell = notebook.run(f"%tcdsl_show {stage} matmul(A, B)")
    assert cell.error is None
    assert PARTS[stage] in str(cell.value)
    assert PARTS[stage] in cell.printed
    assert checked(cell.value._repr_mimebundle_()["text/html"]).text


def test_named_arguments_and_targets(notebook: Any, matmul: str) -> None:
    notebook.run(f"%%tcdsl prog\n{matmul}")
    cell = notebook.run("%tcdsl_show code prog.matmul(A, B=B, target='emulate')")
    assert "__global__" in str(cell.value)
    spec = "__import__('tcdsl').spec((3, 4), 'float32')"
    other = "__import__('tcdsl').spec((4, 5), 'float32')"
    assert notebook.run(f"%tcdsl_show schedule prog.matmul({spec}, {other})").error is None


def test_the_first_stages_need_no_arguments(notebook: Any, matmul: str) -> None:
    notebook.run(f"%%tcdsl prog\n{matmul}")
    assert "Def name='matmul'" in str(notebook.run("%tcdsl_show ast prog").value)
    assert notebook.run("%tcdsl_show comprehension prog.matmul").error is None


@pytest.mark.parametrize(
    ("line", "what", "advice"),
    [
        ("%tcdsl_show", "which stage", "type %tcdsl_show STAGE f(A, B)"),
        ("%tcdsl_show cod f(A)", "no stage 'cod'", "did you mean 'code'?"),
        ("%tcdsl_show code", "which def?", "type %tcdsl_show code f(A, B)"),
        ("%tcdsl_show ast", "which def?", "type %tcdsl_show ast f"),
        ("%tcdsl_show code matmul", "matmul has no arguments", "type %tcdsl_show code f(A, B)"),
        ("%tcdsl_show code matmul(A", "'matmul(A' is no call", "type %tcdsl_show code f(A, B)"),
        ("%tcdsl_show code matmul(A, Z)", "matmul(A, Z) fails with NameError", "run what"),
        ("%tcdsl_show code nothing(A)", "nothing fails with NameError", "run what"),
        (
            "%tcdsl_show code A(A)",
            "A is of type ndarray, not a def",
            "type %tcdsl_show code f(A, B)",
        ),
        ("%tcdsl_show code two(A)", "two is of type Program, not a def", "type two.two(...)"),
        ("%tcdsl_show code matmul(A, A)", "the size K is 5", "declared to be equal"),
        ("%tcdsl_show code matmul(A)", "takes 2 arguments", "matmul(float32(M, K) A"),
        ("%tcdsl_show code matmul(A, B, target='cup')", "'cup'", "cpu"),
        ("%tcdsl_bench", "which call?", "type %tcdsl_bench f(A, B)"),
        ("%tcdsl_bench matmul", "matmul has no arguments", "type %tcdsl_bench f(A, B)"),
        ("%%tcdsl_bench matmul(A, B)\nA @ Z", "A @ Z fails with NameError", "run what"),
        ("%%tcdsl_bench matmul(A, B)\nA @", "line 2 is no Python", "an expression a line"),
        (
            "%%tcdsl_bench matmul(A, B)\na = A\na = B",
            "two lines are called 'a'",
            "a name of its own",
        ),
        ("%%tcdsl_bench matmul(A, B)\nimport os", "'import os' is no", "an expression a line"),
    ],
)
def test_wrong_usage_says_what_to_type(
    line: str, what: str, advice: str, notebook: Any, matmul: str
) -> None:
    notebook.run(f"%%tcdsl\n{matmul}")
    notebook.run(f"%%tcdsl two\n{TWO}")
    cell = notebook.run(line)
    shown = plain(cell.shown)
    assert isinstance(cell.error, tcdsl.TCError)
    assert what in shown
    assert advice in shown
    assert "Traceback" not in shown


# --- %tcdsl_bench ------------------------------------------------------------------------------


def test_a_call_is_timed_beside_others(
    notebook: Any, matmul: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "SECONDS", 0.001)
    notebook.run(f"%%tcdsl\n{matmul}")
    cell = notebook.run("%%tcdsl_bench matmul(A, B)\nmine = A @ B\nA.T")
    assert {"tcdsl", "NumPy reference", "NumPy einsum", "mine", "A.T"} <= set(cell.value.times_us)
    assert "A.T computes something else" in cell.printed
    assert "mine computes" not in cell.printed


# --- the extension -----------------------------------------------------------------------------


def test_it_can_be_unloaded_and_loaded_again(notebook: Any) -> None:
    shell = notebook.shell
    for _ in range(2):
        shell.run_line_magic("reload_ext", "tcdsl")
        assert shell.find_line_magic("tcdsl_show") and shell.find_cell_magic("tcdsl")
    assert [type(m).__name__ for m in shell.Completer.custom_matchers].count("Matcher") == 1
    shell.run_line_magic("unload_ext", "tcdsl")
    try:
        assert not any(shell.find_line_magic(name) for name in LINE_MAGICS)
        assert not any(shell.find_cell_magic(name) for name in CELL_MAGICS)
        assert not shell.Completer.custom_matchers
    finally:
        shell.run_line_magic("load_ext", "tcdsl")


@pytest.mark.parametrize("name", sorted({*CELL_MAGICS, *LINE_MAGICS}))
def test_every_magic_has_a_text_for_the_question_mark(name: str, notebook: Any) -> None:
    manager = notebook.shell.magics_manager.magics
    magic = manager["line"].get(name) or manager["cell"].get(name)
    assert f"%{name}" in magic.__doc__
