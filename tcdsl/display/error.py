"""What a notebook shows of an error: the message, the line with carets, what to do."""

from typing import TYPE_CHECKING, Any

from tcdsl.display.html import Child, Html, badge, block, fragment, tag

if TYPE_CHECKING:
    from tcdsl.errors import TCError


def error_bundle(error: "TCError") -> dict[str, Any]:
    """Return the display of *error* and of those that were found with it."""
    html = fragment(error_html(error))
    return {"text/html": str(html), "text/plain": str(error)}


def error_html(error: "TCError") -> list[Html]:
    """Return *error* and those that were found with it."""
    return [_one(one) for one in (error, *error.others)]


def _one(error: "TCError") -> Html:
    head: list[Child] = [badge(error.code, "bad"), " ", tag("strong", error.message)]
    if error.source is not None and error.line is not None:
        where = f"{error.source.name}, line {error.line}, column {error.column}"
        head += [" ", tag("span", where, class_="note")]
    parts: list[Child] = [tag("p", head)]
    if error.source is not None and error.span is not None:
        line, carets = error.source.excerpt(error.span).split("\n")
        parts.append(block([line, "\n", tag("span", carets, class_="ink-bad")]))
    if error.hint:
        parts.append(tag("p", tag("strong", "hint: "), error.hint))
    return tag("div", parts, role="alert")
