"""Parts of pages that are made from the code, kept in the pages, and compared by CI.

    <!-- generated: settings -->                <!-- generated: settings -->
    (old or nothing)                   --->     - `TCDSL_TARGET`: ...
    <!-- end -->                                <!-- end -->

Readers of the stored Markdown see all of it; comments are not shown.  Where the site has a drawing
for a part, it shows the drawing in place of the stored text, which says the same in words.
What only Sphinx understands stands in ``<!-- site ... -->``, which others do not show.
``python docs/_ext/regenerate.py`` writes the parts; with ``--check`` it compares.
"""

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from tcdsl_site import (
    api_table,
    builtin_table,
    choice_page,
    compiler_page,
    error_page,
    grammar_page,
    product_page,
    tables,
    vjp_page,
)

_PART = re.compile(
    r"^(?P<mark><!-- generated: (?P<maker>[\w-]+) ?(?P<argument>.*?) -->)\n"
    r".*?^(?P<end><!-- end -->)$",
    re.MULTILINE | re.DOTALL,
)
_SITE_ONLY = re.compile(r"^<!-- site\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
# The repository keeps notebooks beside docs/, as Markdown; the site within it (see notebooks.py).
_NOTEBOOK = re.compile(r"\]\(\.\./(notebooks/\w+)\.md\)")
_TALL = 40  # lines; longer blocks scroll by themselves
_SHORT = 20  # characters of a name that stands on one line, also on a telephone

Maker = Callable[[str, str], str]  # from a mark's argument and the page it is on

# What the pages hold.
MAKERS: Mapping[str, Maker] = {
    "api": api_table.interface,
    "choice": choice_page.step,
    "builtins": lambda *_: builtin_table.builtins(),
    "derivatives": lambda *_: builtin_table.derivatives(),
    "errors": lambda _, page: error_page.overview(page),
    "grammar": lambda *_: grammar_page.grammar(_grammar()),
    "kernels": compiler_page.kernels,
    "options": lambda *_: tables.options(),
    "settings": lambda *_: tables.settings(),
    "stage": compiler_page.stage,
    "picture": compiler_page.picture_text,
    "product": product_page.step,
    "jvp": vjp_page.jvp_text,
    "vjp": vjp_page.text,
}
# What the site shows instead.
ON_THE_SITE: Mapping[str, Maker] = {
    "api": lambda *_: "",  # autodoc's directives follow, for the site only
    "errors": lambda _, page: f":::{{container}} tc-codes\n{error_page.overview(page)}:::\n",
    "grammar": lambda *_: grammar_page.grammar(_grammar(), with_diagrams=True),
    "picture": compiler_page.picture,
    "product": product_page.picture,
}


def pages(folder: Path) -> list[Path]:
    """Return the pages of *folder* that have generated parts."""
    return [page for page in sorted(folder.glob("*.md")) if _PART.search(page.read_text("utf-8"))]


def regenerated(name: str, page: str) -> str:
    """Return the text *page* of the page called *name*, its generated parts made anew."""
    text = error_page.completed(page) if name == "errors" else page
    return _filled(text, MAKERS)


def complete_page(app: Sphinx, name: str, content: list[str]) -> None:
    """Put the site's own form of a part in the place of the stored one."""
    text = error_page.with_known_languages(content[0]) if name == "errors" else content[0]
    content[0] = _NOTEBOOK.sub(r"](\1)", _SITE_ONLY.sub(r"\1", _filled(text, ON_THE_SITE)))


def mark_tall_blocks(app: Sphinx, page: nodes.document) -> None:
    """Let long blocks of code scroll."""
    for block in page.findall(nodes.literal_block):
        if block.astext().count("\n") >= _TALL:
            block["classes"].append("tc-tall")


def mark_short_names(app: Sphinx, page: nodes.document) -> None:
    """Let no browser break ``--size`` behind its hyphens; longer code has to break somewhere."""
    for name in page.findall(nodes.literal):
        if len(name.astext()) <= _SHORT:
            name["classes"].append("tc-short")


def _filled(page: str, makers: Mapping[str, Maker]) -> str:
    def part(found: re.Match[str]) -> str:
        maker = makers.get(found["maker"])
        if maker is None:
            return found[0]
        text = maker(found["argument"], page).strip("\n")
        return f"{found['mark']}\n{text}\n{found['end']}"

    return _PART.sub(part, page)


def _grammar() -> str:
    return files("tcdsl.grammar").joinpath("tc.lark").read_text(encoding="utf-8")
