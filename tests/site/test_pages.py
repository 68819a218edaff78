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
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.settings import VARIABLES
from tcdsl_site import builtin_table, compiler_page, notebooks, product_page, tables
from tcdsl_site.generated import MAKERS, complete_page, pages, regenerated

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def code_of(page: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code_of(page), page, "exec"), {"__name__": page})


@pytest.mark.parametrize(
    "page",
    [
        "index.md",
        "quickstart.md",
        "options.md",
        "compiler.md",
        "how_a_kernel_is_chosen.md",
        "troubleshooting.md",
    ],
)
def test_programs_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page, tmp_path, monkeypatch)


@pytest.mark.slow
def test_the_program_of_the_page_on_products_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("how_a_product_is_compiled.md", tmp_path, monkeypatch)


@pytest.mark.slow
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
        assert f"- **`{variable.name}`**: {variable.doc}\\\n" in settings
    for field in fields(tcdsl.Options):
        assert re.search(rf"^- \*\*`{field.name}`\*\*: \S", options, re.MULTILINE)
    assert "Type: `Literal['max', 'none']`. Default: `'max'`." in options
    assert "Type: `bool`. Default: `True`." in options


# --- generated parts -------------------------------------------------------------------------

REGENERATE = "run: python docs/_ext/regenerate.py"
# They compile; test_error_page.py compares the errors one by one.
SLOW = ("compiler", "errors", "how_a_kernel_is_chosen", "how_a_product_is_compiled")


@pytest.mark.parametrize("path", pages(DOCS), ids=lambda path: path.stem)
def test_the_generated_parts_are_what_the_code_says(path: Path) -> None:
    if path.stem in SLOW:
        pytest.skip("compared by a test of its own")
    page = path.read_text(encoding="utf-8")
    assert regenerated(path.stem, page) == page, REGENERATE


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["compiler", "how_a_kernel_is_chosen", "how_a_product_is_compiled"]
)
def test_pages_on_the_compiler_are_what_it_does(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert regenerated(name, page) == page, REGENERATE


def test_a_part_that_differs_is_found_and_made_anew() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    old = page.replace("Default: `True`", "Default: `maybe`")
    assert old != page and regenerated("options", old) == page
    assert regenerated("options", page) == page


def test_every_mark_of_a_page_has_a_maker_and_an_end() -> None:
    for path in DOCS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        marks = re.findall(r"^<!-- generated: ([\w-]+).*-->$", text, re.MULTILINE)
        assert set(marks) <= set(MAKERS), path.name
        assert len(marks) == len(re.findall(r"^<!-- end -->$", text, re.MULTILINE)), path.name


def test_the_table_of_builtins_has_them_all() -> None:
    table = builtin_table.builtins()
    assert table.count("\n| `") == len(BUILTINS)
    assert r"| `fabs(x)` | float&nbsp;→&nbsp;float | \|x\| |" in table
    for builtin in BUILTINS.values():  # each meaning speaks of its parameters only
        assert set(re.findall(r"\b[xyzt]\b", builtin.meaning)) <= set(builtin.parameters)


@pytest.mark.parametrize("path", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"], ids=str)
def test_links_have_text(path: Path) -> None:
    assert "[](" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_directives_are_for_the_site_only(path: Path) -> None:
    shown = re.sub(r"^<!--.*?-->", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^(?:```|:::)\{", shown, re.MULTILINE)


def test_the_site_has_directives_and_no_tables_in_their_place() -> None:
    content = [(DOCS / "api.md").read_text(encoding="utf-8")]
    complete_page(SimpleNamespace(), "api", content)  # type: ignore[arg-type]
    assert ".. autofunction:: tcdsl.define" in content[0] and "| name |" not in content[0]
    assert "<!-- site" not in content[0]


PAGE = (DOCS / "compiler.md").read_text(encoding="utf-8")


def test_a_stage_is_plain_markdown_that_any_host_shows() -> None:
    assert "{ S1[m, n] -> S2[m' = m, n' = n] }" in PAGE
    assert "| `S1` | `power(m, n) = exp(x(m, n) - top(m))` | reads | reads | writes |" in PAGE
    for directive in ("{code-block}", "{raw}", ":class:"):
        assert directive not in PAGE


def test_the_site_draws_what_the_page_tells() -> None:
    picture = compiler_page.picture("cpu statements", PAGE)
    assert picture.count("<circle") == 14  # 12 marks, two of them with a ring around
    assert "y(m, n) = power(m, n) / total(m)" in picture
    assert 'aria-label="S0_init writes top; S0 reads x, updates top' in picture


@pytest.mark.slow
def test_the_site_draws_the_loops() -> None:
    loops = compiler_page.picture("cpu schedule", PAGE)
    assert loops.count("tc-vector") == 5 and loops.count("<div") == loops.count("</div>")


@pytest.mark.slow
def test_the_site_draws_the_pipeline() -> None:
    page = (DOCS / "how_a_product_is_compiled.md").read_text(encoding="utf-8")
    drawn = product_page.picture("pipeline", page)
    assert "<svg" in drawn and "stage 0" in drawn and "tensor cores" in drawn
    assert product_page.picture("classes", page) == product_page.step("classes", page)


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
