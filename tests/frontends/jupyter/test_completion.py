"""What is offered while a cell is being typed; | is the cursor."""

from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

from tcdsl.frontends.jupyter.completion import candidates, words_of
from tcdsl.frontends.stages import STAGES
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import BY_NAME

HEAD = "def mm(float(M, K) A, float(K, N) B, int32 shift) -> (C, D) {\n"


def offered(text: str) -> list[str]:
    before, after = text.split("|")
    return [one.text for one in candidates(before + after, len(before))]


def completed(notebook: Any, text: str) -> list[str]:
    """Return what IPython completes, as Jupyter asks it; without | the cursor is at the end."""
    before, _, after = text.partition("|")
    with provisionalcompleter():
        found = list(notebook.shell.Completer.completions(before + after, len(before)))
    return [before[: one.start] + one.text for one in found]


def test_the_names_of_the_def_come_first() -> None:
    found = offered(f"{HEAD}    t(m) = A(m, 0) where u = 3\n    |\n    C(m, n) +=! A(m, k)\n}}")
    assert found[:6] == ["A", "B", "shift", "C", "D", "t"]
    assert {"M", "K", "N", "m", "n", "k", "u"} <= set(found[6:14])
    assert "mm" not in found


def test_a_body_has_keywords_builtins_types_and_earlier_defs() -> None:
    found = offered(f"def first(float(N) x) -> (y) {{ y(i) = x(i) }}\n{HEAD}  C = |")
    assert {"where", "in", "exists", "true", "inf", "nan", "min", "max", "first"} <= set(found)
    assert set(BUILTINS) | set(BY_NAME) <= set(found)
    assert len(found) == len(set(found))


def test_another_defs_names_are_not_offered() -> None:
    found = offered(f"def first(float(N) secret) -> (y) {{ y(i) = secret(i) }}\n{HEAD} |")
    assert "secret" not in found
    assert "later" not in offered(f"{HEAD} | }}\ndef later(float(N) x) -> (y) {{ y = x }}")


def test_a_header_has_types_and_its_sizes() -> None:
    found = offered("def mm(float(M, K) A, float(|")
    assert found[:2] == ["M", "K"]
    assert set(BY_NAME) <= set(found)
    assert not {"where", "exp", "A"} & set(found)


@pytest.mark.parametrize("text", ["|", "# a comment\n|", f"{HEAD}}}\n|", "d|"])
def test_between_defs_there_is_only_def(text: str) -> None:
    assert offered(text) == ["def"]


@pytest.mark.parametrize("text", ["def |", "def m|", f"{HEAD} # what A| is", f"{HEAD} C = A # |"])
def test_new_names_and_comments_are_left_alone(text: str) -> None:
    assert offered(text) == []


def test_words_of_the_grammar() -> None:
    assert words_of("CONSTANT") == ("true", "false", "inf", "nan")
    assert words_of("WHERE") == ("where",)


# --- through IPython ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("%%tcdsl\nde|", "%%tcdsl\ndef"),
        ("%%tcdsl prog\ndef f(flo|", "%%tcdsl prog\ndef f(float32"),
        ("%%tcdsl\ndef f(float(N) image) -> (y) {\n y(i) = im|(i)\n}",
         "%%tcdsl\ndef f(float(N) image) -> (y) {\n y(i) = image"),
        ("%%tcdsl\ndef f(float(N) x) -> (y) {\n y(i) = x(i)/sig|",
         "%%tcdsl\ndef f(float(N) x) -> (y) {\n y(i) = x(i)/sigmoid"),
        ("%%tcdsl\ndef f(float(N) x) -> (y) {\n y(i) = x(i) whe|",
         "%%tcdsl\ndef f(float(N) x) -> (y) {\n y(i) = x(i) where"),
        ("%tcdsl_show sch|", "%tcdsl_show schedule"),
        ("%tcdsl_show code mat|", "%tcdsl_show code matmul"),
        ("x = 3\n%tcdsl_show code prog.ma|", "x = 3\n%tcdsl_show code prog.matmul"),
        ("%tcdsl_bench mat|", "%tcdsl_bench matmul"),
        ("%%tcdsl_bench mat|\nA @ B", "%%tcdsl_bench matmul"),
    ],
)  # fmt: skip
def test_ipython_completes(typed: str, found: str, notebook: Any, matmul: str) -> None:
    notebook.run(f"%%tcdsl\n{matmul}")
    notebook.run(f"%%tcdsl prog\n{matmul}")
    assert found in completed(notebook, typed)


def test_every_stage_is_offered(notebook: Any) -> None:
    assert completed(notebook, "%tcdsl_show ") == [f"%tcdsl_show {stage}" for stage in STAGES]


def test_pythons_names_are_not_offered_in_a_program(notebook: Any) -> None:
    notebook.names["wherever"] = 1
    found = completed(notebook, "%%tcdsl\ndef f(float(N) x) -> (y) { y(i) = x(i) wher")
    assert [text.rpartition(" ")[2] for text in found] == ["where"]


def test_other_cells_are_pythons(notebook: Any) -> None:
    assert "np.float32" in completed(notebook, "np.float3")


@pytest.mark.filterwarnings("ignore:.*Completer.complete")
def test_the_older_way_of_asking_works_too(notebook: Any) -> None:
    line = "%%tcdsl\ndef f(float(N) x) -> (y) { y(i) = expm"
    text, found = notebook.shell.complete("expm", line, len(line))
    assert (text, found) == ("expm", ["expm1"])
