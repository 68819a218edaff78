"""Elements, escaping, the root of a display, its colours."""

import re

import pytest

from tcdsl.display import svg
from tcdsl.display.html import (
    Html,
    details,
    escape,
    fragment,
    join,
    mime_bundle,
    size_text,
    table,
    tag,
)
from tcdsl.display.style import COLOURS, style_text


def test_text_is_escaped_and_html_is_not() -> None:
    inner = tag("b", "x < y & \"z\" 'w'")
    assert inner == "<b>x &lt; y &amp; &quot;z&quot; &#x27;w&#x27;</b>"
    assert tag("p", inner, None, ["<i>", [inner]]) == f"<p>{inner}&lt;i&gt;{inner}</p>"
    assert escape(inner) == inner
    # What is made of HTML by string operations is a plain string: it fails on the safe side.
    assert escape(inner + "") == escape(str(inner)) != inner


def test_attributes_are_escaped_and_may_be_left_out() -> None:
    text = tag("a", href='"><script>', class_="c", data_kind="k", id=None, hidden=True, open=False)
    assert text == '<a href="&quot;&gt;&lt;script&gt;" class="c" data-kind="k" hidden></a>'
    assert tag("br") == "<br>"
    with pytest.raises(AssertionError, match="<hr> has no content"):
        tag("hr", "x")


def test_a_fragment_is_one_element_with_its_style() -> None:
    text = fragment(tag("p", "a"), "b < c")
    assert isinstance(text, Html)
    assert text.startswith('<div class="tcdsl"><style>')
    assert text.endswith("</style><p>a</p>b &lt; c</div>")
    assert set(mime_bundle("a", "plain")) == {"text/html", "text/plain"}
    assert type(mime_bundle("a", "plain")["text/html"]) is str


def test_details_and_tables() -> None:
    assert details("head", "body", is_open=True) == (
        "<details open><summary>head</summary>body</details>"
    )
    text = table(["a"], [["<"], [tag("i", "x")]])
    assert "<td>&lt;</td>" in text and "<td><i>x</i></td>" in text
    assert join([], None) == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1000, "1000 B"), (1536, "1.5 KB"), (64 << 20, "64 MB"), (5 << 40, "5 TB")],
)
def test_bytes_for_people(size: int, text: str) -> None:
    assert size_text(size) == text


def test_the_style_knows_themes_and_touches_nothing_else() -> None:
    style = style_text()
    assert "prefers-color-scheme:dark" in style and 'data-jp-theme-light="false"' in style
    selectors = re.findall(r"(?:^|\})\s*([^{}@]+)\{", style.split(")", 1)[1])
    for selector in ",".join(selectors).split(","):
        assert ".tcdsl" in selector or not selector.strip(), selector
    used = set(re.findall(r"var\(--tc-([a-z]+)\)", style))
    assert used == set(COLOURS)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_ink_can_be_read(theme: str) -> None:
    # WCAG 2.1, contrast ratio of at least 4.5 for text.
    for name, colour in COLOURS.items():
        if name in ("ground", "panel", "line", "mark"):
            continue
        ink = _luminance(getattr(colour, theme))
        for ground in ("ground", "panel"):
            below = _luminance(getattr(COLOURS[ground], theme))
            ratio = (max(ink, below) + 0.05) / (min(ink, below) + 0.05)
            assert ratio >= 4.5, (theme, name, ground, ratio)


def test_drawings_have_colours_without_a_style_sheet() -> None:
    text = svg.drawing(
        10, 20.5, "a < b", svg.arrow((0, 0), (3, 4)), svg.rect((0, 0), (1, 1), fill="tile")
    )
    assert 'viewBox="0 0 10 20.5"' in text and "<title>a &lt; b</title>" in text
    assert f'class="fill-tile" fill="{COLOURS["tile"].plain}"' in text
    assert 'fill="none" stroke=' in text  # the arrow's line
