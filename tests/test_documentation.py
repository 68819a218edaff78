"""The programs of README and docs work as printed; public names have docstrings."""

import contextlib
import inspect
import io
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import tcdsl
from tcdsl.settings import VARIABLES
from tcdsl.strategies.catalogue import TEMPLATES

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
    assert f"`{name}`" in (ROOT / "docs/environment.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [template.name for template in TEMPLATES])
def test_every_template_is_in_a_table_of_the_design(name: str) -> None:
    pages = ["design_gpu.md", "design_products.md"]
    if name.startswith("cpu_"):
        pages = ["design.md"]
    rows = [line for page in pages for line in (ROOT / "docs" / page).open(encoding="utf-8")]
    first_cells = [line.split("|")[1] for line in rows if line.startswith("|")]
    assert any(f"`{name}`" in cell for cell in first_cells), f"add {name} to docs/{pages[0]}"


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(ROOT / "docs" / page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = ROOT / "docs" / (name or page)
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def prose(path: Path) -> str:
    """Return the page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Return what a heading may be linked by, as code-hosting pages and MyST make it."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LIVING = sorted({p.name for p in (ROOT / "docs").glob("*.md")} - {"changelog.md", "trials.md"})


@pytest.mark.parametrize("page", LIVING)
def test_modules_and_their_names_in_pages_are_there(page: str) -> None:
    """``strategies/work`` and ``work._chain``: where code moves, pages follow."""
    folders = "|".join(p.name for p in (ROOT / "tcdsl").iterdir() if p.is_dir())
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    missing = []
    for path, name in re.findall(rf"`((?:{folders})(?:/\w+)+)(?:\.(\w+))?`", text):
        bases = (ROOT / base / path for base in ("tcdsl", "tests", "tcdsl/emulator"))
        found = [p for base in bases for p in (base, *base.parent.glob(f"{base.name}.*"))]
        found = [p for p in found if p.exists()]
        if not found or (name and not is_named(name, found)):
            missing.append(f"{path}.{name}" if name else path)
    for module, name in re.findall(r"`([a-z]\w+)\.(_?[a-z]\w+)`", text, re.IGNORECASE):
        found = [*(ROOT / "tcdsl").rglob(f"{module}.py")]
        if found and not is_named(name, found):
            missing.append(f"{module}.{name}")
    assert missing == []


def is_named(name: str, paths: list[Path]) -> bool:
    """Return whether *name* is the ending of one of *paths*, or a word in one."""
    texts = (p.read_text(encoding="utf-8") for p in paths if p.is_file())
    endings = {*ENDINGS, *(p.suffix[1:] for p in paths)}
    return name in endings or any(re.search(rf"\b{name}\b", text) for text in texts)


ENDINGS = ("json", "md", "toml", "py")


def test_the_api_page_has_all_that_is_public() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for module in (tcdsl, tcdsl.testing, tcdsl.library, tcdsl.cuda):
        public = getattr(module, "__all__", None) or [
            name for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
        ]  # fmt: skip
        for name in public:
            if name.startswith("__") or inspect.ismodule(getattr(module, name)):
                continue
            assert re.search(rf"\b{name}\b", page), f"{module.__name__}.{name}"


# --- docstrings ------------------------------------------------------------------------------


def public_callables() -> list[tuple[str, Any]]:
    """Return all functions, methods and properties that the interface has, by their names."""
    found: list[tuple[str, Any]] = []
    for module in (tcdsl, tcdsl.testing):
        for name in module.__all__:
            one = getattr(module, name)
            if inspect.isclass(one):
                found.append((name, one))
                found += [
                    (f"{name}.{method}", value) for method, value in vars(one).items()
                    if not method.startswith("_") or method == "__call__"
                    if isinstance(value, property | cached_property | classmethod)
                    or inspect.isfunction(value)
                ]  # fmt: skip
            elif callable(one):
                found.append((name, one))
    return found


@pytest.mark.parametrize(
    ("name", "one"), public_callables(), ids=lambda x: x if isinstance(x, str) else ""
)
def test_every_public_name_says_what_it_is(name: str, one: Any) -> None:
    assert inspect.getdoc(one), f"{name} has no docstring"


@pytest.mark.parametrize("one", [
    *(getattr(tcdsl.testing, name) for name in tcdsl.testing.__all__),
    tcdsl.define, tcdsl.compute, tcdsl.spec, tcdsl.explore, tcdsl.Function.__call__,
], ids=lambda one: one.__qualname__)  # fmt: skip
def test_every_argument_is_told(one: Any) -> None:
    told = inspect.getdoc(one) or ""
    if one in (tcdsl.testing.fuzz_programs, tcdsl.testing.save_case):
        told += inspect.getdoc(tcdsl.testing.check) + inspect.getdoc(tcdsl.testing.fuzz)
    for argument in set(inspect.signature(one).parameters) - {"self"}:
        assert re.search(rf"(\*|``|:arg ){argument}\b", told), argument
