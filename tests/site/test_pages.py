"""What is filled into pages, and that the programs of the new pages run as printed."""

import contextlib
import io
import json
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

import tcdsl
from tcdsl.settings import VARIABLES
from tcdsl_site import compiler_page, notebooks, tables

DOCS = Path(__file__).parents[2] / "docs"


def code_of(page: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code_of(page), page, "exec"), {"__name__": page})


@pytest.mark.parametrize("page", ["index.md", "quickstart.md", "options.md", "compiler.md"])
def test_programs_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page, tmp_path, monkeypatch)


def test_the_page_on_testing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("testing.md", tmp_path, monkeypatch)
    text = (DOCS / "testing.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    saved = [path.read_text() for path in (tmp_path / "cases").iterdir()]
    (written,) = (text for text in saved if "1 of 6 elements" in text)
    # The first line ends in numbers that depend on the machine.
    first, rest = written.split("\n", 1)
    assert first.startswith(shown.split("...")[0].strip())
    assert rest == shown.split("\n", 1)[1]


def test_every_setting_and_every_option_is_in_its_table() -> None:
    settings, options = tables.settings(), tables.options()
    for variable in VARIABLES:
        assert f"({variable.name})=" in settings and variable.doc in settings
    for field in fields(tcdsl.Options):
        assert re.search(rf"^`{field.name}`\n: \S", options, re.MULTILINE)
    assert "Type: `Literal['max', 'none']`. Default: `'max'`." in options
    assert "Type: `bool`. Default: `True`." in options


PAGE = (DOCS / "compiler.md").read_text(encoding="utf-8")


def test_stages_of_the_compilers_page() -> None:
    assert "S0_part0_fold" in compiler_page.stage("cpu schedule", PAGE)
    assert compiler_page.stage("cpu code", PAGE).startswith("```{code-block} c\n:class: tc-tall\n")
    assert "{ S1[m, n] -> S2[m' = m, n' = n] }" in compiler_page.stage("cpu dependences", PAGE)
    assert "__global__" in compiler_page.stage("emulate code", PAGE)


def test_pictures_of_the_compilers_page() -> None:
    picture = compiler_page.picture("cpu statements", PAGE)
    assert picture.count("<circle") == 14  # 12 marks, two of them with a ring around
    assert "y(m, n) = power(m, n) / total(m)" in picture
    loops = compiler_page.picture("cpu schedule", PAGE)
    assert loops.count("tc-vector") == 5 and loops.count("<div") == loops.count("</div>")


def test_a_printed_schedule_is_read_as_a_tree() -> None:
    schedule = "kernel S0\n  parallel k0.m.8: m  # 512 iterations\n    S0[m]\n  S1[m]\n"
    (kernel,) = compiler_page.loops_of(schedule)
    loop, statement = kernel.inner
    assert (loop.kind, loop.text, loop.trips) == ("parallel", "m", "512")
    assert [inner.text for inner in loop.inner] == ["S0[m]"]
    assert statement.kind == "statement" and statement.text == "S1[m]"


def test_notebooks_are_taken_executed_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EXECUTED_NOTEBOOKS", raising=False)
    pages = tmp_path / "docs"
    for folder in (pages / "notebooks", tmp_path / "notebooks", tmp_path / "build" / "notebooks"):
        folder.mkdir(parents=True)
    (tmp_path / "notebooks" / "01_one.md").write_text("# One")
    (tmp_path / "notebooks" / "02_two.md").write_text("# Two")
    (tmp_path / "notebooks" / "README.md").write_text("# No notebook")
    (tmp_path / "build" / "notebooks" / "01_one.ipynb").write_text(json.dumps({"cells": []}))
    (pages / "notebooks" / "00_old.md").write_text("# Gone since")
    app = SimpleNamespace(srcdir=pages)
    notebooks.take_notebooks(app, None)  # type: ignore[arg-type]
    assert sorted(path.name for path in (pages / "notebooks").iterdir()) == [
        "01_one.ipynb", "02_two.md",
    ]  # fmt: skip
