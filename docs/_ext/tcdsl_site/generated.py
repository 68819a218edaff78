"""Parts of pages that are made from the code while the site is built.

A page says where one goes, by a comment that other readers of Markdown do not show::

    <!-- generated: settings -->
"""

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

from sphinx.application import Sphinx

from tcdsl_site import compiler_page, error_page, grammar_page, tables

_MARK = re.compile(r"^<!-- generated: ([\w-]+) ?(.*?) -->$", re.MULTILINE)

# From a mark's argument and the page it is on.
MAKERS: Mapping[str, Callable[[str, str], str]] = {
    "errors": lambda _, page: error_page.overview(page),
    "grammar": lambda *_: grammar_page.grammar(_grammar()),
    "options": lambda *_: tables.options(),
    "settings": lambda *_: tables.settings(),
    "stage": compiler_page.stage,
    "picture": compiler_page.picture,
}


def complete_page(app: Sphinx, name: str, content: list[str]) -> None:
    """Fill in what the page's marks ask for."""
    page = content[0]
    text = error_page.completed(page) if name == "errors" else page
    content[0] = _MARK.sub(lambda mark: MAKERS[mark[1]](mark[2], page), text)


def _grammar() -> str:
    return files("tcdsl.grammar").joinpath("tc.lark").read_text(encoding="utf-8")
