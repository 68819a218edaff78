"""Checks of HTML text: every element closed, every link with its target."""

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

VOID = {"br", "hr", "img", "input", "link", "meta", "wbr"}


class Page(HTMLParser):
    """What a page holds: its elements, ids, links within it, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.outside: list[str] = []  # what would need the network
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and (value or "").startswith("#"):
                self.links.append((value or "")[1:])
            elif name in ("href", "src"):
                self.outside.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def _checked(text: str) -> Page:
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)), "an id stands twice"
    assert set(page.links) <= set(page.ids), set(page.links) - set(page.ids)
    return page


@pytest.fixture
def checked() -> Callable[[str], Page]:
    """What parses a page: well formed, with no id twice and no link into nothing."""
    return _checked
