"""Docstrings that list fields by indentation, as reStructuredText."""

from typing import Any

from sphinx.application import Sphinx

from tcdsl_site.tables import option_texts


def list_fields(
    app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    """Write the fields of ``Options`` as a field list; other docstrings stay as they are."""
    if name == "tcdsl.Options":
        lines[1:] = ["", *(f":arg {field}: {text}" for field, text in option_texts().items())]
