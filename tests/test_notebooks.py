"""The notebooks as they are stored: Markdown that Jupytext reads, nothing that a run left behind.

.ci/notebooks runs them.
"""

import re
from pathlib import Path
from typing import Any

import pytest

jupytext = pytest.importorskip("jupytext")

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]_*.md"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def notebook(path: Path) -> Any:
    return jupytext.read(path, fmt="md:myst")


def code_of(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_ten_and_the_readme_lists_them() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{number:02}" for number in range(1, 11)]
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.md\)", readme, re.MULTILINE)
    assert listed == [path.stem for path in NOTEBOOKS]


def test_nothing_is_stored_but_markdown() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.suffix == ".ipynb"} <= {
        f"{path.stem}.ipynb"
        for path in NOTEBOOKS  # pairs that somebody works with: ignored by git
    }
    ignored = (FOLDER.parent / ".gitignore").read_text().splitlines()
    assert "/notebooks/*.ipynb" in ignored


def test_jupytext_reads_it_and_writes_the_same(path: Path, notebook: Any) -> None:
    again = jupytext.reads(jupytext.writes(notebook, fmt="md:myst"), fmt="md:myst")
    before, after = ([(c.cell_type, c.source) for c in n.cells] for n in (notebook, again))
    assert before == after
    assert len(before) > 10
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    assert before[0][0] == "markdown" and before[0][1].startswith("# ")


def test_no_output_is_stored(notebook: Any) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


def test_every_cell_is_python_or_a_program(notebook: Any) -> None:
    transform = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager()
    for text in code_of(notebook):
        compile(transform.transform_cell(text), text, "exec")
    assert any(text.startswith("%%tcdsl") for text in code_of(notebook))
    assert "%load_ext tcdsl" in code_of(notebook)[0]


def test_measurements_on_a_gpu_are_guarded_and_say_where_and_when(notebook: Any) -> None:
    for text in code_of(notebook):
        if "H200" in text:
            assert "if tcdsl.cuda.is_available():" in text
            assert re.search(r"on 20\d\d-\d\d-\d\d", text) and "docs/performance_gpu.md" in text


def test_pictures_have_alternative_text(notebook: Any) -> None:
    for cell in notebook.cells:
        draws = re.search(
            r"^\w.* = plt\.(subplots|subplot_mosaic|figure)\(", cell.source, re.MULTILINE
        )
        if draws and cell.cell_type == "code":
            text = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(text.split()) > 4, cell.source


# --- the gallery -------------------------------------------------------------------------------


def programs_of_the_gallery() -> dict[str, list[str]]:
    """Return the code cells below each heading that has a program."""
    found: dict[str, list[str]] = {}
    title = ""
    for cell in jupytext.read(FOLDER / "07_gallery.md", fmt="md:myst").cells:
        if cell.cell_type == "code":
            found.setdefault(title, []).append(cell.source)
        elif headings := re.findall(r"^### (.+)$", cell.source, re.MULTILINE):
            title = headings[-1]
    return {t: cells for t, cells in found.items() if cells[0].startswith("%%tcdsl")}


def test_the_gallery_shows_a_picture_or_a_number_of_each_program() -> None:
    programs = programs_of_the_gallery()
    assert len(programs) >= 40
    for title, (program, *calls) in programs.items():
        (name,) = re.findall(r"^def (\w+)", program, re.MULTILINE)
        shown = re.findall(r"^ *(?:picture|print)\((.*)\)$", calls[-1], re.MULTILINE)
        assert shown and not shown[-1].endswith(".shape"), title
        assert re.search(rf"\b{name}\(", calls[-1]), title
        assert "agree(" in calls[-1] or "assert" in calls[-1], title


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_gallery_runs_and_each_program_shows_something() -> None:
    pytest.importorskip("matplotlib")
    nbclient, _ = pytest.importorskip("nbclient"), pytest.importorskip("ipykernel")
    notebook = jupytext.read(FOLDER / "07_gallery.md", fmt="md:myst")
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    calls = {cells[n].source: cells[n + 1] for n in range(1, len(cells) - 1, 2)}
    assert len(calls) >= 40 and all(source.startswith("%%tcdsl") for source in calls)
    for source, call in calls.items():
        text = "".join(
            output.get("text", "") + output.get("data", {}).get("text/html", "")
            for output in call.outputs
        )
        assert re.search(r"<img alt=|\d", text), source
