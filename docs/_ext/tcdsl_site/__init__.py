"""What Sphinx needs to build this site: pages that are made from the code, and notebooks."""

from typing import Any

from sphinx.application import Sphinx

from tcdsl_site import docstrings, formulas, generated, lexer, notebooks

__all__ = ["setup"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to *app*."""
    app.connect("config-inited", notebooks.take_notebooks)
    app.connect("source-read", generated.complete_page)
    app.connect("doctree-read", lexer.choose_lexers)
    app.connect("doctree-read", generated.mark_tall_blocks)
    app.connect("doctree-read", generated.mark_short_names)
    app.connect("autodoc-process-docstring", docstrings.list_fields)
    lexer.add_lexer(app)
    formulas.add_renderer(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
