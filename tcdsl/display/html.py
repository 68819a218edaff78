"""HTML as text: elements whose children are escaped unless they are HTML themselves.

    tag("p", "a < b", class_="note")  --->  <p class="note">a &lt; b</p>

:func:`fragment` makes a display of it: one root element with the style sheet, for a notebook's
cell.  Displays use elements that read well without their style, for some hosts remove it.
"""

from collections.abc import Iterable, Sequence
from html import escape as _escaped
from typing import Any

from tcdsl.display.style import ROOT_CLASS, style_text


class Html(str):
    """Text that is HTML; every other string is escaped before it becomes a part of it."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
Attribute = str | int | float | bool | None

# Elements that have no content and no end tag.
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})


def escape(text: str) -> Html:
    """Return *text* so that it shows as it is, in content and in attributes."""
    return text if isinstance(text, Html) else Html(_escaped(text, quote=True))


def join(*children: Child) -> Html:
    """Return *children* one after another; None and empty lists are nothing."""
    return Html("".join(_texts(children)))


def _texts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, str):
            yield escape(child)
        elif child is not None:
            yield from _texts(child)


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return the element *name*.

    :arg attributes: ``class_`` is ``class``, other underscores are hyphens; None and False leave
        the attribute out, True gives it without a value.
    """
    head = f"{name}{attributes_text(attributes)}"
    if name in _VOID:
        assert not children, f"<{name}> has no content"
        return Html(f"<{head}>")
    return Html(f"<{head}>{join(*children)}</{name}>")


def attributes_text(attributes: dict[str, Attribute]) -> str:
    """Return *attributes* as they stand in a tag, each with a space before it."""
    parts = []
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(f" {name}")
        elif value is not None and value is not False:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(f' {name}="{_escaped(text, quote=True)}"')
    return "".join(parts)


def fragment(*body: Child) -> Html:
    """Return the display of *body*: its root element, with the style sheet in it."""
    return tag("div", tag("style", Html(style_text())), *body, class_=ROOT_CLASS)


def mime_bundle(body: Child, text: str) -> dict[str, Any]:
    """Return what ``_repr_mimebundle_`` does: the display of *body*, and *text* for terminals."""
    return {"text/html": str(fragment(body)), "text/plain": text}


class Anchors:
    """Names of places in one display: those of another display on the page differ."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __call__(self, *parts: str | int) -> str:
        """Return the id of a place: ``anchors("code", 3)``."""
        return self._prefix + "-".join(map(str, parts))

    def link(self, text: Child, *parts: str | int, **attributes: Attribute) -> Html:
        """Return a link to the place that *parts* name."""
        return tag("a", text, href=f"#{self(*parts)}", **attributes)


# --- what many displays are made of ------------------------------------------------------------


def details(summary: Child, *body: Child, is_open: bool = False, **attributes: Attribute) -> Html:
    """Return *body* that folds under *summary*."""
    return tag("details", tag("summary", summary), *body, open=is_open, **attributes)


def table(head: Sequence[Child], rows: Iterable[Sequence[Child]], class_: str = "") -> Html:
    """Return a table; in narrow places it scrolls by itself."""
    header = tag("tr", [tag("th", cell) for cell in head])
    lines = [tag("tr", [tag("td", cell) for cell in row]) for row in rows]
    body = tag("table", tag("thead", header), tag("tbody", lines), class_=class_ or None)
    return tag("div", body, class_="scroll")


def code(text: Child, **attributes: Attribute) -> Html:
    """Return *text* as it would stand in a line of code."""
    return tag("code", text, **attributes)


def block(text: Child, class_: str = "") -> Html:
    """Return *text* as lines of code."""
    return tag("pre", text, class_=class_ or None)


def badge(text: Child, paint: str = "muted") -> Html:
    """Return a short word on a ground of the colour called *paint* (see ``style.COLOURS``)."""
    return tag("span", text, class_=f"badge ink-{paint}")


def count(number: int, noun: str) -> str:
    """Return ``1 kernel`` or ``3 kernels``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size_bytes: int) -> str:
    """Return a number of bytes for people: ``12 B``, ``1.5 KB``, ``64 MB`` (of 1024)."""
    value = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            break
        value, unit = value / 1024, unit
    else:
        unit = "TB"
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
