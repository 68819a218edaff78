"""The programs of README and docs work as printed."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import tcdsl
from tcdsl.settings import VARIABLES

ROOT = Path(__file__).parent.parent


def blocks(path: str, language: str) -> list[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_tour_of_the_readme_runs() -> None:
    code = "\n".join(blocks("README.md", "python"))
    assert code.count("assert") >= 3
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "README.md", "exec"), {})
    assert "kernel" in printed.getvalue()


def test_the_page_on_displays_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("docs/notebook_displays.md", "python"))
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "notebook_displays.md", "exec"), {})
    assert (tmp_path / "softmax.html").exists()


def test_the_page_on_notebooks_runs() -> None:
    exec(compile("\n".join(blocks("docs/jupyter.md", "python")), "jupyter.md", "exec"), {})


def test_the_error_of_the_readme_is_the_real_one() -> None:
    (block,) = blocks("README.md", "text")
    call, expected = block.split("\n", 1)
    match = re.search(r'define\("(.*)"\)', call)
    assert match is not None
    with pytest.raises(tcdsl.TCError) as caught:
        tcdsl.define(match[1])
    assert str(caught.value) == expected.strip()


@pytest.mark.parametrize("text", blocks("docs/language.md", "tc"))
def test_the_examples_of_the_language_compile(text: str) -> None:
    assert tcdsl.define(text).names


@pytest.mark.parametrize("name", [variable.name for variable in VARIABLES])
def test_every_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / "docs" / target).exists(), target
