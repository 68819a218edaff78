"""Drawings: SVG elements with their colours as attributes, which the style sheet replaces.

Lengths are in pixels at the drawing's own size; in narrow places it shrinks.
"""

from collections.abc import Sequence

from tcdsl.display.html import Attribute, Child, Html, tag
from tcdsl.display.style import COLOURS

Point = tuple[float, float]
Paint = tuple[str, str]  # the names of the fill's and the stroke's colours; empty: none


def drawing(width: float, height: float, title: str, *children: Child) -> Html:
    """Return an ``<svg>``; *title* is what a screen reader says of it."""
    return tag(
        "svg", tag("title", title), *children,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}",
        width=width, height=height, role="img",
    )  # fmt: skip


def shape(name: str, paint: Paint, /, *children: Child, **attributes: Attribute) -> Html:
    """Return the element *name* in the colours of *paint*."""
    fill, stroke = paint
    classes = [f"fill-{fill}"] * bool(fill) + [f"stroke-{stroke}"] * bool(stroke)
    colours: dict[str, Attribute] = {"fill": COLOURS[fill].plain if fill else "none"}
    if stroke:
        colours["stroke"] = COLOURS[stroke].plain
    return tag(name, *children, class_=" ".join(classes) or None, **colours, **attributes)


def line(start: Point, end: Point, stroke: str = "line", **attributes: Attribute) -> Html:
    """Return a line from *start* to *end*."""
    (x1, y1), (x2, y2) = start, end
    return shape("line", ("", stroke), x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def rect(
    corner: Point, size: Point, fill: str = "", stroke: str = "", **attributes: Attribute
) -> Html:
    """Return a rectangle from its upper left *corner* on."""
    (x, y), (width, height) = corner, size
    return shape("rect", (fill, stroke), x=x, y=y, width=width, height=height, **attributes)


def circle(centre: Point, radius: float, fill: str = "point", **attributes: Attribute) -> Html:
    """Return a disc."""
    return shape("circle", (fill, ""), cx=centre[0], cy=centre[1], r=radius, **attributes)


def polygon(
    points: Sequence[Point], fill: str = "", stroke: str = "", **attributes: Attribute
) -> Html:
    """Return the polygon with corners *points*."""
    text = " ".join(f"{x:g},{y:g}" for x, y in points)
    return shape("polygon", (fill, stroke), points=text, **attributes)


def label(
    at: Point,
    text: str,
    fill: str = "ink",
    size: float = 11,
    anchor: str = "start",
    **attributes: Attribute,
) -> Html:
    """Return *text* with its base line at *at*; *anchor* is start, middle or end."""
    return shape(
        "text", (fill, ""), text, x=at[0], y=at[1], font_size=size, text_anchor=anchor, **attributes
    )


def arrow(
    start: Point, end: Point, stroke: str = "flow", head: float = 5, **attributes: Attribute
) -> Html:
    """Return a line from *start* to *end* with a head, *head* pixels long, there.

    The head is a polygon, not a marker: markers are found by id, which drawings would share.
    """
    (x1, y1), (x2, y2) = start, end
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    base = (x2 - head * dx, y2 - head * dy)
    side = 0.45 * head
    corners = [
        end,
        (base[0] - side * dy, base[1] + side * dx),
        (base[0] + side * dy, base[1] - side * dx),
    ]
    return tag(
        "g", line(start, base, stroke, **attributes), polygon(corners, fill=stroke), class_="arrow"
    )
